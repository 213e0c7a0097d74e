"""Hints in error messages: flags on the command line, arguments in Python, what scikit-learn's users can do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

_spoken: Literal["python", "flags", "estimator"] = "python"


@contextmanager
def in_flags() -> Iterator[None]:
    """Hints name flags within the block; the command line runs in it."""
    with _in("flags"):
        yield


@contextmanager
def in_estimator() -> Iterator[None]:
    """Hints name what users of the scikit-learn estimator can change within the block."""
    with _in("estimator"):
        yield


@contextmanager
def _in(language: Literal["flags", "estimator"]) -> Iterator[None]:
    global _spoken
    before, _spoken = _spoken, language
    try:
        yield
    finally:
        _spoken = before


def speaks_flags() -> bool:
    """Whether hints name flags now."""
    return _spoken == "flags"


def speak(flags: bool) -> None:
    """Chooses the language of a worker process, which is that of its parent."""
    global _spoken
    _spoken = "flags" if flags else "python"


def either(flags: str, python: str, estimator: str | None = None) -> str:
    """The text for the command line, for Python, or for the estimator if that differs from Python's."""
    if _spoken == "estimator" and estimator is not None:
        return estimator
    return flags if speaks_flags() else python


def setting(path: str, value: Any, field: str | None = None) -> str:
    """How to give a setting such as `data.ignore`; with `field`, a key of that field's rule."""
    table, _, key = path.partition(".")
    if speaks_flags():
        whole = f"{table}.fields.{field}.{key}" if field is not None else path
        return f"--set {whole}={value}" if isinstance(value, str | int) else f"--set '{whole}={json.dumps(value)}'"
    if _spoken == "estimator" and path == "data.ignore":
        return f"X.drop(columns={value!r})"
    if _spoken == "estimator" and path == "data.only":
        return f"fields={ {name: {} for name in value} }"
    if field is not None:
        return f"fields={{{field!r}: fw.Rule({key}={value!r})}}"
    return f"engine=fw.DuckDB({key}={value!r})" if table == "engine" else f"{key}={value!r}"
