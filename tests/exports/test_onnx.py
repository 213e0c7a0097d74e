"""The ONNX graph encodes raw values of every kind as the encoder does."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldwise.core.errors import DataError, RunError
from fieldwise.data.convert import timestamps
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule, not_numbers
from fieldwise.data.vocabulary import Vocabulary
from fieldwise.exports.bins import first_numbers, steps_of
from fieldwise.exports.folder import export, load
from fieldwise.exports.inputs import feeds, inputs_of
from fieldwise.exports.onnx import to_onnx
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.program import to_pt2
from fieldwise.models.fm import FM
from tests.exports.cases import Case

RULES = [
    Rule(kind="log-squared"),
    Rule(kind="width", width=0.1),
    Rule(kind="width", width=3e7),
    Rule(kind="quantile", edges=(-1.5, 0.1, 0.3, 2.0, 1e9)),
]


def binned(rule: Rule, bins: list[int | None]) -> FieldEncoder:
    values = pa.array(bins, pa.int64())
    return FieldEncoder("x", rule, Vocabulary(values, pa.array([1] * len(bins))))


def by_steps(field: FieldEncoder, numbers: list[float]) -> list[int]:
    steps = steps_of(field)
    return [int(steps.ids[np.searchsorted(steps.edges, number, side="right")]) for number in numbers]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.width}")
def test_steps_give_every_number_the_encoder_s_id(rule: Rule) -> None:
    bins: list[int | None] = [7, 0, -1, 3, None, 4, 40, -(2**61), -(2**61) - 2, 2**61, 300]
    field = binned(rule, bins)
    edges = steps_of(field).edges
    draw = np.random.default_rng(0)
    near = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    wide = np.concatenate([draw.normal(size=500) * 10.0 ** draw.integers(-3, 19, 500), np.arange(-9, 5000) * 0.1])
    numbers = np.concatenate([near, wide, [np.inf, -np.inf, 0.0, -0.0, 2.0, 3.0, 5e-324]])
    assert by_steps(field, numbers.tolist()) == field.ids(pa.array(numbers))[:, 0].tolist()


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False), st.sampled_from(RULES))
def test_the_first_number_of_a_bin_is_the_first(number: float, rule: Rule) -> None:
    here = np.asarray(rule.apply(pa.array([number])))
    (first,) = first_numbers(rule, here)
    assert first <= number
    assert np.asarray(rule.apply(pa.array([first])))[0] == here[0]
    before = np.nextafter(first, -np.inf)
    assert first == -np.inf or np.asarray(rule.apply(pa.array([before])))[0] < here[0]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predictor, pa.Table]:
    """Columns of every type: integers, floats, booleans, dates, times, lists of text and numbers, one used twice."""
    draw, rows = np.random.default_rng(0), 3_000
    days = np.datetime64("1969-12-20") + draw.integers(0, 40, rows)

    def lists(values: list[object]) -> list[list[object] | None]:
        sizes = draw.integers(0, 5, rows)
        return [None if s == 4 else [values[i] for i in draw.integers(0, len(values), s)] for s in sizes]

    table = pa.table({
        "id": pa.array([None if i % 11 == 0 else i % 13 for i in range(rows)], pa.int32()),
        "share": pa.array([None if i % 7 == 0 else i % 5 / 4 for i in range(rows)], pa.float32()),
        "flag": pa.array([None if i % 5 == 0 else i % 2 == 0 for i in range(rows)]),
        "day": pa.array(days.astype("datetime64[D]")),
        "at": pa.array(days.astype("datetime64[ms]") + draw.integers(0, 86_400_000, rows)),
        "tags": pa.array(lists(["a", "b", "", None]), pa.list_(pa.string())),
        "parts": pa.array([["0.5;1.5", None, "90", "", "1.5;;0.5;7", "8;9"][i % 6] for i in range(rows)]),
        "words": pa.array([["x|y", "", "y", None, "x||y", "q|x|y|q|x"][i % 6] for i in range(rows)]),
        "quoted": pa.array([["['x', 'y']", "[]", '["y, z"]', None, "['x']"][i % 5] for i in range(rows)]),
        "price": pa.array([None if i % 9 == 0 else str(i * 0.37) for i in range(rows)]),
        "moment": pa.array(days.astype("datetime64[ms]")),
        "click": draw.integers(0, 2, rows),
    })  # fmt: skip
    fields = {
        "share": Rule(),
        "weekday": Rule(column="at", kind="weekday"),
        "weekend": Rule(column="at", kind="weekend"),
        "at": Rule(kind="hour"),
        "day": Rule(kind="category"),
        "moment": Rule(kind="category"),
        "parts": Rule(kind="width", width=1.0, separator=";"),
        "words": Rule(separator="|"),
        "quoted": Rule(separator="[]"),
        "price": Rule(kind="quantile", bins=7),
        "text": Rule(column="price", kind="category"),
    }
    folder = tmp_path_factory.mktemp("typed")
    data = prepare(Frame(frame=table, label="click", fields=fields), folder / "data")
    model = FM().build(data.schema.layout(4)).eval()
    for weight in model.parameters():
        weight.data.normal_(0, 0.3)
    export(model, folder / "m", data.encoder)
    predictor = load(folder / "m")
    to_onnx(predictor, folder / "m.onnx")
    return predictor, table.append_column("path", pa.array([str(folder / "m.onnx")] * rows))


def onnx_of(typed: tuple[Predictor, pa.Table], rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    session = onnxruntime.InferenceSession(typed[1]["path"][0].as_py())
    (found,) = session.run(None, feeds(typed[0].encoder, rows))
    return np.asarray(found)


def test_columns_of_every_type_enter_the_graph(typed: tuple[Predictor, pa.Table]) -> None:
    predictor, table = typed
    kinds = {entry.name: (entry.kind, entry.several) for entry in inputs_of(predictor.encoder)}
    assert kinds == {
        "id": ("whole", False), "share": ("number", False), "flag": ("text", False), "day": ("text", False),
        "at": ("time", False), "tags": ("text", True), "parts": ("number", True), "words": ("text", False),
        "quoted": ("text", True),
        "price.number": ("number", False), "price.text": ("text", False), "moment": ("text", False),
    }  # fmt: skip
    for rows in (table, table.slice(0, 1)):
        np.testing.assert_allclose(onnx_of(typed, rows), predictor.predict(rows), atol=1e-5)


def test_no_sum_of_the_graph_meets_another_in_one_place(typed: tuple[Predictor, pa.Table]) -> None:
    """ONNX Runtime's threads scatter without locks: sums at equal indices are wrong once in some hundred runs."""
    graph = onnx.load(typed[1]["path"][0].as_py()).graph
    kinds = {node.op_type for node in graph.node}
    assert "ReduceSum" in kinds  # from fields with several values
    assert not {kind for kind in kinds if kind.startswith("Scatter")}


def test_values_of_other_types_enter_as_the_encoder_takes_them(typed: tuple[Predictor, pa.Table]) -> None:
    predictor, table = typed
    table = table.slice(0, 12)
    text = ["7", "07", " 7", "x", None, "", "-0", "12", "99999999999999999999", "3", "3.0", "0"]
    assert (predictor.encoder.encode(table.set_column(0, "id", pa.array(text)))[:, 0] > 0).tolist() == [
        value in ("7", None, "12", "3", "3.0", "0") for value in text
    ]
    table = table.set_column(0, "id", pa.array(text))
    table = table.set_column(2, "flag", pa.array(["true", "True", *["false"] * 10]))
    for kind in (pa.timestamp("s"), pa.timestamp("us", tz="+09:00")):
        table = table.set_column(4, "at", table["at"].cast(kind, safe=False))
        np.testing.assert_allclose(onnx_of(typed, table), predictor.predict(table), atol=1e-5)
    place, moment = table.column_names.index("moment"), table["moment"].combine_chunks()
    same, tokyo = onnx_of(typed, table), moment.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("ns", "Asia/Tokyo"))
    for column in (moment.cast(pa.timestamp("us")), tokyo, moment.cast(pa.date32()), pc.strftime(moment, "%Y-%m-%d")):
        again = table.set_column(place, "moment", column)
        assert predictor.encoder.encode(again).tolist() == predictor.encoder.encode(table).tolist()
        assert np.array_equal(onnx_of(typed, again), same)
    with pytest.raises(DataError, match="lack the columns at"):
        feeds(predictor.encoder, table.drop_columns(["at"]))


def test_text_that_is_no_number_cannot_enter_as_a_number(typed: tuple[Predictor, pa.Table]) -> None:
    table = typed[1].slice(0, 1).drop_columns(["price"]).append_column("price", pa.array(["cheap"]))
    with pytest.raises(DataError, match=r"'price' is a number in the graph, but holds \['cheap'\]"):
        feeds(typed[0].encoder, table)


def test_the_graph_has_no_loop_and_says_what_it_takes(typed: tuple[Predictor, pa.Table]) -> None:
    model = onnx.load(typed[1]["path"][0].as_py())
    onnx.checker.check_model(model, full_check=True)
    assert not {node.op_type for node in model.graph.node} & {"Loop", "Scan", "If", "SequenceAt", "SplitToSequence"}
    inputs = json.loads({entry.key: entry.value for entry in model.metadata_props}["fieldwise.inputs"])
    names = [entry["name"] for entry in inputs] + ["tags.length", "parts.length", "quoted.length"]
    assert sorted(value.name for value in model.graph.input) == sorted(names)
    assert [value.name for value in model.graph.output] == ["probability"]
    assert {value.type.tensor_type.shape.dim[0].dim_param for value in model.graph.input} == {"batch"}


def test_the_null_text_is_no_value_and_holds_no_separator() -> None:
    def null(values: list[str], separator: str | None = None) -> str | None:
        vocabulary = Vocabulary(pa.array(values), pa.array([1] * len(values)))
        field = FieldEncoder("x", Rule(separator=separator), vocabulary, several=separator is not None)
        return inputs_of(Encoder([field]))[0].null

    assert null(["a"]) == "\\N"
    assert null(["a", "\\N"]) == "\\N\\N"
    assert null(["a"], separator="N") == "null"
    assert null(["a"], separator="|") == "\\N"


def test_large_tables_lie_beside_the_graph(
    case: Case, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = load(served)
    assert to_onnx(predictor, tmp_path / "small.onnx") == [tmp_path / "small.onnx"]
    monkeypatch.setattr("fieldwise.exports.onnx.EXTERNAL_ABOVE", 1000)
    written = to_onnx(predictor, tmp_path / "large.onnx")
    assert written == [tmp_path / "large.onnx", tmp_path / "large.onnx.data"]
    assert written[1].stat().st_size > 4 * predictor.model.size().dense
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data", "small.onnx"]
    fed = feeds(predictor.encoder, case.rows)
    one, other = (onnxruntime.InferenceSession(tmp_path / f"{n}.onnx").run(None, fed)[0] for n in ("small", "large"))
    assert np.array_equal(np.asarray(one), np.asarray(other))


def test_graphs_need_vocabularies_and_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Path) -> None:
    predictor = load(served)
    bare = Predictor(predictor.model, None)
    with pytest.raises(RunError, match="without vocabularies"):
        to_onnx(bare, tmp_path / "m.onnx")
    to_pt2(bare, tmp_path / "m.pt2")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(RunError, match=r"pip install 'fieldwise\[onnx\]'"):
        to_onnx(predictor, tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt2"]


NEW: list[pa.Array] = [
    pa.array(["17", "17.0", "017", "true", "TRUE", "0.5", "2024-06-01", "2024-06-01T00:00:00Z", "", "x", None]),
    pa.array([17, 0, 1, None]),
    pa.array([17.0, 0.5, 2.25, float("nan"), None]),
    pa.array([17, 2**63 + 5, 2**64 - 1, None], pa.uint64()),
    pa.array([True, False, None]),
    pa.array([1_717_200_000, 0, None]).cast(pa.timestamp("s", "Asia/Tokyo")),
    pa.array([19_875, 0, None], pa.int32()).cast(pa.date32()),
]
KNOWN: list[pa.Array] = [
    pa.array(["17", "0", None]),
    pa.array(["17.0", "0.0"]),
    pa.array(["17", "07", "0.5", "2.25", "", None, "2024-06-01 00:00:00"]),
    pa.array(["True", "False", None]),
    pa.array([17, None, 2**63 + 5 - 2**64, -1]),
    pa.array([17.0, 0.5, None]),
    pa.array([17.0, 0.5]),
    pa.array([1_717_200_000_000_000, None], pa.timestamp("us")),
    pa.array([19_875, None], pa.int32()).cast(pa.date32()),
]


def graph_of(field: FieldEncoder, path: Path) -> tuple[Predictor, onnxruntime.InferenceSession]:
    """Returns a model of this field and another one."""
    encoder = Encoder([field, FieldEncoder("y", Rule(), Vocabulary(pa.array(["a", "b"]), pa.array([1, 1])))])
    model = FM().build(encoder.schema.layout(2)).eval()
    for weight in model.parameters():
        weight.data.normal_(0, 1)
    predictor = Predictor(model, encoder)
    to_onnx(predictor, path)
    return predictor, onnxruntime.InferenceSession(path)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.type}-{known[0]}")
def test_values_of_any_type_have_the_encoder_s_ids_in_the_graph(known: pa.Array, tmp_path: Path) -> None:
    field = FieldEncoder("x", Rule(), Vocabulary(known, pa.array([1] * len(known))))
    predictor, session = graph_of(field, tmp_path / "m.onnx")
    for column in NEW:
        if inputs_of(predictor.encoder)[0].kind == "number":  # text that is not a number cannot be an input
            wrong = not_numbers(column)
            column = column.filter(
                pa.array([str(text) not in wrong and not isinstance(text, bool) for text in column.to_pylist()])
            )
        if field.reads_times and not pa.types.is_temporal(column.type):  # text that is no time is refused
            rows = pa.table({"x": column, "y": ["a"] * len(column)})
            for refuses in (lambda rows: feeds(predictor.encoder, rows), predictor.predict):
                with pytest.raises(DataError, match=r"Column 'x': \d+ of \d+ texts are no times"):
                    refuses(rows)
            column = column.cast(pa.string()).filter(pa.array([str(text)[:4] == "2024" for text in column.to_pylist()]))
        rows = pa.table({"x": column, "y": ["a"] * len(column)})
        (found,) = session.run(None, feeds(predictor.encoder, rows))
        np.testing.assert_allclose(np.asarray(found), predictor.predict(rows), atol=1e-5, err_msg=str(column.type))


def test_parts_of_text_have_the_encoder_s_ids_in_the_graph(tmp_path: Path) -> None:
    known = Vocabulary(pa.array(["17", "0", None]), pa.array([1, 1, 1]))
    predictor, session = graph_of(FieldEncoder("x", Rule(separator="|"), known, 2, True), tmp_path / "m.onnx")
    rows = pa.table({"x": ["17.0|0", "0.0", None, "0|x", "", "017|17"], "y": ["a"] * 6})
    assert predictor.encoder.encode(rows)[:2, :2].tolist() == [[1, 2], [2, -1]]
    (found,) = session.run(None, feeds(predictor.encoder, rows))
    np.testing.assert_allclose(np.asarray(found), predictor.predict(rows), atol=1e-5)


@pytest.mark.parametrize("rule", [
    Rule(kind="hour", time_format="day-first"), Rule(kind="weekday", time_format="%d/%m/%Y %H:%M"),
    Rule(kind="width", width=3.6e9, time_format="day-first"),
], ids=lambda rule: rule.kind)  # fmt: skip
def test_times_in_text_have_the_encoder_s_ids_in_the_graph(rule: Rule, tmp_path: Path) -> None:
    texts = [f"{day:02d}/04/2024 {hour}:59" for day in (1, 13, 24) for hour in range(0, 24, 3)]
    made = rule.apply(timestamps(pa.array(texts), "day-first"))
    known = pc.unique(made)
    vocabulary = Vocabulary(known, pa.array([1] * len(known)))
    field = FieldEncoder("x", rule, vocabulary, times="timestamp" if rule.is_number else None)
    predictor, session = graph_of(field, tmp_path / "m.onnx")
    rows = pa.table({"x": [*texts, None], "y": ["a"] * (len(texts) + 1)})
    (found,) = session.run(None, feeds(predictor.encoder, rows))
    assert len(np.unique(np.asarray(found).round(5))) > 2
    np.testing.assert_allclose(np.asarray(found), predictor.predict(rows), atol=1e-5)
    typed = pa.table({"x": timestamps(pa.array([*texts, None]), "day-first"), "y": rows["y"]})
    np.testing.assert_allclose(np.asarray(found), predictor.predict(typed), atol=1e-5)
