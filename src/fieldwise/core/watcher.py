"""Watchers receive the progress of trainings and runs."""

from collections.abc import Mapping

from fieldwise.core.display import View
from fieldwise.core.records import Epoch


class Watcher:
    """Receives progress reports. Every method does nothing; override those you need."""

    def begin(self, title: str, done: bool) -> None:
        """A stage begins, or is skipped because it is complete."""

    def note(self, text: str) -> None:
        """One line that the user should read, such as the number of skipped rows."""

    def show(self, view: View) -> None:
        """A table that the user should read, such as what each column is."""

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Rows or fields of a preparation are done; the total is None while unknown."""

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Step number `step` of the `steps` of an epoch is done."""

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """An epoch is done; number 0 is the model before the first epoch."""

    def gate(self, step: int, live: int, cost: int, limit: int, widths: Mapping[str, int]) -> None:
        """The state of a search's gate, at intervals: live columns, their cost, its limit, and widths per field."""


class Watchers(Watcher):
    """Passes every report to several watchers."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def begin(self, title: str, done: bool) -> None:
        """A stage begins, or is skipped because it is complete."""
        for watcher in self._watchers:
            watcher.begin(title, done)

    def note(self, text: str) -> None:
        """One line that the user should read."""
        for watcher in self._watchers:
            watcher.note(text)

    def show(self, view: View) -> None:
        """A table that the user should read."""
        for watcher in self._watchers:
            watcher.show(view)

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Rows or fields of a preparation are done."""
        for watcher in self._watchers:
            watcher.rows(what, done, total)

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """A step of an epoch is done."""
        for watcher in self._watchers:
            watcher.step(stage, epoch, step, steps)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """An epoch is done."""
        for watcher in self._watchers:
            watcher.epoch(stage, epoch)

    def gate(self, step: int, live: int, cost: int, limit: int, widths: Mapping[str, int]) -> None:
        """The state of a search's gate."""
        for watcher in self._watchers:
            watcher.gate(step, live, cost, limit, widths)
