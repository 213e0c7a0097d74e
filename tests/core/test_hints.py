"""Hints name flags on the command line, and arguments in Python."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import fieldwise as fw
from fieldwise.core.hints import either, in_flags, setting, speak, speaks_flags
from fieldwise.data.table import Table
from tests.command_line import cli

SOURCE = Path(__file__).parent.parent.parent / "src" / "fieldwise"


def test_a_setting_is_a_flag_or_an_argument() -> None:
    hints: list[Callable[[], str]] = [
        lambda: setting("data.ignore", ["a b"]),
        lambda: setting("data.kind", "category", "user"),
        lambda: setting("engine.memory", 8192),
        lambda: either("--out", "out"),
    ]
    assert [hint() for hint in hints] == [
        "ignore=['a b']",
        "fields={'user': fw.Rule(kind='category')}",
        "engine=fw.DuckDB(memory=8192)",
        "out",
    ]
    with in_flags():
        assert [hint() for hint in hints] == [
            "--set 'data.ignore=[\"a b\"]'",
            "--set data.fields.user.kind=category",
            "--set engine.memory=8192",
            "--out",
        ]
        with in_flags():
            pass
        assert speaks_flags()
    assert not speaks_flags()


def test_a_worker_speaks_as_its_parent() -> None:
    speak(True)
    assert speaks_flags()
    speak(False)
    assert not speaks_flags()


def test_the_same_mistake_is_told_in_the_language_of_the_caller(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("click,a\n" + "".join(f"{i % 2 + 4},{i % 7}\n" for i in range(50)))
    with pytest.raises(fw.FieldwiseError, match=re.escape("for example positive=['5'], or")):
        fw.prepare(Table(raw=raw, label="click"), tmp_path / "out")
    result = cli("prepare", "--source", "table", "--raw", raw, "--label", "click", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "for example --set 'data.positive=[\"5\"]', or" in result.stderr


def test_a_frame_is_answered_in_python(tmp_path: Path) -> None:
    rows = pa.table({"click": [0, 1] * 30, "a": [{"x": 1}] * 60, "b": [1, 2, 3] * 20})
    with pytest.raises(fw.FieldwiseError, match=re.escape("Exclude it with ignore=['a'], or convert it.")):
        fw.prepare(fw.data.Frame(frame=rows, label="click"), tmp_path / "out")
    with pytest.raises(fw.FieldwiseError, match=r"is missing. Make one with fw.prepare\."):
        fw.Dataset.open(tmp_path)
    with pytest.raises(fw.FieldwiseError, match=r"Name a folder that fw.run made\."):
        fw.report(tmp_path / "none")


ONLY_FLAGS = {"comparison/settings.py", "core/hints.py", "core/registry.py", "core/settings.py", "reports/run/watch.py"}
"""Files outside `cli` whose messages only the command line shows."""


def texts(node: ast.AST) -> Iterator[ast.Constant]:
    """Every text of a module, except docstrings and arguments of `either`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "either":
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def test_no_message_names_a_flag_except_through_a_hint() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith("cli/") and name not in ONLY_FLAGS:
            for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
                ours = not re.search("fieldwise run |pip install ", str(text.value))
                if re.search(r"(?<![\w-])--[a-z]", str(text.value)) and ours:
                    found.append(f"{name}:{text.lineno}: {text.value!r}")
    assert not found, "use core.hints.either: Python has no flags"
