"""The dynamics of a search, downsampled for a page (the paper's Figure 3)."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fieldwise.core.automatic import AUTO
from fieldwise.core.budget import Budget
from fieldwise.core.errors import FieldwiseError, RunError
from fieldwise.core.mask import Mask
from fieldwise.core.plain_files import read_json
from fieldwise.core.schema import Layout
from fieldwise.core.select import select
from fieldwise.core.settings import Values
from fieldwise.reports.run.view import StageView

NUMBERS: Final = 240_000
"""Approximate maximum of scores per page, over all its searches."""
COLUMNS: Final = 240
"""Maximum columns drawn per search."""
MOMENTS: Final = 150
"""Maximum moments drawn per search."""
BUCKETS: Final = 200
"""Spans of steps; the minimum and maximum of the live count are drawn for each."""
SCALE: Final = 9999
"""Scores are stored in the page as integers of at most this absolute value."""


@dataclass(frozen=True)
class Part:
    """The recorded trace of one stage of a search."""

    mask: Mask
    layout: Layout
    """The layout of the columns searched in this part."""
    budget: Budget
    every: int
    arrays: dict[str, NDArray[Any]]

    @property
    def for_columns(self) -> Budget:
        """The budget less the cost of kept first-order weights: the trace holds only columns."""
        first = self.budget.costs(self.layout, self.mask.linear).sum() - self.budget.costs(self.layout).sum()
        return replace(self.budget, amount=self.budget.amount - int(first)).within(self.layout)


def parts(view: StageView, search: Values) -> list[Part]:
    """Returns the traces of a search; empty for a search without a gate."""
    paths = sorted(view.folder.glob("trace-*.safetensors"), key=lambda path: int(path.stem.removeprefix("trace-")))
    if not paths:
        return []
    try:
        mask = Mask.from_json(read_json(view.folder / "mask.json"))
        bounds = [*search.get("stages", ()), view.budget]
        return [_part(path, mask, str(bound)) for path, bound in zip(paths, bounds, strict=True)]
    except (OSError, ValueError, KeyError, TypeError, IndexError, SafetensorError, FieldwiseError) as error:
        raise RunError(f"the trace in {'/'.join(view.folder.parts[-3:])} cannot be read ({error})") from error


def _part(path: Path, mask: Mask, bound: str) -> Part:
    with safe_open(path, framework="np") as file:
        about = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    owners = mask.full.owners[arrays["columns"]]
    layout = Layout(mask.full.schema, tuple(int(n) for n in np.bincount(owners, minlength=len(mask.full.schema))))
    given = Budget.parse(bound)
    store = about.get("store", given.store) if given.store == AUTO else given.store
    budget = Budget(int(about["limit"]), given.unit, store=store)
    return Part(mask, layout, budget, int(about["every"]), arrays)


def drawn(part: Part, room: int) -> dict[str, Any]:
    """Returns the page's data for one part: at most about `room` scores, the widths per moment, and the live count."""
    scores = np.asarray(part.arrays.get("scores", np.zeros((0, part.layout.columns))), dtype=np.float64)
    columns = _chosen_columns(scores)
    count = max(20, min(MOMENTS, room // max(1, len(columns) + len(part.layout.widths))))
    moments = _evenly(len(scores), count)
    top = float(np.abs(scores).max()) if scores.size else 1.0
    kept = part.mask.vector[part.arrays["columns"]]
    steps = _lowest_and_highest(part.arrays["cost"])
    return {
        "limit": int(part.budget.amount),
        "unit": part.budget.unit,
        "steps": len(part.arrays["live"]),
        "at": steps.tolist(),
        "live": part.arrays["live"][steps].tolist(),
        "cost": part.arrays["cost"][steps].tolist(),
        "reactivated": int(part.arrays["reactivated"].sum()),
        "columns": part.layout.columns,
        "owners": part.layout.owners[columns].tolist(),
        "kept": kept[columns].astype(int).tolist(),
        "scale": top / SCALE if top else 1.0,
        # scores are recorded after their step
        "moments": (moments * part.every + 1).tolist(),
        "scores": np.rint(scores[moments][:, columns] / (top or 1.0) * SCALE).astype(int).T.tolist(),
        "widths": [list(select(scores[moment], part.layout, part.for_columns).widths) for moment in moments],
    }


def _chosen_columns(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns all columns, or `COLUMNS` of them evenly spaced by their final rank."""
    width = scores.shape[1]
    if width <= COLUMNS:
        return np.arange(width)
    return np.sort(np.argsort(-scores[-1], kind="stable")[_evenly(width, COLUMNS)])


def _evenly(total: int, count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, max(0, total - 1), min(total, count)).round().astype(np.int64))


def _lowest_and_highest(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the indices of the minimum and maximum in each span, and of both ends."""
    if len(values) <= 2 * BUCKETS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), BUCKETS + 1).astype(int)
    spans = list(pairwise(edges))
    lows = [a + int(values[a:b].argmin()) for a, b in spans]
    highs = [a + int(values[a:b].argmax()) for a, b in spans]
    return np.unique(np.array([0, len(values) - 1, *lows, *highs]))
