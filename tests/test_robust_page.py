"""The page about several datasets: its numbers, and that it agrees with the results."""

import json
from pathlib import Path

import pytest

from evidence.robust import PAGE, RESULTS, SEARCHES, by_dataset, by_search, filled, grid, means, read, searches


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two tuning datasets and one for confirmation, of which one was also run with tiers."""
    found = []

    def add(data: str, seed: int, method: str, schedule: str, auc: float, cost: float) -> None:
        unit = [data, "fm", seed]
        row = {"unit": unit, "method": method, "schedule": schedule, "fraction": 0.125, "auc": auc, "cost": cost}
        found.append(json.dumps(row))

    for data, gap in (("a", 0.01), ("b", -0.002), ("census", 0.004)):
        add(data, 0, "full", "", 0.9, 1.0)
        for seed in (0, 1):
            add(data, seed, "uniform", "constant", 0.7 + seed / 100, 2.0)
            add(f"{data}-tiers", seed, "elimination", "decay", 0.7 + gap + seed / 50, 0.5)
    add("b", 7, "elimination", "decay", 0.9, 0.5)  # no partner
    add("a", 7, "uniform", "constant", 0.1, 9.0)  # no partner
    path = tmp_path / "robust.jsonl"
    path.write_text("\n".join(found) + "\n")
    return path


def test_differences_are_paired_and_averaged_within_datasets_first(rows: Path) -> None:
    default = "| **elimination, decay, tiers** (default) | uniform, constant"
    assert means(read(rows))[2:] == [
        f"{default} | tuning | +0.0090 | 2 of 2 | 0 | +0.0030 | 0.50 |",
        f"{default} | confirmation | +0.0090 | 1 of 1 | 0 | +0.0090 | 0.50 |",
        f"{default} | all | +0.0090 | 3 of 3 | 0 | +0.0030 | 0.50 |",
    ]


def test_cells_that_are_clearly_below_are_counted(rows: Path) -> None:
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    for row in found:
        if row["unit"][0] == "b-tiers":
            row["auc"] = 0.6 + row["unit"][2] / 100 + row["unit"][2] / 1e6
    rows.write_text("".join(json.dumps(row) + "\n" for row in found))
    assert "| tuning | -0.0425 | 1 of 2 | 1 | -0.1000 |" in means(read(rows))[2]


def test_models_are_averaged_within_a_dataset(rows: Path) -> None:
    assert by_dataset(read(rows))[2:] == [
        "| a | tuning | +0.0150 | +0.0150 |",
        "| b | tuning | +0.0030 | +0.0030 |",
        "| census | confirmation | +0.0090 | +0.0090 |",
    ]


def test_every_cell_of_the_default_is_shown(rows: Path) -> None:
    lines = grid(read(rows))
    assert len(lines) == 2 + 3
    assert lines[2].startswith("| a | FM | 12.5% | 2 | 0.7050 | 0.7200 | +0.0150 | 0.")
    assert lines[2].endswith("| 2.00 | 0.50 |")


def test_the_page_on_disk_agrees_with_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "<!-- table robust-grid -->" in text
    assert filled(text, read(RESULTS), read(RESULTS, SEARCHES)) == text, "run: python -m evidence.robust"


def test_searches_are_compared_with_the_default_in_the_cells_that_they_have(rows: Path, tmp_path: Path) -> None:
    others = tmp_path / "others.jsonl"
    with others.open("w") as file:
        for data, seed, method, auc, cost in (
            ("a-tiers", 0, "ham", 0.703, 0.8), ("a-tiers", 1, "ham", 0.703, 0.8), ("b-tiers", 1, "ham", 0.73, 0.8),
            ("a-tiers", 0, "pep", 0.711, 4.0), ("a", 0, "uniform", 0.69, 0.3), ("a", 1, "uniform", 0.7, 0.3),
        ):  # fmt: skip
            row = {"unit": [data, "fm", seed], "method": method, "schedule": "decay", "fraction": 0.125}
            file.write(json.dumps(row | {"auc": auc, "cost": cost}) + "\n")
        refused = {"unit": ["b-tiers", "fm", 0], "method": "pep", "schedule": "decay", "fraction": 0.125}
        file.write(json.dumps(refused | {"refused": "too small"}) + "\n")
    assert searches(read(rows, others))[2:] == [
        "| pep, decay, tiers | 1 | +0.0010 | 1 of 1 | +0.0110 | 1 of 1 | +0.0110 | 4.00 |",
        "| **elimination, decay, tiers** (default) | 2 | +0.0000 | 0 of 2 | +0.0090 | 2 of 2 | +0.0030 | 0.50 |",
        "| ham, decay, tiers | 1 to 2 | -0.0025 | 1 of 2 | +0.0090 | 1 of 2 | -0.0020 | 0.80 |",
        "| uniform, constant | 2 to 3 | -0.0090 | 0 of 2 | +0.0000 | 0 of 2 | +0.0000 | 3.40 |",
        "| uniform, decay | 2 | -0.0250 | 0 of 1 | -0.0100 | 0 of 1 | -0.0100 | 0.30 |",
    ]
    assert by_search(read(rows, others))[2:] == [
        "| ham, decay, tiers | a | -0.0170 | -0.0170 |",
        "| ham, decay, tiers | b | +0.0120 | +0.0120 |",
        "| pep, decay, tiers | a | +0.0010 | +0.0010 |",
    ]


def test_a_default_measured_with_other_searches_replaces_that_of_the_page(rows: Path, tmp_path: Path) -> None:
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    changed = [row | {"auc": row["auc"] + 1} for row in found if row["unit"] == ["a-tiers", "fm", 1]]
    others = tmp_path / "others.jsonl"
    others.write_text("".join(json.dumps(row) + "\n" for row in changed))
    (before,), (after,) = (
        [cell[("elimination", "decay", "tiers")] for key, cell in read(*paths).items() if key[0] == "a"]
        for paths in ([rows], [rows, others])
    )
    assert after == {1: before[1] | {"auc": before[1]["auc"] + 1}}, "its seeds only"
    others.write_text(others.read_text() * 2)
    with pytest.raises(AssertionError, match="two rows"):
        read(rows, others)


def test_no_other_row_is_in_two_files(rows: Path, tmp_path: Path) -> None:
    others = tmp_path / "others.jsonl"
    others.write_text(next(line for line in rows.read_text().splitlines() if "constant" in line))
    with pytest.raises(AssertionError, match="two files"):
        read(rows, others)
