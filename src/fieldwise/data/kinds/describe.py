"""Describes the columns of staged rows: what each is, how many values it has, and what is suspicious."""

from typing import Any

import pyarrow.compute as pc

from fieldwise.data.engines.engine import LABEL, SPLIT, Totals
from fieldwise.data.kinds.check import Check, ColumnCheck
from fieldwise.data.kinds.choose import Candidates, Chosen
from fieldwise.data.kinds.infer import Found
from fieldwise.data.kinds.suspects import suspects_of
from fieldwise.data.split import SPLITS


def described(given: Candidates, chosen: Chosen, source: str, look: bool = True) -> Check:
    """Returns the check of the sampled rows; all rows are counted for columns of which the sample shows too little.

    Without `look`, only says what the source or the settings made of each column.
    """
    if not look:
        columns = [_unseen(name, found) for name, found in chosen.found.items()]
        return Check(source=source, label=given.rows.label, rows={}, clicks={}, columns=tuple(columns))
    clicks = pc.is_in(given.sample[LABEL], value_set=given.clicks)
    rows, clicked = {}, {}
    for index, name in enumerate(SPLITS):
        chosen_rows = pc.equal(given.sample[SPLIT], index)
        rows[name] = int(pc.sum(chosen_rows).as_py() or 0)
        clicked[name] = int(pc.sum(pc.and_(chosen_rows, clicks)).as_py() or 0)
    stored = Found("unique", "the index of a dataframe, which pandas stored")
    columns = [_unseen(name, stored) for name in given.rows.index]
    columns += [_column(given, name, found) for name, found in chosen.found.items()]
    return Check(
        source=source,
        label=given.rows.label,
        rows=rows,
        clicks=clicked,
        every=given.every,
        skipped=given.staged.skipped,
        columns=tuple(columns),
    )


def _settings(found: Found) -> dict[str, dict[str, Any]]:
    """Returns the settings of each field that say all that was found."""
    return {
        name: {
            "kind": rule.kind,
            **rule.model_dump(mode="json", include={"time_format", "separator", "longest"}, exclude_defaults=True),
            **({"column": rule.column} if rule.column not in (None, name) else {}),
        }
        for name, rule in found.rules.items()
    }


def _unseen(name: str, found: Found) -> ColumnCheck:
    """Returns the check of a column whose values were not looked at."""
    return ColumnCheck(
        name=name, kind=found.kind, reason=found.reason, rules=_settings(found), cardinality=0, nulls=0.0,
        unknown=None, examples=(), suspects=(),
    )  # fmt: skip


def _column(given: Candidates, name: str, found: Found) -> ColumnCheck:
    column, totals = given.columns[name], given.totals.get(name)
    unknown = _unknown(given, name, totals) if found.kind in ("category", "unique", "constant") else None
    return ColumnCheck(
        name=name,
        kind=found.kind,
        reason=found.reason,
        rules=_settings(found),
        cardinality=totals.distinct if totals else column.distinct,
        at_least=given.every > 1 and totals is None,
        nulls=1 - column.known / max(1, len(column.codes)),
        unknown=unknown,
        examples=tuple(column.examples()),
        suspects=suspects_of(column, found, unknown),
    )


def _unknown(given: Candidates, name: str, totals: Totals | None) -> float | None:
    """Returns the fraction of validation rows whose value has too few training rows; None without such rows."""
    if totals is None:
        return given.unknown(name)
    return totals.unknown / totals.later if totals.later else None
