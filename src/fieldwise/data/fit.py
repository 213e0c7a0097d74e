"""Fits the vocabulary of each field to the counts of its raw values in the training rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.hints import either, setting
from fieldwise.data.cells import Cells
from fieldwise.data.convert import to_text
from fieldwise.data.engines.engine import Progress, StagedFields
from fieldwise.data.field_encoder import FieldEncoder, TimeType
from fieldwise.data.rules import NOT_A_NUMBER, Rule, not_numbers, numbers_of, plain
from fieldwise.data.times import find_form, settle_form
from fieldwise.data.vocabulary import Counter

_SHORTEST_TIME: Final = len("1/2/24")


@dataclass(frozen=True, slots=True)
class Fitted:
    """The fields of a dataset."""

    fields: list[FieldEncoder]
    places: list[int]
    """Index of each field's staged column."""
    dropped: dict[str, str]
    """Fields that the training rows do not distinguish, and what they hold."""


def fit_vocabularies(
    staged: StagedFields, rules: Mapping[str, Rule], cells: Cells, lenient: bool, max_bytes: int, progress: Progress
) -> Fitted:
    """Fits the fields; drops those with one value, and refuses vocabularies over `max_bytes` in total."""
    fitted: list[FieldEncoder] = []
    places: list[int] = []
    dropped: dict[str, str] = {}
    taken = 0
    for index, (name, rule) in enumerate(rules.items()):
        progress("fit vocabularies", index, len(rules))
        if rule.time_format is None and rule.is_time:
            rule = _with_time_format(staged, index, name, rule)
        if rule.kind == "quantile" and not rule.edges:
            rule = _with_edges(staged, index, rule)
        encoder, distinct = _fit(staged, index, name, rule, lenient, max_bytes - taken)
        if distinct < 2:
            dropped[name] = _only_value(staged, index)
            continue
        fitted.append(replace(encoder, cells=cells))
        places.append(index)
        taken += encoder.vocabulary.nbytes
    if not fitted:
        names = ", ".join(f"'{name}'" for name in rules)
        raise DataError(f"The training rows have only one value in: {names}. Allowed: 2 or more. Give other rows.")
    progress("fit vocabularies", len(rules), len(rules))
    return Fitted(fitted, places, dropped)


def _only_value(staged: StagedFields, index: int) -> str:
    """Returns what all training rows of a field hold."""
    value = next((b.column("value")[0].as_py() for b in staged.counts(index, 1, ascending=False) if len(b)), None)
    return "no value" if value is None else f"only the value {str(value)[:40]!r}"


def _fit(
    staged: StagedFields, index: int, name: str, rule: Rule, lenient: bool, max_bytes: int
) -> tuple[FieldEncoder, int]:
    """Returns the encoder of a field, and a lower bound of its number of distinct values."""
    assert rule.min_count is not None
    counter, length, distinct, several, times = Counter(), 1, 0, False, None
    # rare raw values count too if several of them map to one value
    for batch in staged.counts(index, rule.min_count if rule.keeps_values else 1, ascending=False):
        values, counts = batch.column("value"), batch.column("count")
        distinct += len(values)
        lists = rule.lists(values)
        if lists is not None:
            several = True
            lengths = pc.list_value_length(lists)
            length = max(length, pc.max(lengths).as_py())
            values, counts = lists.flatten(), counts.take(pc.list_parent_indices(lists))
        if rule.is_number and not lenient:
            _check_numbers(name, values)
        times = _time_type(values.type) if rule.is_number else None
        counter.add(rule.apply(values), counts)
        if counter.nbytes > max_bytes:
            counter.merge()
            _check_size(name, counter, max_bytes)
    if not distinct:
        counter.add(pa.array([], pa.string()))
    if rule.keeps_values and distinct < 2:  # the engine may have dropped rare values
        distinct = sum(len(batch) for batch in staged.counts(index, 1, ascending=False))
    vocabulary = counter.vocabulary(rule.min_count, exclude=NOT_A_NUMBER if rule.is_number else None)
    rule = _with_text_form(rule, vocabulary.values)
    return FieldEncoder(name, rule, vocabulary, length, several, times), distinct


def _time_type(kind: pa.DataType) -> TimeType | None:
    return "timestamp" if pa.types.is_timestamp(kind) else "date" if pa.types.is_date(kind) else None


def _with_time_format(staged: StagedFields, index: int, name: str, rule: Rule) -> Rule:
    """Finds the form of times in text; refuses text that is no time."""

    def texts() -> Iterator[tuple[pa.Array, pa.Array]]:
        for batch in staged.counts(index, 1, ascending=False):
            values, counts = batch.column("value"), batch.column("count")
            lists = rule.lists(values)
            if lists is not None:
                values, counts = lists.flatten(), counts.take(pc.list_parent_indices(lists))
            if not pa.types.is_temporal(values.type):
                yield to_text(plain(values)), counts

    return rule.model_copy(update={"time_format": settle_form(rule.column or name, texts())})


def _with_text_form(rule: Rule, values: pa.Array) -> Rule:
    """Returns the rule of a category with the form of its texts if they are times, so that times find them."""
    if rule.kind != "category" or rule.time_format is not None or not pa.types.is_string(values.type):
        return rule
    first = values.slice(0, 1_000)
    if (pc.max(pc.utf8_length(first)).as_py() or 0) < _SHORTEST_TIME:
        return rule
    found = find_form(first)
    is_time = found.settled and found.name in ("year-first", "day-first", "month-first")
    return rule.model_copy(update={"time_format": found.name}) if is_time else rule


def _check_size(name: str, counter: Counter, max_bytes: int) -> None:
    """Refuses too many values, which are kept in memory (rows are not)."""
    if counter.nbytes > max_bytes:
        raise DataError(
            f"Field '{name}' has too many values for the memory setting: {len(counter.table()):,} or more. Keep fewer "
            f"({setting('data.min_count', 10, name)}), exclude the field, or allow more with "
            + either(
                "--set engine.memory=MiB.", "engine=fw.DuckDB(memory=MiB).", "fw.prepare and engine=fw.DuckDB(...)."
            )
        )


def _with_edges(staged: StagedFields, index: int, rule: Rule) -> Rule:
    """Fits quantile edges in two passes over the sorted numbers, so that memory holds one batch at a time."""

    def parts() -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        for batch in staged.counts(index, 1, ascending=True):
            if rule.lists(batch.column("value")) is not None:
                raise DataError(
                    "Lists of numbers have no quantiles. Allowed: one number per row. "
                    "Use the kind 'width' or 'log-squared'."
                )
            numbers, known = numbers_of(batch.column("value"))
            yield numbers[known], np.asarray(batch.column("count"))[known]

    return rule.quantiles(parts(), sum(int(counts.sum()) for _, counts in parts()))


def _check_numbers(name: str, values: pa.Array) -> None:
    wrong = not_numbers(values)
    if wrong:
        raise DataError(
            f"Field '{name}' is binned as a number but holds {wrong[:5]}. Fix the rows, make it a category "
            f"({setting('data.kind', 'category', name)})"
            + either(
                ", or map such values to unknown with --bad-rows skip.",
                ", or map such values to unknown with fw.data.Table(..., bad_rows='skip').",
                ", or set such values to null.",
            )
        )
