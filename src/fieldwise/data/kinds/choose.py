"""Infers the kinds of staged columns, and returns the fields that they become."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.core.errors import DataError
from fieldwise.core.hints import setting
from fieldwise.data.engines.engine import LABEL, SPLIT, Progress, Staged, StagedFields, Totals, field
from fieldwise.data.engines.selected import Selected
from fieldwise.data.kinds.column import Column
from fieldwise.data.kinds.infer import NEARLY_UNIQUE, Found, FoundKind, infer
from fieldwise.data.kinds.sampling import stride
from fieldwise.data.rules import Rule, is_list
from fieldwise.data.source import Files, Source, SourceRows, complete_rule, override_rule

MOSTLY: Final = 0.5
"""From this fraction of unknown values in validation rows on, a column is suspicious, and all rows are counted."""


@dataclass(frozen=True)
class Candidates:
    """Staged raw columns, the rule that settings and source give each, and the labels that are clicks."""

    staged: Staged
    rows: SourceRows | Files
    source: Source
    rules: Mapping[str, Rule]
    """By field, in the order of the staged columns."""
    clicks: pa.Array
    is_sample: bool = False
    """Whether only every n-th row is staged."""

    @cached_property
    def every(self) -> int:
        """N if every n-th row is looked at."""
        return stride(self.rows)

    @cached_property
    def places(self) -> dict[str, int]:
        """Index of each field's staged column."""
        return {name: index for index, name in enumerate(self.rules)}

    @cached_property
    def sample(self) -> pa.Table:
        """The rows that are looked at, of all splits."""
        return self.staged.sample(1 if self.is_sample else self.every)

    @property
    def count(self) -> int:
        """Rows of the source, about."""
        return sum(self.staged.rows) * (self.every if self.is_sample else 1)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Columns of the sampled training rows, by field."""
        train = self.sample.filter(pc.equal(self.sample[SPLIT], 0))
        clicks = pc.is_in(train[LABEL], value_set=self.clicks).to_numpy().astype(np.float64)
        return {
            name: Column.of(rule.column or name, train[field(self.places[name])], clicks, self.rows.is_text)
            for name, rule in self.rules.items()
        }

    @cached_property
    def totals(self) -> dict[str, Totals]:
        """Counts in all rows of the fields of which the sampled rows show too little: nearly unique, mostly unknown.

        None if the sampled rows are all rows.
        """
        if self.every == 1:
            return {}
        unique = [n for n, column in self.columns.items() if column.distinct >= NEARLY_UNIQUE * max(1, column.known)]
        unseen = [n for n in self.columns if (self.unknown(n) or 0) >= MOSTLY] if self.is_sample else []
        names = list(dict.fromkeys([*unique, *unseen]))
        found = self.staged.totals([self.places[name] for name in names], self.source.least_count)
        return {name: found[self.places[name]] for name in names}

    @cached_property
    def _later(self) -> pa.Table:
        return self.sample.filter(pc.equal(self.sample[SPLIT], 1))

    def unknown(self, name: str) -> float | None:
        """Returns the fraction of sampled validation rows whose value has too few sampled training rows."""
        later = self._later[field(self.places[name])].drop_null()
        if is_list(later.type) or not len(later):
            return None
        column = self.columns[name]
        codes = np.asarray(pc.fill_null(pc.index_in(later.combine_chunks(), value_set=column.values), -1))
        seen = np.append(column.counts, 0)[codes]
        return float((seen < (self.rules[name].min_count or 1)).mean())


@dataclass(frozen=True)
class Chosen:
    """The final fields of staged rows, and what each raw column was found to be."""

    staged: StagedFields
    rules: dict[str, Rule]
    found: dict[str, Found]
    """By field before inference, in order."""


def choose_fields(given: Candidates, progress: Progress) -> Chosen:
    """Infers kinds where the settings give none; settings always win, and what they name is never left out."""
    found: dict[str, Found] = {}
    for index, (name, rule) in enumerate(given.rules.items()):
        progress("infer kinds", index, len(given.rules))
        if name in given.rows.inferred:
            column, all_rows = given.columns[name], given.totals.get(name)
            several = is_list(given.sample.schema.field(field(index)).type)
            counted = (column.known, column.distinct) if all_rows is None else (all_rows.known, all_rows.distinct)
            found[name] = _with_settings(name, infer(column, given.count, counted, several), given)
        else:
            by = "set in the settings" if name in given.source.fields else "set by the source"
            found[name] = Found(kind_of(rule), by, {name: rule}, is_inferred=False)
    return _selected(given, found)


def kind_of(rule: Rule) -> FoundKind:
    """Returns the kind of the values that a given rule makes."""
    if rule.is_number:
        return "number"
    if rule.kind != "category":
        return "time"
    return "list" if rule.separator else "category"


def _with_settings(name: str, found: Found, given: Candidates) -> Found:
    """Returns what was found with the keys that the user set; a column that the user names stays a field."""
    own = given.source.fields.get(name)
    only = getattr(given.source, "only", ())
    if not found.rules and (own is not None or name in only):
        reason = f"{found.reason}; kept, since the settings name it"
        found = replace(found, reason=reason, rules={name: found.otherwise})
    if own is None:
        made = {(rule.column, rule.kind) for rule in given.source.fields.values() if rule.column}
        return replace(found, rules={n: r for n, r in found.rules.items() if (r.column, r.kind) not in made})
    if own.column is not None:  # a second field of the column: one, with the name that it was given
        (rule,) = found.rules.values() if len(found.rules) == 1 else (Rule(),)
        found = replace(found, rules={name: rule})
    return replace(found, rules={n: _bins_as_set(override_rule(rule, own), own) for n, rule in found.rules.items()})


def _bins_as_set(rule: Rule, own: Rule) -> Rule:
    """Returns the rule with the kind of bins whose keys the user set."""
    kinds = {"bins": "quantile", "edges": "quantile", "width": "width"}
    wanted = [kind for key, kind in kinds.items() if key in own.model_fields_set]
    return rule.model_copy(update={"kind": wanted[0]}) if wanted and rule.is_number else rule


def _selected(given: Candidates, found: dict[str, Found]) -> Chosen:
    rules: dict[str, Rule] = {}
    places: list[int] = []
    for name, one in found.items():
        for made, rule in one.rules.items():
            while made in rules or (made != name and made in given.rules):
                made += "_"  # the name of another column
            column = rule.column or given.rules[name].column or name
            rules[made] = complete_rule(made, rule.model_copy(update={"column": column}), given.source)
            places.append(given.places[name])
    if not rules:
        left = ", ".join(f"'{name}' ({one.reason})" for name, one in found.items())
        hint = setting("data.only", list(found)[:1])
        raise DataError(f"No column is left as a field: {left}. Allowed: 1 or more. Keep a column with {hint}.")
    return Chosen(Selected(given.staged, list(rules.values()), places), rules, found)
