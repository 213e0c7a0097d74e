"""Stored tables: exact integers and packing, exact sizes, and the same values as rounding the float32 tables."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.schema import PADDING, Field, Layout, Schema
from fieldwise.core.store import Store
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.packed import PackedEmbedding
from fieldwise.tables.quantize import Grid, fitted_scales, packed, quantized, rounded, straight, unpacked
from fieldwise.tables.stored import StoredTables, stored_embedding

SCHEMA = Schema((Field("user", 51), Field("gender", 2), Field("genres", 7, 3), Field("city", 30), Field("none", 9)))
LAYOUT = Layout(SCHEMA, (5, 2, 5, 1, 0))
MIXED = 'mixed ["gender", "genres", "none"]'
STORES = [
    "float32",
    "float16",
    "int8",
    "int4",
    "int8 row",
    "int4 row",
    MIXED,
    'mixed ["user", "gender", "genres", "city"]',
]


def embedding(layout: Layout = LAYOUT) -> FieldEmbedding:
    torch.manual_seed(0)
    return FieldEmbedding(layout, 0.1)


def filled(store: str, trained: FieldEmbedding) -> StoredTables:
    found = stored_embedding(trained.layout, Store.parse(store))
    found.fill(trained)
    return found


@given(st.integers(0, 9))
def test_packed_integers_come_back(count: int) -> None:
    integers = torch.randint(-7, 8, (count,), dtype=torch.int8)
    bytes_ = packed(integers)
    assert bytes_.shape == ((count + 1) // 2,)
    assert torch.equal(unpacked(bytes_, count), integers)


def test_the_bytes_of_packed_integers() -> None:
    assert packed(torch.tensor([-7, 0, 7, 1, 2], dtype=torch.int8)).tolist() == [1 + 16 * 9, 8 + 16 * 10, 15 + 16 * 8]


@pytest.mark.parametrize("top", [7, 127])
def test_scales_have_the_least_error(top: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(2000, 3) * torch.tensor([1.0, 10.0, 0.0])
    values[0, 1] = 200  # an outlier
    scales = fitted_scales(values, top)
    assert scales[2] == 0
    assert scales[1] < 200 / top or top == 127  # clipping the outlier costs more than 127 steps of rounding
    error = (rounded(values, scales, top) - values).square().sum(0)
    plain = (rounded(values, values.abs().amax(0) / top, top) - values).square().sum(0)
    assert (error <= plain).all()
    assert error[1] < 0.5 * plain[1] or top == 127
    assert torch.equal(fitted_scales(values.T.contiguous(), top, dim=1), scales)


@pytest.mark.parametrize("dim", [0, 1])
def test_scales_do_not_depend_on_how_many_are_tried_at_once(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    values = torch.randn(300, 5) * torch.tensor([1.0, 10.0, 0.0, 0.1, 3.0])
    wanted = fitted_scales(values, 7, dim)
    for numbers in (1, 4 * values.numel()):
        monkeypatch.setattr("fieldwise.tables.quantize.AT_ONCE", numbers)
        assert torch.equal(fitted_scales(values, 7, dim), wanted)


def test_scales_of_rows_are_fitted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    values = torch.randn(70, 4)
    wanted = fitted_scales(values, 7, dim=1)
    monkeypatch.setattr("fieldwise.tables.quantize.SAMPLE", 16)
    assert torch.equal(fitted_scales(values, 7, dim=1), wanted)


def test_integers_are_the_nearest_and_clipped() -> None:
    values, scales = torch.tensor([[0.26, 9.0], [-0.24, -9.0]]), torch.tensor([0.5, 1.0])
    assert quantized(values, scales, 7).tolist() == [[1, 7], [0, -7]]
    assert quantized(values, torch.zeros(2), 7).tolist() == [[0, 0], [0, 0]]


def test_gradients_pass_through_rounding_unless_they_push_further_out() -> None:
    values = torch.tensor([[0.26, 9.0, -9.0, 9.0]], requires_grad=True)
    found = straight(values, Grid.of(torch.tensor([0.5, 1.0, 1.0, 1.0]), 7))
    found.backward(torch.tensor([[2.0, -3.0, -3.0, 3.0]]))
    assert found.tolist() == [[0.5, 7.0, -7.0, 7.0]]
    assert values.grad is not None
    assert values.grad.tolist() == [[2.0, 0.0, -3.0, 3.0]]


def test_gradients_of_a_column_of_zeros_pull_it_back_to_zero() -> None:
    """A column whose scale is 0 stores zeros, so every other number is beyond its range."""
    values = torch.tensor([[0.0, 0.5, -0.5, 1e-9]], requires_grad=True)
    found = straight(values, Grid.of(torch.zeros(4), 7))
    found.backward(torch.tensor([[2.0, -3.0, -3.0, -1.0]]))
    assert found.tolist() == [[0.0] * 4]
    assert values.grad is not None
    assert values.grad.tolist() == [[2.0, 0.0, -3.0, 0.0]]


@pytest.mark.parametrize("store", STORES)
def test_stored_tables_give_the_rounded_values(store: str) -> None:
    trained = embedding()
    found, draw = filled(store, trained), np.random.default_rng(0)
    ids = torch.from_numpy(
        np.concatenate([draw.integers(0, f.cardinality, (40, f.length)) for f in SCHEMA.fields], 1).astype(np.int32)
    )
    ids[::3, 4] = PADDING
    ids[::5, 3:5] = PADDING
    rounding = embedding()
    with torch.no_grad():
        for j, width in enumerate(LAYOUT.widths):
            if width:
                rounding.table(j).copy_(found.table(j))
                apart = (found.table(j) - trained.table(j)).abs().max()
                own = Store.parse(store).of(SCHEMA.names)[j]
                assert apart <= {"float32": 0, "float16": 3e-4, "int8": 4e-3, "int4": 0.15}[own.kind]
                assert apart > 0 or store == "float32" or len(found.table(j)) == 2  # one row that is not zero
    torch.testing.assert_close(found(ids), rounding(ids), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("store", ["int4", "int4 row"])
@pytest.mark.parametrize("widths", [(3, 3, 3), (3, 2, 3), (1, 1, 1), (3, 0, 3)])
def test_a_row_of_int4_is_that_of_its_tables_whether_widths_are_equal_or_not(
    store: str, widths: tuple[int, ...]
) -> None:
    found = filled(store, embedding(Layout(Schema.of(a=9, b=4, c=6), widths)))
    ids = torch.stack([torch.arange(12, dtype=torch.int32) % count for count in (9, 4, 6)], 1)
    assert torch.equal(found(ids), torch.cat([found.table(j)[ids[:, j]] for j in range(3) if widths[j]], 1))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("widths", [(5, 2, 5, 1, 0), (1, 1, 1, 1, 1), (4, 2, 4, 4, 3), (0, 0, 0, 3, 0)])
def test_sizes_are_exact(store: str, widths: tuple[int, ...]) -> None:
    layout, how = Layout(SCHEMA, widths), Store.parse(store)
    tensors = filled(store, embedding(layout)).state_dict().values()
    assert sum(t.numel() * t.element_size() for t in tensors) == how.bytes(layout)
    if how.by == "column":
        each = zip(how.of(SCHEMA.names), SCHEMA.cardinalities, widths, strict=True)
        columns = sum(own.column(count) * width for own, count, width in each)
        assert columns - layout.columns / 2 - 1 <= how.bytes(layout) <= columns


@pytest.mark.parametrize("store", ["int8", "int4"])
def test_a_table_of_zeros_stays_zero(store: str) -> None:
    trained = embedding()
    with torch.no_grad():
        trained.table(0).zero_()
    assert not filled(store, trained).table(0).any()


def test_numbers_beyond_float16_are_refused() -> None:
    trained = embedding()
    with torch.no_grad():
        trained.table(0)[3, 1] = 1e6
    with pytest.raises(RunError, match=r"'float16' cannot.*Store them as int8 or float32"):
        filled("float16", trained)
    assert filled("int8", trained).table(0)[3, 1] == pytest.approx(1e6)


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ("int8", Store("int8")),
        ("INT4  row", Store("int4", "row")),
        (' Mixed  ["user", "a, b]", "user"]', Store("int4", int8=("a, b]", "user"))),
        ('mixed ["größe"]', Store("int4", int8=("größe",))),
    ],
)
def test_stores_are_written_as_text(text: str, store: Store) -> None:
    assert Store.parse(text) == store
    assert Store.parse(str(store)) == store


@pytest.mark.parametrize(
    "text",
    ["int3", "", "float16 row", "int8 field", "float32 int8", "None"],
)
def test_unknown_stores_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="Choose from: float32, float16, int8, int4, 'int8 row', 'int4 row'"):
        Store.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "mixed",
        "mixed []",
        "mixed user",
        "mixed [1]",
        'mixed {"user": 1}',
        "mixed " + 100_000 * "[",
        'mixed ["\\ud800"]',
    ],
)
def test_mixed_tables_need_the_fields_in_int8(text: str) -> None:
    with pytest.raises(SettingsError, match=r"Allowed after mixed: a JSON list of the fields in int8"):
        Store.parse(text)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("lengths", [(1, 1, 1, 1, 1), (1, 2, 1, 1, 1)])
@pytest.mark.parametrize("widths", [(3, 2, 0, 3, 1), (2, 2, 2, 2, 2)])
def test_a_lookup_without_gradients_has_the_same_bits(
    store: str, lengths: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    fields = tuple(Field(f"f{j}", 40 + j, length) for j, length in enumerate(lengths))
    layout = Layout(Schema(fields), widths)
    trained = embedding(layout)
    tables = trained if store == "float32" else filled(store, trained)
    ids = torch.randint(0, 40, (50, layout.schema.places), dtype=torch.int32)
    if 2 in lengths:
        ids[::3, 2] = PADDING
    expected = tables(ids)
    for own in (ids, ids.t().contiguous().t()):  # also as the encoder orders them in memory
        with torch.inference_mode():
            assert torch.equal(tables(own), expected)


@pytest.mark.parametrize("counts", [(5, 6), (4, 6), (5, 5)], ids=["a row in both halves", "even", "fields apart"])
@pytest.mark.parametrize("width", [2, 3])
def test_int4_of_equal_widths_reads_every_row(counts: tuple[int, int], width: int) -> None:
    """Also a row whose numbers are in low and in high halves of bytes."""
    layout = Schema.of(a=counts[0], b=counts[1]).layout(width)
    trained, found = FieldEmbedding(layout, 1.0), PackedEmbedding(layout, Store("int4"))
    found.fill(trained)
    ids = torch.cartesian_prod(*map(torch.arange, counts))
    expected = torch.cat([found.table(j)[ids[:, j]] for j in range(2)], 1)
    assert torch.equal(found(ids), expected)
    for row, wanted in zip(ids, expected, strict=True):
        assert torch.equal(found(row[None])[0], wanted)
        assert torch.equal(found(row[None].int())[0], wanted)
