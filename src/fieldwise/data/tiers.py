"""Splits a category into two or three fields by the frequency of its values, each with a table of its own.

A value has an id in one of the fields and is `unknown` in the others; an unseen value is `unknown` in all. Models add
their vectors (`models/vectors.py`); searches and exports need not know.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.hints import setting
from fieldwise.core.schema import ENDS, Tier, tier_name
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.kinds.check import Check, ColumnCheck
from fieldwise.data.rules import Rule, Tiers
from fieldwise.data.source import Source
from fieldwise.data.vocabulary import Vocabulary

MIN_VALUES: Final = 100
"""Categories with fewer values than this stay one field."""


def check_tiers(fields: Sequence[FieldEncoder]) -> None:
    """Refuses tiers that the settings give a field of another kind than a category with one value per row."""
    for field in fields:
        if field.rule.tiers and not _may_be_split(field):
            holds = "several values per row" if field.several else f"values of kind {field.rule.kind}"
            raise DataError(
                f"Field '{field.name}' has tiers = {field.rule.tiers} and {holds}. Allowed: a category with one "
                f"value per row. Remove its tiers ({setting('data.tiers', 0, field.name)}), or change its kind."
            )


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of the new encoding, made from one of the old."""

    field: FieldEncoder
    index: int
    """Index of the old field."""
    ids: NDArray[np.int32] | None = None
    """The new id of each old id; None if ids stay."""


@dataclass(frozen=True, slots=True)
class TierIds:
    """Maps the ids of fields to those of their tiers."""

    starts: tuple[int, ...]
    """First place of each field, and the end of the last."""
    parts: tuple[tuple[int, NDArray[np.int32] | None], ...]
    """For each new field the index of the old one, and the new id of each old id; None if ids stay."""

    @property
    def places(self) -> int:
        """Number of ids per row."""
        return sum(self.starts[index + 1] - self.starts[index] for index, _ in self.parts)

    def __call__(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the ids (rows, places) in the new fields; those of a place lie together in memory."""
        found = np.empty((self.places, len(ids)), np.int32)
        end = 0
        for index, new in self.parts:
            old = ids[:, self.starts[index] : self.starts[index + 1]].T
            start, end = end, end + len(old)
            found[start:end] = old if new is None else new.take(old)
        return found.T


class Tiered:
    """An encoder with the tiers that the settings ask for."""

    def __init__(self, encoder: Encoder, tiers: Tiers) -> None:
        """Splits fields; `tiers` is the setting of fields whose rule gives none."""
        self._given = encoder
        self._parts = list(_parts(encoder.fields, tiers))
        _check_names(self._parts)
        self.encoder = Encoder([part.field for part in self._parts])
        """The encoder of the new fields; that of the old ones if none is split."""

    @property
    def splits_fields(self) -> bool:
        """Whether any field is split."""
        return len(self._parts) > len(self._given.fields)

    def named(self, check: Check) -> Check:
        """Returns what each column is, with the names of the tiers."""
        tiers: dict[str, list[str]] = {}
        for part in self._parts:
            if part.field.tier:
                tiers.setdefault(self._given.fields[part.index].name, []).append(part.field.name)

        def told(column: ColumnCheck) -> ColumnCheck:
            found = [name for field in column.fields for name in tiers.get(field, ())]
            return _with_tiers(column, found) if found else column

        return check.model_copy(update={"columns": tuple(told(column) for column in check.columns)})

    @property
    def ids(self) -> TierIds:
        """Maps ids of the old fields to those of the new ones."""
        starts = np.cumsum([0, *(field.length for field in self._given.fields)]).tolist()
        return TierIds(tuple(starts), tuple((part.index, part.ids) for part in self._parts))

    def counts(self, split: dict[str, Any]) -> dict[str, Any]:
        """Returns the counts of a split: rows that no tier knows, and nulls, which are frequent values."""
        once = [int(part.field.tier in (None, ENDS[0])) for part in self._parts]
        return {
            **split,
            "unknown": [split["unknown"][part.index] for part in self._parts],
            **{
                what: [n * split[what][part.index] for n, part in zip(once, self._parts, strict=True)]
                for what in ("nulls", "unparsed")
            },
        }


def _parts(fields: Sequence[FieldEncoder], tiers: Tiers) -> Iterator[_Part]:
    for index, field in enumerate(fields):
        own = tiers if field.rule.tiers is None else field.rule.tiers
        if not own or not _may_be_split(field) or len(field.vocabulary.values) < MIN_VALUES:
            yield _Part(field, index)
            continue
        rule = field.rule.model_copy(update={"tiers": own})
        for tier, chosen in _members(field.vocabulary, own).items():
            name = tier_name(field.name, tier)
            known = np.append(False, chosen)  # id 0 is `unknown`
            ids = np.cumsum(known, dtype=np.int32) * known
            vocabulary = field.vocabulary.part(chosen)
            yield _Part(replace(field, name=name, rule=rule, vocabulary=vocabulary, tier=tier), index, ids)


def expected(check: Check, rules: Mapping[str, Rule], source: Source) -> Check:
    """Returns what each column is, with the names of the tiers that it will have, as far as the checked rows show."""

    def told(column: ColumnCheck) -> ColumnCheck:
        rule = rules.get(column.fields[0]) if len(column.fields) == 1 else None
        values = column.cardinality + (column.nulls > 0)
        if rule is None or not rule.keeps_values or column.kind != "category" or values < MIN_VALUES:
            return column
        tiers = source.cuts if rule.tiers is None else rule.tiers
        if not tiers:
            return column
        names = names_of(column.fields[0], tiers)
        sure = (rule.min_count or source.min_count) == 1
        return _with_tiers(column, names, "" if sure else f"if {MIN_VALUES} values have min_count rows, ")

    return check.model_copy(update={"columns": tuple(told(column) for column in check.columns)})


def _with_tiers(column: ColumnCheck, names: Sequence[str], condition: str = "") -> ColumnCheck:
    return column.model_copy(update={"reason": f"{column.reason}; {condition}fields: {', '.join(names)}"})


def _may_be_split(field: FieldEncoder) -> bool:
    return field.rule.keeps_values and not field.several


def names_of(column: str, tiers: Tiers) -> list[str]:
    """Returns the names of the fields of a column that is split."""
    return [tier_name(column, tier) for tier in _tiers(tiers)]


def _tiers(tiers: Tiers) -> tuple[Tier, ...]:
    return get_args(Tier) if isinstance(tiers, tuple) else ENDS


def _members(vocabulary: Vocabulary, tiers: Tiers) -> dict[Tier, NDArray[np.bool_]]:
    """Returns a mask of the values of each tier; null is among the most frequent, and every tier has values."""
    count, names = len(vocabulary.values), _tiers(tiers)
    cuts, first = [], -1
    for place, fraction in enumerate(tiers if isinstance(tiers, tuple) else (tiers,)):
        room = 2 * (len(names) - 1 - place)  # null may leave a tier
        cuts.append(min(max(first + 2, round(fraction * count)), count - room))
        first = cuts[-1]
    places = np.searchsorted(cuts, np.arange(count), side="right")
    places[np.asarray(vocabulary.values.is_null())] = 0
    return {tier: places == place for place, tier in enumerate(names)}


def _check_names(parts: Sequence[_Part]) -> None:
    """Refuses a raw column with the name of a tier, whose vector models would add to others."""
    raw = {part.field.name for part in parts if part.field.tier is None}
    split = {part.field.name.rpartition(":")[0] for part in parts if part.field.tier}
    for name in sorted(raw):
        column, _, tier = name.rpartition(":")
        alone = column not in split and not raw.issuperset(tier_name(column, end) for end in ENDS)
        if tier in get_args(Tier) and not alone:
            raise DataError(f"Field '{name}' has the name of a tier of '{column}' (data.tiers). Rename the column.")
