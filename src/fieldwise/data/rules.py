"""Rules that turn a raw column into the values of a field: categories, bins of a number, parts of a time.

Engines only count raw values. This module interprets them, with Arrow, for training rows and for new rows.
"""

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from fieldwise.core.errors import DataError
from fieldwise.core.settings import Settings
from fieldwise.data.convert import normalize_times, parse_numbers, timestamps, to_text
from fieldwise.data.time_forms import check_time_format
from fieldwise.data.times import TIMESTAMP

Kind = Literal["category", "log-squared", "quantile", "width", "hour", "weekday", "weekend"]
NOT_A_NUMBER: Final = -(2**62)
"""Bin of text that is not a number: in no vocabulary, so it becomes `unknown`."""
BRACKETS: Final = "[]"
"""Separator of text that is a list as Python and JSON write it: ['a', 'b'] or ["a", "b"]."""
_SPARK_UINT64: Final = pa.decimal128(20, 0)


def _increasing(edges: tuple[float, ...]) -> tuple[float, ...]:
    if not all(before < after for before, after in pairwise(edges)):
        raise ValueError("edges must be strictly increasing")
    return edges


def _check_cuts(tiers: Any) -> Any:
    """Returns a number, or two ascending ones; refuses what cuts no vocabulary into two or three parts."""
    several = tiers if isinstance(tiers, list | tuple) else [tiers]
    if all(isinstance(cut, int | float) and not isinstance(cut, bool) for cut in several):
        cuts = [float(cut) for cut in several]
        if len(several) == 1 and 0 <= cuts[0] < 1:
            return cuts[0]
        if len(several) == 2 and 0 < cuts[0] < cuts[1] < 1:
            return tuple(cuts)
    raise ValueError("allowed: 0 (one field), a fraction below 1, or two ascending ones, such as [0.1, 0.35]")


Tiers = Annotated[float | tuple[float, float], BeforeValidator(_check_cuts)]
"""Fractions of a category's values, the most frequent first, at which it is cut into tiers; 0: it is not."""


class Rule(Settings):
    """The raw column of a field, and how its values are computed.

    As numbers, times are microseconds and dates are days since 1970. Times with a zone are converted to UTC: 9:00 in
    New York has hour 13 in summer. To keep local hours, store times without a zone.
    """

    column: str | None = None
    """Raw column; by default the column with the field's name."""
    kind: Kind = "category"
    """category: raw values; log-squared, quantile, width: bins of a number; hour, weekday, weekend: part of a time."""
    min_count: int | None = Field(None, ge=1, lt=2**63)
    """Values with fewer training rows than this map to `unknown`; at least 1, by default the source's setting."""
    bins: int = Field(64, ge=2, le=4096)
    """Number of bins of kind quantile; 2 to 4096."""
    width: float = Field(1.0, gt=0)
    """Bin width of kind width; above 0."""
    edges: Annotated[tuple[float, ...], AfterValidator(_increasing)] = ()
    """Lower bin edges of kind quantile, strictly increasing; if empty, fitted on the training rows."""
    time_format: Annotated[str, AfterValidator(check_time_format)] | None = None
    """Form of times in text: year-first, day-first, month-first, compact (20240424), seconds, milliseconds or
    microseconds since 1970, or a strptime format such as %d.%m.%Y %H:%M; found from the training rows if not given."""
    separator: str | None = Field(None, min_length=1)
    """Splits text into several values, which are mean-pooled; [] for text such as ['a', 'b']; lists need none."""
    longest: int = Field(16, ge=1, le=1000)
    """Maximum number of values per row, 1 to 1000; the rest of a longer list is dropped."""
    tiers: Tiers | None = None
    """Fractions of the values, the most frequent first, at which they are cut into two or three tiers, if there are 100
    values or more. 0: one field; by default the source's setting. Only for categories with one value per row."""

    @field_validator("tiers")
    @classmethod
    def _of_values(cls, tiers: Tiers | None, info: ValidationInfo) -> Tiers | None:
        if tiers and (info.data.get("kind", "category") != "category" or info.data.get("separator")):
            raise ValueError("only a category with one value per row has tiers. Remove it, or the kind or separator")
        return tiers

    @property
    def is_number(self) -> bool:
        """Whether the field's values are bins of a number."""
        return self.kind in ("log-squared", "quantile", "width")

    @property
    def is_time(self) -> bool:
        """Whether the field's values are parts of a time."""
        return self.kind in ("hour", "weekday", "weekend")

    @property
    def keeps_values(self) -> bool:
        """Whether each raw value is one field value, so that an engine may drop rare ones while counting."""
        return self.kind == "category" and self.separator is None

    def lists(self, column: pa.Array) -> Any:
        """Converts multi-valued rows to a list array with at least one entry each; None if rows are single-valued."""
        column = plain(column)
        if self.separator is not None and not is_list(column.type):
            text = column.cast(pa.string())
            column = _in_brackets(text) if self.separator == BRACKETS else pc.split_pattern(text, self.separator)
        if not is_list(column.type):
            return None
        none = pa.scalar([None], type=column.type)
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        column = pc.if_else(pc.equal(lengths, 0), none, column)
        return pc.list_slice(column, 0, self.longest)

    def apply(self, column: pa.Array) -> pa.Array:
        """Computes the field's values: int64 for bins and parts of a time; number, time or text for categories.

        Null stays null, and NaN becomes null.
        """
        column = plain(column)
        if self.kind == "category":
            return column
        if self.is_number:
            found, known, bad = parse_numbers(column)
            return pa.array(np.where(bad, NOT_A_NUMBER, self._bins(found)), mask=~known & ~bad)
        return self._time_part(column)

    def times(self, column: pa.Array) -> pa.Array:
        """Parses times of any type, and in text of the rule's form; text that is not a time becomes null."""
        column = plain(column)
        if pa.types.is_temporal(column.type):
            return column.cast(TIMESTAMP) if pa.types.is_date(column.type) else column
        return timestamps(to_text(column), self.time_format)

    def quantiles(self, parts: Iterable[tuple[NDArray[np.float64], NDArray[np.int64]]], total: int) -> "Rule":
        """Returns the rule with fitted edges; `parts` are chunks of ascending distinct numbers and their counts."""
        wanted = np.arange(1, self.bins) * (total / self.bins)
        edges: dict[float, None] = {}
        done = 0
        for numbers, counts in parts:
            reached = done + np.cumsum(counts)
            places = np.searchsorted(reached, wanted[wanted > done])
            edges |= dict.fromkeys(numbers[places[places < len(numbers)]].tolist())
            done += int(counts.sum())
        try:
            finite = tuple(edge for edge in edges if math.isfinite(edge))  # infinite numbers are in the outer bins
            return self.model_copy(update={"edges": _increasing(finite)})
        except ValueError as error:
            raise DataError(
                "Quantiles of a column are not increasing: the engine cannot sort its values as numbers. "
                "Allowed: numbers. Write plain numbers, or use the kind 'width' or 'log-squared'."
            ) from error

    def _bins(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        if self.kind == "width":
            with np.errstate(over="ignore"):  # overflows are clipped
                return np.floor(np.clip(numbers / self.width, -(2.0**61), 2.0**61)).astype(np.int64)
        if self.kind == "quantile":
            return np.searchsorted(np.asarray(self.edges), numbers, side="right").astype(np.int64)
        small = np.floor(np.clip(numbers, -(2.0**61), 2)).astype(np.int64) - 2
        return np.where(numbers > 2, np.searchsorted(_log_squared_edges(), numbers, side="right"), small)

    def _time_part(self, column: pa.Array) -> pa.Array:
        column = self.times(column)
        if self.kind == "hour":
            return pc.hour(column)
        day = pc.day_of_week(column)
        return day if self.kind == "weekday" else pc.greater_equal(day, 5).cast(pa.int64())


def _in_brackets(text: pa.Array) -> pa.Array:
    """Splits text such as ['a', 'b'], ["a","b"] or [1, 2]; commas within quotes are part of a value."""
    inner = pc.replace_substring_regex(text, r"^\s*\[\s*|\s*\]\s*$", "")
    inner = pc.if_else(pc.equal(inner, ""), pa.scalar(None, pa.string()), inner)
    quoted = pc.split_pattern_regex(
        pc.replace_substring_regex(inner, r"^['\"]|['\"]$", ""), r"['\"](?:\s*,\s*|\s+)['\"]"
    )
    return pc.if_else(pc.match_substring_regex(inner, r"^['\"]"), quoted, pc.split_pattern_regex(inner, r"\s*,\s*"))


def not_numbers(column: pa.Array) -> list[str]:
    """Returns the distinct texts of a column that are not numbers."""
    column = plain(column)
    _, _, bad = parse_numbers(column)
    return [str(value) for value in pc.unique(column.filter(pa.array(bad))).to_pylist()]


def numbers_of(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Converts a raw column to numbers; also returns a mask of the known ones (not null, not other text)."""
    found, known, bad = parse_numbers(plain(column))
    return found, known & ~bad


@cache
def _log_squared_edges() -> NDArray[np.float64]:
    """Returns, at k - 1, the smallest integer z with floor(ln(z)^2) >= k; exact, so equal on every machine."""
    with localcontext() as context:
        context.prec = 60
        edges = [Decimal(k).sqrt().exp().to_integral_value(ROUND_CEILING) for k in range(1, 1900)]
    return np.asarray([float(edge) for edge in edges])


def plain(column: pa.Array) -> pa.Array:
    """Normalizes a column to int64, uint64, float64 without NaN, time, list, or text for all other types."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    if pa.types.is_integer(column.type):
        return column if pa.types.is_uint64(column.type) else column.cast(pa.int64())
    if column.type == _SPARK_UINT64:
        return column.cast(pa.uint64(), safe=False)
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
        return pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    if pa.types.is_temporal(column.type):
        return normalize_times(column)
    if is_list(column.type):
        return column
    if is_bytes(column.type):
        raise DataError("A column of bytes cannot be a field. Allowed: text, numbers, times, lists. Leave it out.")
    return column.cast(pa.string())


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes, of any length or of one fixed size."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of any length or of one fixed size."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
