"""A category as two fields: its frequent values and the others, the same by every engine and for new rows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fieldwise as fw
from fieldwise.core.errors import DataError, SettingsError
from fieldwise.core.watcher import Watcher
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.rules import Rule
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.tiers import Tiered
from fieldwise.data.vocabulary import Vocabulary
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.dataset import field_rows
from tests.data.small_files import assert_same_dataset, quiet, spark

USERS = 160
TIERS = ("frequent", "rare")
KINDS = {
    "user": Rule(kind="category"),
    "item": Rule(kind="category"),
    "few": Rule(kind="category"),
    "tags": Rule(kind="category"),
    "price": Rule(kind="quantile", bins=4),
}


def clicks(count: int = 4_000) -> pa.Table:
    """Text users, a few of them frequent, of whom one row in 500 has none; 120 integer items; lists of 150 tags."""
    draw = np.random.default_rng(0)
    user = np.minimum(draw.geometric(0.03, count), USERS)
    tags = draw.integers(0, 150, count)
    return pa.table({
        "user": pa.array([None if i % 500 == 0 else f"u{u}" for i, u in enumerate(user)]),
        "item": draw.integers(0, 120, count),
        "few": draw.integers(0, 9, count),
        "tags": pa.array([[f"t{t}", f"t{t + 1}"] for t in tags]),
        "price": draw.random(count),
        "part": np.array(["train", "valid", "test"])[draw.choice(3, count, p=[0.8, 0.1, 0.1])],
        "click": (draw.random(count) < 0.2 + 0.5 * (user % 2)).astype(int),
    })  # fmt: skip


def prepared(folder: Path, rows: pa.Table | None = None, **settings: Any) -> fw.Dataset:
    given = {"fields": KINDS, "min_count": 1, "tiers": 0, **settings}
    source = fw.data.Frame(frame=clicks() if rows is None else rows, label="click", **given)
    return fw.prepare(source, folder, fw.ColumnSplit(column="part"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> fw.Dataset:
    return prepared(tmp_path_factory.mktemp("plain") / "data")


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> fw.Dataset:
    return prepared(tmp_path_factory.mktemp("tiered") / "data", tiers=0.25)


def test_a_frequent_value_is_in_one_field_and_a_rare_one_in_the_other(plain: fw.Dataset, tiered: fw.Dataset) -> None:
    assert tiered.schema.names == (
        "user:frequent", "user:rare", "item:frequent", "item:rare", "few", "tags", "price",
    )  # fmt: skip
    known = plain.vocabulary("user").values.to_pylist()
    cut = round(len(known) / 4)
    assert known.index(None) >= cut, "null is a rare value here"
    assert tiered.vocabulary("user:frequent").values.to_pylist() == [*known[:cut], None]
    assert tiered.vocabulary("user:rare").values.to_pylist() == [value for value in known[cut:] if value is not None]
    for split in ("train", "valid", "test"):
        old, new = getattr(plain, split).ids, getattr(tiered, split).ids
        for field, name in enumerate(("user", "item")):
            parts = [plain.vocabulary(name).values, *(tiered.vocabulary(f"{name}:{t}").values for t in TIERS)]
            whole, frequent, rare = ([(), *([value] for value in part.to_pylist())] for part in parts)
            ids = new[:, 2 * field : 2 * field + 2]
            assert not ids.all(1).any(), "a value is in both"
            found = [[*frequent[f], *rare[r]] for f, r in ids.tolist()]
            assert found == [[*whole[i]] for i in old[:, field].tolist()]
        np.testing.assert_array_equal(new[:, 4:], old[:, 2:])


def test_raw_rows_get_the_ids_of_the_folder(tiered: fw.Dataset) -> None:
    rows = clicks()
    encoder = tiered.encoder
    for split in ("train", "valid", "test"):
        own = rows.filter(pa.compute.equal(rows["part"], split))
        np.testing.assert_array_equal(encoder.encode(own), getattr(tiered, split).ids)
    assert encoder.columns == ("user", "item", "few", "tags", "price"), "every raw column once"
    new = {"user": "never", "item": -5, "few": 0, "tags": ["t1"], "price": 0.5}
    assert encoder.encode(new)[0, :4].tolist() == [0, 0, 0, 0]
    null = encoder.encode({**new, "user": None})[0, :2].tolist()
    assert null == [tiered.schema.cardinalities[0] - 1, 0]
    assert (
        encoder.encode({**new, "item": "17.0"})[0, 2:4].tolist() == encoder.encode({**new, "item": 17})[0, 2:4].tolist()
    )


def test_unknown_counts_rows_that_neither_tier_knows(plain: fw.Dataset, tiered: fw.Dataset) -> None:
    for name, split in plain.info["splits"].items():
        new = tiered.info["splits"][name]
        both = [0, 0, 1, 1, 2, 3, 4]
        assert new["unknown"] == [split["unknown"][i] for i in both]
        nulls = [split["nulls"][i] for i in both]
        nulls[1] = nulls[3] = 0  # null is a frequent value
        assert new["nulls"] == nulls
        assert new["clicks"] == split["clicks"]
    assert tiered.info["splits"]["valid"]["unknown"][0] < 20
    assert tiered.fingerprint != plain.fingerprint
    rules = json.loads((tiered.folder / "encoding.json").read_text())
    assert [row[1] for row in field_rows(tiered.info, rules)][:2] == [
        "category of user, frequent values", "category of user, rare values",
    ]  # fmt: skip
    assert tiered.kinds is not None
    about = tiered.kinds.columns[0]
    assert about.reason.endswith("; fields: user:frequent, user:rare")
    assert about.cardinality == plain.schema.cardinalities[0] - 1


class Numbered(Source):
    """Rows with a key, so that every engine can split them."""

    def open(self) -> SourceRows:
        rows = clicks().select(["user", "item", "click"])
        rows = rows.append_column("row", pa.array(range(len(rows))))
        return SourceRows(("user", "item"), "click", ("row",), lambda: iter(rows.to_batches()), len(rows))


def test_every_engine_writes_the_same_tiers(tmp_path: Path) -> None:
    assert_same_dataset(Numbered(min_count="auto", tiers=0.1), tmp_path, [fw.Arrow(), fw.DuckDB()])
    assert [field.tier for field in fw.Dataset.open(tmp_path / "out-0").encoder.fields].count("rare") == 2


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_writes_the_same_tiers(tmp_path: Path) -> None:
    engines = [fw.DuckDB(), fw.Spark(master="local[2]", memory=1024)]
    assert_same_dataset(Numbered(min_count="auto", tiers=0.1), tmp_path, engines)


def test_a_chosen_minimum_count_comes_before_tiers(tmp_path: Path) -> None:
    """Of 2,000 sessions with a few rows each, those with fewer rows than the chosen count have no tier."""
    draw = np.random.default_rng(1)
    session, item = draw.integers(0, 2_000, 6_000), draw.integers(0, 10, 6_000)
    click = (draw.random(6_000) < 0.1 + 0.08 * item).astype(int)
    parts = np.array(["train", "valid", "test"])[draw.choice(3, 6_000, p=[0.8, 0.1, 0.1])]
    rows = pa.table({"session": pa.array([f"s{s}" for s in session]), "item": item, "part": parts, "click": click})
    kinds = {"fields": {"session": Rule(kind="category"), "item": Rule(kind="category")}, "tiers": 0.25}
    auto = prepared(tmp_path / "auto", rows, **{**kinds, "min_count": "auto"})
    count = auto.encoder.fields[0].rule.min_count
    assert count is not None
    assert count > 1
    given = prepared(tmp_path / "given", rows, **{**kinds, "min_count": count})
    assert auto.fingerprint == given.fingerprint
    assert {**auto.info, "made": 0} == {**given.info, "made": 0}


def test_a_field_s_own_setting_wins_and_small_fields_stay(tmp_path: Path) -> None:
    kinds = {**KINDS, "user": Rule(kind="category", tiers=0.1), "item": Rule(kind="category", tiers=0)}
    made = prepared(tmp_path / "own", fields=kinds, tiers=0.5)
    assert made.schema.names == ("user:frequent", "user:rare", "item", "few", "tags", "price")
    values = made.schema.cardinalities[0] + made.schema.cardinalities[1] - 2
    assert made.schema.cardinalities[0] == round(0.1 * values) + 2, "null and unknown too"
    assert made.encoder.fields[0].rule.tiers == 0.1
    again = prepared(tmp_path / "own", fields=kinds, tiers=0.5)
    assert again.fingerprint == made.fingerprint, "opened again"
    with pytest.raises(DataError, match=r"source\.tiers \(0\.5 -> 0\.25\)"):
        prepared(tmp_path / "own", fields=kinds, tiers=0.25)


def test_a_folder_of_an_earlier_version_is_opened(plain: fw.Dataset) -> None:
    info = json.loads((plain.folder / "dataset.json").read_text())
    assert info["made"]["source"].pop("tiers") == 0
    (plain.folder / "dataset.json").write_text(json.dumps(info))
    assert prepared(plain.folder).fingerprint == plain.fingerprint


@pytest.mark.parametrize("tiers", [(1e-9, 2e-9), (0.1, 0.35), (0.5, 0.999999), (0.999998, 0.999999)])
def test_all_three_tiers_have_values_whatever_the_cuts(tiers: tuple[float, float]) -> None:
    for null in (0, 1, 50, 98, 99):
        values = list(range(99))
        values.insert(null, None)  # type: ignore[arg-type]
        whole = FieldEncoder("user", Rule(), Vocabulary(pa.array(values), pa.array(range(100, 0, -1))))
        parts = [field.vocabulary.values.to_pylist() for field in Tiered(Encoder([whole]), tiers).encoder.fields]
        assert len(parts) == 3
        assert all(parts)
        assert None in parts[0]
        assert sum(len(part) for part in parts) == 100
        assert [value for part in parts for value in part if value is not None] == list(range(99))


@pytest.mark.parametrize("fraction", [1e-9, 0.5, 0.999999])
def test_both_tiers_have_values_whatever_the_fraction(fraction: float) -> None:
    values = pa.array([*range(99), None])
    whole = FieldEncoder("user", Rule(), Vocabulary(values, pa.array(range(100, 0, -1))))
    frequent, rare = (
        field.vocabulary.values.to_pylist() for field in Tiered(Encoder([whole]), fraction).encoder.fields
    )
    assert [*frequent[:-1], *rare] == list(range(99))
    assert frequent[-1] is None
    assert len(frequent) == {1e-9: 2, 0.5: 51, 0.999999: 99}[fraction]
    small = replace(whole, vocabulary=whole.vocabulary.part(np.arange(100) > 0))
    assert Tiered(Encoder([small]), fraction).encoder.fields == (small,), "99 values"


@pytest.mark.parametrize(
    ("names", "tiers", "refused"),
    [
        ({"few": "user:rare"}, 0.25, "user:rare"),
        ({"few": "user:middle"}, (0.1, 0.35), "user:middle"),
        ({"few": "x:frequent", "item": "x:rare"}, 0, "x:frequent"),
        ({"few": "user:middle"}, 0.25, "user:middle"),
        ({"few": "x:frequent", "item": "y:rare"}, 0, None),
        ({"few": "user:middle"}, 0, None),
    ],
)
def test_a_raw_column_with_the_name_of_a_tier_is_refused(
    names: dict[str, str], tiers: Any, refused: str | None, tmp_path: Path
) -> None:
    """Models would add its vector to that of another."""
    rows = clicks().rename_columns(names)
    kinds = {names.get(name, name): rule for name, rule in KINDS.items()}
    if refused is None:
        made = prepared(tmp_path / "data", rows, fields=kinds, tiers=tiers)
        assert sum(len(own) > 1 for own in made.schema.tiers.values()) == (2 if tiers else 0)
        return
    with pytest.raises(DataError, match=rf"^Field '{refused}' has the name of a tier of ") as caught:
        prepared(tmp_path / "data", rows, fields=kinds, tiers=tiers)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_two_cuts_make_three_tiers(plain: fw.Dataset, tmp_path: Path) -> None:
    made = prepared(tmp_path / "data", tiers=(0.1, 0.35))
    names = [f"user:{tier}" for tier in ("frequent", "middle", "rare")]
    assert made.schema.names[:4] == (*names, "item:frequent")
    known = plain.vocabulary("user").values.to_pylist()
    first, second = round(0.1 * len(known)), round(0.35 * len(known))
    parts = [made.vocabulary(name).values.to_pylist() for name in names]
    assert parts[0] == [*known[:first], None]
    assert parts[1] == [value for value in known[first:second] if value is not None]
    assert parts[2] == [value for value in known[second:] if value is not None]
    starts = np.cumsum([0, *map(len, parts)])
    values = [None, *known]
    for split in ("train", "valid"):
        old, new = getattr(plain, split).ids[:, 0], getattr(made, split).ids[:, :3]
        assert ((new > 0).sum(1) <= 1).all()
        found = np.where(new > 0, new + starts[:3], 0).max(1)
        together = [None, *parts[0], *parts[1], *parts[2]]
        assert [together[i] for i in found] == [values[i] for i in old]
        own = clicks().filter(pa.compute.equal(clicks()["part"], split))
        np.testing.assert_array_equal(Encoder.open(made.folder).encode(own), getattr(made, split).ids)
    unknown = made.encoder.encode({"user": ["never", None, "u1"], "item": [1, 1, 1], "few": [0] * 3,
                                   "tags": [["t1"]] * 3, "price": [0.5] * 3})  # fmt: skip
    assert (unknown[:, :3] > 0).tolist() == [[False] * 3, [True, False, False], [True, False, False]]


def test_the_form_of_texts_is_that_of_the_whole_column(tmp_path: Path) -> None:
    """Frequent texts are integers; among the rare ones is 7.0, which is another text than the frequent 7."""
    draw = np.random.default_rng(2)
    code = [str(c) for c in np.minimum(draw.geometric(0.05, 4_000), 110)]
    code[:3_000:1_000] = ["7.0"] * 3
    parts = np.array(["train", "valid", "test"])[np.arange(4_000) % 10 // 8 * (np.arange(4_000) % 2 + 1)]
    rows = pa.table({"code": code, "part": parts, "click": draw.integers(0, 2, 4_000)})
    made = prepared(tmp_path / "data", rows, fields={"code": Rule(kind="category")}, tiers=0.25)
    frequent, rare = (made.vocabulary(f"code:{tier}").values.to_pylist() for tier in TIERS)
    assert "7" in frequent
    assert "7.0" in rare
    assert made.encoder.encode({"code": [7]}).tolist() == [[frequent.index("7") + 1, 0]], "not 7.0 too"
    ids = made.encoder.encode({"code": ["7.0", "7", "1.0"]})
    assert ids.tolist() == [[0, rare.index("7.0") + 1], [frequent.index("7") + 1, 0], [0, 0]]
    np.testing.assert_array_equal(Encoder.open(made.folder).encode(rows.slice(0, 1)), made.train.ids[:1])


TABLE = {"name": "table", "raw": "x.csv", "label": "y"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            {"tiers": 1},
            r"^\[data\] tiers = 1: allowed: 0 \(one field\), a fraction below 1, or two ascending ones, such as ",
        ),
        ({"tiers": -0.5}, r"^\[data\] tiers = -0\.5: allowed: 0 "),
        ({"tiers": True}, r"^\[data\] tiers = True: allowed: 0 "),
        ({"tiers": []}, r"^\[data\] tiers = \[\]: allowed: 0 "),
        ({"tiers": [0.5, 0.5]}, r"^\[data\] tiers = \[0\.5, 0\.5\]: allowed: 0 "),
        ({"tiers": [0.1, 0.2, 0.3]}, r"^\[data\] tiers = \[0\.1, 0\.2, 0\.3\]: allowed: 0 "),
        ({"fields": {"user": {"tiers": "x"}}}, r"^\[data\] fields\.user\.tiers = 'x': "),
        (
            {"fields": {"user": {"tiers": 0.5, "kind": "hour"}}},
            r"^\[data\] fields\.user\.tiers = 0\.5: only a category with one value per row has tiers\. Remove it, or "
            r"the kind or separator\.$",
        ),
        ({"fields": {"user": {"tiers": 0.5, "separator": "|"}}}, "only a category with one value per row"),
    ],
)
def test_settings_that_no_field_can_have_are_one_line(data: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        RunSettings.parse({"data": {**TABLE, **data}})


@pytest.mark.parametrize(
    ("tables", "tiers"),
    [
        ({"data": TABLE}, "auto"),
        ({"data": {**TABLE, "tiers": 0.1}}, 0.1),
        ({"data": {**TABLE, "tiers": [0.2]}}, 0.2),
        ({"data": {**TABLE, "tiers": [0.2, 0.4]}}, [0.2, 0.4]),
        ({"preset": "paper", "data": TABLE}, 0),
        ({"preset": "paper", "data": {"name": "movielens-1m", "raw": "ml-1m.zip"}}, 0),
        ({"preset": "paper", "data": {**TABLE, "tiers": 0.1}}, 0.1),
        ({"data": {"name": "planted"}}, 0),
    ],
)
def test_tiers_are_on_by_default_and_off_in_the_paper(tables: dict[str, Any], tiers: float | list[float] | str) -> None:
    assert RunSettings.parse(tables).values()["data"]["tiers"] == tiers


@pytest.mark.parametrize(
    ("tables", "tiers"),
    [
        ({}, (0.1, 0.35)),
        ({"run": {"budgets": ["28 columns", "25%"]}}, (0.1, 0.35)),
        ({"run": {"budgets": ["28 columns", "25% columns"]}}, 0),
        ({"model": {"name": "tests.models.factories:deep"}}, 0.25),
    ],
)
def test_auto_depends_on_budgets_and_model(tables: dict[str, Any], tiers: Any, tmp_path: Path) -> None:
    pq.write_table(clicks(), tmp_path / "rows.parquet")
    given = {"data": {"name": "table", "raw": tmp_path / "rows.parquet", "label": "click", "only": ["user", "few"]}}
    rows = RunSettings.parse({**given, **tables}).rows
    assert rows.tiers == tiers
    (tmp_path / "data").mkdir()  # an empty folder is as none
    made = rows.prepare(tmp_path / "data", Watcher())
    assert made.info["made"]["source"]["tiers"] == (list(tiers) if isinstance(tiers, tuple) else tiers)
    assert len(made.schema) == 2 + {(0.1, 0.35): 2, 0: 0, 0.25: 1}[tiers]
    other = RunSettings.parse({**given, "run": {"budgets": ["28 columns"]}}).rows
    assert other.prepare(tmp_path / "data", Watcher()).fingerprint == made.fingerprint, "auto takes what is there"


@pytest.mark.parametrize(("name", "says"), [("tags", "several values per row"), ("price", "values of kind quantile")])
def test_tiers_of_what_was_found_to_be_no_category_are_refused(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"^Field '{name}' has tiers = 0\.25 and {says}\. Allowed: ") as caught:
        prepared(tmp_path / "data", fields={name: Rule(tiers=0.25)})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "change", "says"),
    [
        (0, {"tier": "often"}, r"0\.tier: Input should be 'frequent', 'middle' or 'rare'"),
        (0, {"form": "words"}, r"0\.form: Input should be "),
        (5, {"tier": "rare"}, "a tier is of a category with one value per row"),
        (6, {"tier": "frequent"}, "a tier is of a category with one value per row"),
        (6, {"rule": {"kind": "quantile", "tiers": 0.5}}, "only a category with one value per row has tiers"),
    ],
)
def test_a_folder_with_tiers_that_cannot_be_is_one_line(
    tiered: fw.Dataset, tmp_path: Path, place: int, change: dict[str, Any], says: str
) -> None:
    entries = json.loads((tiered.folder / "encoding.json").read_text())
    entries[place] |= change
    (tmp_path / "encoding.json").write_text(json.dumps(entries))
    with pytest.raises(DataError, match=says) as caught:
        Encoder.open(tmp_path)
    assert "\n" not in str(caught.value)
