"""The minimum count of a value is chosen on validation rows, the same by every engine."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fieldwise as fw
from fieldwise.core.errors import SettingsError
from fieldwise.core.schema import Field, Schema
from fieldwise.data.rare import CANDIDATES, choose_min_count, limit_ids
from fieldwise.data.rules import Rule
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.store import Split
from fieldwise.pipeline.settings import RunSettings
from tests.data.small_files import clicks, frame

FILES = ("train.ids.npy", "valid.ids.npy", "test.ids.npy", "encoding.json", "vocabulary-000.parquet")


def test_rare_values_of_no_use_are_unknown_and_the_folder_is_that_of_the_number(tmp_path: Path) -> None:
    rows = clicks()
    auto = fw.prepare(frame(rows), tmp_path / "auto")
    found = {entry.name: (entry.rule.min_count, entry.vocabulary.cardinality) for entry in auto.encoder.fields}
    count = found["session"][0]
    assert count in CANDIDATES[1:]
    assert {own for own, _ in found.values()} == {count}, "one number for all fields"
    assert found["item"][1] == 11, "frequent values keep their ids"
    assert found["session"][1] < 1_000
    given = fw.prepare(frame(rows, min_count=count), tmp_path / "given")
    assert auto.fingerprint == given.fingerprint
    assert {**auto.info, "made": 0} == {**given.info, "made": 0}
    for name in FILES:
        assert (auto.folder / name).read_bytes() == (given.folder / name).read_bytes(), name
    assert auto.info["made"]["source"]["min_count"] == "auto"
    assert fw.prepare(frame(rows), tmp_path / "auto").fingerprint == auto.fingerprint, "opened again"


class Numbered(Source):
    """The same rows with a key, so that every engine can split them."""

    def open(self) -> SourceRows:
        rows = clicks().drop_columns(["tags"])
        rows = rows.append_column("row", pa.array(range(len(rows))))
        return SourceRows(("session", "item"), "click", ("row",), lambda: iter(rows.to_batches()), len(rows))


def test_every_engine_chooses_the_same(tmp_path: Path) -> None:
    made = [fw.prepare(Numbered(min_count="auto"), tmp_path / e.__name__, engine=e()) for e in (fw.Arrow, fw.DuckDB)]
    assert made[0].fingerprint == made[1].fingerprint
    assert made[0].encoder.fields[0].rule.min_count in CANDIDATES[1:]
    for name in FILES:
        assert (made[0].folder / name).read_bytes() == (made[1].folder / name).read_bytes(), name


def test_what_the_user_sets_stays(tmp_path: Path) -> None:
    kinds = {
        "session": Rule(kind="category", min_count=1),
        "item": Rule(kind="category"),
        "tags": Rule(kind="category"),
    }
    made = fw.prepare(frame(clicks(), fields=kinds), tmp_path / "own")
    assert made.encoder.fields[0].rule.min_count == 1
    assert made.encoder.fields[3].rule.min_count in CANDIDATES[1:]
    assert all(e.rule.min_count == 1 for e in fw.prepare(frame(clicks(), min_count=1), tmp_path / "1").encoder.fields)


def test_few_clicks_or_frequent_values_choose_nothing(tmp_path: Path) -> None:
    small = fw.prepare(frame(clicks(600)), tmp_path / "small")
    assert {entry.rule.min_count for entry in small.encoder.fields} == {1}
    frequent = fw.prepare(frame(clicks().drop_columns(["session", "tags"]), fields={}), tmp_path / "frequent")
    assert frequent.encoder.fields[0].rule.min_count == 1


def test_rare_values_that_say_something_keep_their_ids() -> None:
    draw = np.random.default_rng(0)
    ids = np.repeat(np.arange(1, 2_001), 4).astype(np.int32)[:, None]
    labels = np.repeat(draw.integers(0, 2, 2_000), 4).astype(np.uint8)  # a value always has the same label
    rows = draw.permutation(len(ids))
    train, valid = (Split(ids[part], labels[part]) for part in (rows[:7_000], rows[7_000:]))
    schema = Schema((Field("user", 2_001),))
    assert choose_min_count(schema, train, valid, [0]) == 1
    noise = Split(ids, draw.integers(0, 2, len(ids)).astype(np.uint8))
    assert choose_min_count(schema, Split(noise.ids[rows[:7_000]], noise.labels[rows[:7_000]]), valid, []) == 1


def test_ids_above_the_cardinality_are_unknown_and_padding_stays() -> None:
    ids = np.array([[0, 2, -1], [4, 3, 1]], np.int32)
    limit_ids(ids, Schema((Field("a", 4), Field("tags", 3, 2))))
    assert ids.tolist() == [[0, 2, -1], [0, 0, 1]]


def test_settings_take_a_number_or_auto(tmp_path: Path) -> None:
    table = {"name": "table", "raw": "x.csv", "label": "y"}
    assert RunSettings.parse({"data": table}).values()["data"]["min_count"] == "auto"
    assert RunSettings.parse({"preset": "paper", "data": table}).values()["data"]["min_count"] == 1
    criteo = {"name": "criteo", "raw": "x.txt"}
    assert RunSettings.parse({"preset": "paper", "data": criteo}).values()["data"]["min_count"] == 10
    assert RunSettings.parse({"preset": "paper", "data": {**table, "min_count": 3}}).values()["data"]["min_count"] == 3
    assert "data" not in RunSettings.parse({"preset": "paper", "run": {"dataset": "d"}}).values()
    with pytest.raises(SettingsError, match=r"^\[data\] min_count = 0: input should be greater than or equal to 1\.$"):
        RunSettings.parse({"data": {**table, "min_count": 0}})
