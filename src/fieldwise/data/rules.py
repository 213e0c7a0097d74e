"""How a raw column becomes the values of a field: as they are, or as bins of a number.

Every engine counts raw values; what they mean is decided here alone, with Arrow, for training rows and for new rows.
"""

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from fieldwise.core.errors import DataError
from fieldwise.core.settings import Settings
from fieldwise.data.convert import MOMENT, moments, numbers_in, plain_times

Kind = Literal["category", "log-squared", "quantile", "width", "hour", "weekday", "weekend"]
NO_NUMBER: Final = -(2**62)
"""The bin of text that is no number: in no vocabulary, so it becomes `unknown`."""
_SPARK_UINT64: Final = pa.decimal128(20, 0)


def _rising(edges: tuple[float, ...]) -> tuple[float, ...]:
    if not all(before < after for before, after in pairwise(edges)):
        raise ValueError("edges must rise, each above the one before it")
    return edges


class Rule(Settings):
    """What a field is made of, and how.

    Times count in microseconds since 1970, days in days: in UTC where they have a zone, else as they are written. So
    the hour of 9:00 in New York is 13 in summer; for the hour there, store times without a zone.
    """

    column: str | None = None
    """The raw column; without it, the one that has the field's name."""
    kind: Kind = "category"
    """category: as they are; log-squared, quantile, width: bins of a number; hour, weekday, weekend: of a time."""
    min_count: int | None = Field(None, ge=1, lt=2**63)
    """Rarer values share the id `unknown`; without it, the source's."""
    bins: int = Field(64, ge=2, le=4096)
    """Of kind quantile: how many bins."""
    width: float = Field(1.0, gt=0)
    """Of kind width: how wide a bin is."""
    edges: Annotated[tuple[float, ...], AfterValidator(_rising)] = ()
    """Of kind quantile: where bins begin, rising; fitted on the training rows where none are given."""
    time_format: str = "%y%m%d%H"
    """Of kinds hour, weekday and weekend: how the time is written, where it is neither a time nor 2024-06-01 13:00."""
    separator: str | None = Field(None, min_length=1)
    """Splits text into several values, which are pooled by their mean; lists need none."""
    longest: int = Field(16, ge=1, le=1000)
    """Of several values: how many count; the rest of a longer list is left out."""

    @property
    def is_number(self) -> bool:
        """Whether values are bins of a number."""
        return self.kind in ("log-squared", "quantile", "width")

    @property
    def keeps_values(self) -> bool:
        """Whether every raw value is one value of the field, so that rare ones can be dropped while counting."""
        return self.kind == "category" and self.separator is None

    def lists(self, column: pa.Array) -> Any:
        """Watchers values a row as a list array with at least one entry each; nothing where rows have one value."""
        column = _plain(column)
        if self.separator is not None and not is_list(column.type):
            column = pc.split_pattern(column.cast(pa.string()), self.separator)
        if not is_list(column.type):
            return None
        none = pa.scalar([None], type=column.type)
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        column = pc.if_else(pc.equal(lengths, 0), none, column)
        return pc.list_slice(column, 0, self.longest)

    def apply(self, column: pa.Array) -> pa.Array:
        """The field's values of raw values: int64 of bins and parts of a time; of categories a number, time or text.

        Null stays null, and NaN is null.
        """
        column = _plain(column)
        if self.kind == "category":
            return column
        if self.is_number:
            found, known, bad = numbers_in(column)
            return pa.array(np.where(bad, NO_NUMBER, self._bins(found)), mask=~known & ~bad)
        return self._time_part(column)

    def times(self, column: pa.Array) -> pa.Array:
        """Times of raw values of kind hour, weekday or weekend; text that is no time becomes null."""
        column = _plain(column)
        if pa.types.is_temporal(column.type):
            return column.cast(MOMENT) if pa.types.is_date(column.type) else column
        column = column.cast(pa.string())
        found = pc.strptime(column, format=self.time_format, unit="s", error_is_null=True).cast(MOMENT)
        return found if found.null_count == column.null_count else pc.coalesce(found, moments(column))

    def quantiles(self, parts: Iterable[tuple[NDArray[np.float64], NDArray[np.int64]]], total: int) -> "Rule":
        """The rule with edges fitted on numbers in rising order and how often each is there, part by part."""
        wanted = np.arange(1, self.bins) * (total / self.bins)
        edges: dict[float, None] = {}
        done = 0
        for numbers, counts in parts:
            reached = done + np.cumsum(counts)
            places = np.searchsorted(reached, wanted[wanted > done])
            edges |= dict.fromkeys(numbers[places[places < len(numbers)]].tolist())
            done += int(counts.sum())
        try:
            return self.model_copy(update={"edges": _rising(tuple(edges))})
        except ValueError as error:
            raise DataError(
                "Quantiles of a column do not rise: it holds numbers that the engine cannot order. Write them as plain "
                "numbers, or use the kind 'width' or 'log-squared'."
            ) from error

    def _bins(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        if self.kind == "width":
            with np.errstate(over="ignore"):  # what is too large to divide is clipped
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


def not_numbers(column: pa.Array) -> list[str]:
    """The texts of a column that are no numbers."""
    column = _plain(column)
    _, _, bad = numbers_in(column)
    return [str(value) for value in pc.unique(column.filter(pa.array(bad))).to_pylist()]


def numbers_of(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A raw column as numbers, and which of them are known: neither null nor text that is none."""
    found, known, bad = numbers_in(_plain(column))
    return found, known & ~bad


@cache
def _log_squared_edges() -> NDArray[np.float64]:
    """Entry k - 1 is the smallest whole z with floor(ln(z)^2) >= k; exact, so that no machine rounds otherwise."""
    with localcontext() as context:
        context.prec = 60
        edges = [Decimal(k).sqrt().exp().to_integral_value(ROUND_CEILING) for k in range(1, 1900)]
    return np.asarray([float(edge) for edge in edges])


def _plain(column: pa.Array) -> pa.Array:
    """One of few types: int64, uint64, double without NaN, text, time or a list; other types become text."""
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
        return plain_times(column)
    if is_list(column.type):
        return column
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise DataError("A column of bytes cannot be a field. Allowed: text, numbers, times, lists. Leave it out.")
    return column.cast(pa.string())


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
