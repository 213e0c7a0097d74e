"""Progress in a notebook: one output of a cell, updated in place."""

import sys
import time
from html import escape
from typing import Any, Final

from fieldwise.core.display import View, printable
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher

_EVERY: Final = 0.2
"""Seconds between updates of the bar; the browser draws each one."""
_HEADS: Final = ("stage", "epoch", "loss", "valid AUC", "valid log loss", "seconds")


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    shell: Any = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


class Cell(Watcher):
    """Shows the current bar, and the epochs and notes so far, as HTML in one output that each report replaces."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._title = ""
        self._bar = ""
        self._notes: list[str] = []
        self._epochs: list[tuple[object, ...]] = []
        self._shown = 0.0

    def begin(self, title: str, done: bool) -> None:
        """Shows that a stage begins, or that it is already complete."""
        self._title, self._bar = title, ""
        if done:
            self._notes.append(f"{title}: already complete")
        self._show()

    def note(self, text: str) -> None:
        """Shows the line."""
        self._notes.append(text)
        self._show()

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Moves the bar of a preparation."""
        self._draw(what, done, total)

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Moves the bar of an epoch."""
        self._draw(f"{self._title or stage}, epoch {epoch}", step, steps)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Adds an epoch to the table."""
        loss = "" if epoch.loss is None else f"{epoch.loss:.4f}"
        metrics = f"{epoch.auc:.4f}", f"{epoch.log_loss:.4f}", f"{epoch.seconds:.1f}"
        self._epochs.append((self._title or stage, epoch.epoch, loss, *metrics))
        self._bar = ""
        self._show()

    def _draw(self, what: str, done: int, total: int | None) -> None:
        bar = f"<progress value='{done}' max='{total}'></progress>" if total else ""
        counts = f"{done:,} of {total:,}" if total else f"{done:,}"
        self._bar = f"<div>{bar} {escape(printable(what))}: {counts}</div>"
        if done == total or time.monotonic() - self._shown >= _EVERY:
            self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display

        self._shown = time.monotonic()
        page = View(self._title, tuple(self._notes), _HEADS if self._epochs else (), tuple(self._epochs)).html()
        if self._handle is None:
            self._handle = display(HTML(page + self._bar), display_id=True)
        else:
            self._handle.update(HTML(page + self._bar))
