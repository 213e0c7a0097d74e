"""A full disk or a kill while preparing: a clear error, and no partial dataset."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from fieldwise.data.prepare import prepare
from fieldwise.data.table import Table
from tests.command_line import START, cli, small_disk


def write(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join(["click,a,b", *rows, ""]))


def command(raw: Path, out: Path) -> list[str]:
    return ["prepare", "--out", str(out), "--source", "table", "--label", "click", "--raw", str(raw)]


@pytest.mark.parametrize("limit", [20_000, 60_000], ids=["while the engine writes", "while rows are encoded"])
def test_a_disk_that_fills_up_is_told(limit: int, tmp_path: Path) -> None:
    write(tmp_path / "raw.csv", [f"{i % 2},{i % 7},u{i % 50}" for i in range(30_000)])
    with small_disk(limit):
        result = cli(*command(tmp_path / "raw.csv", tmp_path / "out"))
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("fieldwise: No room left at")
    assert len(result.stderr.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["raw.csv"]


def test_a_killed_preparation_leaves_no_dataset_and_can_be_run_again(tmp_path: Path) -> None:
    write(tmp_path / "raw.csv", [f"{i % 2},{i % 7},u{i}" for i in range(400_000)])
    process = subprocess.Popen([*START, *command(tmp_path / "raw.csv", tmp_path / "out")], stdout=subprocess.DEVNULL)
    work = tmp_path / ".out.partial"
    while not work.exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    data = prepare(Table(raw=tmp_path / "raw.csv", label="click"), tmp_path / "out")
    assert not work.exists()
    assert sum(data.info["rows"].values()) == 400_000
