"""A dataset in shards is read as one in one array: the same rows, batches, fingerprint and results."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fieldwise as fw
from fieldwise.core.errors import DataError
from fieldwise.data import tiers
from fieldwise.data.batches import Batches
from fieldwise.data.encode import Encoding
from fieldwise.data.planted import Planted
from fieldwise.data.rare import thinned
from fieldwise.data.sharded import ShardedArray
from fieldwise.data.split import SPLITS, TimeSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from tests.data import small_files
from tests.data.small_files import assert_same_dataset, clicks, contents, frame, rules

_NUMBERS = np.random.default_rng(0).integers(-40, 40, 300)


@pytest.mark.parametrize("bounds", [(), (0, 7, 7, 39), (1, 2, 3)], ids=["one", "empty ones", "small"])
@pytest.mark.parametrize(
    "key",
    [
        slice(None), slice(0, 7), slice(6, 8), slice(3, 40), slice(7, 7), slice(40, 50), slice(-3, None),
        slice(None, None, 3), slice(30, 2, -2), 0, -1, 39, [5], [], _NUMBERS, _NUMBERS.reshape(3, 100),
        np.arange(40) % 3 == 0,
        (slice(5, 30), slice(1, 3)), (slice(None), 2), (_NUMBERS, slice(0, 1)), (_NUMBERS, 1), slice(9, 3),
    ],
)  # fmt: skip
def test_arrays_one_after_another_are_indexed_as_one(key: Any, bounds: tuple[int, ...]) -> None:
    whole = np.random.default_rng(1).integers(0, 99, (40, 4), np.int32)
    parts = ShardedArray(np.split(whole, bounds))
    key = np.array(key, np.int64) if isinstance(key, list) else key
    found = parts[key]
    assert found.dtype == whole.dtype
    np.testing.assert_array_equal(found, whole[key], strict=True)
    assert (len(parts), parts.shape, parts.nbytes) == (40, whole.shape, whole.nbytes)
    np.testing.assert_array_equal(np.asarray(parts), whole)


def test_rows_that_do_not_exist_are_refused() -> None:
    parts = ShardedArray([np.zeros((3, 2), np.int32), np.zeros((2, 2), np.int32)])
    for wrong in (5, -6, [0, 5]):
        with pytest.raises(IndexError, match="of 5"):
            parts[wrong]


@pytest.mark.parametrize("rows", [1, 100, 2_000])
def test_the_rows_do_not_depend_on_the_shards(rows: int, tmp_path: Path) -> None:
    source = Table(
        raw=small_files.awkward(tmp_path / "a.csv", 2_000 if rows > 1 else 60), label="click", fields=rules()
    )
    split = TimeSplit(column="day", shares=(0.6, 0.2, 0.2)) if rows > 1 else None  # most shards then lack two splits
    assert_same_dataset(source, tmp_path, [fw.DuckDB(), fw.DuckDB(shard_rows=rows)], split)
    whole, parts = (Dataset.open(tmp_path / f"out-{i}") for i in range(2))
    total = sum(whole.info["rows"].values())
    assert len(parts.shards) == -(-total // rows)
    assert all(sum(shard.rows.values()) == rows for shard in parts.shards[:-1])
    assert ("shards" in parts.info) == (parts.folder / "shard-00001").is_dir() == (len(parts.shards) > 1)
    assert (parts.folder / "train.ids.npy").exists() == (len(parts.shards) == 1)
    assert str(parts) == str(whole).replace("out-0", "out-1")


def test_rare_values_and_tiers_do_not_depend_on_the_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "MIN_VALUES", 5)
    source = frame(clicks(), tiers=0.25)
    assert_same_dataset(source, tmp_path, [fw.DuckDB(), fw.DuckDB(shard_rows=1_234)])
    data = Dataset.open(tmp_path / "out-1")
    assert len(data.shards) == 5
    assert (data.encoder.fields[0].rule.min_count or 0) > 1, "chosen on the validation rows"
    assert any(entry.tier for entry in data.encoder.fields)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The rows of the fixture `planted`."""
    out = tmp_path_factory.mktemp("sharded") / "planted"
    return fw.prepare(Planted(rows=6_000), out, engine=fw.Arrow(shard_rows=700))


def test_batches_hold_the_same_rows_in_the_same_order(planted: Dataset, sharded: Dataset) -> None:
    def batches(data: Dataset, shuffled: bool) -> list[Tensor]:
        torch.manual_seed(5)
        rows = Batches(data.train, torch.device("cpu"))
        found = rows.shuffled(333) if shuffled else rows.ordered(333)
        return [part for batch in found for part in (batch.ids, batch.labels)]

    for shuffled in (True, False):
        one, other = batches(planted, shuffled), batches(sharded, shuffled)
        assert len(one) == len(other) > 20
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def test_a_training_is_the_same_to_the_bit(planted: Dataset, sharded: Dataset) -> None:
    def trained(data: Dataset) -> tuple[Any, Any]:
        task = fw.Task.of(data, fw.models.DeepFM(width=2, hidden=(4,)), seed=3, device="cpu")
        pretrained = fw.pretrain(task, fw.Pretrain(epochs=1, batch=256))
        start = task.starting_from(pretrained.model)
        found = fw.retrain(start, pretrained.model, fw.Retrain(epochs=1, batch=256, distil=0.5))
        return fw.evaluate(found.model, data.test), found.model.state_dict()

    (here, one), (there, other) = trained(planted), trained(sharded)
    assert here == there
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_few_validation_rows_are_all_used() -> None:
    ids = ShardedArray([np.arange(6, dtype=np.int32).reshape(3, 2), np.arange(6, 10, dtype=np.int32).reshape(2, 2)])
    labels = np.array([0, 1, 0, 1, 1], np.uint8)
    assert thinned(ids, labels, 5).ids[:].tolist() == ids[:].tolist()
    some = thinned(ids, ShardedArray([labels[:2], labels[2:]]), 3)
    assert (some.ids[:, 0].tolist(), some.labels.tolist()) == ([0, 4, 8], [0, 0, 1])


def _info(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        info = json.loads((folder / "dataset.json").read_text())
        change(info)
        (folder / "dataset.json").write_text(json.dumps(info))

    return edit


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_info(lambda i: i.pop("shards")), "only the format fieldwise-dataset/2 has shards"),
        (_info(lambda i: i.update(format="fieldwise-dataset/1")), "only the format fieldwise-dataset/2 has shards"),
        (_info(lambda i: i["shards"].pop("test")), "one count per shard"),
        (_info(lambda i: i["shards"]["test"].append(0)), "one count per shard"),
        (_info(lambda i: i["shards"].update(train=[], valid=[], test=[])), "must be those of the splits"),
        (_info(lambda i: i["shards"]["train"].reverse()), "dataset.json says"),
        (_info(lambda i: i["shards"]["train"].__setitem__(0, -1)), r"shards\.train\.0"),
        (lambda f: (f / "shard-00001" / "train.ids.npy").unlink(), "the train split cannot be read"),
        (lambda f: shutil.rmtree(f / "shard-00002"), "the train split cannot be read"),
        (lambda f: np.save(f / "shard-00002" / "train.labels.npy", np.full(560, 2, np.uint8)), "train holds"),
    ],
)  # fmt: skip
def test_shards_that_cannot_be_true_are_one_line(
    change: Callable[[Path], None], says: str, sharded: Dataset, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(sharded.folder, tmp_path / "data"))
    change(folder)
    with pytest.raises(DataError, match=says) as caught:
        _ = Dataset.open(folder).train
    assert "\n" not in str(caught.value)


def test_rows_that_are_lost_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Encoding.__call__
    monkeypatch.setattr(Encoding, "__call__", lambda *given: work(*given)[:-1])
    with pytest.raises(DataError, match="1,000 rows were read, and 800 encoded"):
        fw.prepare(Planted(rows=1_000), tmp_path / "out", engine=fw.Arrow(shard_rows=200))
    assert not list(tmp_path.iterdir())


def test_the_layout_is_that_of_the_counts(sharded: Dataset) -> None:
    for shard in sharded.shards:
        assert {name: len(shard.array(name, "labels")) for name in SPLITS} == shard.rows
    assert contents(sharded.folder)
