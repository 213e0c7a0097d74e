"""Files of every format are predicted like their rows, and a failed prediction leaves no output."""

import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.schema import Schema
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.rules import Rule
from fieldwise.data.vocabulary import Vocabulary
from fieldwise.exports.folder import load
from fieldwise.exports.predict import predict_file
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.raw_rows import RawRows
from tests.command_line import cli, small_disk
from tests.data import small_files
from tests.exports.cases import Case
from tests.models.factories import FACTORIES
from tests.models.factory_models import model_of

Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.Table.from_pylist(small_files.awkward_rows())


@pytest.fixture(scope="module")
def expected(served: Path, rows: pa.Table) -> Floats:
    return load(served).predict(rows)


def test_text_and_parquet_are_predicted_as_rows_are(
    served: Path, rows: pa.Table, expected: Floats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = small_files.awkward(tmp_path / "rows.csv")
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as file:
        file.write(text.read_bytes())
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=700)
    (tmp_path / "parts").mkdir()
    pq.write_table(rows.slice(0, 900), tmp_path / "parts" / "1.parquet")
    pq.write_table(rows.slice(900), tmp_path / "parts" / "2.parquet")
    monkeypatch.setattr("fieldwise.exports.raw_rows.BATCH", 512)
    monkeypatch.setattr("fieldwise.exports.raw_rows._SMALL_BLOCK", 20_000)
    for raw in ("rows.csv", "rows.csv.gz", "rows.parquet", "parts"):
        told: list[tuple[str, int, int | None]] = []
        hear = lambda *words, to=told: to.append(words)  # noqa: E731
        count = predict_file(load(served), tmp_path / raw, tmp_path / "p.parquet", keep=["day"], progress=hear)
        assert count == len(rows) == told[-1][1]
        assert len(told) > 3
        assert told[-1][2] == (None if "csv" in raw else len(rows))
        got = pq.read_table(tmp_path / "p.parquet")
        assert got.column_names == ["day", "probability"]
        assert got["day"].to_pylist() == rows["day"].to_pylist()
        np.testing.assert_allclose(got["probability"].to_numpy(), expected, atol=1e-6)


def test_lines_longer_than_a_block_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldwise.exports.raw_rows._SMALL_BLOCK", 2_000)
    monkeypatch.setattr("fieldwise.exports.raw_rows.BATCH", 100)
    values = [f"{i}" + "x" * (5_000 if i == 400 else 0) + "\n" * (i % 50 == 7) for i in range(600)]
    lines = [f'{i},"{value}"' + "\n" * (i % 90 == 3) for i, value in enumerate(values)]
    (tmp_path / "a.csv").write_text("\n".join(["n,text", *lines]), encoding="utf-8")
    found = list(RawRows(tmp_path / "a.csv").batches(["text", "n"]))
    assert len(found) == 2  # the rows of the first small block, and all others
    table = pa.Table.from_batches(found)
    assert table["text"].to_pylist() == values
    assert table["n"].to_pylist() == [str(i) for i in range(600)]


@pytest.fixture
def three_threads() -> Iterator[None]:
    given = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(given)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_threads_change_no_bit_and_no_order(
    served: Path, rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, three_threads: None
) -> None:
    raw = small_files.awkward(tmp_path / "rows.csv")
    if kind == "jsonl":
        raw = tmp_path / "rows.jsonl"
        raw.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    if kind == "parquet":
        pq.write_table(rows, raw := tmp_path / "rows.parquet", row_group_size=700)
    monkeypatch.setattr("fieldwise.exports.raw_rows.BATCH", 100)
    monkeypatch.setattr("fieldwise.exports.raw_rows._SMALL_BLOCK", 5_000)
    monkeypatch.setattr("fieldwise.data.json_lines._BLOCK", 5_000)
    got = []
    for count in (3, 1):
        monkeypatch.setattr("fieldwise.exports.predictor.THREADS", count)
        predict_file(load(served), raw, tmp_path / "p.parquet", keep=["day"])
        got.append(pq.read_table(tmp_path / "p.parquet"))
        assert torch.get_num_threads() == 3
    assert got[0].equals(got[1])
    assert got[0]["day"].to_pylist() == rows["day"].to_pylist()


def test_a_stop_ends_the_threads_and_leaves_no_file(served: Path, tmp_path: Path, three_threads: None) -> None:
    raw = small_files.awkward(tmp_path / "rows.csv", 20_000)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_file(load(served), raw, tmp_path / "p.csv", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fieldwise")]


def test_a_module_of_a_user_is_called_by_one_thread_at_a_time(tmp_path: Path, three_threads: None) -> None:
    schema, calls = Schema.of(a=5, b=3), []
    table = pa.table({"a": np.arange(4_000) % 5, "b": np.arange(4_000) % 3})
    fields = [FieldEncoder(f.name, Rule(), Vocabulary(pa.array(range(f.cardinality - 1)), pa.nulls(f.cardinality - 1)))
              for f in schema.fields]  # fmt: skip
    predictor = Predictor(model_of(FACTORIES["deep"], schema), Encoder(fields))
    before = predictor.probability.forward

    def forward(ids: torch.Tensor) -> torch.Tensor:
        calls.append(threading.active_count())
        assert len(calls) == 1, "two at a time"
        time.sleep(0.002)
        calls.pop()
        return before(ids)

    predictor.probability.forward = forward  # type: ignore[method-assign]
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fieldwise.exports.raw_rows.BATCH", 200)
        assert predict_file(predictor, tmp_path / "rows.parquet", tmp_path / "p.parquet") == 4_000
    predictor.probability.forward = before  # type: ignore[method-assign]
    got = pq.read_table(tmp_path / "p.parquet")["probability"].to_numpy()
    np.testing.assert_allclose(got, predictor.predict(table), atol=1e-6)


def test_text_with_few_values_is_read_as_dictionaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = [f"f{i % 7}" for i in range(1_000)], [f"m{i}" for i in range(1_000)]
    table = pa.table({"few": few, "kept": few, "many": many, "number": range(1_000)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=250)
    monkeypatch.setattr("fieldwise.exports.raw_rows.BATCH", 64)
    monkeypatch.setattr("fieldwise.exports.raw_rows._DICTIONARY", 1_000)
    batches = list(RawRows(tmp_path / "rows.parquet").batches(table.column_names, ["kept"]))
    assert [batch.num_rows for batch in batches] == [64] * 15 + [40]  # across row groups
    assert pa.types.is_dictionary(batches[0]["few"].type)
    assert [str(batches[0][name].type) for name in table.column_names[1:]] == ["string", "string", "int64"]
    assert {name: [v for b in batches for v in b[name].to_pylist()] for name in table.column_names} == table.to_pydict()
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50)  # smaller than a batch
    assert {batch["few"].type for batch in RawRows(tmp_path / "rows.parquet").batches(["few"])} == {pa.string()}


def test_text_without_a_header_and_text_as_output(
    served: Path, rows: pa.Table, expected: Floats, tmp_path: Path
) -> None:
    lines = small_files.awkward(tmp_path / "rows.csv").read_text().split("\n", 1)[1]
    (tmp_path / "bare.csv").write_text(lines)
    for out, delimiter in (("p.csv", ","), ("p.tsv", "\t")):
        predict_file(load(served), tmp_path / "bare.csv", tmp_path / out, header=rows.column_names)
        got = csv.read_csv(tmp_path / out, parse_options=csv.ParseOptions(delimiter=delimiter))
        np.testing.assert_allclose(got["probability"].to_numpy(), expected, atol=1e-6)


def test_numbers_in_parquet_are_predicted_as_text_is(
    served: Path, rows: pa.Table, expected: Floats, tmp_path: Path
) -> None:
    typed = rows.set_column(rows.column_names.index("few"), "few", rows["few"].cast(pa.int32()))
    typed = typed.set_column(rows.column_names.index("count"), "count", rows["count"].cast(pa.float32()))
    pq.write_table(typed, tmp_path / "rows.parquet")
    predict_file(load(served), tmp_path / "rows.parquet", tmp_path / "p.parquet")
    np.testing.assert_allclose(pq.read_table(tmp_path / "p.parquet")["probability"].to_numpy(), expected, atol=1e-6)


def test_empty_lines_are_rows_where_there_is_one_column(tmp_path: Path) -> None:
    def read(text: str, header: tuple[str, ...] = ()) -> list[str | None]:
        (tmp_path / "rows.csv").write_text(text)
        return [v for batch in RawRows(tmp_path / "rows.csv", header).batches(["x"]) for v in batch["x"].to_pylist()]

    assert read('x\na\n\n""\nb\n\n') == ["a", None, "", "b", None]
    assert read("a\r\n\r\nb", header=("x",)) == ["a", None, "b"]
    assert read("x,y\na,1\n\nb,2\n\n") == ["a", "b"]


def test_the_command_says_how_many_and_where(served: Path, tmp_path: Path) -> None:
    result = cli("predict", served, small_files.awkward(tmp_path / "rows.csv"), "-o", tmp_path / "p.csv")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"2,000 rows predicted: {tmp_path / 'p.csv'}\n"
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 2_001


def test_bad_input_is_told_and_leaves_no_file(case: Case, served: Path, tmp_path: Path) -> None:
    good, model = small_files.awkward(tmp_path / "rows.csv"), load(served)
    needed = model.columns
    head = ",".join(f'"{name}"' for name in needed)
    (tmp_path / "lacking.csv").write_text("a,b\n1,2\n")
    (tmp_path / "short.csv").write_text(f"{head}\n" + ",".join("1" for _ in needed) + "\n1,2\n")
    (tmp_path / "no.parquet").write_text("no")
    (tmp_path / "folder.csv").mkdir()
    pq.write_table(case.rows.slice(0, 9), tmp_path / "fine.parquet")
    before, out = sorted(tmp_path.rglob("*")), tmp_path / "p.csv"
    wrong: list[tuple[Path, Path, dict[str, Any], str]] = [
        (tmp_path / "absent.csv", out, {}, "does not exist"),
        (tmp_path / "lacking.csv", out, {}, f"lacks the columns {', '.join(needed)}. It has: a, b."),
        (tmp_path / "short.csv", out, {}, f"Expected {len(needed)} columns, got 2"),
        (tmp_path / "no.parquet", out, {}, "is not a Parquet file"),
        (tmp_path / "fine.parquet", out, {"header": ["a"]}, "Leave header out"),
        (good, tmp_path / "p.json", {}, "Allowed: .csv"),
        (good, good, {}, "is also the input"),
        (good, tmp_path / "folder.csv", {}, "is a folder"),
        (good, out, {"keep": ["probability"]}, "Rename the kept column"),
        (good, out, {"keep": ["nothing"]}, "lacks the columns nothing"),
    ]
    for raw, to, more, says in wrong:
        with pytest.raises(DataError, match=re.escape(says)) as caught:
            predict_file(model, raw, to, **more)
        assert "\n" not in str(caught.value)
        assert sorted(tmp_path.rglob("*")) == before


def test_the_command_says_in_one_line_what_is_wrong(served: Path, tmp_path: Path) -> None:
    (tmp_path / "lacking.csv").write_text("a,b\n1,2\n")
    (tmp_path / "locked").write_text("in the way")
    good = small_files.awkward(tmp_path / "rows.csv")
    wrong: list[tuple[list[str | Path], str]] = [
        ([tmp_path / "no-model", good, "-o", tmp_path / "p.csv"], "holds no model"),
        ([served, tmp_path / "lacking.csv", "-o", tmp_path / "p.csv"], "lacks the columns"),
        ([served, good, "-o", tmp_path / "locked" / "p.csv"], "could not be read or written"),
    ]
    for arguments, says in wrong:
        result = cli("predict", *arguments)
        assert result.returncode == 2, result.stderr + result.stdout
        assert says in result.stderr
        assert result.stderr.startswith("fieldwise: ")
        assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lacking.csv", "locked", "rows.csv"]


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_a_disk_that_fills_up_leaves_the_old_file(served: Path, tmp_path: Path, name: str) -> None:
    good = small_files.awkward(tmp_path / "rows.csv", 20_000)
    (tmp_path / name).write_text("old")
    with small_disk(20_000):
        result = cli("predict", served, good, "-o", tmp_path / name)
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith(f"fieldwise: No room left at '{tmp_path}' (File too large). ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert (tmp_path / name).read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["rows.csv", name])


def test_a_row_that_breaks_late_leaves_no_file(served: Path, tmp_path: Path) -> None:
    good = small_files.awkward(tmp_path / "rows.csv")
    with good.open("a") as file:
        file.write("1,2\n")
    with pytest.raises(DataError, match="Expected 8 columns, got 2"):
        predict_file(load(served), good, tmp_path / "p.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["rows.csv"]
