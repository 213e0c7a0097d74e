"""`--processes` starts the processes itself, on this machine or on Spark."""

from pathlib import Path

import pytest

from fieldwise.cli.launch import without
from fieldwise.core.plain_files import read_json
from tests.command_line import FAST, START, cli, processes_of
from tests.data.small_files import quiet, spark

RUN = ["--budget", "8", "--model", "fm", *FAST, "--set", "data.rows=1500", "--set", "pretrain.harmful=keep"]


def test_words_without_a_flag() -> None:
    assert without(["run", "--processes", "2", "--out", "x"], "--processes") == ["run", "--out", "x"]
    assert without(["run", "--processes=2", "--processes", "--processes"], "--processes") == ["run"]


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_a_number_of_processes_that_is_none(count: str, tmp_path: Path) -> None:
    done = cli("run", "--processes", count, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "--processes" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_launcher_cannot_start_processes_that_start_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fieldwise.cli.launch import in_processes
    from fieldwise.core.errors import SettingsError
    from fieldwise.pipeline.settings import RunSettings

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingsError, match="Use one of the two"):
        in_processes(2, RunSettings(), tmp_path)


@pytest.mark.slow
def test_processes_on_this_machine(tmp_path: Path) -> None:
    done = processes_of([*START, "run", *RUN, "--processes", "2", "--out", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report: ") == 2
    assert len(read_json(tmp_path / "record.json")) == 1
    other = processes_of([*START, "run", *RUN, "--processes", "2", "--set", "model.width=3", "--out", str(tmp_path)])
    assert other.returncode == 2
    assert other.stderr.count("\n") == 1, other.stderr
    assert "was made with other settings: model.width (4 -> 3)" in other.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@spark
@quiet
def test_processes_on_spark(tmp_path: Path) -> None:
    rows = [f"{i % 40},{i * 7 % 30},{int(i % 40 < i * 7 % 30)}" for i in range(1200)]
    (tmp_path / "clicks.csv").write_text("\n".join(["user,item,click", *rows]) + "\n")
    raw = ["--source", "table", "--raw", str(tmp_path / "clicks.csv"), "--label", "click"]
    engine = ["--engine", "spark", "--master", "local[2]", "--set", "engine.memory=1024"]
    small = [
        "--model",
        "fm",
        "--budget",
        "3",
        "--device",
        "cpu",
        "--set",
        "pretrain.epochs=1",
        "--set",
        "retrain.epochs=1",
    ]
    words = [
        *START,
        "run",
        *raw,
        *engine,
        *small,
        "--search",
        "uniform",
        "--processes",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    done = processes_of([*words, "--set", "model.width=2"])
    assert done.returncode == 0, done.stderr
    (record,) = read_json(tmp_path / "out" / "record.json")
    assert sum(record["widths_after"]) == 3
    other = processes_of([*words, "--set", "model.width=3"])
    assert other.returncode == 2
    assert "was made with other settings: model.width (2 -> 3)" in other.stderr.splitlines()[-1]
    assert not {".failure", ".processes.toml"} & {path.name for path in (tmp_path / "out").iterdir()}
