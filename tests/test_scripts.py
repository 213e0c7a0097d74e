"""The scripts that measure the project itself."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_words_finds_a_listed_expression() -> None:
    words = runpy.run_path(str(ROOT / "scripts" / "words.py"))
    counts = words["count"]({"src/a.py": "It goes on anew, and stands alone.", "docs/b.md": "Stand alone."})
    assert {name: counter.total() for name, counter in counts.items() if counter} == {
        "goes on": 1,
        "alone (only)": 2,
        "anew": 1,
    }


@pytest.mark.slow
def test_same_results_are_equal_to_themselves(tmp_path: Path) -> None:
    """Two runs of the same code give the same bits; takes minutes."""
    before = tmp_path / "before.json"
    _run("scripts/same_results.py", "write", str(before), "--only", "planted uniform")
    assert "planted uniform: equal" in _run(
        "scripts/same_results.py", "compare", str(before), "--only", "planted uniform"
    )
