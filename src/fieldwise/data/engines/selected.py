"""Staged rows with other fields than they were staged with: several of one column, or none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fieldwise.data.engines.engine import LABEL, SPLIT, Done, Item, Part, Result, Staged, field
from fieldwise.data.rules import Rule


class Selected:
    """Some fields of staged rows, in a new order; `places` are the indices of their staged columns."""

    def __init__(self, staged: Staged, rules: Sequence[Rule], places: Sequence[int]) -> None:
        self._staged, self._places = staged, places
        # parsing numbers and times in text is slow, so a batch parses each distinct text once
        self._parsed = sorted({place for place, rule in zip(places, rules, strict=True) if rule.kind != "category"})
        self.rows, self.labels = staged.rows, staged.labels
        self.skipped, self.untimed = staged.skipped, staged.untimed

    def counts(self, index: int, min_count: int, ascending: bool) -> Iterator[pa.RecordBatch]:
        """Yields the counts of a field's raw values in training rows."""
        return self._staged.counts(self._places[index], min_count, ascending)

    def parts(self) -> Sequence[Part]:
        """Returns all rows in parts, in order."""
        return [_SelectedPart(part, tuple(self._places)) for part in self._staged.parts(self._parsed)]

    def each(self, work: Callable[[Item, Done], Result], items: Sequence[Item], done: Done) -> Iterator[Result]:
        """Yields what `work` returns for every item, in order."""
        return self._staged.each(work, items, done)


@dataclass(frozen=True, slots=True)
class _SelectedPart:
    part: Part
    places: tuple[int, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self.part.batches():
            columns = {field(i): batch.column(field(place)) for i, place in enumerate(self.places)}
            yield pa.record_batch({LABEL: batch.column(LABEL), SPLIT: batch.column(SPLIT), **columns})
