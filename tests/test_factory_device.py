"""A user's factory on a device: run, search, resume, load and predict. Needs neither an engine nor the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fieldwise as fw
from tests.models.factories import Deep, deep, named

FEW = {"epochs": 2, "batch": 512}


class Branching(Deep):
    """Reads values and its own count of calls, which a captured step could not."""

    calls = 0

    def forward(self, ids: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = super().forward(ids)
        return out if float(out.detach().abs().sum()) > self.calls * 1e-9 else out * 2


def branching(schema: fw.Schema) -> nn.Module:
    """A model with control flow on values."""
    return Branching(schema)


def settings(planted: fw.Dataset, build: Callable[..., nn.Module], search: str, device: str) -> dict[str, Any]:
    return {
        "run": {"dataset": str(planted.folder), "device": device, "budgets": ["25%"]},
        "model": {"name": f"{build.__module__}:{build.__name__}"},
        "pretrain": FEW,
        "search": {"name": search, **FEW},
        "retrain": FEW,
    }


def cuda(*given: Any) -> Any:
    return pytest.param(*given, "cuda", marks=pytest.mark.gpu)


class Stop(fw.Watcher):
    """Ends the process, as a signal does, in the middle of the search."""

    def epoch(self, stage: str, epoch: Any) -> None:
        if stage == "search" and epoch.epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("build", "search", "device"),
    [(branching, "ham", "cpu"), cuda(deep, "ham"), cuda(named, "rounds"), cuda(deep, "sam-gs"), cuda(branching, "ham")],
)
def test_a_run_on_a_device_gives_a_model_that_predicts_the_same_on_the_cpu(
    build: Callable[..., nn.Module], search: str, device: str, planted: fw.Dataset, tmp_path: Path
) -> None:
    given = settings(planted, build, search, device)
    with pytest.raises(KeyboardInterrupt):
        fw.run(given, tmp_path / "r", Stop())
    (record,) = fw.run(given, tmp_path / "r")
    assert record.device == device
    assert record.compact_size.embedding <= record.full_size.embedding // 4
    folder = tmp_path / "r" / "seed-0" / "compact" / "25pct-parameters"
    on_cpu = fw.load(folder, model=build).model
    assert fw.evaluate(on_cpu, planted.test).auc == pytest.approx(record.compact_test.auc, abs=1e-3)
    there = fw.load(folder, device=device, model=build).model
    ids = torch.from_numpy(planted.test.ids[:200])
    with torch.no_grad():
        assert torch.allclose(there(ids.to(device)).cpu(), on_cpu(ids), atol=1e-4)


@pytest.mark.gpu
def test_the_command_runs_a_factory_on_a_gpu(planted: fw.Dataset, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    from tests.command_line import cli

    few = [f"--set={stage}.epochs=1" for stage in ("pretrain", "retrain")]
    words = ["--dataset", str(planted.folder), "--model", "tests.models.factories:deep", "--device", "cuda"]
    done = cli("run", *words, *few, "--budget", "25%", "--out", tmp_path / "r")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "r" / "seed-0" / "compact" / "25pct-parameters" / "model.json").exists()


@pytest.mark.gpu
def test_a_pruners_model_on_a_gpu_becomes_a_folder(planted: fw.Dataset, tmp_path: Path) -> None:
    model = named(planted.schema).cuda()
    ids = torch.from_numpy(planted.valid.ids[:64]).long().cuda()
    example = {name: ids[:, j] for j, name in enumerate(planted.schema.names)}
    small = fw.Pruner(model, (example,), fw.searches.Magnitude(), "25%").compact().eval()
    fw.export(small, tmp_path / "m", planted.encoder, build=named)
    with torch.no_grad():
        found = torch.sigmoid(fw.load(tmp_path / "m", model=named).model(ids.cpu()))
        assert torch.allclose(found, small(example).squeeze(1).cpu(), atol=1e-4)
