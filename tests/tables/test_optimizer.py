"""Updating only the rows that are read must match dense updates."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fieldwise.core.budget import Budget
from fieldwise.core.schema import Layout, Schema
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.searches import HAM
from fieldwise.searches.search import search
from fieldwise.tables import optimizer
from fieldwise.tables.adam_catchup import BETA1, BETA2, REACH, Missed
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.lookup import Distinct, whole_table
from fieldwise.tables.optimizer import Optimizer
from fieldwise.tables.rate import WARM, Rate
from fieldwise.tables.sparse_optimizers import RowwiseAdagrad, SparseAdam
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.task import Task
from tests.trainings import Stop, numbers, same

ROWS, WIDTH, BATCH = 40_000, 3, 200
PLAIN = Pretrain(batch=256, epochs=8, patience=8, learning_rate=0.05, regularity=SoftOrthogonality(strength=0))


class Pair:
    """The same weights with torch's dense Adam and with ours, with the same skewed reads and gradients."""

    def __init__(self, rate: Rate = Rate(1e-3)) -> None:  # noqa: B008 (frozen)
        start, self.rate, self._step = torch.randn(ROWS, WIDTH) * 0.01, rate, 0
        self.start, self.dense, self.ours = start, nn.Parameter(start.clone()), nn.Parameter(start.clone())
        self._adam = torch.optim.Adam([self.dense], lr=1e-3)
        self.rows = SparseAdam([self.ours], self.rate, Distinct())
        self._target = torch.randn(ROWS, WIDTH)
        self._scale = 10 ** (-3 * torch.rand(ROWS, 1))  # gradients of very different sizes
        self.reads = torch.zeros(ROWS, dtype=torch.int64)

    def _loss(self, found: Tensor, rows: Tensor) -> Tensor:
        return ((found - self._target[rows]).square() * self._scale[rows]).sum() / 2048

    def step(self) -> None:
        rows = (ROWS ** torch.rand(BATCH, 1)).int() - 1  # Zipf: a row's frequency is proportional to 1 / its number
        self.reads += torch.bincount(rows.flatten(), minlength=ROWS)
        self._adam.zero_grad()
        self._adam.param_groups[0]["lr"] = self.rate.at(self._step)
        self._step += 1
        self._loss(self.dense[rows], rows).backward()
        self._adam.step()
        self._loss(self.rows.read(rows, keep=True).at_places(), rows).backward()
        self.rows.step()


@pytest.mark.parametrize(("rate", "bound"), [(Rate(1e-3), 1e-3), (Rate(1e-3, steps=1_000), 0.1)])
def test_after_1000_steps_every_row_is_where_dense_adam_has_it(rate: Rate, bound: float) -> None:
    """Where the rate turns from rising to falling, the mean of its missed values is off."""
    pair = Pair(rate)
    for _ in range(1_000):
        pair.step()
    pair.rows.settle()
    way = (pair.dense - pair.start).norm(dim=1)
    off = (pair.dense - pair.ours).norm(dim=1)
    for least, most in ((1, 1), (2, 5), (6, 50), (51, 10**9)):
        some = (pair.reads >= least) & (pair.reads <= most)
        assert some.sum() > 50, "rows of this frequency are there"
        assert (off[some] / way[some]).max() < bound
        assert (off[some] / way[some]).median() < 1e-3
    assert (pair.reads == 0).any()
    assert torch.equal(pair.ours[pair.reads == 0], pair.start[pair.reads == 0]), "rows never read do not move"


def test_a_row_is_read_as_dense_adam_has_it_at_that_step_and_reading_changes_nothing() -> None:
    pair = Pair()
    for _ in range(300):
        pair.step()
    before = pair.ours.detach().clone()
    everything = torch.arange(ROWS, dtype=torch.int32).view(-1, 1)
    found = pair.rows.read(everything, keep=False).at_places().squeeze(1)
    assert not found.requires_grad
    assert torch.equal(pair.ours, before)
    way = (pair.dense - pair.start).norm(dim=1)
    moved = way > 0
    assert ((found - pair.dense).norm(dim=1)[moved] / way[moved]).max() < 1e-3
    assert not torch.allclose(before, pair.dense, atol=1e-6), "the table itself is behind"


def test_the_missed_steps_in_closed_form_are_their_sum() -> None:
    missed = Missed()

    def summed(start: int, count: int, epsilon: float) -> float:
        i = np.arange(1, count + 1)
        a = BETA1**i / (1 - BETA1 ** (start + i))
        c = BETA2 ** (i / 2) / np.sqrt(1 - BETA2 ** (start + i))
        return float((a / (c + epsilon)).sum())

    for epsilon, bound in ((0.0, 1e-5), (0.1, 1e-5), (1.0, 1e-4), (10.0, 4e-3), (1e5, 1e-5)):
        for step in (1, 2, 7, 100, 5_000, 50_000):
            near = missed.near(step)
            assert near[0, [0, 2]].tolist() == [0, 0], "nothing missed, nothing added"
            for count in (1, 2, 10, REACH - 1):
                if count < step:
                    a, x, b, y = near[count]
                    found = a / (1 + epsilon * x) + b / (1 + epsilon * y)
                    assert found == pytest.approx(summed(step - count, count, epsilon), rel=bound)
        for start in (1, 10, 500):
            a, x, b, y = missed.far(1_000)[start]
            found = a / (1 + epsilon * x) + b / (1 + epsilon * y)
            assert found == pytest.approx(summed(start, 900, epsilon), rel=bound)


def test_row_wise_adagrad_divides_by_the_root_of_summed_mean_squares() -> None:
    table = nn.Parameter(torch.zeros(3, 2))
    rows = RowwiseAdagrad([table], Rate(0.1), Distinct())
    for _ in range(2):
        found = rows.read(torch.tensor([[2], [0], [2]], dtype=torch.int32), keep=True).at_places()
        found.mul(torch.tensor([3.0, 4.0])).sum().backward()
        rows.step()
    grads = torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    size = grads.square().mean(1, keepdim=True).sqrt()
    expected = -0.1 * torch.where(size > 0, grads / size.clamp(min=1e-9), 0) * (1 + 1 / 2**0.5)
    assert torch.allclose(table, expected, atol=1e-6)


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as large."""
    monkeypatch.setattr(optimizer, "LARGE", {"cpu": 0})


@pytest.mark.usefixtures("all_large")
def test_a_training_by_rows_goes_the_way_of_a_dense_one(task: Task) -> None:
    assert Optimizer(task.new_model(), "adam", Rate(1e-3), 512).same_shapes is False
    sparse = pretrain(task, PLAIN)
    dense = pretrain(task, PLAIN.model_copy(update={"optimizer": "dense-adam"}))
    for ours, other in zip(sparse.history[1:], dense.history[1:], strict=True):
        assert ours.loss == pytest.approx(other.loss, rel=1e-3)
        assert ours.auc == pytest.approx(other.auc, abs=1e-3)
    adagrad = pretrain(task, PLAIN.model_copy(update={"optimizer": "rowwise-adagrad"}))
    first, *_, last = (epoch.loss for epoch in adagrad.history[1:])
    assert first is not None
    assert last is not None
    assert last < first
    assert last != pytest.approx(dense.history[-1].loss, rel=1e-2)


@pytest.mark.usefixtures("all_large")
@pytest.mark.parametrize("method", ["adam", "rowwise-adagrad"])
def test_an_interrupted_training_by_rows_ends_with_the_same_bits(task: Task, tmp_path: Path, method: str) -> None:
    settings = Pretrain(batch=512, epochs=3, patience=3, optimizer=method)
    first = Task(task.schema, task.train_rows, task.valid_rows, DeepFM(width=4), 3, "cpu")
    whole = pretrain(first, settings)
    with pytest.raises(KeyboardInterrupt):
        pretrain(first, settings, tmp_path / "c", Stop(2))
    resumed = pretrain(first, settings, tmp_path / "c")
    assert numbers(resumed) == numbers(whole)
    assert same(resumed.model.state_dict(), whole.model.state_dict())


@pytest.mark.usefixtures("all_large")
def test_a_search_by_rows_finds_what_a_dense_one_finds(task: Task) -> None:
    start = task.starting_from(pretrain(task, PLAIN).model)
    settings = HAM(epochs=3, batch=512, gate={"mu": 5e-4})
    ours = search(start, settings, Budget.columns(8))
    other = search(start, settings.model_copy(update={"optimizer": "dense-adam"}), Budget.columns(8))
    assert ours.mask == other.mask
    assert ours.summary.selected_auc == pytest.approx(other.summary.selected_auc, abs=1e-3)


def test_after_training_a_model_reads_its_tables_plainly() -> None:
    model = DeepFM(width=4).build(Schema.of(user=50, item=30).layout(4))
    embeddings = [module for module in model.modules() if isinstance(module, FieldEmbedding)]
    moving = Optimizer(model, "rowwise-adagrad", Rate(1e-3), batch=8)
    with moving.reading():
        assert all(embedding.reader is not whole_table for embedding in embeddings)
    assert all(embedding.reader is whole_table for embedding in embeddings)


def test_tables_of_one_stacking_are_moved_together_whatever_is_read_between() -> None:
    schema = Schema.of(user=500, item=400, city=300)
    layouts = Layout(schema, (4, 4, 2)), Layout(schema, (1, 1, 0))
    ids = torch.randint(0, 300, (50, 3), dtype=torch.int32)
    moved = []
    for method in ("adam", "dense-adam"):
        torch.manual_seed(0)
        model = FM().build(*layouts)
        moving = Optimizer(model, method, Rate(1e-2), batch=2)
        assert moving.same_shapes == (method == "dense-adam")
        with moving.reading():
            for rows in ids.split(10):
                moving.forget()
                model(rows).square().sum().backward()
                moving.step()
        moved.append(model.state_dict())
    for name, weight in moved[0].items():
        torch.testing.assert_close(weight, moved[1][name], rtol=1e-3, atol=1e-5)


def test_a_rate_rises_then_falls_to_zero() -> None:
    rate = Rate(0.4, steps=200)
    found = [rate.at(step) for step in range(201)]
    assert found[0] == pytest.approx(0.4 / (200 * WARM + 1))
    assert found[100] == pytest.approx(0.2)
    assert found[200] == 0
    assert max(found) == max(found[9:12])
    assert rate.of(torch.arange(201.0)).tolist() == pytest.approx(found)
    assert Rate(0.4).of(torch.arange(3.0)).tolist() == pytest.approx([Rate(0.4).at(7)] * 3)
    assert rate.times(0.5).at(100) == pytest.approx(0.1)


@pytest.mark.parametrize("slow", ["first_order", "nothing"])
@pytest.mark.parametrize("large", [0, 2])
@pytest.mark.parametrize("table_rate", [5.0, 0.5])
def test_tables_have_a_rate_of_their_own(
    task: Task, large: int, slow: str, table_rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step of Adam moves every weight with a gradient by its rate, whatever the gradient."""
    monkeypatch.setattr(optimizer, "LARGE", {"cpu": large})
    model = replace(task, model=DeepFM(width=4)).new_model()
    model.get_submodule("head.mlp").eval()  # statistics of a batch cancel biases, all but rounding
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    apart = [weight for name, weight in model.named_parameters() if name.startswith(slow)]
    assert bool(apart) == (slow == "first_order")
    moving = Optimizer(model, "adam", Rate(1e-3, steps=10), batch=2, table_rate=table_rate, slow=apart)
    with moving.reading():
        moving.at(0)
        model(torch.from_numpy(task.train_rows.ids[:2])).sum().backward()
        moving.step()
    wanted = Rate(1e-3, steps=10).at(0)
    for name, weight in model.named_parameters():
        way = (weight.detach() - before[name]).abs().max()
        of_table = name.startswith(("embedding", "first_order"))
        factor = table_rate if of_table and not (name.startswith(slow) and table_rate > 1) else 1
        assert float(way) == pytest.approx(factor * wanted, rel=0.01), name


def test_row_wise_adagrad_has_a_slow_rate_too(task: Task) -> None:
    ways = []
    for names in (("first_order",), ()):
        model = replace(task, model=DeepFM(width=4)).new_model()
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        slow = [weight for name, weight in model.named_parameters() if name.startswith(names)]
        moving = Optimizer(model, "rowwise-adagrad", Rate(1e-3, steps=10), batch=2, table_rate=5.0, slow=slow)
        with moving.reading():
            moving.at(0)
            model(torch.from_numpy(task.train_rows.ids[:2])).sum().backward()
            moving.step()
        ways.append({n: float((w.detach() - before[n]).abs().max()) for n, w in model.named_parameters()})
    slowly, fast = ways
    for name, way in fast.items():
        assert slowly[name] == pytest.approx(way / (5 if name.startswith("first_order") else 1), rel=1e-3), name
