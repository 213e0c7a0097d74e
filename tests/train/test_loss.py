"""The loss of a batch."""

import pytest
import torch

from fieldwise.data.batches import Batch
from fieldwise.train.loss import part_of_loss


@pytest.mark.parametrize(
    ("given", "kept"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_the_loss_is_float32_and_that_of_float64_stays_float64(given: torch.dtype, kept: torch.dtype) -> None:
    logits = torch.tensor([0.3, -1.7, 2.0], dtype=given, requires_grad=True)
    clicks = torch.tensor([1.0, 0.0, 0.25])
    loss = part_of_loss(logits, Batch(torch.zeros(3, 1, dtype=torch.int32), clicks))
    loss.backward()
    assert loss.dtype == kept
    exact, target = logits.detach().double(), clicks.double()
    expected = (torch.nn.functional.softplus(exact) - target * exact).mean()
    assert abs(loss.item() - expected.item()) < 4 * torch.finfo(kept).eps
    assert logits.grad is not None
    assert torch.allclose(logits.grad.double(), (torch.sigmoid(exact) - target) / 3, rtol=4 * torch.finfo(given).eps)
