"""Two commands on one folder: one works, the other names it in a one-line error."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldwise.comparison.results import compare
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.errors import RunError
from fieldwise.core.lock import exclusive
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import export
from fieldwise.exports.targets import export_to
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from fieldwise.train.task import Task
from tests.command_line import FAST

SETTINGS = {"data": {"rows": 2000}, "run": {"device": "cpu"}}
RUN = [*FAST, "--set", "data.rows=2000", "--budget", "8", "--model", "fm"]


@pytest.mark.parametrize("verb", ["pretrain", "search", "retrain", "run", "compare", "export", "prepare"])
def test_every_command_that_writes_works_alone(verb: str, tmp_path: Path, planted: Dataset) -> None:
    out = tmp_path / "out"
    settings = RunSettings.parse(SETTINGS)
    commands: dict[str, Callable[[], object]] = {
        "pretrain": lambda: pipeline.pretrain(settings, out),
        "search": lambda: pipeline.search(settings, out),
        "retrain": lambda: pipeline.retrain(settings, out),
        "run": lambda: pipeline.run(settings, out),
        "compare": lambda: compare(CompareSettings.parse(SETTINGS), out),
        "export": lambda: export_to("json", tmp_path / "model", out),
        "prepare": lambda: pipeline.prepare(settings, out),
    }
    export(Task.of(planted, device="cpu").new_model(), tmp_path / "model")
    with exclusive(out, outside=verb == "prepare"):
        with pytest.raises(RunError, match=r"is in use by process \d+ since "):
            commands[verb]()
        held = [path.name for path in out.iterdir()] if out.exists() else []
    assert sorted(held) == ([] if verb == "prepare" else [".lock", ".lock.json"])
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_dataset_that_is_there_is_opened_whoever_works(tmp_path: Path) -> None:
    settings = RunSettings.parse(SETTINGS)
    made = pipeline.prepare(settings, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with exclusive(tmp_path / "data", outside=True):
        assert pipeline.prepare(settings, tmp_path / "data").fingerprint == made.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["run run", "run pretrain", "prepare prepare", "compare compare", "export export"])
def test_of_two_processes_one_works_and_the_other_names_it(pair: str, tmp_path: Path, planted: Dataset) -> None:
    export(Task.of(planted, device="cpu").new_model(), tmp_path / "model", planted.encoder)
    out = ["--out", str(tmp_path / "out")]
    words = {
        "run": ["run", *out, *RUN],
        "pretrain": ["pretrain", *out, "--set", "data.rows=2000", "--model", "fm", "--device", "cpu"],
        "prepare": ["prepare", *out, "--set", "data.rows=2000"],
        "compare": ["compare", *out, "--method", "uniform", "--set", "data.rows=2000", "--device", "cpu"],
        "export": ["export", str(tmp_path / "model"), "--to", "onnx", *out],
    }
    first, second = pair.split()
    lock = tmp_path / ".out.lock.json" if first == "prepare" else tmp_path / "out" / ".lock.json"
    start = [sys.executable, "-c", "from fieldwise.cli import main; main()"]
    with subprocess.Popen([*start, *words[first]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as one:
        while not lock.exists() and one.poll() is None:
            time.sleep(0.01)
        one.send_signal(signal.SIGSTOP)  # so that it still works when the other comes
        other = subprocess.run([*start, *words[second]], capture_output=True, text=True, check=False)
        one.send_signal(signal.SIGCONT)
        _, said = one.communicate()
    assert (one.returncode, said) == (0, "")
    assert other.returncode == 2
    assert other.stderr.startswith(f"fieldwise: '{tmp_path / 'out'}' is in use by process {one.pid} since ")
    assert len(other.stderr.splitlines()) == 1
    assert not [path for path in tmp_path.rglob(".*") if "lock" in path.name]
