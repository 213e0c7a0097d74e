"""The learning rate of a retraining that decays."""

from typing import Annotated, Final, Self

from pydantic import Field

from fieldwise.core.automatic import AUTO, Auto, number_or_auto
from fieldwise.core.settings import Settings

SHARE: Final = 0.6
"""Epochs of a retraining that decays, in multiples of those of pretraining."""
UNKNOWN_EPOCHS: Final = 3
"""Epochs of a retraining that decays if those of pretraining are not known."""
EARLY: Final = 2
"""Pretraining that is at its best after so many epochs or fewer overfits soon."""
RATES: Final = (8.0, 1.0)
"""Highest learning rates of a retraining that decays; the second only where rows are memorized soon."""
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
    """Highest learning rate, in multiples of `learning_rate`; above 0. auto: 8; if pretraining was at its best within
    two epochs, or left a harmful field out, also 1 in a training of its own, and the better on validation rows is
    kept."""
    table_rate: float = Field(4.0, gt=0)
    """Learning rate of tables and first-order weights, in multiples of that of dense layers; above 0."""

    def fitted(self, pretraining: int | None) -> Self:
        """The settings with a number for `auto`, after this many epochs of pretraining."""
        if self.epochs != AUTO:
            return self
        epochs = UNKNOWN_EPOCHS if pretraining is None else max(2, round(SHARE * pretraining))
        return self.model_copy(update={"epochs": epochs})

    def rates(self, best: int | None, left_out: bool = False) -> tuple[float, ...]:
        """The highest rates to try, after a pretraining whose best epoch was this and that left out a field or not."""
        if self.rate != AUTO:
            return (self.rate,)
        return RATES if left_out or (best is not None and best <= EARLY) else RATES[:1]
