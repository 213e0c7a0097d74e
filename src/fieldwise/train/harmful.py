"""Fields that help on rows seen in training and hurt on others, such as a raw time.

Hiding a field from the trained model does not reveal harm, because the model relies on the field. It reveals
memorizing: hiding then costs several times as much on rows seen in training as on validation rows, while useful fields
cost about as much on both. A model that is trained without the suspect settles it; another one tells whether its
first-order weights, one number per id, are worth keeping. Both tiers of a column are one
suspect.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.harm import sentence
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, Harm
from fieldwise.core.schema import PADDING, UNKNOWN, Schema
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Split
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.train.evaluate import predictions
from fieldwise.train.task import Task
from fieldwise.train.uncertainty import Values, auc_error, placements

ROWS: Final = 50_000
"""Maximum rows of each split on which fields are hidden."""
IDS: Final = 100
"""A field with fewer ids cannot memorize rows."""
RATIO: Final = 3.5
"""Hiding a suspect costs at least this many times as much AUC on training rows as on validation rows,"""
CLEAR: Final = 0.01
"""and this much AUC more,"""
ERRORS: Final = 3
"""and on training rows this many standard errors."""
GAIN: Final = 2
"""Minimum gain of the model without the suspect, in standard errors of the difference."""
TRAININGS: Final = 3
"""Maximum number of suspects that are settled."""

Train = Callable[[CTRModel, int], list[Epoch]]
"""Trains a model in place until early stopping; the number tells trainings apart."""


@dataclass
class Settled:
    """A pretrained model without the harmful fields."""

    model: CTRModel
    history: list[Epoch]
    harms: list[Harm] = field(default_factory=list)
    """The suspects, and what became of each."""
    seconds: float = 0.0
    """Time spent on anything but training `model`."""


def settle(task: Task, model: CTRModel, history: list[Epoch], train: Train, watcher: Watcher) -> Settled:
    """Leaves harmful fields out of a pretrained model, one training each, until the strongest suspect is innocent."""
    now = Settled(model, history)
    for place in range(1, TRAININGS + 1):
        started = time.perf_counter()
        known = {harm.field for harm in now.harms}
        found = [harm for harm in suspects(now.model, task.train_rows, task.valid_rows) if harm.field not in known]
        now.seconds += time.perf_counter() - started
        if not found or _columns_with_a_table(now.model) < 2:
            break
        harm = found[0]
        if isinstance(now.model, HeadModel):
            harm = _settle_one(task, now, harm, train, place, watcher)
        now.harms.append(harm)
        watcher.note(sentence(harm))
        if not harm.left_out:
            break
    return now


def _columns_with_a_table(model: CTRModel) -> int:
    live = {name for name, width in zip(model.schema.names, model.layout.widths, strict=True) if width}
    return sum(bool(live.intersection(names)) for names in model.schema.tiers.values())


def _settle_one(task: Task, now: Settled, harm: Harm, train: Train, place: int, watcher: Watcher) -> Harm:
    """Trains a model without one more field, and goes on with it if it is better.

    If it is, a further model has the field's first-order weights, which are too few to memorize much.
    """
    watcher.begin(f"pretrain without '{harm.field}', seed {task.seed}", done=False)
    tried = harm.model_copy(update={"left_out": True})
    gain, error = _try(task, now, tried, train, place)
    found = {"without_auc": harm.with_auc + gain, "gain_error": error}
    if gain <= GAIN * error:
        return harm.model_copy(update=found)
    if task.linear is None:
        return tried.model_copy(update=found)
    watcher.begin(f"pretrain with first-order weights of '{harm.field}' only, seed {task.seed}", done=False)
    tried = tried.model_copy(update={**found, "first_order": True})
    more, error = _try(task, now, tried, train, place + TRAININGS)
    return tried.model_copy(update={"first_order_auc": harm.with_auc + gain + more, "first_order": more > GAIN * error})


def _try(task: Task, now: Settled, harm: Harm, train: Train, place: int) -> tuple[float, float]:
    """Trains a model without what is harmful, and goes on with it if it is better.

    Returns its gain of validation AUC, and the standard error of the gain.
    """
    out = [one for one in (*now.harms, harm) if one.left_out]
    first_order = [one for one in out if one.first_order]
    smaller = without(task.starting_model(), _fields(task, out), _fields(task, first_order))
    now.model.cpu()  # makes room on a GPU
    history = train(smaller, place)
    now.model.to(task.torch_device)
    before, after = (_placed(model, task.valid_rows) for model in (now.model, smaller))
    gain, error = _difference(after, before)
    better = gain > GAIN * error
    now.seconds += sum(epoch.seconds for epoch in (now.history if better else history))
    if better:
        now.model, now.history = smaller.eval(), history
    return gain, error


def _fields(task: Task, harms: list[Harm]) -> set[str]:
    tiers = task.schema.tiers
    return {name for harm in harms for name in tiers[harm.field]}


def without(model: CTRModel, fields: Collection[str], first_order: Collection[str] = ()) -> CTRModel:
    """A model without the columns of some fields and, but for `first_order`, their first-order weights.

    Its other weights are as they are.
    """
    names, widths = model.schema.names, model.layout.widths
    kept = tuple(() if name in fields else tuple(range(width)) for name, width in zip(names, widths, strict=True))
    first = tuple(int(name not in fields or name in first_order) for name in names)
    return compact(model, Mask(model.layout, kept, first))


def suspects(model: CTRModel, train: Split, valid: Split) -> list[Harm]:
    """Fields that a trained model needs for rows that it has seen far more than for others, strongest first."""
    excess = [(harm.train - RATIO * max(0.0, harm.valid), harm) for harm in hidden_fields(model, train, valid)]
    return [harm for much, harm in sorted(excess, key=lambda pair: -pair[0]) if much >= CLEAR]


def hidden_fields(model: CTRModel, train: Split, valid: Split) -> list[Harm]:
    """What hiding each column of many ids costs, where the cost on training rows could make it a suspect."""
    count = min(len(train), len(valid), ROWS)
    seen, unseen = sample(train, count), sample(valid, count)
    if any(min(clicks.sum(), (~clicks).sum()) < 2 for clicks in (_clicks(seen), _clicks(unseen))):
        return []
    shown, found = (_placed(model, seen), _placed(model, unseen)), []
    ids = dict(zip(model.schema.names, model.schema.cardinalities, strict=True))
    for column, names in model.schema.tiers.items():
        if sum(ids[name] for name in names) < IDS or not set(names) & set(model.needs):
            continue
        cost, error = _difference(shown[0], _placed(model, hide(seen, model.schema, names)))
        if cost >= max(CLEAR, ERRORS * error):
            valid_cost, _ = _difference(shown[1], _placed(model, hide(unseen, model.schema, names)))
            found.append((column, cost, error, valid_cost))
    auc = float(_placed(model, valid)[0].mean()) if found else 0.0
    return [
        Harm(field=name, train=cost, train_error=error, valid=valid_cost, with_auc=auc)
        for name, cost, error, valid_cost in found
    ]


def hide(rows: Split, schema: Schema, fields: Collection[str]) -> Split:
    """The rows with the values of some fields unknown."""
    ids, first = np.array(rows.ids), 0
    for one in schema.fields:
        if one.name in fields:
            ids[:, first] = UNKNOWN
            ids[:, first + 1 : first + one.length] = PADDING
        first += one.length
    return Split(ids, rows.labels)


def sample(split: Split, count: int) -> Split:
    """Evenly spaced rows."""
    rows = np.linspace(0, len(split) - 1, count).round().astype(np.int64)
    return Split(split.ids[rows], split.labels[rows])


def _clicks(rows: Split) -> NDArray[np.bool_]:
    return np.asarray(rows.labels > 0.5)


def _placed(model: CTRModel, rows: Split) -> tuple[Values, Values]:
    return placements(predictions(model, rows)[0], _clicks(rows))


def _difference(one: tuple[Values, Values], other: tuple[Values, Values]) -> tuple[float, float]:
    """How far the first AUC is above the second on the same rows, and the standard error."""
    clicks, others = one[0] - other[0], one[1] - other[1]
    return float(clicks.mean()), auc_error(clicks, others)
