"""The contract of every base model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fieldwise.core.errors import MaskError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import PADDING, Field, Layout, Schema
from fieldwise.exports.folder import export, load
from fieldwise.models import layers
from fieldwise.models.autoint import AutoInt
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.layers import Lift, pairwise
from fieldwise.models.model import HeadModel, OwnModel
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.joined import padded_width
from tests.small_models import MASKS, SCHEMA, ids_of, trained

TOLERANCE = 1e-5
"""Tolerance between logits of the compact and the masked model."""


@pytest.mark.parametrize("name", MASKS)
def test_compact_equals_masked(settings: OwnModel, name: str) -> None:
    layout = SCHEMA.layout(settings.width)
    model, mask, ids = trained(settings, layout), MASKS[name](layout), ids_of(SCHEMA)
    before = torch.get_rng_state()
    small = compact(model, mask)
    assert torch.equal(torch.get_rng_state(), before), "slicing borrows randomness and gives it back"
    masked = model(ids, torch.from_numpy(mask.vector).float())
    assert masked.shape == (64,)
    assert torch.allclose(small(ids), masked, atol=TOLERANCE, rtol=TOLERANCE)
    assert small.layout == mask.layout
    assert small.size().embedding == mask.params == sum(t.numel() for t in small.embedding.tables.values())
    if mask.columns < layout.columns:
        assert small.size().dense < model.size().dense


def test_inference_mode_changes_no_bit_and_no_embedding(settings: OwnModel) -> None:
    model, ids = trained(settings, SCHEMA.layout(settings.width)).eval(), ids_of(SCHEMA)
    assert isinstance(model, HeadModel)
    with torch.no_grad():
        expected, embedded = model(ids), model.embedding(ids)
    with torch.inference_mode():
        assert torch.equal(model(ids), expected)
        kept = embedded.clone()
        model.head(kept)
    assert torch.equal(kept, embedded)


def test_a_field_of_width_0_is_no_longer_needed(settings: OwnModel) -> None:
    layout = SCHEMA.layout(settings.width)
    mask = Mask(layout, ((0,), (), (1,), (2,)))
    small = compact(trained(settings, layout), mask)
    assert small.needs == (SCHEMA.names if settings.has_first_order() else ("user", "item", "city"))
    gone = compact(trained(settings, layout), mask, drop_first_order=True)
    assert gone.needs == ("user", "item", "city")
    ids = ids_of(SCHEMA)
    garbage = ids.clone()
    garbage[:, 1] = 10**6
    assert torch.equal(gone(ids), gone(garbage))
    assert gone.size().first_order == (sum((50, 30, 7)) if settings.has_first_order() else 0)


def test_a_mask_of_other_widths_is_refused(settings: OwnModel) -> None:
    with pytest.raises(MaskError, match="a model of widths"):
        compact(settings.build(SCHEMA.layout(4)), Mask.all(SCHEMA.layout(3)))


def test_state_round_trips_through_a_folder(settings: OwnModel, tmp_path: Path) -> None:
    layout = SCHEMA.layout(settings.width)
    small = compact(trained(settings, layout), MASKS["a field of width 0"](layout), drop_first_order=True)
    export(small, tmp_path / "m")
    again, ids = load(tmp_path / "m").model, ids_of(SCHEMA)
    assert torch.equal(again(ids), small(ids))
    assert again.settings == settings
    assert again.needs == small.needs
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]


def test_one_field_and_one_column_work(settings: OwnModel) -> None:
    schema = Schema.of(only=9)
    model = type(settings)(**{**settings.values(), "width": 1}).build(schema.layout(1))
    logits = model(ids_of(schema))
    assert logits.shape == (64,)
    assert torch.isfinite(logits).all()


def test_every_weight_learns(settings: OwnModel) -> None:
    model = settings.build(SCHEMA.layout(settings.width)).train()
    model(ids_of(SCHEMA)).square().sum().backward()
    assert [name for name, w in model.named_parameters() if w.grad is None] == []


def test_same_randomness_gives_the_same_model(settings: OwnModel) -> None:
    def weights() -> dict[str, Tensor]:
        torch.manual_seed(7)
        return settings.build(SCHEMA.layout(4)).state_dict()

    first, second = weights(), weights()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("columns", "dense"), [(16, 40_241), (4, 3_281)])
def test_dcnv2_has_the_paper_s_dense_parameters(columns: int, dense: int) -> None:
    schema = Schema.of(**{f"f{j}": 100 for j in range(7)})
    assert DCNv2().build(schema.layout(columns)).size().dense == dense


def test_embedding_looks_up_field_by_field() -> None:
    layout = Layout(SCHEMA, (3, 0, 5, 3))
    embedding, ids = FieldEmbedding(layout, 0.1), ids_of(SCHEMA)
    expected = torch.cat([embedding.table(j)[ids[:, j].long()] for j in (0, 2, 3)], dim=1)
    assert torch.equal(embedding(ids), expected)
    assert {name: tuple(t.shape) for name, t in embedding.tables.items()} == {"3": (57, 3), "5": (30, 5)}
    assert all((embedding.table(j)[0] == 0).all() for j in (0, 2, 3)), "unknown begins at zero"


def test_lift_is_a_linear_map_per_field() -> None:
    layout = Layout(SCHEMA, (3, 0, 5, 3))
    lift, v = Lift(layout, 4), torch.randn(9, 11)
    expected = torch.zeros(9, 4, 4)
    for j in (0, 2, 3):
        own = slice(layout.starts[j], layout.starts[j + 1])
        expected[:, j] = v[:, own] @ lift.weight[own]
    assert torch.allclose(lift(v), expected, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(lift(v), expected, atol=1e-6)


@pytest.mark.parametrize("widths", [(3, 0, 5, 3), (1, 2, 3, 4), (0, 4, 0, 1)], ids=str)
@pytest.mark.parametrize("frozen", [None, "v", "weight"])
def test_a_padded_lift_has_the_gradients_of_one_by_width(
    widths: tuple[int, ...], frozen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(SCHEMA, widths)
    lift, v = Lift(layout, 4), torch.randn(9, sum(widths), requires_grad=frozen != "v")
    lift.weight.requires_grad_(frozen != "weight")
    inputs = [tensor for tensor in (v, lift.weight) if tensor.requires_grad]
    coming, found = torch.randn(9, 4, 4), []
    padded = 9 * sum(width > 0 for width in widths) * max(widths)
    for most in (layers.PADDED, padded, padded - 1):
        monkeypatch.setattr(layers, "PADDED", most)
        lifted = lift(v)
        found.append(
            (str(lifted.grad_fn).partition("Backward")[0], lifted, *torch.autograd.grad(lifted, inputs, coming))
        )
    (together, *mine), (again, *_), (by_width, *theirs) = found
    assert (together, again, by_width) == ("<Transpose", "<Transpose", "<Cat")
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("widths", [(3, 0, 5, 3), (1, 2, 3, 4), (0, 4, 0, 1), (2, 2, 2, 2)], ids=str)
def test_fields_may_come_padded(widths: tuple[int, ...]) -> None:
    lift, v = Lift(Layout(SCHEMA, widths), 4), torch.randn(9, sum(widths))
    live = [part for part in v.split(widths, 1) if part.shape[1]]

    def padded(width: int) -> Tensor:
        return torch.cat([functional.pad(part, (0, width - part.shape[1])) for part in live], 1)

    torch.testing.assert_close(lift(padded(padded_width(max(widths)))), lift(v))
    with pytest.raises((RuntimeError, IndexError)):
        lift(padded(padded_width(max(widths)) + 1))


def test_fields_are_lifted_by_width_where_most_of_a_padded_batch_would_be_zeros() -> None:
    schema = Schema.of(**{f"f{j}": 3 for j in range(9)})
    names = []
    for widths in ((1, 1, 1, 1, 2, 1, 1, 1, 1), (1, 1, 1, 1, 9, 1, 1, 1, 1)):  # 18 / 10 and 81 / 17 numbers per column
        lift, v = Lift(Layout(schema, widths), 4), torch.randn(9, sum(widths), requires_grad=True)
        names.append(str(lift(v).grad_fn).partition("Backward")[0])
    assert names == ["<Transpose", "<Cat"]


def test_bfloat16_and_evaluations_are_lifted_by_width() -> None:
    lift, v = Lift(Layout(SCHEMA, (1, 2, 3, 4)), 4), torch.randn(9, 10, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        names = [str(lift.train(training)(v).grad_fn) for training in (True, False)]
    names.append(str(lift(v).grad_fn))  # evaluated, with gradients
    assert [name.partition("Backward")[0] for name in names] == ["<Cat"] * 3


def test_pairwise_is_the_sum_over_pairs() -> None:
    x = torch.randn(5, 4, 3)
    expected = sum((x[:, a] * x[:, b]).sum(1) for a in range(4) for b in range(a))
    assert torch.allclose(pairwise(x), torch.as_tensor(expected), atol=1e-5)


def test_heads_must_divide_attention() -> None:
    with pytest.raises(ValueError, match="must divide"):
        AutoInt(heads=3)


SEVERAL = Schema((Field("user", 50), Field("genres", 6, length=3), Field("item", 30), Field("tags", 9, length=2)))


def several_ids(rows: int = 64) -> Tensor:
    """Ids of fields with several values per row, at least one of them present."""
    draw = np.random.default_rng(0)
    columns = [draw.integers(0, f.cardinality, rows) for f in SEVERAL.fields for _ in range(f.length)]
    ids = np.stack(columns, 1).astype(np.int32)  # user, genres x 3, item, tags x 2
    ids[::2, 3] = PADDING
    ids[::4, 2] = PADDING
    ids[::3, 6] = PADDING
    return torch.from_numpy(ids)


@pytest.mark.parametrize("widths", [(4, 4, 4, 4), (3, 2, 3, 5), (0, 2, 1, 2), (2, 0, 0, 1)])
def test_several_values_are_pooled_by_their_mean(widths: tuple[int, ...]) -> None:
    embedding, ids = FieldEmbedding(Layout(SEVERAL, widths), 0.1), several_ids()
    expected = []
    for row in ids.tolist():
        parts, start = [], 0
        for j, field in enumerate(SEVERAL.fields):
            there = [i for i in row[start : start + field.length] if i != PADDING]
            start += field.length
            if widths[j]:
                parts.append(embedding.table(j)[there].mean(0))
        expected.append(torch.cat(parts))
    torch.testing.assert_close(embedding(ids), torch.stack(expected))


def test_compact_equals_masked_with_several_values_a_row(settings: OwnModel, tmp_path: Path) -> None:
    layout, ids = SEVERAL.layout(4), several_ids()
    model = trained(settings, layout)
    mask = Mask(layout, ((0, 2), (1, 3), (), (0,)))
    gate = torch.zeros(layout.columns)
    gate[[0, 2, 5, 7, 12]] = 1
    small = compact(model, mask)
    torch.testing.assert_close(small(ids), model(ids, gate), atol=TOLERANCE, rtol=TOLERANCE)
    export(small, tmp_path / "m")
    assert torch.equal(load(tmp_path / "m").model(ids), small(ids))
