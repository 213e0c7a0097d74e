"""The statistics of a comparison."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fieldwise.core.comparison import CellRecord, Comparison, Full, Row
from fieldwise.reports.comparison.statistics import holm, on_front, paired, summarize
from fieldwise.reports.comparison.tables import markdown

EXAMPLE = Path(__file__).parents[1] / "data_files" / "comparison.json"


@pytest.fixture(scope="module")
def example() -> Comparison:
    return Comparison.model_validate(json.loads(EXAMPLE.read_text()))


def test_paired_tests_are_those_of_two_samples() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.random((2, 7))
    t, wilcoxon = paired(list(a - b))
    assert t == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert wilcoxon == pytest.approx(stats.wilcoxon(a, b).pvalue)


def test_paired_tests_at_their_edges() -> None:
    assert paired([0.0, 0.0, 0.0]) == (1.0, 1.0)
    t, wilcoxon = paired([0.1, 0.1, 0.1, 0.1, 0.1])
    assert t == pytest.approx(0.0, abs=1e-12)
    assert wilcoxon == pytest.approx(2 * 0.5**5), "five pairs cannot say more"
    assert all(0 <= p <= 1 for p in paired([0.2, 0.0, -0.1]))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def row(embedding: float, auc: float, model: str = "m") -> Row:
    return Row(
        model=model, budget="b", method="x", seeds=[0], auc=auc, auc_std=None, log_loss=0.5, embedding=embedding,
        nonzeros=None, dense=None, uses_pretrained=True, search_seconds=1, search_share=1, total_share=1,
        search_memory=1, test=None, front=False,
    )  # fmt: skip


def test_the_front_by_hand() -> None:
    rows = [row(10, 0.7), row(20, 0.8), row(20, 0.75), row(30, 0.79), row(30, 0.81), row(5, 0.9, "other")]
    full = [Full(model="m", seeds=[0], auc=0.81, auc_std=None, log_loss=0.5, embedding=100, seconds=1)]
    assert [on_front(r, rows, full) for r in rows] == [True, True, False, False, True, True]
    assert on_front(row(90, 0.805), [], full)
    assert not on_front(row(110, 0.805), [], full)


def test_the_example_s_statistics_follow_from_its_cells(example: Comparison) -> None:
    again = summarize(example.cells, example.baseline, example.jobs, example.settings)
    assert again == example
    tested = [r for r in again.rows if r.test]
    assert again.comparisons == len(tested) == len([r for r in again.rows if r.method != again.baseline])
    one = tested[0]
    assert one.test is not None
    mine, base = (
        {c.seed: c.record.compact_test.auc for c in again.cells if c.record and matches(c, one, method)}
        for method in (one.method, again.baseline)
    )
    seeds = sorted(mine)
    assert one.auc == pytest.approx(np.mean(list(mine.values())))
    assert one.auc_std == pytest.approx(np.std(list(mine.values()), ddof=1))
    assert one.test.pairs == len(seeds)
    assert one.test.t == pytest.approx(stats.ttest_rel([mine[s] for s in seeds], [base[s] for s in seeds]).pvalue)


def matches(cell: CellRecord, row: Row, method: str) -> bool:
    return (cell.model, cell.budget, cell.method) == (row.model, row.budget, method)


def test_the_example_holds_complete_and_failed_cells_and_reads_as_markdown(example: Comparison) -> None:
    assert {cell.state for cell in example.cells} == {"complete", "failed"}
    assert not example.complete
    text = markdown(example)
    for word in (
        "## dcnv2, 5 columns", "## fm, 40% parameters", "full model", "comparisons, corrected", "The front",
        "Cells that failed", "The smallest it can meet: 6 columns", "magnitude-rms",
    ):  # fmt: skip
        assert word in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = [line for line in lines if line.startswith("| method")]
    rows = [line for line in lines if line.startswith(("| ham", "| full model"))]
    assert {line.count("|") for line in rows} == {heads[0].count("|")}


def test_seconds_are_told_by_one_plain_training(example: Comparison) -> None:
    by_method = {r.method: r for r in example.rows if r.budget == "40% parameters" and r.model == "dcnv2"}
    cells = [c for c in example.cells if c.record and matches(c, by_method["ham"], "ham")]
    shares = [c.record.seconds["search"] / c.record.seconds["pretrain"] for c in cells if c.record]
    assert by_method["ham"].search_share == pytest.approx(np.mean(shares))
    assert by_method["ham"].total_share > 1 + by_method["ham"].search_share, "the pretraining is part of its price"
    fresh = [c.record.seconds for c in example.cells if c.record and matches(c, by_method["mde"], "mde")]
    expected = np.mean([(s["search"] + s["retrain"]) / s["pretrain"] for s in fresh])
    assert by_method["mde"].total_share == pytest.approx(expected), "a fresh start does not pay for a pretraining"
