"""Settings that need too much memory are refused before any work, with the numbers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fieldwise.comparison.results import compare
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.errors import SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout, Schema
from fieldwise.data.store import Dataset
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from fieldwise.models.model import Head, OwnModel, Slices
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from fieldwise.train import room
from fieldwise.train.pretraining import Pretrain

CPU = torch.device("cpu")


def limited(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(room, "available", lambda _: size)


def needs_just(size: int, model: OwnModel, schema: Schema, training: Pretrain, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Asserts that a model fits into this much memory, and not into one byte less."""
    limited(monkeypatch, size)
    room.check_room(model, schema, training, CPU)
    limited(monkeypatch, size - 1)
    with pytest.raises(SettingsError, match="of memory are available"):
        room.check_room(model, schema, training, CPU)
    return True


@pytest.mark.parametrize(("method", "copies"), [("adam", 3), ("dense-adam", 4), ("rowwise-adagrad", 1)])
def test_the_bound_is_weights_moments_and_gradients_to_the_byte(
    method: Any, copies: int, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in (FM(width=8), DCNv2(width=8)):
        size = model.build(schema.layout(8)).size()
        expected = 4 * copies * (size.embedding + size.first_order) + 16 * size.dense
        assert needs_just(expected, model, schema, Pretrain(optimizer=method), monkeypatch)


@pytest.mark.parametrize(
    "model",
    [
        {"hidden": [1_000_000_000]},
        {"hidden": [1_000_000_000, 1_000_000_000, 10]},
        {"hidden": [10**12, 10**12]},
        {"hidden": [10**30]},
    ],
)
def test_layers_that_no_machine_holds_are_refused_before_any_work(
    model: dict[str, Any], planted: Dataset, tmp_path: Path
) -> None:
    values = {"run": {"dataset": str(planted.folder), "device": "cpu"}, "model": model}
    with pytest.raises(SettingsError, match=r"take at least [\d.,]+ .iB to train, [\d.,]+ .iB of memory are available"):
        pipeline.run(RunSettings.parse(values), tmp_path / "out")
    with pytest.raises(SettingsError, match=r"of memory are available on cpu\. Lower model\.width"):
        compare(CompareSettings.parse(values), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_width_that_nobody_means_is_refused_when_it_is_read() -> None:
    with pytest.raises(SettingsError, match=r"\[model\] width = 1000000000: input should be less than or equal to"):
        RunSettings.parse({"model": {"width": 1_000_000_000}})


def test_tables_that_do_not_fit_are_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 2**30)
    many = Schema.of(user=10_000_000, item=1_000_000)
    with pytest.raises(SettingsError) as refused:
        room.check_room(FM(width=64), many, Pretrain(), CPU)
    assert "715,000,000 numbers in tables take at least 8.0 GiB to train, 1.0 GiB of memory" in str(refused.value)
    assert "Lower model.width (64)" in str(refused.value)


class Odd(OwnModel):
    """A user's base model that cannot be built on the meta device."""

    def head(self, layout: Layout) -> Head:
        return OddHead(layout)


class OddHead(Head):
    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(layout.columns) * float(torch.rand(1).item()))

    def forward(self, v: Tensor) -> Tensor:
        return (v @ self.weight).sum(1)

    def slices(self, mask: Mask) -> Slices:
        return {}


def test_a_model_that_cannot_be_counted_is_let_through(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.get_rng_state()
    tables = 12 * (sum(schema.cardinalities) + schema.layout(4).params)
    assert needs_just(tables, Odd(width=4), schema, Pretrain(), monkeypatch)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_that_has_its_full_models_is_not_refused(
    planted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"epochs": 1}
    values = {"run": {"dataset": str(planted.folder), "device": "cpu"}, "model": {"name": "fm", "width": 2},
              "search": {"name": "uniform"}, "pretrain": few, "retrain": few}  # fmt: skip
    pipeline.pretrain(RunSettings.parse(values), tmp_path / "out")
    limited(monkeypatch, 1)
    pipeline.run(RunSettings.parse(values), tmp_path / "out")
    with pytest.raises(SettingsError, match="of memory are available"):
        pipeline.run(RunSettings.parse(values), tmp_path / "other")


def test_limits_of_the_process_and_of_its_groups_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    (group / "memory.max").write_text("max\n")
    (tmp_path / "a" / "memory.max").write_text("5000\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   4 kB\nSwapFree: 3 kB\n")
    monkeypatch.setattr(room, "_GROUPS", tmp_path)
    monkeypatch.setattr(room, "_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(room, "_MEMORY", tmp_path / "meminfo")
    assert room.available(CPU) == 5000
    (tmp_path / "a" / "memory.max").write_text("8000\n")
    assert room.available(CPU) == 7 * 1024
    monkeypatch.setattr("resource.getrlimit", lambda _: (6000, -1))
    assert room.available(CPU) == 6000
