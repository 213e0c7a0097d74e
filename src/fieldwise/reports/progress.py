"""Progress of trainings and runs: bars on a terminal, plain lines elsewhere, one updated output in a notebook."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from fieldwise.core.display import View, printable
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.reports.notebook import Cell, in_notebook


def new_console(stderr: bool = False) -> Console:
    """A console that prints text unchanged: names of users may hold brackets and colons."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


class Bars(Watcher):
    """Draws a bar for the current stage, and prints a line per epoch."""

    def __init__(self, console: Console, progress: RichProgress) -> None:
        self._console, self._progress = console, progress
        self._bar: TaskID | None = None
        self._title = ""

    def begin(self, title: str, done: bool) -> None:
        """Prints that a stage begins, or that it is already complete."""
        self._clear()
        self._title = title
        self.line(f"{title}: {'already complete' if done else 'begins'}")

    def note(self, text: str) -> None:
        """Prints the line."""
        self.line(text)

    def show(self, view: View) -> None:
        """Prints the table and the lines."""
        self._clear()
        show_view(self._console, view)

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Moves the bar of a preparation."""
        self._draw(what, done, total)

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Moves the bar of an epoch."""
        self._draw(f"{self._title or stage}, epoch {epoch}", step, steps)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Prints the metrics of an epoch."""
        self._clear()
        loss = "" if epoch.loss is None else f"loss {epoch.loss:.4f}, "
        title = f"{self._title or stage}, epoch {epoch.epoch}"
        average = "" if epoch.averaged_auc is None else f" ({epoch.averaged_auc:.4f} averaged)"
        self.line(f"{title}: {loss}validation AUC {epoch.auc:.4f}{average}, {epoch.seconds:.1f} s")

    def _draw(self, what: str, done: int, total: int | None) -> None:
        if self._bar is None:
            self._bar = self._progress.add_task(what, total=total)
        self._progress.update(self._bar, description=what, completed=done, total=total)

    def _clear(self) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
            self._bar = None

    def line(self, text: str) -> None:
        """Prints a line above the bar."""
        self._console.print(text, soft_wrap=True)


def show_view(console: Console, view: View) -> None:
    """Prints a view: its table, and then its lines, which stay in sight below a long table."""
    grid = Table(*view.heads, title=printable(view.title), title_justify="left", box=None, padding=(0, 1, 0, 0))
    for row in view.rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    console.print(grid)
    for line in ("", *view.lines):
        console.print(Text(printable(line)), soft_wrap=True)


@contextmanager
def watching() -> Iterator[tuple[Console, Bars]]:
    """Yields a console and a watcher that draws on it."""
    console = new_console()
    with _bars(console) as progress:
        yield console, Bars(console, progress)


def _bars(console: Console) -> RichProgress:
    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class _Rate(ProgressColumn):
    """Steps or rows per second."""

    def render(self, task: Task) -> Text:
        """The speed, once it is known."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


class Progress(Watcher):
    """Shows progress in Python: pass it as `watcher=fw.Progress()`.

    In a notebook, one output shows the current stage as a bar, and its epochs. Elsewhere it prints a line per stage and
    epoch, and draws bars on a terminal within `with fw.Progress() as watcher:`.
    """

    def __init__(self) -> None:
        console = new_console()
        self._bars = _bars(console)
        self._watcher: Watcher = Cell() if in_notebook() else Bars(console, self._bars)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()  # a copy, such as scikit-learn makes of its parameters, has an output of its own

    def __enter__(self) -> Self:
        if isinstance(self._watcher, Bars):
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, title: str, done: bool) -> None:
        """Shows that a stage begins, or that it is already complete."""
        self._watcher.begin(title, done)

    def note(self, text: str) -> None:
        """Shows the line."""
        self._watcher.note(text)

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Moves the bar of a preparation."""
        self._watcher.rows(what, done, total)

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Moves the bar of an epoch."""
        self._watcher.step(stage, epoch, step, steps)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Shows the metrics of an epoch."""
        self._watcher.epoch(stage, epoch)
