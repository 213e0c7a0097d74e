"""`report` and `watch` as a user types them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import FAST, cli
from tests.reports.conftest import data_of


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


def test_report_writes_the_page_and_prints_the_tables(copy: Path) -> None:
    for name in ("report-planted.md", "report-planted.html"):
        (copy / name).unlink()
    result = cli("report", copy)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("# ham on planted, dcnv2")
    assert f"Report: {copy / 'report-planted.html'}" in result.stdout
    assert data_of(copy / "report-planted.html")["kind"] == "run"
    assert (copy / "report-planted.md").exists()
    assert result.stderr == ""


def test_report_writes_only_the_format_asked_for(copy: Path) -> None:
    for name in ("report-planted.md", "report-planted.html"):
        (copy / name).unlink()
    assert cli("report", copy, "--format", "md").returncode == 0
    assert not (copy / "report-planted.html").exists()
    assert cli("report", copy, "--format", "png").returncode == 0
    assert (copy / "figures" / "front-planted.png").exists()
    wrong = cli("report", copy, "--format", "pdf")
    assert wrong.returncode == 2
    assert "html" in wrong.stderr


def test_report_of_an_unfinished_run_names_what_is_missing(copy: Path) -> None:
    for seed in (0, 1):
        shutil.rmtree(copy / f"seed-{seed}" / "retrain")
    result = cli("report", copy)
    assert result.returncode == 0
    assert (
        "retrain of 6 columns, seed 0: not complete, seed-0/retrain/6-columns/record.json is missing" in result.stderr
    )
    assert len(result.stderr.splitlines()) == 4
    assert len(data_of(copy / "report-planted.html")["searches"]) == 4


def test_report_against_a_run_over_other_data_is_refused(copy: Path, tmp_path: Path) -> None:
    result = cli("report", copy, "--against", tmp_path / "none")
    assert result.returncode == 2
    assert "is not a run folder" in result.stderr


def test_watch_shows_a_run_and_ends_with_it(copy: Path, tmp_path: Path) -> None:
    for more in (["--once"], []):
        result = cli("watch", copy, *more)
        assert result.returncode == 0, result.stderr
        assert "retrain 40% parameters, seed 1" in result.stdout
        assert "against a target of" in result.stdout
    assert "is no run folder" in cli("watch", tmp_path / "none").stderr


def test_looking_needs_no_torch(copy: Path) -> None:
    for words in (["report", str(copy)], ["watch", str(copy), "--once"]):
        code = (
            f"import sys; sys.argv = ['fieldwise', *{words!r}]\nimport fieldwise.cli\n"
            "try: fieldwise.cli.main()\nexcept SystemExit as stop: assert stop.code in (0, None), stop.code\n"
            "assert not {'torch', 'pyarrow', 'matplotlib'} & set(sys.modules)"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


def test_a_run_says_where_its_page_is_and_writes_tensorboard_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    result = cli("run", "--out", tmp_path / "r", "--budget", "8", "--model", "fm", "--tensorboard", *FAST)
    assert result.returncode == 0, result.stderr
    assert str(tmp_path / "r" / "report-planted.html") in result.stdout
    assert list((tmp_path / "r" / "tensorboard").glob("events.out.tfevents.*"))
    (command,) = data_of(tmp_path / "r" / "report-planted.html")["commands"]
    assert "run --out" in command
    assert "--tensorboard" in command
