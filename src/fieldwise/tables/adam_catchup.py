"""Adam's updates of a row between two reads, in closed form.

Adam updates every row at every step, even without a gradient: the moments decay and still change the weights. After k
such steps, a weight whose moments were m and v at step t has changed by

    learning rate * sum over i = 1..k of  a_i m / (c_i sqrt(v) + epsilon),
    a_i = beta1^i / (1 - beta1^(t+i)),  c_i = beta2^(i/2) / sqrt(1 - beta2^(t+i)).

With x_i = 1/c_i this is the integral of x m / (sqrt(v) + x epsilon) over points x_i with weights a_i. Gauss quadrature
with two points is accurate: it is exact in both limits (epsilon negligible, epsilon dominant), and its relative error
between them is below 1e-3 (4e-3 for rows last updated in the first three steps).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

BETA1: Final = 0.9
BETA2: Final = 0.999
EPSILON: Final = 1e-8

REACH: Final = 128
"""Steps after which the first moment is negligible: beta1^128 is 1e-6."""
SETTLED: Final = 20_000
"""Steps after which the bias correction is negligible: beta2^20000 is 2e-9."""

Doubles = NDArray[np.float64]


def two_points(start: Doubles, missed: int) -> Doubles:
    """Gauss quadrature for rows last updated at the steps `start` (n,), `missed` steps ago, (n, 4).

    The four numbers are w, x, w, x of a sum of w m / (sqrt(v) + x epsilon).
    """
    i = np.arange(1, missed + 1)
    x, weight = _atoms(start[:, None] + i)  # (n, missed)
    x, weight = x * BETA2 ** (-i / 2), weight * BETA1**i
    return _gauss(np.stack([(weight * x**power).sum(1) for power in range(4)]))


def _atoms(step: Doubles) -> tuple[Doubles, Doubles]:
    """Point and weight of a step, without decay."""
    x = np.sqrt(-np.expm1(step * np.log(BETA2)))
    return x, 1 / (1 - BETA1**step)


def _gauss(moments: Doubles) -> Doubles:
    """The two points with these first four moments, (4, n) to (n, 4)."""
    total = moments[0]
    nothing = total == 0
    first, second, third = np.where(nothing, 1.0, moments[1:] / np.where(nothing, 1.0, total))
    spread = second - first**2
    single = spread <= 1e-12 * first**2  # one point up to rounding
    spread = np.where(single, 0.25, spread)
    lean = np.where(single, 0.0, (third - 3 * first * second + 2 * first**3) / spread)
    root = np.sqrt(lean**2 + 4 * spread)
    share = np.where(single, 1.0, (root + lean) / (2 * root))  # of the lower point
    low, high = (first + np.where(single, 0.0, (lean + sign * root) / 2) for sign in (-1, 1))
    return np.stack([total * share * low, low, total * (1 - share) * high, high], axis=1)


class Missed:
    """Quadrature points for every possible last update of a row, at a given step."""

    def __init__(self) -> None:
        back = np.arange(REACH)[:, None] - np.arange(REACH)  # missed steps minus steps since the point
        rates = [BETA1 * BETA2 ** (-power / 2) for power in range(4)]
        self._decay = np.stack([np.where(back > 0, rate ** np.maximum(back, 0), 0.0) for rate in rates])
        self._far: Doubles = np.empty((0, 4))

    def near(self, step: int) -> Doubles:
        """Points for rows that missed the last 0..REACH-1 steps up to `step`, (REACH, 4)."""
        steps = step - np.arange(REACH, dtype=np.float64)
        x, weight = _atoms(np.maximum(steps, 1))
        weight = np.where(steps >= 1, weight, 0.0)
        atoms = np.stack([weight * x**power for power in range(4)])  # (4, REACH)
        return _gauss((self._decay @ atoms[:, :, None])[:, :, 0])

    def far(self, step: int) -> Doubles:
        """Points for rows that missed more steps, by the step of their last update, up to SETTLED."""
        while len(self._far) <= min(step, SETTLED):
            starts = np.arange(len(self._far), len(self._far) + 1024, dtype=np.float64)
            self._far = np.concatenate([self._far, two_points(starts, REACH)])
        return self._far
