"""A model with tiers over joined rows: the same logits, gradients and trainings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.core.store import Store
from fieldwise.models.autoint import AutoInt
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.joined import JoinedModel, joined_model
from fieldwise.models.model import HeadModel, OwnModel
from fieldwise.models.stored import StoredModel, stored
from fieldwise.searches.elimination import Elimination
from fieldwise.searches.search import search
from fieldwise.tables.rounding import rounding, rounding_now
from fieldwise.tables.shards import Shards
from fieldwise.train import retraining
from fieldwise.train.evaluate import evaluate
from fieldwise.train.pretraining import pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.memorized import SETTINGS, tiered_task
from tests.small_models import every_model, trained
from tests.tiered_rows import IDS, PLAIN, PLAIN_IDS, SCHEMA, joined_passes, random_mask
from tests.trainings import Stop, interrupted, numbers

STORES = ["int4", "int4 row", "int8", 'mixed ["u:frequent", "a"]']
MODELS = [FM(width=6), DeepFM(width=6, hidden=(8,)), AutoInt(width=6), DCNv2(width=6)]


def masks(layout: Layout) -> dict[str, Mask]:
    """Masks of a layout of width 4 or more."""
    fields, first = layout.schema.names, (1, 0, 1, 0, 1, 1, 0)
    one_tier = {"u:middle": (1, 3), "b": (0,)}
    return {
        "all": Mask.all(layout),
        "random": random_mask(layout, 3),
        "first-order weights of some tiers": Mask(layout, random_mask(layout, 4).kept, first),
        "one tier of a column": Mask(layout, tuple(one_tier.get(name, ()) for name in fields), (0, 0, 1, 0, 0, 0, 1)),
        "first-order weights of no column with tiers": Mask(layout, random_mask(layout, 5).kept, (1, 0, 0, 0, 1, 0, 0)),
    }


def small_model(settings: OwnModel, kind: str) -> HeadModel:
    """A compact model in float64."""
    model = trained(settings, settings.layout(SCHEMA)).double()
    return compact(model, masks(model.layout)[kind]).double().train()


def pass_of(model: HeadModel, forward: Callable[[Tensor], Tensor], ids: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """Logits, and the gradients of all weights."""
    model.zero_grad()
    torch.manual_seed(0)  # dropout
    logits = forward(ids)
    logits.sigmoid().square().sum().backward()
    return logits, {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("kind", masks(FM(width=4).layout(SCHEMA)))
@pytest.mark.parametrize("settings", every_model())
def test_logits_and_gradients_are_those_of_the_model_with_tiers(settings: OwnModel, kind: str) -> None:
    assert SCHEMA.joined == PLAIN
    model = small_model(settings, kind)
    joined = joined_model(model, 128)
    assert joined is not None
    wanted, grads = pass_of(model, model, IDS)
    found, same = pass_of(model, joined, PLAIN_IDS)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
    for name, grad in grads.items():
        torch.testing.assert_close(same[name], grad, atol=1e-12, rtol=1e-12, msg=name)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("settings", [FM(width=5), DCNv2(width=5)])
def test_rounding_is_that_of_the_model_with_tiers(settings: OwnModel, store: str) -> None:
    model = small_model(settings, "random")
    joined = JoinedModel(model)
    tables = [model.embedding, *([model.first_order] if model.first_order else [])]
    with rounding(tables, Store.parse(store)) as rows:
        for of_tables in rows:
            of_tables.fit()
        wanted, grads = pass_of(model, model, IDS)
        found, same = pass_of(model, joined, PLAIN_IDS)
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
        for name, grad in grads.items():
            torch.testing.assert_close(same[name], grad, atol=1e-12, rtol=1e-12, msg=name)
        for of_tables in rows:
            of_tables.on = False
        plain, _ = pass_of(model, joined, PLAIN_IDS)
        assert not torch.allclose(plain, found)


@pytest.mark.parametrize("settings", [FM(width=5), DeepFM(width=5, hidden=(8,)), DCNv2(width=5)])
@pytest.mark.parametrize("store", ["int4", 'mixed ["u:frequent", "a"]'])
def test_rounded_now_it_is_the_stored_model(settings: OwnModel, store: str) -> None:
    model = small_model(settings, "first-order weights of some tiers").float().eval()
    tables = [model.embedding, *([model.first_order] if model.first_order else [])]
    with rounding(tables, Store.parse(store)) as rows:
        for of_tables in rows:
            of_tables.on = False
        with rounding_now(rows), torch.no_grad():
            found = JoinedModel(model)(PLAIN_IDS)
        assert not any(of_tables.on for of_tables in rows)
    torch.testing.assert_close(found, stored(model, Store.parse(store))(IDS), atol=1e-5, rtol=1e-5)


def test_bfloat16_is_that_of_the_model_with_tiers() -> None:
    model = small_model(FM(width=5), "first-order weights of some tiers").float()
    with torch.no_grad():
        exact = model(IDS)
        with torch.autocast("cpu", torch.bfloat16):
            wanted, found = model(IDS), JoinedModel(model)(PLAIN_IDS)
    assert 0 < (wanted - exact).abs().max() < 0.5
    assert (found - exact).abs().max() < 4 * (wanted - exact).abs().max()


def test_models_that_are_not_joined() -> None:
    settings = FM(width=4)
    assert joined_model(trained(settings, settings.layout(PLAIN)), 128) is None, "no tiers"
    sharded = small_model(settings, "random")
    assert joined_model(sharded, 128) is not None
    sharded.embedding.shards[4] = Shards([9], 4)
    assert joined_model(sharded, 128) is None, "other processes may hold rows"
    empty = Mask(settings.layout(SCHEMA), ((),) * len(SCHEMA))
    assert joined_model(compact(trained(settings, empty.full), empty), 128) is None, "no columns"


def with_users(rare: int) -> Schema:
    """A schema whose rare users are so many."""
    return Schema((Field("u:frequent", 4), Field("u:rare", rare), Field("a", 5)))


def joins(settings: OwnModel, schema: Schema, kept: tuple[tuple[int, ...], ...], batch: int) -> bool:
    """Whether a model with these columns, and first-order weights of the first field only, is joined."""
    full = settings.layout(schema)
    return joined_model(settings.fresh(schema, Mask(full, kept, (1, *(0,) * (len(kept) - 1)))), batch) is not None


@pytest.mark.parametrize("settings", [FM(width=16), DCNv2(width=16)])
def test_joined_tables_must_not_be_large_for_a_batch(settings: OwnModel) -> None:
    kept = ((0, 1, 2, 3), (0,), (0,))
    assert joins(settings, with_users(10_000), kept, 128)
    assert not joins(settings, with_users(100_000), kept, 128), "800 thousand or more numbers at every step"
    assert joins(settings, with_users(100_000), kept, 65_536) == isinstance(settings, DCNv2), "few for a large batch"


def test_rows_of_first_order_weights_count_too() -> None:
    columns_of_others = ((), (), (0,))
    assert joins(FM(width=16), with_users(100_000), columns_of_others, 128)
    assert not joins(FM(width=16), with_users(200_000), columns_of_others, 128)


def test_a_padded_batch_must_not_be_large() -> None:
    """One wide field pads all others."""
    schema = Schema((Field("u:frequent", 70), Field("u:rare", 90), *(Field(f"f{j}", 3) for j in range(38))))
    kept = (tuple(range(64)), (0,), *((0,),) * 38)
    assert joins(FM(width=64), schema, kept, 128)
    assert not joins(FM(width=64), schema, kept, 512)
    assert joins(DCNv2(width=64), schema, kept, 512), "its fields are not padded"


def start_and_model(settings: OwnModel, budget: str = "30%") -> tuple[Task, HeadModel]:
    """A pretrained task with tiers, one of whose columns is harmful, and a compact model."""
    task = tiered_task(settings)
    task = task.starting_from(pretrain(task, SETTINGS))
    found = search(task, Elimination(), budget).model
    assert isinstance(found, HeadModel)
    return task, found


@pytest.mark.parametrize(
    ("settings", "store", "schedule", "evaluations"),
    [
        *((model, "float32", "decay", 4) for model in MODELS),  # of the start, two epochs and an average
        *((model, "int4", "decay", 3) for model in MODELS),
        (FM(width=6), "int4", "constant", 3),  # of the second training, which rounds
        (FM(width=6), "int4 row", "decay", 0),  # stored scales of rows are not those of a training
        (FM(width=6), "int8", "decay", 0),
        (DCNv2(width=6), 'mixed ["user:frequent", "kind"]', "decay", 3),
    ],
)
def test_retraining_on_joined_rows_is_that_on_tiers(
    settings: OwnModel, store: str, schedule: str, evaluations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, small = start_and_model(settings)
    fast = Retrain.model_validate({
        "batch": 128, "epochs": 2, "decay": {"epochs": 2, "rate": 1}, "schedule": schedule, "l2": 0.003, "store": store,
    })  # fmt: skip
    with joined_passes() as passes:
        found = retrain(task, small, fast)
        assert passes.count(len(task.valid_rows)) == evaluations
        assert len(passes) - evaluations == (len(found.history) - 1) * -(-len(task.train_rows) // 128)
        monkeypatch.setattr(retraining, "joined_model", lambda *_: None)
        passes.clear()
        wanted = retrain(task, small, fast)
        assert not passes
    each = zip(numbers(found), numbers(wanted), strict=True)
    # one step in another order of sums moves a weight by up to its rate: Adam divides by the gradient's size
    assert all(a == pytest.approx(b, abs=2e-3) for one, two in each for a, b in zip(one, two, strict=True))
    assert found.history[0].auc == pytest.approx(wanted.history[0].auc, abs=1e-5)
    best = max(epoch.kept_auc for epoch in found.history)
    assert isinstance(found.model, StoredModel) == (store != "float32")
    assert evaluate(found.model, task.valid_rows).auc == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("store", ["float32", "int4"])
def test_an_interrupted_retraining_on_joined_rows_ends_with_the_same_bits(store: str, tmp_path: Path) -> None:
    task, small = start_and_model(FM(width=6))
    fast = Retrain(batch=128, epochs=3, decay={"epochs": 3}, store=store)
    interrupted(task, small, fast, tmp_path, Stop(2))


def test_a_checkpoint_of_tiers_goes_on_with_joined_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, small = start_and_model(FM(width=6))
    fast = Retrain(batch=128, epochs=3, decay={"epochs": 3})
    with monkeypatch.context() as before:
        before.setattr(retraining, "joined_model", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            retrain(task, small, fast, tmp_path / "a", Stop(1))
    again = retrain(task, small, fast, tmp_path / "a")
    assert [epoch.auc for epoch in again.history] == pytest.approx(
        [epoch.auc for epoch in retrain(task, small, fast).history], abs=5e-3
    )


def test_without_squares_rows_keep_their_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then only rows that a batch reads move, and joined tables would be read whole."""
    task, small = start_and_model(FM(width=6))

    def never(*_: object) -> None:
        raise AssertionError("joined")

    monkeypatch.setattr(retraining, "joined_model", never)
    retrain(task, small, Retrain(batch=128, epochs=2, l2=0))
    with pytest.raises(AssertionError, match="joined"):
        retrain(task, small, Retrain(batch=128, epochs=2))
