"""PEP: thresholds, the decay that raises them, and the counts."""

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.models.model import HeadModel
from fieldwise.searches.pep import PEP, Countdown, Thresholded, best_entries
from fieldwise.searches.search import search
from fieldwise.train.task import Task


def test_embeddings_pass_soft_thresholds(start: Task) -> None:
    model = start.starting_model().eval()
    assert isinstance(model, HeadModel)
    net = Thresholded(model, -2.0, 4.0).eval()
    ids = torch.from_numpy(start.valid_rows.ids[:50])
    v = model.embedding(ids)
    bound = 1 / (1 + torch.exp(torch.tensor(2.0)))
    soft = torch.where(v.abs() > bound, v - torch.sign(v) * bound, torch.zeros(()))
    assert torch.allclose(net(ids), model.logits(ids, soft), atol=1e-6)
    assert 0 < float((soft == 0).float().mean()) < 1


@pytest.mark.parametrize("speed", [1.0, 7.0])
def test_weight_decay_alone_raises_a_threshold_by_the_learning_rate_a_step(start: Task, speed: float) -> None:
    net = Thresholded(start.starting_model(), -15.0, speed)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(20):
        adam.zero_grad()
        net.decay(1e-5).backward()
        adam.step()
    found = speed * float(net.thresholds.table(0)[1, 0].detach())
    assert found == pytest.approx(-15 + 20 * 1e-3 * speed, abs=1e-4 * speed)


def test_the_penalty_is_adam_s_weight_decay(start: Task) -> None:
    nets = [Thresholded(start.starting_model(), -3.0, 1.0).eval() for _ in range(2)]
    ids = torch.from_numpy(start.train_rows.ids[:200])
    adams = [torch.optim.Adam(nets[0].parameters(), lr=1e-3, weight_decay=0.01),
             torch.optim.Adam(nets[1].parameters(), lr=1e-3)]  # fmt: skip
    for _ in range(3):
        for net, adam, penalized in zip(nets, adams, (False, True), strict=True):
            adam.zero_grad()
            loss = net(ids).square().mean()
            (loss + net.decay(0.01) if penalized else loss).backward()
            adam.step()
    one, other = (net.state_dict() for net in nets)
    assert all(torch.allclose(one[key], other[key], atol=1e-6) for key in one)


def test_exactly_the_entries_furthest_above_their_threshold_are_kept() -> None:
    margins = [torch.tensor([[0.1, -0.3], [0.5, 0.0]]), torch.tensor([[0.4, 0.2]])]
    kept = [part.int().tolist() for part in best_entries(margins, 3)]
    assert kept == [[[0, 0], [1, 0]], [[1, 1]]]
    assert sum(int(part.sum()) for part in best_entries(margins, 5)) == 5


def test_the_countdown_remembers_the_first_moment_that_few_enough_are_left(start: Task) -> None:
    net = Thresholded(start.starting_model(), -15.0, 1.0)
    watch = Countdown(net, target=300, every=1)
    watch.step()
    assert watch.left() > 300
    assert not watch.snapshot
    with torch.no_grad():
        for table in net.thresholds.parameters():
            table.fill_(20.0)
    watch.step()
    assert watch.left() == 0
    assert watch.snapshot["thresholds.tables.4"].unique().tolist() == [20.0]
    with torch.no_grad():
        net.thresholds.table(0).fill_(30.0)
    watch.step()
    assert watch.snapshot["thresholds.tables.4"].unique().tolist() == [20.0]
    again = Countdown(net, 300, 1)
    again.restore(watch.tensors())
    assert again.steps == 3
    assert again.snapshot.keys() == watch.snapshot.keys()


def test_the_summary_says_entries_and_what_a_dense_layout_would_store(start: Task) -> None:
    result = search(start, PEP(epochs=8, batch=256, threshold=-5, speed=100), Budget.parameters(1500))
    s = result.summary
    assert s.nonzeros == 1500
    assert s.dense is not None
    assert s.dense >= 1500
    assert s.raw_live is not None
    assert s.raw_live >= result.mask.columns, "columns with any entry: more than the budget holds"
    assert result.mask.params <= 1500


def test_retraining_begins_where_the_search_began(start: Task) -> None:
    settings = {"epochs": 2, "batch": 256, "threshold": -5, "speed": 50}
    fresh = search(start, PEP(**settings), Budget.columns(7))
    model = start.new_model()
    for j, kept in enumerate(fresh.mask.kept):
        if kept:
            assert torch.equal(fresh.model.embedding.table(j), model.embedding.table(j)[:, list(kept)])
    assert start.start is not None
    pretrained = search(start, PEP(start="pretrained", **settings), Budget.columns(7))
    for j, kept in enumerate(pretrained.mask.kept):
        if kept:
            assert torch.equal(pretrained.model.embedding.table(j), start.start.embedding.table(j)[:, list(kept)])
