"""`docs/reliability.md` agrees with the measured results."""

import json
import re

import pytest

from evidence.reliability import PAGE, RESULTS, TABLES, filled


def test_the_page_s_tables_are_those_of_their_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall(r"<!-- table ([a-z-]+) -->", text)) == sorted(TABLES)
    assert filled(text) == text, "run: python -m evidence.reliability"


@pytest.mark.parametrize("name", ["fuzz", "fuzz-factory", "kills"])
def test_what_the_page_shows_has_no_failures(name: str) -> None:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip("not measured yet")
    found = json.loads(path.read_text(encoding="utf-8"))
    if name != "kills":
        assert found["cases"] >= (10_000 if name == "fuzz" else 1_000)
        assert found["failures"] == []
    else:
        assert found["kills"] >= 200
        assert [row for row in found["rows"] if row["problems"] or row["equal"] != row["folders"]] == []


def test_the_fuzzer_finds_at_least_eight_listed_faults_on_the_commit_before() -> None:
    found = json.loads((RESULTS / "fuzz-before.json").read_text(encoding="utf-8"))
    assert found["commit"].startswith("ec8acf4")
    assert len({fault["fault"] for fault in found["faults"]}) >= 8
