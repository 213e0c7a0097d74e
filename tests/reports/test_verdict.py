"""What a run says about itself: intervals, and warnings in plain words."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.records import RunRecord
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.comparison.differences import T_975, differences
from fieldwise.reports.run import headline, markdown, verdict
from fieldwise.reports.run.estimate import Estimate, over_seeds
from fieldwise.reports.run.view import open_run
from tests.command_line import cli
from tests.reports.conftest import SMALL, data_of


@pytest.fixture(scope="module")
def record(finished: Path) -> RunRecord:
    return open_run(finished).records[0]


@pytest.fixture(scope="module")
def baselines(finished: Path) -> BaselineRecord:
    found = open_run(finished).baselines
    assert found is not None
    return found


def with_test(record: RunRecord, full: tuple[float, float], small: tuple[float, float], error: float) -> RunRecord:
    """The record with other test metrics, and one standard error for all of them."""
    assert record.errors is not None
    update: dict[str, Any] = {"errors": record.errors.model_copy(update=dict.fromkeys(record.errors.to_json(), error))}
    for name, (auc, loss) in {"full_test": full, "compact_test": small}.items():
        update[name] = getattr(record, name).model_copy(update={"auc": auc, "log_loss": loss})
    return record.model_copy(update=update)


def with_rows(baselines: BaselineRecord, **changes: Any) -> BaselineRecord:
    enough = {
        "rows": {"train": 8_000, "valid": 1_000, "test": 1_000},
        "clicks": {"train": 2_000, "valid": 250, "test": 250},
    }
    metrics = baselines.constant.model_copy(update={"log_loss": 0.5})
    logistic = baselines.logistic.model_copy(update={"auc": 0.7, "log_loss": 0.45})
    return baselines.model_copy(
        update={**enough, "constant": metrics, "logistic": logistic, "auc_error": 0.01, **changes}
    )


SOUND = ((0.75, 0.4), (0.74, 0.41), 0.001)


def test_a_sound_run_has_no_warnings(record: RunRecord, baselines: BaselineRecord) -> None:
    assert verdict.warnings([with_test(record, *SOUND)], with_rows(baselines)) == []


@pytest.mark.parametrize(
    ("tested", "changes", "says"),
    [
        (
            ((0.51, 0.4), (0.74, 0.4), 0.006),
            {"auc_error": 0.2},
            "Clicks are not ranked better than by a constant, whose AUC is 0.5: full model 0.5100 (0.4982 to 0.5218). "
            "These fields may not predict this label, or there are too few rows.",
        ),
        (
            ((0.75, 0.4), (0.74, 0.5002), 0.001),
            {},
            "Probabilities are worse than a constant, whose log loss is 0.5000: compact at 6 columns 0.5002 (0.4982 to "
            "0.5022). Do not use them as probabilities.",
        ),
        (
            ((0.75, 0.4), (0.69, 0.4), 0.001),
            {},
            "A logistic regression ranks better, with AUC 0.7000: compact at 6 columns 0.6900 (0.6880 to 0.6920).",
        ),
        (
            SOUND,
            {"clicks": {"train": 2_000, "valid": 99, "test": 100}},
            "Only 99 clicks in the 1,000 validation rows: too few to stop training and choose columns, so the numbers "
            "are mostly chance. Give more rows, or a larger fraction of them to this split.",
        ),
        (
            SOUND,
            {"clicks": {"train": 2_000, "valid": 100, "test": 950}},
            "Only 50 rows without a click in the 1,000 test rows: too few to measure anything, so the numbers are "
            "mostly chance. Give more rows, or a larger fraction of them to this split.",
        ),
        (
            ((0.75, 0.4), (0.749, 0.4), 0.001),
            {},
            "The AUC difference between compact and full is within its 95% interval: -0.0010 (-0.0030 to +0.0010) at 6 "
            "columns. So the test rows cannot tell which of the two is better.",
        ),
    ],
)
def test_each_reason_to_doubt_is_one_warning(
    tested: Any, changes: dict[str, Any], says: str, record: RunRecord, baselines: BaselineRecord
) -> None:
    assert verdict.warnings([with_test(record, *tested)], with_rows(baselines, **changes)) == [says]


@pytest.mark.parametrize(
    ("best", "says"), [(1.0, "by itself reaches AUC 1.0000"), (0.9, "is the best single field and reaches AUC 0.9")]
)
def test_a_leak_is_named(best: float, says: str, record: RunRecord, baselines: BaselineRecord) -> None:
    fields = [field.model_copy(update={"auc": best if field.name == "city" else 0.6}) for field in baselines.fields]
    perfect = with_test(record, (0.9999, 0.01), (0.9999, 0.01), 0.0001)
    (line,) = verdict.warnings([perfect], with_rows(baselines, fields=fields))
    assert line.startswith("Almost perfect: full model 0.9999")
    assert f"'city' {says}" in line
    (line,) = verdict.warnings([perfect], None)
    assert line.endswith("look for one that is known only after the click.")


def test_a_field_that_may_hold_the_label_is_named_before_anything_is_perfect(
    record: RunRecord, baselines: BaselineRecord
) -> None:
    fields = [field.model_copy(update={"auc": 0.96 if field.name == "city" else 0.6}) for field in baselines.fields]
    (line,) = verdict.warnings([with_test(record, *SOUND)], with_rows(baselines, fields=fields))
    assert line.startswith("Test AUC by one field only: 'city' 0.9600. It may hold the label itself (a leak).")


def test_noise_is_not_beaten_by_a_regression_that_is_noise_too(record: RunRecord, baselines: BaselineRecord) -> None:
    poor = with_rows(baselines, logistic=baselines.logistic.model_copy(update={"auc": 0.51}), auc_error=0.02)
    lines = verdict.warnings([with_test(record, (0.49, 0.4), (0.49, 0.4), 0.001)], poor)
    assert [line.split(" ")[0] for line in lines] == ["Clicks", "The"]


def test_seeds_widen_an_interval_and_rows_are_shared() -> None:
    assert over_seeds([0.7], [0.01]) == Estimate(0.7, 0.01)
    two = over_seeds([0.70, 0.72], [0.01, 0.01])
    assert two.value == pytest.approx(0.71)
    assert two.error == pytest.approx(math.sqrt(0.01**2 + 0.0002 / 2))
    assert over_seeds([0.7, 0.8], [0.01, None]).error is None
    assert Estimate(0.5).text() == "0.5000"
    assert Estimate(-0.5, 0.1).text("+") == "-0.5000 (-0.6960 to -0.3040)"


def test_records_of_older_versions_are_reported_without_intervals(record: RunRecord) -> None:
    old = record.model_copy(update={"errors": None})
    said = headline.sentence([old])
    assert said.endswith("One seed.")
    assert "logistic" not in said
    assert "(" in markdown.report([record])
    assert f"| full model | {old.full_test.auc:.4f} |" in markdown.report([old])


def test_every_view_of_a_run_has_the_verdict(finished: Path) -> None:
    view = open_run(finished)
    data = data_of(finished / "report-planted.html")
    names = ["constant", "logistic regression", "full model", "6 columns", "40% parameters"]
    assert [model["name"] for model in data["verdict"]["models"]] == names
    assert data["warnings"] == verdict.warnings(view.records, view.baselines)
    text = (finished / "report-planted.md").read_text()
    for name in names:
        assert f"| {name} |" in text
    for line in data["warnings"]:
        assert f"- **Warning.** {markdown.plain(line)}" in text
    assert markdown.plain(data["headline"]) in text


def test_the_stage_is_complete_once_and_belongs_to_its_rows(tmp_path: Path) -> None:
    tables = {
        **SMALL,
        "run": {"budgets": ["6"], "device": "cpu"},
        "data": {"name": "planted", "rows": 1000},
        "model": {"name": "fm", "width": 2},
        "search": {"name": "uniform"},
    }
    out = tmp_path / "run"
    pipeline.run(RunSettings.parse(tables), out)
    path = out / "baselines" / "record.json"
    before = path.read_bytes()
    pipeline.run(RunSettings.parse(tables), out)
    assert path.read_bytes() == before, "not measured again"
    path.unlink()
    pipeline.run(RunSettings.parse(tables), out)
    again, first = json.loads(path.read_text()), json.loads(before)
    assert {**again, "seconds": 0} == {**first, "seconds": 0}
    path.write_text("{}")
    assert open_run(out).baselines is None
    assert "baselines/record.json is damaged (rows: Field required)" in open_run(out).missing[0]
    (out / "baselines" / "stage.json").write_text('{"dataset": "other"}')
    result = cli("run", "--out", out)
    assert result.returncode == 2
    assert "baselines' was made with other settings: dataset ('other' -> " in result.stderr


def test_a_run_ends_with_its_headline_and_warnings_on_the_terminal(tmp_path: Path) -> None:
    small = ["data.rows=1000", "pretrain.epochs=1", "retrain.epochs=1", "model.width=2"]
    sets = [word for value in small for word in ("--set", value)]
    result = cli(
        "run", "--out", tmp_path, "--budget", "6", "--model", "fm", "--search", "uniform", "--device", "cpu", *sets
    )
    assert result.returncode == 0, result.stderr
    assert "baselines: a constant, and a logistic regression: begins" in result.stdout
    assert "With a budget of 6 columns the embedding tables shrink from" in result.stdout
    assert "Warning: Only " in result.stdout


def test_a_comparison_shows_each_method_s_difference_to_the_baseline() -> None:
    def cell(method: str, seed: int, auc: float) -> dict[str, Any]:
        record = {"compact_test": {"auc": auc}}
        return {"model": "fm", "budget": "25%", "method": method, "seed": seed, "record": record}

    aucs = {"uniform": (0.70, 0.71, 0.72), "ham": (0.72, 0.72, 0.74), "rounds": (0.69,)}
    cells = [cell(method, seed, auc) for method, values in aucs.items() for seed, auc in enumerate(values)]
    ham, rounds = differences(cells, "uniform")
    assert (ham["method"], ham["pairs"], rounds["pairs"]) == ("ham", 3, 1)
    expected = stats.ttest_rel(aucs["ham"], aucs["uniform"]).confidence_interval()
    assert [ham["low"], ham["high"]] == pytest.approx([expected.low, expected.high], rel=1e-3)
    assert ham["value"] == pytest.approx(0.05 / 3)
    assert (rounds["value"], rounds["low"]) == (pytest.approx(-0.01), None)
    assert pytest.approx([stats.t.ppf(0.975, df) for df in range(1, 31)], abs=6e-4) == T_975
