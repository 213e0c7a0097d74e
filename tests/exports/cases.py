"""Raw rows, datasets and models for the serving tests, including nulls, unseen values and a field of width 0."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from fieldwise.core.mask import Mask
from fieldwise.data.avazu import COLUMNS, Avazu
from fieldwise.data.criteo import CATEGORIES, INTEGERS, Criteo
from fieldwise.data.encoder import Encoder
from fieldwise.data.frame import Frame
from fieldwise.data.movielens_1m import MovieLens1M
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.models.compact import compact
from fieldwise.models.model import HeadModel, OwnModel
from tests.data import small_files
from tests.small_models import trained

ROWS = 400


@dataclass(frozen=True)
class Case:
    """A dataset, and raw rows as they arrive in serving."""

    data: Dataset
    rows: pa.Table


def criteo(raw: Path, folder: Path) -> Case:
    """13 log-squared bins and 26 texts."""
    data = prepare(Criteo(raw=raw), folder / "data")
    return Case(data, disturbed(_text(raw, "\t", ("label", *INTEGERS, *CATEGORIES)), data.encoder))


def avazu(raw: Path, folder: Path) -> Case:
    """The hour as hour of the day, weekday and weekend, and 21 texts."""
    data = prepare(Avazu(raw=raw, hour="parts", min_count=1), folder / "data")
    return Case(data, disturbed(_text(raw, ",", COLUMNS, header=True), data.encoder))


def movielens(raw: Path, folder: Path) -> Case:
    """Seven texts."""
    source = MovieLens1M(raw=raw)
    data = prepare(source, folder / "data")
    return Case(data, disturbed(pa.Table.from_batches([next(source.open().batches())]), data.encoder))


def awkward(folder: Path) -> Case:
    """Awkward texts, several values per row, bins of equal width, quantiles, and two fields of one column."""
    fields = {
        "genres": Rule(separator="|"),
        "wide": Rule(column="größe, cm", kind="width", width=0.1),
        "sized": Rule(column="größe, cm", kind="quantile", bins=9),
        "count": Rule(kind="log-squared"),
    }
    raw = small_files.awkward(folder / "a.csv")
    data = prepare(Table(raw=raw, label="click", fields=fields, min_count=2), folder / "data")
    return Case(data, disturbed(pa.Table.from_pylist(small_files.awkward_rows()), data.encoder))


def tiers(folder: Path) -> Case:
    """Text in three tiers and integers in two, of which `shaken` keeps some."""
    draw = np.random.default_rng(6)
    user, item = np.minimum(draw.geometric(0.03, 3_000), 160), np.minimum(draw.geometric(0.04, 3_000), 130)
    rows = pa.table({
        "user": pa.array([None if i % 300 == 0 else f"{u}.0" for i, u in enumerate(user)]),
        "item": item,
        "click": draw.integers(0, 2, 3_000),
    })  # fmt: skip
    kinds = {"user": Rule(kind="category"), "item": Rule(kind="category", tiers=0.25)}
    data = prepare(Frame(frame=rows, label="click", fields=kinds, min_count=1, tiers=(0.1, 0.35)), folder / "data")
    return Case(data, disturbed(rows, data.encoder))


def disturbed(table: pa.Table, encoder: Encoder) -> pa.Table:
    """Returns rows in which a tenth of every column is null and a tenth was not seen in training."""
    draw = np.random.default_rng(5)
    table = table.take(draw.permutation(table.num_rows)[:ROWS])
    numbers = {f.rule.column for f in encoder.fields if f.rule.is_number}
    times = {f.rule.column for f in encoder.fields if f.rule.is_time}  # other text is refused
    columns = {}
    for name in table.column_names:
        values = table[name].cast(pa.string()).to_pylist()
        new = "1000000000000" if name in numbers else "2031-02-03" if name in times else "never seen"
        for place, lot in enumerate(draw.random(len(values))):
            values[place] = None if lot < 0.1 else new if lot < 0.2 else values[place]
        columns[name] = pa.array(values, pa.string())
    return pa.table(columns)


def shaken(settings: OwnModel, data: Dataset) -> tuple[HeadModel, Mask]:
    """Returns a compact model with weights far from their initial values; every third field keeps no column."""
    layout = data.schema.layout(settings.width)
    draw = np.random.default_rng(1)
    kept = tuple(
        () if j % 3 == 1 else tuple(sorted(draw.permutation(width)[: 1 + j % width].tolist()))
        for j, width in enumerate(layout.widths)
    )
    mask = Mask(layout, kept)
    return compact(trained(settings, layout, 0.1), mask, drop_first_order=True), mask


def _text(raw: Path, delimiter: str, names: tuple[str, ...], header: bool = False) -> pa.Table:
    return csv.read_csv(
        raw,
        csv.ReadOptions(column_names=names, skip_rows=int(header)),
        csv.ParseOptions(delimiter=delimiter, quote_char=False),
        csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]),
    )


SMALL: dict[str, Callable[[Path], Case]] = {
    "criteo": lambda folder: criteo(small_files.criteo(folder / "raw.txt"), folder),
    "avazu": lambda folder: avazu(small_files.avazu(folder / "raw.csv"), folder),
    "awkward": awkward,
    "tiers": tiers,
}
