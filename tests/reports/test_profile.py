"""A profiled run has the same results, says where its seconds went, and writes traces of bounded size."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fieldwise.core.records import Epoch
from fieldwise.reports.run import profile as module
from fieldwise.reports.run.profile import FOLDER, PAGE, SKIPPED, STEPS, Operation, Profile, Stage, page
from tests.command_line import cli

SMALL = ["--budget", "8", "--model", "fm", "--seed", "0", "--device", "cpu"]
SMALL += ["--set", "data.rows=3000", "--set", "search.name=magnitude", "--set", "pretrain.harmful=keep"]
for _stage in ("pretrain", "retrain"):
    SMALL += ["--set", f"{_stage}.epochs=1", "--set", f"{_stage}.batch=128"]


def results(out: Path) -> list[dict[str, Any]]:
    records = json.loads((out / "record.json").read_text())
    return [{k: v for k, v in one.items() if k not in ("seconds", "peak_memory")} for one in records]


def train(profile: Profile, epochs: int, steps: int) -> None:
    profile.epoch("pretrain", Epoch(epoch=0, loss=None, auc=0.5, log_loss=0.7, seconds=0.1))
    for epoch in range(1, epochs + 1):
        for step in range(1, steps + 1):
            torch.ones(9) @ torch.ones(9)
            profile.step("pretrain", epoch, step, steps)
        profile.epoch("pretrain", Epoch(epoch=epoch, loss=0.6, auc=0.6, log_loss=0.6, seconds=0.1))


def test_a_profiled_run_has_the_same_results(tmp_path: Path) -> None:
    plain, profiled = tmp_path / "plain", tmp_path / "profiled"
    assert cli("run", "--out", plain, *SMALL).returncode == 0
    result = cli("run", "--out", profiled, "--profile", *SMALL)
    assert result.returncode == 0, result.stderr
    assert f"Profile: {profiled / PAGE}" in result.stdout
    assert "USDT" not in result.stderr + result.stdout
    assert results(profiled) == results(plain)
    assert not (plain / PAGE).exists()
    text = (profiled / PAGE).read_text()
    assert "| pretrain, seed 0 |" in text
    assert "aten::" in text
    traces = sorted((profiled / FOLDER).iterdir())
    assert [path.name.split("-", 1)[1] for path in traces] == [
        "pretrain-seed-0.json.gz",
        "retrain-8-columns-seed-0.json.gz",
    ]
    for path in traces:
        assert path.stat().st_size < 2_000_000
        assert {"ph", "name", "ts"} <= set(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"][5])
    (profiled / PAGE).unlink()
    again = cli("run", "--out", profiled, "--profile", *SMALL)
    assert "No profile: every stage was complete before." in again.stdout
    assert not (profiled / PAGE).exists()


def test_only_a_few_steps_of_an_epoch_are_profiled(tmp_path: Path) -> None:
    with Profile(tmp_path) as profile:
        profile.begin("prepare", done=True)
        profile.begin("long", done=False)
        train(profile, 2, 40)
        profile.begin("short epochs", done=False)
        train(profile, 4, 5)
        profile.begin("too short", done=False)
        train(profile, 1, SKIPPED)
    stages = {stage.title: stage for stage in profile.stages}
    assert {name: (s.steps, s.profiled) for name, s in stages.items()} == {
        "prepare": (0, 0), "long": (80, STEPS), "short epochs": (20, 2), "too short": (SKIPPED, 0),
    }  # fmt: skip
    assert [path.name for path in sorted((tmp_path / FOLDER).iterdir())] == [
        "02-long.json.gz",
        "03-short-epochs.json.gz",
    ]
    assert {"aten::dot", "aten::ones"} & {one.name for one in stages["long"].operations}
    text = (tmp_path / PAGE).read_text()
    assert "| prepare | complete before |" in text
    assert "10 of 80 steps" in text


def test_many_stages_have_seconds_and_few_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    with Profile(tmp_path) as profile:
        for number in range(4):
            profile.begin(f"stage {number}", done=False)
            train(profile, 1, 20)
    assert [stage.profiled for stage in profile.stages] == [STEPS, STEPS, 0, 0]
    assert all(stage.seconds["steps"] > 0 < stage.seconds["evaluation"] for stage in profile.stages)


def test_an_error_within_the_profiled_steps_ends_the_profiler(tmp_path: Path) -> None:
    def stopped() -> None:
        with Profile(tmp_path / "run") as profile:
            profile.begin("pretrain", done=False)
            for step in range(1, SKIPPED + 3):
                profile.step("pretrain", 1, step, 100)
            raise KeyboardInterrupt

    def refused() -> None:
        with Profile(tmp_path / "bad") as profile:
            profile.begin("prepare", done=False)
            raise ValueError("bad input")

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert "2 of 10 steps" in (tmp_path / "run" / PAGE).read_text()
    with pytest.raises(ValueError, match="bad input"):
        refused()
    assert not (tmp_path / "bad").exists()


def test_the_page_shows_every_second_and_escapes_names() -> None:
    stage = Stage("search | a", False, 7, {"steps": 1.5, "evaluation": 0.25, "other": 0.25}, 3, "t.json.gz")
    stage.operations = (Operation("kernel<a|b>", 1.25, 2.0),)
    text = page([stage])
    assert "2.00 | 1.50 | 0.25 | 0.25 | 7 |" in text
    assert "| kernel<a\\|b> | 1.250 | 2 |" in text
    assert "search \\| a |" in text
