"""Comparisons from files to files: fair, resumable, parallel, and not stopped by a failing cell."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fieldwise.comparison.results import compare
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.comparison import Comparison
from fieldwise.core.errors import BudgetError, RunError, SettingsError
from fieldwise.core.settings import override, read_toml
from fieldwise.data.store import Dataset
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.comparison.page_data import comparison_data
from fieldwise.reports.run.view import open_run
from tests.command_line import START, cli
from tests.comparison.small_comparison import SMALL, figures, settings


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare") / "small"


@pytest.fixture(scope="module")
def finished(out: Path) -> Comparison:
    return compare(settings(), out)


def test_every_cell_is_complete_or_says_why_not(finished: Comparison, out: Path) -> None:
    assert len(finished.cells) == 2 * 4 * 2 * 2
    failed = [cell for cell in finished.cells if cell.state != "complete"]
    assert {(cell.method, cell.budget, cell.state) for cell in failed} == {("mde", "5 columns", "failed")}
    assert all("The smallest it can meet: 6 columns" in (cell.error or "") for cell in failed)
    assert Comparison.model_validate(json.loads((out / "comparison.json").read_text())) == finished
    text = (out / "comparison.md").read_text()
    assert text.startswith("# Searches compared on planted")
    base = finished.without_search
    assert base is not None
    assert 0.5 < base.logistic.auc < 1
    assert text.count(f"| logistic regression |  |  | {base.logistic.auc:.4f} | {base.logistic.log_loss:.4f} |") == 4
    assert text.count(f"| constant |  |  | 0.5000 | {base.constant.log_loss:.4f} |") == 4
    page = comparison_data(finished.to_json())
    assert f"A logistic regression on the same rows has {base.logistic.auc:.4f}." in page["headline"]
    assert [one["method"] for one in page["others"]] == ["logistic regression", "constant"]
    old = {name: value for name, value in finished.to_json().items() if name != "without_search"}
    assert comparison_data(old)["others"] == []
    assert "methods on planted" in (out / "report-planted.html").read_text()
    assert finished.comparisons == 2 * (2 + 3)
    assert {row.method for row in finished.rows if not row.uses_pretrained} == {"mde"}


def test_a_cell_is_what_a_run_of_its_own_gives(finished: Comparison, tmp_path: Path) -> None:
    tables = {name: SMALL[name] for name in ("run", "data", "pretrain", "retrain")}
    tables["model"] = {"name": "fm", "width": 4, "common": 4}
    tables["search"] = {"name": "ham", **SMALL["methods"]["ham"]}
    (single,) = pipeline.run(
        RunSettings.parse(override(tables, ["run.seeds=[1]", "run.budgets=['40% parameters']"])), tmp_path / "run"
    )
    (cell,) = [
        c for c in finished.cells if (c.model, c.method, c.budget, c.seed) == ("small-fm", "ham", "40% parameters", 1)
    ]
    assert cell.record is not None
    assert cell.record.compact_test == single.compact_test
    assert cell.record.full_test == single.full_test
    assert cell.record.widths_after == single.widths_after


def test_one_pretraining_serves_all_methods_and_each_method_has_a_run_folder(finished: Comparison, out: Path) -> None:
    assert len(list(out.glob("**/pretrain/record.json"))) == 2 * 2
    assert len(open_run(out / "dcnv2" / "ham").records) == 4
    fitted = settings().fitted(Dataset.open(out / "dataset"))
    assert CompareSettings.parse(read_toml(out / "settings.toml")) == fitted


def test_the_same_command_does_nothing_twice_but_tries_failed_cells_again(finished: Comparison, out: Path) -> None:
    lines: list[str] = []
    again = compare(settings(), out, say=lines.append)
    assert figures(again) == figures(finished)
    assert len(lines) == 4
    assert all("mde 5 columns" in line and "failed" in line for line in lines)


def test_side_by_side_gives_the_same_table_and_survives_bugs_and_deaths(finished: Comparison, tmp_path: Path) -> None:
    broken = {"bug": {"name": "tests.comparison.broken:Raises"}, "death": {"name": "tests.comparison.broken:Dies"}}
    chosen = settings(
        compare={"models": ["dcnv2"], "methods": ["ham", "uniform", *broken]}, methods={**SMALL["methods"], **broken},
        run={"seeds": [0], "budgets": ["40% parameters"]},
    )  # fmt: skip
    found = compare(chosen, tmp_path / "out", jobs=2)
    states = {(c.model, c.method): c for c in found.cells}
    assert states["dcnv2", "bug"].error == "RuntimeError('two\\nlines')"
    assert "its process died" in (states["dcnv2", "death"].error or "")
    marker = tmp_path / "out" / "dcnv2" / "bug" / "seed-0" / "retrain" / "40pct-parameters" / "failed.json"
    assert "broken.py" in json.loads(marker.read_text())["traceback"]
    serial = {
        (c.model, c.method): c.record for c in finished.cells if (c.seed, c.budget) == (0, "40% parameters")
    }  # fmt: skip
    for key in (("dcnv2", "ham"), ("dcnv2", "uniform")):
        mine, record = states[key].record, serial[key]
        assert mine is not None
        assert record is not None
        assert mine.compact_test == record.compact_test
        assert mine.widths_after == record.widths_after


def test_a_failed_pretraining_fails_its_cells_and_no_others(tmp_path: Path) -> None:
    chosen = settings(
        compare={"models": ["dcnv2", "wild"], "methods": ["uniform", "rms"]}, pretrain={"epochs": 1},
        models={"wild": {"name": "fm", "init": 1e30}}, run={"seeds": [0], "budgets": ["8"]},
    )  # fmt: skip
    found = compare(chosen, tmp_path / "out")  # side by side: test_scheduler.py
    assert [c.state for c in found.cells] == ["complete", "complete", "failed", "failed"]
    assert all(c.error == "the pretraining of wild, seed 0 failed." for c in found.cells if c.model == "wild")


def test_time_that_is_up_begins_no_cell_and_the_rest_is_left(tmp_path: Path) -> None:
    chosen = settings(run={"seeds": [0], "budgets": ["8"]})
    for jobs in (1, 2):
        found = compare(chosen, tmp_path / "out", jobs=jobs, minutes=0)
        assert {cell.state for cell in found.cells} == {"open"}
        assert found.rows == []
    assert (tmp_path / "out" / "comparison.md").exists()


def test_kill_9_and_the_same_command_again_give_the_same_table(finished: Comparison, out: Path, tmp_path: Path) -> None:
    chosen = ["--seed", "0", "--budget", "40% parameters"]
    words = ["compare", str(out / "settings.toml"), "--out", str(tmp_path / "out"), *chosen]
    command = [*START, *words, "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("3 of"):
                os.kill(process.pid, signal.SIGKILL)  # only the parent: its processes must end too
                break
    again = cli(*words)  # one at a time, which gives the same cells
    assert again.returncode == 0, again.stderr
    done = [line for line in again.stdout.splitlines() if " of " in line and "complete" in line]
    assert 0 < len(done) <= 10 - 3
    found = Comparison.model_validate(json.loads((tmp_path / "out" / "comparison.json").read_text()))
    cells = [cell for cell in figures(finished)[0] if cell[2:4] == ("40% parameters", 0)]
    again_cells = figures(found)[0]
    for *_, record in (*cells, *again_cells):
        del record["settings"]["run"]
    assert again_cells == cells


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"methods": {"ham": {"batch": 512, "epochs": 3}}}, r"search.epochs \(2 -> 3\)"),
        ({"pretrain": {"batch": 256}}, r"pretrain.batch \(512 -> 256\)"),
        ({"model": {"width": 5}}, r"model.width \(4 -> 5\)"),
    ],
)
def test_a_folder_with_other_settings_is_refused_with_the_keys(
    finished: Comparison, out: Path, changes: dict[str, Any], says: str
) -> None:
    before = (out / "comparison.json").read_text()
    with pytest.raises(RunError, match=says):
        compare(settings(**changes), out)
    assert (out / "comparison.json").read_text() == before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"compare": {"methods": ["hamm", "uniform"]}}, r"unknown 'hamm'. Did you mean 'ham'\?"),
        ({"compare": {"models": ["dcnv3"]}}, r"unknown 'dcnv3'. Did you mean 'dcnv2'\?"),
        ({"compare": {"baseline": "unifrom"}}, r"\[compare.baseline\] unknown 'unifrom'. Did you mean 'uniform'\?"),
        ({"compare": {"methods": ["ham", "ham", "uniform"]}}, "names 'ham' twice"),
        ({"compare": {"metods": ["ham"]}}, r"\[compare\] unknown 'metods'. Did you mean 'methods'\?"),
        ({"methods": {"ham": {"epoks": 2}}}, r"\[methods.ham\] unknown 'epoks'. Did you mean 'epochs'\?"),
        ({"methods": {"ham": {"gate": {"etta": 2}}}}, r"\[methods.ham.gate\] unknown 'etta'. Did you mean 'eta'\?"),
        ({"methods": {"ham": 3}}, r"\[methods.ham\] must be a table"),
        ({"methods": {"hamm": {"epochs": 3}}}, r"unknown 'hamm'. Did you mean 'ham'\?"),
        (
            {"compare": {"methods": ["../x", "uniform"]}, "methods": {"../x": {"name": "ham"}}},
            "a label has only letters",
        ),
        ({"models": {"small-fm": {"name": "fm", "comon": 4}}}, r"\[models.small-fm\] unknown 'comon'"),
        ({"search": {"name": "ham"}}, r"\[settings\] unknown 'search'"),
    ],
)
def test_bad_settings_are_told_where_they_stand(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        settings(**changes)


def test_a_budget_above_the_full_size_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="above the full size"):
        compare(settings(run={"budgets": ["999"]}), tmp_path / "out")
    assert not list(tmp_path.rglob("stage.json"))
