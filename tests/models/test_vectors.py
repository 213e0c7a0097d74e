"""Tiers of a column share one vector: the model is that without tiers, and a column reaches the ids of its tier."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Schema
from fieldwise.core.store import Store
from fieldwise.data.store import Split
from fieldwise.exports.folder import export, load
from fieldwise.models.compact import compact, widened
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.model import OwnModel
from fieldwise.models.stored import stored, stored_bytes
from fieldwise.searches import SEARCHES
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.searches.small_searches import small
from tests.small_models import every_model, trained
from tests.tiered_rows import IDS, PLAIN, PLAIN_IDS, SCHEMA, random_mask


def masked(model: Callable[..., Tensor], mask: Mask) -> Tensor:
    return model(IDS, torch.from_numpy(mask.vector).float())


@pytest.mark.parametrize("settings", every_model())
@torch.no_grad()
def test_a_model_with_tiers_is_the_model_without_them(settings: OwnModel) -> None:
    model, plain = trained(settings, settings.layout(SCHEMA)), settings.new(PLAIN).eval()
    assert [w.shape for w in model.head.state_dict().values()] == [w.shape for w in plain.head.state_dict().values()]
    plain.head.load_state_dict(model.head.state_dict())
    for target, own in enumerate(([0], [1, 2, 3], [4], [5, 6])):
        wide = plain.embedding.table(target).zero_()
        start = 0
        for j in own:
            table = model.embedding.table(j)
            wide[start + (j != own[0]) : start + len(table), : table.shape[1]] = table[int(j != own[0]) :]
            start += len(table) - 1
    for one in (model, plain):
        one.first_order = None
    torch.testing.assert_close(model(IDS), plain(PLAIN_IDS), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("settings", every_model())
@pytest.mark.parametrize("seed", [0, 1, 2])
@torch.no_grad()
def test_the_compact_model_is_the_masked_one(settings: OwnModel, seed: int) -> None:
    model = trained(settings, settings.layout(SCHEMA), 0.1)
    mask = random_mask(model.layout, seed)
    small = compact(model, mask)
    torch.testing.assert_close(small(IDS), masked(model, mask), atol=1e-5, rtol=1e-5)
    inner = random_mask(small.layout, seed + 9, 0.6)
    again = compact(small, inner)
    torch.testing.assert_close(again(IDS), masked(model, mask.then(inner)), atol=1e-5, rtol=1e-5)
    assert again.layout == mask.then(inner).layout
    assert Mask.from_json(mask.to_json()) == mask
    assert Mask.from_json(inner.to_json()) == inner


@pytest.mark.parametrize("kept", [((), (0, 1)), ((0, 3), ()), ((), ()), ((1,), (2,)), ((0, 1, 2, 3), (3,))])
@torch.no_grad()
def test_tiers_may_keep_different_columns(kept: tuple[tuple[int, ...], ...]) -> None:
    settings = DeepFM(width=4)
    model = trained(settings, settings.layout(SCHEMA))
    mask = Mask(model.layout, ((0,), *kept, (1,), (0, 2), (3,), ()))
    torch.testing.assert_close(compact(model, mask)(IDS), masked(model, mask), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_columns_come_back_with_the_weights_of_the_full_model() -> None:
    settings = DeepFM(width=4)
    model = trained(settings, settings.layout(SCHEMA))
    mask = random_mask(model.layout, 3)
    more = np.maximum(mask.vector, random_mask(model.layout, 4).vector).astype(int)
    wider = Mask.of(model.layout, more)
    found = widened(compact(model, mask), model, mask, wider)
    assert found.layout == wider.layout
    torch.testing.assert_close(found(IDS), compact(model, wider)(IDS), atol=0, rtol=0)


def test_a_value_moves_the_row_of_its_own_tier_only() -> None:
    settings = DeepFM(width=4)
    model = trained(settings, settings.layout(SCHEMA)).train()
    known = IDS[:, 1:4] > 0
    model(IDS).square().sum().backward()
    for j, place in ((1, 1), (2, 2), (3, 3)):
        stacked, own = model.embedding.span(j)
        assert stacked.grad is not None
        moved = stacked.grad[own].abs().sum(1) > 0
        read = set(IDS[:, place].tolist()) - {0}
        if j == 1 and not known.any(1).all():
            read.add(0)  # `unknown` has a row in the first tier
        assert set(torch.nonzero(moved).flatten().tolist()) == read


SINGLE = Schema(tuple(field for field in SCHEMA.fields if field.length == 1))


@pytest.mark.parametrize("settings", [FM(), DeepFM(width=4, dropout=0.0)])
@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.2])
def test_by_rows_gives_the_model_s_logits_and_gradients(settings: OwnModel, fraction: float) -> None:
    ids = torch.cat([IDS[:, :4], IDS[:, 7:]], 1)
    model = trained(settings, settings.layout(SINGLE))
    model = compact(model, random_mask(model.layout, 5, fraction)).eval()  # a bias before statistics has no gradient
    gate = torch.linspace(-0.5, 1, model.layout.columns).relu()
    by_rows = row_factored(model)
    assert by_rows is not model
    for values in (None, gate):
        found = []
        for forward in (model, by_rows):
            model.zero_grad()
            logits = forward(ids, values)
            (logits * torch.linspace(-1, 1, len(ids))).sum().backward()
            found.append([logits, *(weight.grad for weight in model.parameters())])
        for plain, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("store", ["float32", "float16", "int8", "int4"])
@torch.no_grad()
def test_a_folder_has_the_positions(store: str, tmp_path: Path) -> None:
    for place, settings in enumerate(every_model()):
        small = compact(trained(settings, settings.layout(SCHEMA), 0.1), random_mask(settings.layout(SCHEMA), place))
        export(small, tmp_path / str(place), store=store)
        found = load(tmp_path / str(place)).model
        assert found.layout == small.layout
        given = small if store == "float32" else stored(small, Store.parse(store))
        assert torch.equal(found(IDS), given(IDS))


def task(settings: OwnModel) -> Task:
    """Labels that depend on both columns with tiers."""
    draw = np.random.default_rng(1)
    effects = {name: draw.normal(size=count) for name, count in (("u", 40), ("i", 59))}
    score = effects["u"][PLAIN_IDS[:, 1]] + effects["i"][PLAIN_IDS[:, 5]]
    labels = (draw.random(len(IDS)) < 1 / (1 + np.exp(-2 * score))).astype(np.uint8)
    split = Split(IDS.numpy(), labels)
    return Task(SCHEMA, split, split, settings, 0, "cpu")


@pytest.fixture(scope="module")
def started() -> Task:
    given = task(DeepFM(width=4))
    return given.starting_from(pretrain(given, Pretrain(batch=64, epochs=2, learning_rate=0.02, harmful="keep")))


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_works_with_tiers(name: str, started: Task) -> None:
    for budget in ("60%", "15% bytes int8"):
        found = search(started, small(name), budget)
        assert found.model.layout == found.mask.layout
        assert found.mask.full == started.layout
        store = "int8" if "int8" in budget else "float32"
        settings = Retrain(batch=64, epochs=1, store=Store.parse(store))
        trained_model = retrain(started, found.model, settings).model
        assert torch.isfinite(trained_model(IDS)).all()


def test_a_budget_of_all_bytes_counts_the_layers_of_the_shared_vectors(started: Task) -> None:
    budget = Budget.parse("60% bytes total")
    found = search(started, Uniform(), budget)
    full = stored_bytes(started.starting_model())
    bytes_ = stored_bytes(found.model)
    limit = budget.amount_of(full.per_id + full.dense)
    assert 0.8 * limit < bytes_.per_id + bytes_.dense <= limit
