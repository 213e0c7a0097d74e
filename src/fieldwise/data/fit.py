"""Vocabularies of the training rows, field by field, from how often each raw value is there."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.data.encoder import FieldEncoder
from fieldwise.data.engines.engine import Progress, Staged
from fieldwise.data.rules import NO_NUMBER, Rule, not_numbers, numbers_of
from fieldwise.data.vocabulary import Counter


def fit_vocabularies(
    staged: Staged, rules: Mapping[str, Rule], lenient: bool, room: int, progress: Progress
) -> list[FieldEncoder]:
    """An encoder for each field; refuses fields that hold one value alone, and values of more than `room` bytes."""
    fitted: list[FieldEncoder] = []
    single, taken = [], 0
    for index, (name, rule) in enumerate(rules.items()):
        progress("fit vocabularies", index, len(rules))
        if rule.kind == "quantile" and not rule.edges:
            rule = _with_edges(staged, index, rule)
        encoder, kinds = _fit(staged, index, name, rule, lenient, room - taken)
        fitted.append(encoder)
        taken += encoder.vocabulary.nbytes
        if kinds < 2:
            single.append(name)
    if single:
        names = ", ".join(f"'{name}'" for name in single)
        raise DataError(
            f"The training rows hold one value alone in: {names}. Allowed: 2 or more, else a field tells nothing. "
            "Leave it out (data.ignore of the source `table`), or give other rows."
        )
    progress("fit vocabularies", len(rules), len(rules))
    return fitted


def _fit(staged: Staged, index: int, name: str, rule: Rule, lenient: bool, room: int) -> tuple[FieldEncoder, int]:
    """The encoder of one field, and a lower bound of how many different values there are."""
    assert rule.min_count is not None
    counter, length, kinds, several = Counter(), 1, 0, False
    # rare raw values matter too, where several of them become one value
    for batch in staged.counts(index, rule.min_count if rule.keeps_values else 1, rising=False):
        values, counts = batch.column("value"), batch.column("count")
        kinds += len(values)
        lists = rule.lists(values)
        if lists is not None:
            several = True
            lengths = pc.list_value_length(lists)
            length = max(length, pc.max(lengths).as_py())
            values, counts = lists.flatten(), counts.take(pc.list_parent_indices(lists))
        if rule.is_number and not lenient:
            _refuse_text(name, values)
        counter.add(rule.apply(values), counts)
        if counter.nbytes > room:
            counter.merge()
            _refuse_many(name, counter, room)
    if not kinds:
        counter.add(pa.array([], pa.string()))
    if rule.keeps_values and kinds < 2:  # rare values may have been left out
        kinds = sum(len(batch) for batch in staged.counts(index, 1, rising=False))
    vocabulary = counter.vocabulary(rule.min_count, but=NO_NUMBER if rule.is_number else None)
    return FieldEncoder(name, rule, vocabulary, length, several), kinds


def _refuse_many(name: str, counter: Counter, room: int) -> None:
    """Values are kept in memory, rows are not."""
    if counter.nbytes > room:
        raise DataError(
            f"Field '{name}' has too many values for the memory setting: {len(counter.table()):,} or more. Keep fewer "
            f"(--set data.fields.{name}.min_count=10), leave the field out, or give more with --set engine.memory=MiB."
        )


def _with_edges(staged: Staged, index: int, rule: Rule) -> Rule:
    """Two passes over the numbers in order, so that memory holds a batch of them at a time."""

    def parts() -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        for batch in staged.counts(index, 1, rising=True):
            if rule.lists(batch.column("value")) is not None:
                raise DataError("Watchers numbers a row have no quantiles. Use the kind 'width' or 'log-squared'.")
            numbers, known = numbers_of(batch.column("value"))
            yield numbers[known], np.asarray(batch.column("count"))[known]

    return rule.quantiles(parts(), sum(int(counts.sum()) for _, counts in parts()))


def _refuse_text(name: str, values: pa.Array) -> None:
    wrong = not_numbers(values)
    if wrong:
        raise DataError(
            f"Field '{name}' is binned as a number but holds {wrong[:5]}. Mend the rows, make it a category "
            f"(--set data.fields.{name}.kind=category), or take such values as unknown with --bad-rows skip."
        )
