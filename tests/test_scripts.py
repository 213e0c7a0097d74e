"""The scripts that measure the project itself."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fieldwise.searches import SEARCHES

ROOT = Path(__file__).parent.parent


def _run(*words: str) -> str:
    return subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_code_metrics_count_what_a_small_package_holds(tmp_path: Path) -> None:
    package, tests = tmp_path / "package", tmp_path / "tests"
    package.mkdir()
    tests.mkdir()
    (package / "a.py").write_text(
        'def one() -> int:\n    """Documented."""\n    return 1\n\n\ndef two():\n    return 2\n'
    )
    (tests / "test_a.py").write_text("def test_one() -> None:\n    assert True\n")
    lines = _run("scripts/code_metrics.py", f"mine={package}:{tests}").splitlines()
    found = dict(line.strip("| ").split(" | ") for line in lines[2:])
    assert found["largest file, lines"] == "7"
    assert found["functions"] == "2"
    assert found["functions with annotated returns"] == "50%"
    assert found["public names with a docstring"] == "50%"
    assert found["test functions"] == "1"


def test_code_metrics_count_tests_inside_the_package_as_tests(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text('def one() -> int:\n    """Documented."""\n    return 1\n')
    (tmp_path / "test" / "test_a.py").write_text("def test_one() -> None:\n    assert True\n" * 3)
    lines = _run("scripts/code_metrics.py", f"mine={tmp_path}:{tmp_path}").splitlines()
    found = dict(line.strip("| ").split(" | ") for line in lines[2:])
    assert (found["files"], found["lines"], found["test functions"]) == ("2", "4", "3")


def test_words_finds_a_listed_expression() -> None:
    words = runpy.run_path(str(ROOT / "scripts" / "words.py"))
    counts = words["count"]({"src/a.py": "It goes on anew, and stands alone.", "docs/b.md": "Stand alone."})
    assert {name: counter.total() for name, counter in counts.items() if counter} == {
        "goes on": 1,
        "alone (only)": 2,
        "anew": 1,
    }


def test_docstrings_matches_what_moved_and_draws_the_same_for_a_seed() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "docstrings.py"))
    before = script["docstrings"](
        {
            "src/fieldwise/old.py": '"""Old."""\nclass A:\n    """One | two."""\n    size: int = 1\n    """Many."""\n',
            "src/fieldwise/b.py": 'def f():\n    """Same."""\ndef g():\n    """Gone."""\n',
        }
    )
    after = script["docstrings"](
        {
            "src/fieldwise/core/new.py": 'class A:\n    """Two."""\n    size: int = 1\n    """Rows."""\n',
            "src/fieldwise/b.py": 'def f():\n    """Same."""\ndef h():\n    """New."""\n',
        }
    )
    assert before["old", ""] == "Old."
    found = script["pairs"](before, after)
    assert found == {
        "core.new:A": ("One | two.", "Two."),
        "core.new:A.size": ("Many.", "Rows."),
        "b:f": ("Same.", "Same."),
    }
    lines = script["table"](found, 10, 0)
    assert "| `core.new:A` | One \\| two. | Two. |" in lines
    assert "| `b:f` | Same. | (unchanged) |" in lines
    assert script["table"](found, 1, 3) == script["table"](found, 1, 3)


def test_same_results_names_every_value_that_differs_and_no_new_key() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "same_results.py"))
    before = script["kept"]({"record.json": [{"auc": 0.5, "loss": float("nan"), "seconds": 3.0, "gone": 1}]})
    after = script["kept"]({"record.json": [{"auc": 0.6, "loss": float("nan"), "seconds": 4.0, "new": 2}]})
    assert list(script["differences"](before, after)) == [
        "record.json [0] auc: 0.5 became 0.6",
        "record.json [0] gone: 1 became nothing",
    ]


def test_same_results_cover_every_search() -> None:
    runs = runpy.run_path(str(ROOT / "scripts" / "same_results.py"))["commands"](Path("ml-1m.zip"))
    assert {name.removeprefix("planted ") for name in runs if name.startswith("planted ")} == set(SEARCHES)
    assert len([name for name in runs if name.startswith("movielens-1m ")]) == 4


def test_same_results_without_a_run_in_the_file_are_different(capsys: pytest.CaptureFixture[str]) -> None:
    compare = runpy.run_path(str(ROOT / "scripts" / "same_results.py"))["compare"]
    assert compare({"a": {"record.json": 1}}, {"a": {"record.json": 1}}) == 0
    assert compare({"a": {"record.json": 1}}, {"a": {}}) == 1
    assert compare({"a": {}}, {"a": {}}) == 1
    assert capsys.readouterr().out.count("DIFFERENT") == 2


@pytest.mark.slow
def test_same_results_are_equal_to_themselves(tmp_path: Path) -> None:
    """Two runs of the same code give the same bits; takes minutes."""
    before = tmp_path / "before.json"
    _run("scripts/same_results.py", "write", str(before), "--only", "planted uniform")
    assert "planted uniform: equal" in _run(
        "scripts/same_results.py", "compare", str(before), "--only", "planted uniform"
    )
