"""Commands that a launcher starts in several processes: one result, one message, exit code 2 for errors."""

import os
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from fieldwise.core.plain_files import read_json
from fieldwise.data.store import Dataset
from fieldwise.reports.run.profile import FOLDER
from tests.command_line import cli
from tests.processes.many import started
from tests.processes.parts import RUN, files, in_place


def test_a_run_writes_what_one_process_writes(tmp_path: Path) -> None:
    (code, out, err), *others = started(2, in_place, [["run", *RUN, "--out", str(tmp_path / "two")]])
    assert code == 0, err
    assert "Report: " in out
    assert others == [(0, "", "")], "only the first process prints"
    assert cli("run", *RUN, "--out", tmp_path / "one").returncode == 0
    assert files(tmp_path / "two") == files(tmp_path / "one")
    two, one = (read_json(tmp_path / name / "record.json")[0] for name in ("two", "one"))
    assert two["widths_after"] == one["widths_after"]
    assert two["compact_test"]["auc"] == pytest.approx(one["compact_test"]["auc"], abs=1e-3)
    shutil.rmtree(tmp_path / "two" / "seed-0" / "retrain")
    (tmp_path / "two" / "record.json").unlink()
    again = cli("run", *RUN, "--out", tmp_path / "two")
    assert again.returncode == 0, again.stderr
    assert "pretrain, seed 0: already complete" in again.stdout


def test_a_profiled_run_with_two_rates_and_the_best_type_for_its_bytes(tmp_path: Path) -> None:
    few = [
        "--set",
        "search.name=magnitude",
        "--set",
        "data.rows=1000",
        "--set",
        "pretrain.batch=64",
        "--set",
        "retrain.batch=64",
        "--set",
        "pretrain.harmful=keep",
    ]
    few += ["--set", "pretrain.epochs=1", "--set", "model.width=4", "--device", "cpu", "--model", "fm"]
    words = ["run", "--budget", "14% bytes auto", *few, "--profile", "--out", str(tmp_path)]
    (code, out, err), *others = started(2, in_place, [words])
    assert code == 0, err
    assert out.count("Profile: ") == 1
    assert others == [(0, "", "")], "only the first process prints"
    traces = [path.name for path in (tmp_path / FOLDER).iterdir()]
    assert len(traces) == 3
    assert sum("at-rate-1" in name for name in traces) == 1, "two rates were to be tried"
    (record,) = read_json(tmp_path / "record.json")
    assert record["store"] == "int8"


def test_settings_that_differ(tmp_path: Path) -> None:
    words = [["run", *RUN, "--out", str(tmp_path / "out"), "--set", f"model.width={width}"] for width in (4, 5)]
    _one_line(started(2, in_place, words), "has other settings than process 0: model.width")
    assert not (tmp_path / "out").exists()


def reading(out: str, dataset: str) -> tuple[int, str, str]:
    """A run whose second process cannot open the dataset's description, as if the folder were not mounted there."""
    if os.environ["RANK"] == "1":
        with patch("fieldwise.data.store.INFO", "missing.json"):
            return in_place([["run", *RUN, "--out", out, "--dataset", dataset]])
    return in_place([["run", *RUN, "--out", out, "--dataset", dataset]])


def test_a_dataset_that_is_not_on_every_machine(tmp_path: Path, planted: Dataset) -> None:
    found = started(2, reading, str(tmp_path / "out"), str(planted.folder))
    _one_line(found, "is not a dataset", "(Process 1 of 2, on ")


@pytest.mark.parametrize("words", [["report", "nowhere"], ["compare", "--out", "nowhere"]])
def test_commands_of_one_process(words: list[str]) -> None:
    _one_line(started(2, in_place, [words]), f"`{words[0]}` got WORLD_SIZE=2", "uses one process")


def test_an_unknown_flag_is_told_once(tmp_path: Path) -> None:
    (code, _, err), (other, _, silent) = started(2, in_place, [["run", "--nosuch", "--out", str(tmp_path)]])
    assert (code, other, silent) == (2, 2, "")
    assert "--nosuch" in err


def _one_line(found: list[tuple[int, str, str]], *texts: str) -> None:
    assert [code for code, _, _ in found] == [2] * len(found), found
    errors = [err for _, _, err in found if err]
    assert len(errors) == 1, errors
    assert errors[0].count("\n") == 1
    for text in texts:
        assert text in errors[0]


def without_torchrec(words: list[str]) -> tuple[int, str, str]:
    """A command where TorchRec cannot be imported."""
    with patch.dict("sys.modules", {"torchrec": None, "torchrec.distributed": None}):
        return in_place([words])


def test_sharded_tables_need_torchrec(tmp_path: Path) -> None:
    words = ["run", *RUN, "--out", str(tmp_path / "out"), "--set", "run.tables=sharded"]
    install = "pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0"
    _one_line(started(2, without_torchrec, words), "[run] tables = 'sharded' needs TorchRec", install)
    assert not (tmp_path / "out").exists()
