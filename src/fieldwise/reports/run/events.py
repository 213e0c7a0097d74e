"""TensorBoard events of a run (extra `tensorboard`)."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from fieldwise.core.errors import SettingsError
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher


class Events(Watcher):
    """A watcher that writes TensorBoard events, one series for each stage, budget and seed."""

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboard") is None:
            raise SettingsError(
                "--tensorboard needs the package tensorboard. Run: pip install 'fieldwise[tensorboard]'."
            )
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))
        self._title = ""

    def begin(self, title: str, done: bool) -> None:
        """A stage begins, or is skipped because it is done."""
        self._title = title

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Nothing."""

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Nothing."""

    def gate(self, step: int, live: int, cost: int, limit: int, widths: Mapping[str, int]) -> None:
        """What a gate lets through."""
        for name, value in {"live columns": live, "live cost": cost, "target": limit}.items():
            self._writer.add_scalar(f"{self._title}/{name}", value, step)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """An epoch is done."""
        if epoch.loss is not None:
            self._writer.add_scalar(f"{self._title}/training loss", epoch.loss, epoch.epoch)
        self._writer.add_scalar(f"{self._title}/validation AUC", epoch.auc, epoch.epoch)
        self._writer.add_scalar(f"{self._title}/validation log loss", epoch.log_loss, epoch.epoch)
        self._writer.flush()
