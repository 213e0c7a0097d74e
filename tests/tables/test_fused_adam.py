"""What the kernels for tables need, on a CPU."""

import numpy as np
import torch

from fieldwise.tables.adam_catchup import REACH, SETTLED, Missed
from fieldwise.tables.beside import Beside
from fieldwise.tables.fused_adam import points


def test_points_are_those_of_rows_that_catch_up_on_a_cpu() -> None:
    found, missed = points(torch.device("cpu")).double().numpy(), Missed()
    assert found.shape == (SETTLED + 1, REACH + 1, 4)
    for step in (3, 50, 700):
        steps = np.arange(min(step, REACH))
        np.testing.assert_allclose(found[step - steps, steps], missed.near(step)[steps], rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(found[:2000, REACH], missed.far(1999)[:2000], rtol=1e-5)


def test_work_beside_is_done_in_its_order_where_nothing_is_captured() -> None:
    beside, done = Beside("test"), torch.zeros(2)
    with beside(done):
        done[0] = 1
    done[1] = done[0] + 1
    beside.join(done)
    assert done.tolist() == [1, 2]
