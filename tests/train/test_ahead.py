"""Orders drawn ahead are those that the epochs would draw themselves."""

import torch

from fieldwise.train.ahead import Ahead
from fieldwise.train.randomness import randomness, seed_of


def draws(epoch: int, ahead: Ahead | None = None) -> list[torch.Tensor]:
    with randomness(7, "pretrain", epoch, 1, own=True):
        order, of_valid = ahead.orders(epoch) if ahead else (None, None)
        if order is None or of_valid is None:
            order, of_valid = torch.randperm(1000), torch.stack([torch.randperm(90), torch.randperm(90)])
        return [order.long(), of_valid.long(), torch.randperm(50), torch.rand(3)]


def test_an_order_drawn_ahead_is_the_epochs_own_and_so_is_all_that_follows() -> None:
    ahead = Ahead(1000, lambda epoch: seed_of(7, "pretrain", epoch, 1), 90, 2)
    for epoch in (1, 2, 3, 7, 8):  # a gap, as after a resumed run
        for mine, other in zip(draws(epoch, ahead), draws(epoch), strict=True):
            assert torch.equal(mine, other)
    assert ahead.orders(9)[0] is not None
    assert ahead.orders(11) == (None, None)
