"""Looks at a table before anything is prepared: the kind of every column, why, and what is suspicious."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from fieldwise.core.errors import DataError, SettingsError
from fieldwise.core.settings import validate
from fieldwise.data.engines.engine import Auto, Engine, Preparation, Progress
from fieldwise.data.frame import Frame
from fieldwise.data.kinds.check import Check
from fieldwise.data.kinds.choose import Candidates, choose_fields
from fieldwise.data.kinds.describe import described
from fieldwise.data.kinds.sampling import stride
from fieldwise.data.labels import clicks_of
from fieldwise.data.prepare import check_source
from fieldwise.data.source import Files, Source, rules_of
from fieldwise.data.split import RandomSplit, SplitRule
from fieldwise.data.table import Table
from fieldwise.data.tiers import expected


def check(
    rows: Any,
    label: str | None = None,
    *,
    split: SplitRule | None = None,
    engine: Engine | None = None,
    progress: Progress = lambda *_: None,
    **settings: Any,
) -> Check:
    """Returns what each column is, why, and what is suspicious: a leak of the label, a row number, a constant.

    `rows` are a dataframe or other rows in memory, the path of a file or a list of them, or a source. Further
    settings are those of `fw.data.Frame` or `fw.data.Table`, such as `positive` or `ignore`. Reads about 100,000 rows
    of a large table.
    """
    source = _source(rows, label, settings)
    check_source(source, split, engine)
    split, opened = split or RandomSplit(), source.open()
    if isinstance(opened, Files):
        opened = replace(opened, bad_rows="skip")
    rules = rules_of(opened, source, split)
    every = stride(opened)
    with tempfile.TemporaryDirectory(prefix="fieldwise-check-") as work:
        staged = (engine or Auto()).stage(Preparation(opened, rules, split, Path(work), progress, every))
        clicks = clicks_of(staged, opened.label, opened.positive)
        given = Candidates(staged, opened, source, rules, clicks, is_sample=True)
        chosen = choose_fields(given, progress)
        return expected(described(given, chosen, _name(source)), chosen.rules, source)


def _source(rows: Any, label: str | None, settings: dict[str, Any]) -> Source:
    if isinstance(rows, Source):
        return rows
    if label is None:
        raise DataError("No label is named. Allowed: the name of the column with the clicks. Set label.")
    if isinstance(rows, str | Path) or _are_paths(rows):
        return _valid(Table, {"raw": rows, "label": label, **settings})
    return _valid(Frame, {"frame": rows, "label": label, **settings})


def _are_paths(rows: Any) -> bool:
    return isinstance(rows, list | tuple) and bool(rows) and all(isinstance(path, str | Path) for path in rows)


def _valid(cls: type[Source], settings: dict[str, Any]) -> Source:
    found, problems = validate(cls, settings, "data")
    if found is None:
        raise SettingsError("\n".join(problems))
    return found


def _name(source: Source) -> str:
    raw = getattr(source, "raw", None)
    if raw is None:
        return type(source).__name__
    paths = raw if isinstance(raw, tuple) else (raw,)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{Path(paths[0]).name}{more}"
