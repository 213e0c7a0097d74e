from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from fieldwise.core.errors import DataError
from fieldwise.data.batches import Batches
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.split import RandomSplit
from fieldwise.data.store import Dataset
from fieldwise.data.vocabulary import Counter, Vocabulary


class Small(Source):
    """The same small batch, repeated."""

    color: tuple[str | None, ...] = ("red", "red", "blue", None, "Ärger", "red", None, "blue", "green", "red")
    click: tuple[int, ...] = (1, 0, 1, 0, 1, 0, 1, 0, 1, 0)
    repeat: int = 20

    def open(self) -> SourceRows:
        def batches() -> Iterator[pa.RecordBatch]:
            for part in range(self.repeat):
                rows = [f"{part}-{i}" for i in range(len(self.color))]
                yield pa.record_batch({"color": self.color, "click": self.click, "row": rows})

        return SourceRows(("color",), "click", ("row",), batches)


def test_vocabulary_is_ordered_by_count_then_value() -> None:
    counter = Counter()
    for _ in range(40):  # more batches than the counter keeps before merging
        counter.add(pa.array(["b", "a", None, "b"]))
    counter.add(pa.array(["once", None]))
    vocabulary = counter.vocabulary(2)
    assert vocabulary.values.to_pylist() == ["b", None, "a"]
    assert vocabulary.counts.to_pylist() == [80, 41, 40]
    assert vocabulary.cardinality == 4
    assert vocabulary.encode(pa.array(["a", "once", None, "b", "new"])).tolist() == [3, 0, 2, 1, 0]


def test_vocabulary_round_trips(tmp_path: Path) -> None:
    counter = Counter()
    counter.add(pa.array(["ü", None, "a"]))
    vocabulary = counter.vocabulary(1)
    vocabulary.save(tmp_path / "v.parquet")
    loaded = Vocabulary.load(tmp_path / "v.parquet")
    assert loaded.values.equals(vocabulary.values)
    assert loaded.counts.equals(vocabulary.counts)


def test_vocabularies_are_fitted_on_training_rows_alone(tmp_path: Path) -> None:
    source = Small()
    data = prepare(source, tmp_path / "a")
    assign = RandomSplit().assign
    train = [
        value
        for batch in source.open().batches()
        for value, place in zip(batch.column("color").to_pylist(), assign(batch, ("row",)), strict=True)
        if place == 0
    ]
    vocabulary = data.vocabulary("color")
    counts = dict(zip(vocabulary.values.to_pylist(), vocabulary.counts.to_pylist(), strict=True))
    assert counts == {value: train.count(value) for value in set(train)}


def test_split_is_the_documented_hash() -> None:
    batch = pa.record_batch({"user": ["1", "2", "ß"], "item": [7, 8, 9]})
    got = RandomSplit(seed=5).assign(batch, ("user", "item"))
    for place, text in zip(got, ("5|1|7", "5|2|8", "5|ß|9"), strict=True):
        drawn = int(md5(text.encode()).hexdigest()[:8], 16) / 2**32
        assert place == (0 if drawn < 0.8 else 1 if drawn < 0.9 else 2)


def test_split_shares_hold_and_seeds_differ() -> None:
    batch = pa.record_batch({"row": np.arange(50_000)})
    first, second = (RandomSplit(seed=seed).assign(batch, ("row",)) for seed in (0, 1))
    assert np.bincount(first) / 50_000 == pytest.approx([0.8, 0.1, 0.1], abs=0.005)
    assert (first != second).mean() > 0.25


@pytest.mark.parametrize("shares", [(0.8, 0.2, 0.0), (0.5, 0.4, 0.2), (-0.1, 0.6, 0.5)])
def test_shares_must_add_up(shares: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        RandomSplit(shares=shares)


def test_min_count_sends_rare_values_to_unknown(tmp_path: Path) -> None:
    data = prepare(Small(min_count=30), tmp_path / "a")
    kept = data.vocabulary("color")
    assert min(kept.counts.to_pylist()) >= 30
    assert "green" not in kept.values.to_pylist()
    assert (data.train.ids[:] == 0).any()


def test_a_dataset_made_otherwise_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()  # an empty folder counts as absent
    prepare(Planted(rows=2_000), tmp_path / "a")
    prepare(Planted(rows=2_000), tmp_path / "a")
    with pytest.raises(DataError, match=r"source.seed \(0 -> 1\)"):
        prepare(Planted(rows=2_000, seed=1), tmp_path / "a")
    with pytest.raises(DataError, match=r"split.seed"):
        prepare(Planted(rows=2_000), tmp_path / "a", RandomSplit(seed=2))


def test_a_failed_preparation_leaves_nothing(tmp_path: Path) -> None:
    class Breaks(Small):
        def open(self) -> SourceRows:
            rows = super().open()

            def batches() -> Iterator[pa.RecordBatch]:
                yield next(rows.batches())
                raise OSError("disk full")

            return SourceRows(rows.fields, rows.label, rows.key, batches)

    with pytest.raises(OSError, match="disk full"):
        prepare(Breaks(), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"click": (1, 0, 1, 0, 1, 0, 1, 0, 1, 7)}, r"holds \[7\]. Allowed: 0 and 1"),
        ({"repeat": 0}, "holds no rows"),
        ({"color": ("red",), "click": (1,), "repeat": 2}, "No rows in split"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        prepare(Small(**changes), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_damaged_datasets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a dataset"):
        Dataset.open(tmp_path)
    data = prepare(Planted(rows=2_000), tmp_path / "a")
    (tmp_path / "a" / "valid.ids.npy").write_bytes(b"x")
    with pytest.raises(DataError, match="valid split cannot be read"):
        _ = Dataset.open(tmp_path / "a").valid
    np.save(tmp_path / "a" / "test.labels.npy", np.zeros(3, np.uint8))
    with pytest.raises(DataError, match="Prepare it again"):
        _ = Dataset.open(tmp_path / "a").test
    assert len(data.train)
    (tmp_path / "a" / "dataset.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        Dataset.open(tmp_path / "a")
    (tmp_path / "a" / "dataset.json").write_text('{"format": "other"}')
    with pytest.raises(DataError, match="has format 'other'"):
        Dataset.open(tmp_path / "a")


def test_batches_cover_every_row_once(planted: Dataset) -> None:
    batches = Batches(planted.valid, torch.device("cpu"))
    ordered = list(batches.ordered(100))
    assert torch.equal(torch.cat([b.ids for b in ordered]), torch.from_numpy(planted.valid.ids))
    shuffled = torch.cat([b.ids for b in batches.shuffled(100)])
    assert not torch.equal(shuffled, torch.cat([b.ids for b in ordered]))
    assert sorted(map(tuple, shuffled.tolist())) == sorted(map(tuple, planted.valid.ids[:].tolist()))
    orders = torch.stack([torch.arange(len(batches)), torch.arange(len(batches)).flip(0)])
    for batch, order in zip(batches.endless(len(batches), orders), orders, strict=False):
        assert torch.equal(batch.ids, torch.from_numpy(planted.valid.ids)[order])
    endless = batches.endless(100)
    seen = sum(len(next(endless).labels) for _ in range(2 * len(ordered)))
    assert seen == 2 * len(batches)
