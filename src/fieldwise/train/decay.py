"""The learning rate of a retraining that decays."""

import math
from typing import Annotated, Final

from pydantic import Field

from fieldwise.core.automatic import AUTO, Auto, number_or_auto
from fieldwise.core.settings import Settings

SHARE: Final = 0.6
"""Epochs of a retraining that decays, in multiples of those of pretraining,"""
ROUNDED_SHARE: Final = 0.5
"""and of one that rounds tables, whose steps take longer."""
FEWEST: Final = 2
"""The fewest epochs of either."""
MANY: Final = 6
"""From here on epochs are whole; fewer are rounded down to halves, or rounding would cost too much."""
PLAIN: Final = 0.5
"""Fraction of the epochs before tables are rounded."""
UNKNOWN_EPOCHS: Final = 3
"""Epochs of a retraining that decays if those of pretraining are not known."""
EARLY: Final = 2
"""Pretraining that is at its best after so many epochs or fewer overfits soon."""
RATES: Final = (8.0, 1.0)
"""Highest learning rates of a retraining that decays; the second only where rows are memorized soon."""
TOP: Final = 0.01
"""The first of them raises no learning rate above this."""
LARGE_BATCH: Final = 2048
"""Batches of this many rows or more have steps with less noise: the first rate and its limit are twice as high."""
_Epochs = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Epochs = Annotated[_Epochs | Auto, number_or_auto(_Epochs)]
_HighestRate = Annotated[float, Field(gt=0)]
HighestRate = Annotated[_HighestRate | Auto, number_or_auto(_HighestRate)]


class Decay(Settings):
    """A learning rate that rises for 5% of the steps and then falls to zero, in a fixed number of epochs."""

    epochs: Epochs = AUTO
    """Passes over the training rows, at least 1; the last may end early: after half of the rows with 3.5. All run, but
    no more than the `epochs` of the training. auto: 0.6 times those of pretraining, 0.5 times in a training that rounds
    tables; rounded, or below 6 rounded down to halves; at least 2, and 3 if those of pretraining are not known."""
    rate: HighestRate = AUTO
    """Highest learning rate, in multiples of `learning_rate`; above 0. auto: 8, or less so that the rate is at most
    0.01; both twice as high with batches of at least 2,048 rows; if pretraining was at its best within two epochs, and
    the first epoch loses more than 0.005 of validation AUC, it is trained from the start again at 1."""
    table_rate: float = Field(4.0, gt=0)
    """Learning rate of tables and first-order weights, in multiples of that of dense layers; above 0. Where
    first-order weights of a harmful field stayed, those of all fields have at most the rate of dense layers: at a
    higher one they memorize rows."""

    def epochs_of(self, pretraining: int | None, rounds: bool = False) -> float:
        """The number of epochs, after this many of pretraining, of a training that rounds tables or not."""
        if self.epochs != AUTO:
            return self.epochs
        if pretraining is None:
            return UNKNOWN_EPOCHS
        epochs = (ROUNDED_SHARE if rounds else SHARE) * pretraining
        return max(FEWEST, round(epochs) if epochs >= MANY else math.floor(2 * epochs) / 2)

    def rates(self, learning_rate: float, batch: int, best: int | None) -> tuple[float, ...]:
        """The highest rate with batches of this many rows and, if it may be too high, a lower one.

        It may be after a pretraining that was at its best soon; `best` is that epoch.
        """
        if self.rate != AUTO:
            return (self.rate,)
        (high, low), times = RATES, 2 if batch >= LARGE_BATCH else 1
        high = min(times * high, max(low, times * TOP / learning_rate))
        soon = best is not None and best <= EARLY
        return (high, low) if soon and high > low else (high,)


def plain_epochs(epochs: float) -> int:
    """The first of so many epochs, before tables are rounded; at least one remains."""
    return min(round(PLAIN * epochs), math.floor(epochs) - 1)


def steps_of(epochs: float, each: int) -> int:
    """The steps of so many epochs with so many steps each; the last epoch may end early."""
    return math.ceil(round(epochs * each, 6))  # 1.1 * 100 is a little more than 110
