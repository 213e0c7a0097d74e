"""What a training returns."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fieldwise.core.display import Shown, View
from fieldwise.core.harm import sentence
from fieldwise.core.records import Epoch, Harm
from fieldwise.models.model import CTRModel
from fieldwise.models.stored import StoredModel

M = TypeVar("M", bound="CTRModel | StoredModel", covariant=True)


@dataclass(frozen=True, repr=False)
class Trained(Shown, Generic[M]):
    """A model with the weights of its best validation AUC, and its history."""

    model: M
    history: list[Epoch]
    harms: list[Harm] = field(default_factory=list)
    """Fields that pretraining suspected of harm, and what became of each."""
    other_seconds: float = 0.0
    """Time of what was trained beside `model`: without harmful fields, or with another learning rate."""

    @property
    def epochs(self) -> int:
        """Epochs of the training."""
        return len(self.history) - 1

    @property
    def best_epoch(self) -> int:
        """The epoch whose own weights have the best validation AUC, the first of equals."""
        return max(self.history, key=lambda epoch: epoch.auc).epoch

    @property
    def seconds(self) -> float:
        """Total training time, including interrupted runs that were resumed."""
        return sum(epoch.seconds for epoch in self.history) + self.other_seconds

    def view(self) -> View:
        """The size of the model, and its epochs."""
        size, best = self.model.size(), max(self.history, key=lambda epoch: epoch.kept_auc)
        averaged = any(epoch.averaged_auc is not None for epoch in self.history)
        rows = tuple(
            (
                e.epoch,
                "" if e.loss is None else f"{e.loss:.4f}",
                f"{e.auc:.4f}",
                *(["" if e.averaged_auc is None else f"{e.averaged_auc:.4f}"] if averaged else []),
                f"{e.log_loss:.4f}",
                f"{e.seconds:.1f}",
            )
            for e in self.history
        )
        return View(
            f"Trained {type(self.model.settings).__name__}: best validation AUC {best.kept_auc:.4f} in epoch "
            f"{best.epoch}, {self.seconds:.1f} s",
            (
                f"{size.columns:,} columns, {size.embedding:,} embedding parameters, {size.dense:,} dense weights",
                *map(sentence, self.harms),
            ),
            ("epoch", "loss", "valid AUC", *(["of the average"] if averaged else []), "valid log loss", "seconds"),
            rows,
        )
