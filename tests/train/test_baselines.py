"""Baselines and standard errors are what their definitions say."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fieldwise.core.schema import Field, Schema
from fieldwise.data.store import Dataset, Split
from fieldwise.train.baselines import field_scores, measure_baselines
from fieldwise.train.evaluate import auc
from fieldwise.train.logistic import STRENGTHS, fit_logistic, thinned
from fieldwise.train.uncertainty import auc_error, errors, mean_error, placements, row_losses

CPU = torch.device("cpu")
SCHEMA = Schema((Field("a", 5), Field("tags", 4, 3), Field("b", 3)))


def rows(count: int, seed: int = 0) -> Split:
    """Rows of three fields, the second with up to three values; clicks depend on the first and the second."""
    draw = np.random.default_rng(seed)
    tags = draw.integers(0, 4, (count, 3))
    tags[:, 1:][draw.random((count, 2)) < 0.4] = -1
    ids = np.column_stack([draw.integers(0, 5, count), tags, draw.integers(0, 3, count)]).astype(np.int32)
    clicks = draw.random(count) < 1 / (1 + np.exp(1.5 - ids[:, 0] + (tags == 2).any(1)))
    return Split(ids, clicks.astype(np.uint8))


def design(split: Split) -> NDArray[np.float64]:
    """The same rows as a dense matrix, several values as their mean."""
    ids = np.asarray(split.ids)
    found = np.zeros((len(ids), 12))
    for row, (a, *tags, b) in enumerate(ids):
        known = [tag for tag in tags if tag >= 0]
        found[row, a] = found[row, 9 + b] = 1
        for tag in known:
            found[row, 5 + tag] += 1 / len(known)
    return found


def test_the_regression_is_the_minimum_of_its_penalized_loss() -> None:
    train, valid = rows(600), rows(300, 1)
    found = fit_logistic(SCHEMA, train, valid, CPU)
    weights = found.weights.numpy()
    x, y = design(train), np.asarray(train.labels, float)
    logits = x @ weights[:-2] + weights[-1]
    assert np.allclose(found.logits(train).numpy(), logits)
    slopes = 1 / (1 + np.exp(-logits)) - y
    assert np.abs(x.T @ slopes + found.l2 * weights[:-2]).max() / len(y) < 2e-3
    assert abs(slopes.mean()) < 2e-3
    assert found.l2 in STRENGTHS
    assert found.rows == 600
    again = fit_logistic(SCHEMA, train, valid, CPU)
    assert torch.equal(found.weights, again.weights), "nothing is random"


def test_the_strength_is_that_of_the_best_validation_loss() -> None:
    train = rows(600)
    opposite = Split(train.ids, (1 - np.asarray(train.labels)).astype(np.uint8))
    assert fit_logistic(SCHEMA, train, opposite, CPU).l2 == STRENGTHS[0], "what does not hold asks for the strongest"
    assert fit_logistic(SCHEMA, train, rows(300, 1), CPU).l2 < STRENGTHS[0]


def test_many_rows_are_thinned_evenly() -> None:
    split = rows(100)
    few = thinned(split, 5 * 10)
    assert len(few) == 10
    assert few.ids[0].tolist() == split.ids[0].tolist()
    assert few.ids[-1].tolist() == split.ids[-1].tolist()
    assert thinned(split, 500) is split


def test_a_single_field_scores_by_its_click_rates() -> None:
    ids = np.array([[1, 0, -1], [1, 1, -1], [2, 1, 0], [2, 0, 0]], np.int32)
    train = Split(ids, np.array([1, 1, 0, 0], np.uint8))
    schema = Schema((Field("leak", 3), Field("tags", 2, 2)))
    leak, tags = field_scores(schema, train, train)
    assert auc(leak, torch.tensor([1, 1, 0, 0])) == 1.0
    assert leak.tolist() == pytest.approx([2.5 / 3, 2.5 / 3, 0.5 / 3, 0.5 / 3])
    rates = {0: 1.5 / 5, 1: 1.5 / 3}  # clicks and rows of each value, and half a click in one row
    assert tags.tolist() == pytest.approx([rates[0], rates[1], (rates[1] + rates[0]) / 2, rates[0]])
    (unseen, _) = field_scores(schema, train, Split(np.array([[0, 1, -1]], np.int32), np.zeros(1, np.uint8)))
    assert unseen.tolist() == [0.5], "a value that training rows lack has the overall rate"


def test_placements_average_to_the_auc_and_ties_are_half() -> None:
    scores = torch.tensor([0.1, 0.4, 0.4, 0.8, 0.3])
    clicks = np.array([False, True, False, True, False])
    ones, others = placements(scores, clicks)
    assert ones.tolist() == pytest.approx([(2 + 0.5) / 3, 1.0])
    assert others.tolist() == pytest.approx([1.0, 0.75, 1.0])
    exact = auc(scores, torch.tensor(clicks.astype(float)))
    assert [float(ones.mean()), float(others.mean())] == pytest.approx([exact, exact])


def test_standard_errors_agree_with_a_bootstrap() -> None:
    draw = np.random.default_rng(0)
    clicks = draw.random(400) < 0.3
    full = torch.tensor(clicks + draw.standard_normal(400))
    small = full + 0.5 * torch.tensor(draw.standard_normal(400))
    labels = torch.tensor(clicks.astype(np.float32))
    found = errors(full, small, labels)
    assert found is not None
    drawn = []
    for _ in range(400):
        picked = draw.integers(0, 400, 400)
        aucs = [auc(logits[picked], labels[picked]) for logits in (full, small)]
        losses = [row_losses(logits[picked], labels[picked]).mean() for logits in (full, small)]
        drawn.append([aucs[0], aucs[1] - aucs[0], losses[0], losses[1] - losses[0]])
    spread = np.std(drawn, axis=0)
    said = [found.full_auc, found.auc_change, found.full_log_loss, found.log_loss_change]
    assert said == pytest.approx(spread.tolist(), rel=0.15)
    assert found.auc_change < found.full_auc, "paired rows differ less than the models vary"


def test_equal_models_differ_by_exactly_nothing_and_one_click_has_no_error() -> None:
    logits, labels = torch.linspace(-1, 1, 6), torch.tensor([0.0, 1, 0, 1, 0, 0])
    found = errors(logits, logits, labels)
    assert found is not None
    assert (found.auc_change, found.log_loss_change) == (0.0, 0.0)
    assert errors(logits, logits, torch.tensor([0.0, 1, 0, 0, 0, 0])) is None
    assert mean_error(np.array([1.0, 3.0])) == pytest.approx(1.0)
    assert auc_error(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.0


def test_the_baselines_of_a_dataset(planted: Dataset) -> None:
    found = measure_baselines(planted, CPU)
    rate = found.clicks["train"] / found.rows["train"]
    clicked = float(np.mean(planted.test.labels))
    expected = -clicked * np.log(rate) - (1 - clicked) * np.log(1 - rate)
    assert found.constant.log_loss == pytest.approx(expected)
    assert found.constant.auc == 0.5
    assert found.rows == planted.info["rows"]
    assert found.clicks == {name: split["clicks"] for name, split in planted.info["splits"].items()}
    assert [field.name for field in found.fields] == list(planted.schema.names)
    assert measure_baselines(planted, CPU).model_copy(update={"seconds": 0}) == found.model_copy(update={"seconds": 0})
