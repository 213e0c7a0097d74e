"""TensorBoard events of a run (needs the extra `tensorboard`)."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from fieldwise.core.errors import SettingsError
from fieldwise.core.hints import either
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher


class Events(Watcher):
    """A watcher that writes TensorBoard events, one series per stage, budget and seed."""

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboard") is None:
            raise SettingsError(
                f"{either('--tensorboard', 'Events')} needs the package tensorboard. "
                "Run: pip install 'fieldwise[tensorboard]'."
            )
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))
        self._title = ""

    def begin(self, title: str, done: bool) -> None:
        """Sets the stage that later events belong to."""
        self._title = title

    def gate(self, step: int, live: int, cost: int, limit: int, widths: Mapping[str, int]) -> None:
        """Writes the live columns, their cost and the target."""
        for name, value in {"live columns": live, "live cost": cost, "target": limit}.items():
            self._writer.add_scalar(f"{self._title}/{name}", value, step)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Writes the loss and the validation metrics of an epoch."""
        if epoch.loss is not None:
            self._writer.add_scalar(f"{self._title}/training loss", epoch.loss, epoch.epoch)
        self._writer.add_scalar(f"{self._title}/validation AUC", epoch.auc, epoch.epoch)
        self._writer.add_scalar(f"{self._title}/validation log loss", epoch.log_loss, epoch.epoch)
        self._writer.flush()
