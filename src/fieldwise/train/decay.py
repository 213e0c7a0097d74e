"""The learning rate of a retraining that decays."""

from typing import Annotated, Final

from pydantic import Field

from fieldwise.core.automatic import AUTO, Auto, number_or_auto
from fieldwise.core.settings import Settings

SHARE: Final = 0.6
"""Epochs of a retraining that decays, in multiples of those of pretraining."""
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
_Epochs = Annotated[int, Field(ge=1)]
Epochs = Annotated[_Epochs | Auto, number_or_auto(_Epochs)]
_HighestRate = Annotated[float, Field(gt=0)]
HighestRate = Annotated[_HighestRate | Auto, number_or_auto(_HighestRate)]


class Decay(Settings):
    """A learning rate that rises for 5% of the steps and then falls to zero, in a fixed number of epochs."""

    epochs: Epochs = AUTO
    """Passes over the training rows, at least 1; all run, but no more than the `epochs` of the training. auto: 0.6
    times those of pretraining, at least 2; 3 if they are not known."""
    rate: HighestRate = AUTO
    """Highest learning rate, in multiples of `learning_rate`; above 0. auto: 8, or less so that the rate is at most
    0.01; both twice as high with batches of at least 2,048 rows; if pretraining was at its best within two epochs, and
    the first epoch loses more than 0.005 of validation AUC, it is trained from the start again at 1."""
    table_rate: float = Field(4.0, gt=0)
    """Learning rate of tables and first-order weights, in multiples of that of dense layers; above 0. Where
    first-order weights of a harmful field stayed, those of all fields have at most the rate of dense layers: at a
    higher one they memorize rows."""

    def epochs_of(self, pretraining: int | None) -> int:
        """The number of epochs, after this many of pretraining."""
        if self.epochs != AUTO:
            return self.epochs
        return UNKNOWN_EPOCHS if pretraining is None else max(2, round(SHARE * pretraining))

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


def plain_epochs(epochs: int) -> int:
    """The first of so many epochs, before tables are rounded; at least one remains."""
    return min(round(PLAIN * epochs), epochs - 1)
