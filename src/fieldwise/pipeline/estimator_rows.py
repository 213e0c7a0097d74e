"""Rows as scikit-learn's users have them: arrays or dataframes, as an Arrow table of columns, and their split."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.data.dataframes import to_arrow

TRAIN, VALID, TEST = "train", "valid", "test"
_LABEL, _SPLIT = "label", "split"


def is_frame(rows: Any) -> bool:
    """Whether rows name their columns: pandas, polars, Arrow, and others with an Arrow stream."""
    return hasattr(rows, "__arrow_c_stream__") and (hasattr(rows, "columns") or hasattr(rows, "column_names"))


def table_of(rows: Any) -> pa.Table:
    """The columns of a dataframe by name, or of an array (rows, columns) as x0, x1, and so on."""
    if is_frame(rows):
        if hasattr(rows, "iloc"):  # pandas warns of names that are no text
            rows = rows.rename(columns=str)
        return to_arrow(rows)
    return pa.table({f"x{i}": _column(rows[:, i]) for i in range(rows.shape[1])})


def _column(values: NDArray[Any]) -> pa.Array:
    """A column of an array; objects that Arrow cannot type become text."""
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    if values.dtype.kind != "O":
        return pa.array(np.ascontiguousarray(values))
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError):
        return pa.array([None if value is None or value is np.nan else str(value) for value in values])


def varying(table: pa.Table, rows: NDArray[np.int64]) -> list[str]:
    """The columns with two values or more in these rows; null is a value."""
    chosen = table.take(pa.array(rows))
    return [name for name in table.column_names if _distinct(chosen[name]) > 1]


def _distinct(column: pa.ChunkedArray) -> int:
    if pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType):
        return 2  # lists, or what `prepare` refuses
    return len(column.unique())


def split_rows(labels: NDArray[np.int64], valid: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the training and validation rows: a random fraction of each class, at least one row of each.

    The only row of a class is in both.
    """
    draw = np.random.default_rng(seed)
    train, held = [], []
    for value in (0, 1):
        rows = draw.permutation(np.flatnonzero(labels == value))
        count = min(max(1, round(valid * len(rows))), max(1, len(rows) - 1))
        held.append(rows[:count])
        train.append(rows[count:] if len(rows) > 1 else rows)
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(held))


def labeled(
    table: pa.Table, labels: NDArray[np.int64], train: NDArray[np.int64], valid: NDArray[np.int64]
) -> tuple[pa.Table, str, str]:
    """The rows with a label and a split column, and the names of the two.

    A dataset needs test rows; an estimator has none, so the validation rows take their place and are not read.
    """
    order = np.concatenate([train, valid, valid])
    split = np.repeat([TRAIN, VALID, TEST], [len(train), len(valid), len(valid)])
    label = _free(_LABEL, table.column_names)
    place = _free(_SPLIT, [*table.column_names, label])
    rows = table.take(pa.array(order))
    rows = rows.append_column(label, pa.array(labels[order])).append_column(place, pa.array(split))
    return rows, label, place


def _free(name: str, taken: Sequence[str]) -> str:
    while name.lower() in {other.lower() for other in taken}:
        name += "_"
    return name
