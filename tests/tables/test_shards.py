"""Tables whose rows are split over processes. TorchRec, which moves rows, is not needed here."""

from pathlib import Path

import pytest
import torch

from fieldwise.core.errors import RunError
from fieldwise.core.schema import Schema
from fieldwise.data.store import Dataset
from fieldwise.models.deepfm import DeepFM
from fieldwise.processes.ranks import Ranks, acting, current, splitting
from fieldwise.tables import shards
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.task import Task
from tests.trainings import Stop, numbers, same

SCHEMA = Schema.of(user=101, item=57, city=3)


def part(rank: int, size: int, width: int) -> FieldEmbedding:
    """What one of several processes holds of a new embedding."""
    ranks = Ranks()
    ranks.rank, ranks.size = rank, size
    torch.manual_seed(0)
    with acting(ranks), splitting(100):
        return FieldEmbedding(SCHEMA.layout(width), 0.1)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 3, 16])
def test_processes_together_hold_the_table_of_one(size: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK", 16)
    torch.manual_seed(0)
    whole = FieldEmbedding(SCHEMA.layout(width), 0.1)
    drawn = float(torch.rand(()))
    parts = [part(rank, size, width) for rank in range(size)]
    assert float(torch.rand(())) == drawn, "as many numbers are drawn"
    for j in range(len(SCHEMA)):
        split = parts[0].shards_of(j) is not None
        assert torch.equal(torch.cat([one.table(j) for one in parts[: None if split else 1]]), whole.table(j))
    held = {one.is_apart for one in parts}
    assert held == {size > 1}


def test_small_tables_stay_whole_in_every_process() -> None:
    found = part(1, 2, 16)
    assert list(found.shards) == [16], "city has 3 ids, so its width is 3"
    assert found.table(2).shape == (3, 3)
    assert found.shards_of(2) is None
    assert part(3, 4, 1).table(2).shape == (0, 1), "the last of four processes holds none of three ids"


def test_columns_of_a_table_that_is_split_otherwise() -> None:
    narrow, wide = part(1, 2, 3), part(1, 2, 16)
    assert torch.equal(wide.part_for(narrow, 0, [1]), wide.table(0)[:, [1]])
    replicated = FieldEmbedding(SCHEMA.layout(16), 0.1)
    assert torch.equal(replicated.part_for(narrow, 1, [2]), replicated.table(1)[29:, [2]])


def test_a_process_that_works_for_all_cannot_read_the_rows_of_others() -> None:
    ranks = Ranks()
    ranks.only = True
    with acting(ranks), pytest.raises(AssertionError, match="the other processes wait"):
        part(1, 2, 16)(torch.zeros(2, 3, dtype=torch.int32))


def trained(task: Task, folder: Path | None, stop: int | None = None) -> tuple[object, dict[str, torch.Tensor]]:
    settings = Pretrain(batch=500, epochs=2, harmful="keep")
    found = pretrain(task, settings, folder, None if stop is None else Stop(stop))
    return numbers(found), found.model.state_dict()


def test_checkpoints_of_one_process_resume(planted: Dataset, tmp_path: Path) -> None:
    task = Task.of(planted, DeepFM(width=4), device="cpu")
    with splitting(300):
        history, weights = trained(task, None)
        with pytest.raises(KeyboardInterrupt):
            trained(task, tmp_path, 1)
        (tmp_path / "3").mkdir()  # of a process that was killed while it wrote
        (tmp_path / "3" / "shard-00009-model-00001-of-00001.safetensors").write_bytes(b"half")
        again, others = trained(task, tmp_path)
    assert current().split_from is None
    assert again == history
    assert same(others, weights)
    with pytest.raises(RunError, match=r"tables that are sharded from 300 rows, the settings say replicated"):
        trained(task, tmp_path)
    file = next((tmp_path / "3").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:100])
    with splitting(300), pytest.raises(RunError, match="is damaged"):
        trained(task, tmp_path)
