"""Two commands on one folder: one works, the other says in one line who does."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldwise import pipeline
from fieldwise.compare import compare
from fieldwise.compare_settings import CompareSettings
from fieldwise.core.errors import RunError
from fieldwise.core.lock import alone
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import export
from fieldwise.exports.targets import export_to
from fieldwise.run_settings import RunSettings
from fieldwise.train.task import Task
from tests.test_cli import FAST

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
    with alone(out, beside=verb == "prepare"):
        with pytest.raises(RunError, match=r"is in use by process \d+ since "):
            commands[verb]()
        held = [path.name for path in out.iterdir()] if out.exists() else []
    assert sorted(held) == ([] if verb == "prepare" else [".lock", ".lock.json"])
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_dataset_that_is_there_is_opened_whoever_works(tmp_path: Path) -> None:
    settings = RunSettings.parse(SETTINGS)
    made = pipeline.prepare(settings, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with alone(tmp_path / "data", beside=True):
        assert pipeline.prepare(settings, tmp_path / "data").fingerprint == made.fingerprint


def both(first: list[str], second: list[str]) -> None:
    """Two processes at once: one ends well, the other names it, or they did not meet."""
    start = [sys.executable, "-c", "from fieldwise.cli import main; main()"]
    processes = [
        subprocess.Popen([*start, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in (first, second)
    ]
    said = [process.communicate()[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 2], said
    winner, loser = codes.index(0), codes.index(2)
    assert said[loser].startswith("fieldwise: '")
    assert f" is in use by process {processes[winner].pid} since " in said[loser]
    assert len(said[loser].splitlines()) == 1


def test_two_runs_at_once_in_one_folder(tmp_path: Path) -> None:
    words = ["run", "--out", str(tmp_path / "out"), *RUN]
    both(words, words)
    assert not list((tmp_path / "out").rglob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["run pretrain", "prepare prepare", "compare compare", "export export"])
def test_other_pairs_at_once_in_one_folder(pair: str, tmp_path: Path, planted: Dataset) -> None:
    export(Task.of(planted, device="cpu").new_model(), tmp_path / "model", planted.encoder)
    out = ["--out", str(tmp_path / "out")]
    few = ["--method", "uniform", "--method", "ham", *FAST[:6], "--set", "data.rows=200000"]
    words = {
        "run": ["run", *out, *RUN, "--set", "pretrain.epochs=30"],
        "pretrain": ["pretrain", *out, *RUN[:-4], "--model", "fm", "--set", "pretrain.epochs=30"],
        "prepare": ["prepare", *out, "--set", "data.rows=3000000"],
        "compare": ["compare", *out, *few],
        "export": ["export", str(tmp_path / "model"), "--to", "onnx", *out],
    }
    first, second = pair.split()
    both(words[first], words[second])
