import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from fieldwise.core.errors import DataError
from fieldwise.train.evaluate import auc, evaluate, log_loss
from fieldwise.train.task import Task


@given(st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=60))
def test_auc_counts_ties_like_scikit_learn(rows: list[tuple[int, bool]]) -> None:
    scores, labels = np.asarray([s for s, _ in rows], np.float32), np.asarray([float(y) for _, y in rows])
    if len(set(labels)) < 2:
        with pytest.raises(DataError, match="both labels"):
            auc(torch.from_numpy(scores), torch.from_numpy(labels))
    else:
        got = auc(torch.from_numpy(scores), torch.from_numpy(labels))
        assert got == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_large_arrays_agree_with_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 200_000).astype(np.float32)
    logits = (draw.normal(size=200_000) + labels).astype(np.float32)
    scores, truth = torch.from_numpy(logits), torch.from_numpy(labels)
    assert auc(scores, truth) == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    chances = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert log_loss(scores, truth) == pytest.approx(sklearn_log_loss(labels, chances), abs=1e-9)


def test_evaluation_leaves_the_model_as_it_was(task: Task) -> None:
    model = task.new_model().train()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    metrics = evaluate(model, task.valid)
    assert model.training
    assert metrics.rows == len(task.valid)
    assert evaluate(model, task.valid_rows) == metrics
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
