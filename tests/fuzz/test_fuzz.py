"""No mutated file or flag leads to a traceback, a hang, excessive memory or executed code."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.runner import ROOT, Fuzzer, Result

BEFORE: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "fuzz-before.json").read_text())
"""One case for each fault found on the commit before the fixes."""
FURTHER = 24


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    made = Fuzzer(tmp_path_factory.mktemp("fuzz") / "cases", seed=BEFORE["seed"])
    yield made
    made.close()


def failed(results: Iterator[Result]) -> list[str]:
    return [f"case {one.number}, {one.target}, {one.mutation}: {one.wrong}" for one in results if one.state == "failed"]


def test_a_case_is_the_one_that_its_number_says(fuzzer: Fuzzer) -> None:
    for fault in BEFORE["faults"]:
        target, kind = fuzzer.kind(fault["case"])
        assert (target.name, kind) == (fault["target"], fault["mutation"]), (
            "find the faults again: tests/fuzz/faults.py"
        )


def test_every_fault_of_the_commit_before_is_gone(fuzzer: Fuzzer) -> None:
    assert failed(fuzzer.run(sorted({fault["case"] for fault in BEFORE["faults"]}))) == []


def test_a_few_cases_of_other_kinds_do_not_fail(fuzzer: Fuzzer) -> None:
    assert failed(fuzzer.run(range(fuzzer.turn, fuzzer.turn + FURTHER))) == []


def test_the_same_number_is_the_same_case(fuzzer: Fuzzer) -> None:
    one, two = ((result.file, result.command, result.state) for result in fuzzer.run([3, 3]))
    assert one == two


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_folders_of_a_factory_do_not_fail(tmp_path: Path) -> None:
    fuzzer = Fuzzer(tmp_path / "cases", seed=1, jobs=2, factory=True)
    assert failed(fuzzer.run(range(1_000))) == []
    fuzzer.close()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_ten_thousand_cases_do_not_fail(tmp_path: Path) -> None:
    fuzzer = Fuzzer(tmp_path / "cases", seed=1, jobs=2)
    assert failed(fuzzer.run(range(10_000))) == []
    fuzzer.close()
