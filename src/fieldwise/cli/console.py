"""Progress and tables on the console: bars on a terminal, plain lines elsewhere."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fieldwise.core.display import printable
from fieldwise.core.records import Epoch, RunRecord
from fieldwise.core.watcher import Watcher
from fieldwise.reports import dataset
from fieldwise.reports.run import markdown

if TYPE_CHECKING:
    from fieldwise.data.store import Dataset


def new_console(stderr: bool = False) -> Console:
    """A console that prints text unchanged: names of users may hold brackets and colons."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


class Bars(Watcher):
    """Draws a bar for the current stage, and prints a line per epoch."""

    def __init__(self, console: Console, progress: Progress) -> None:
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

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Moves the bar of a preparation."""
        self._draw(what, done, total)

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Moves the bar of an epoch."""
        self._draw(f"{self._title}, epoch {epoch}", step, steps)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Prints the metrics of an epoch."""
        self._clear()
        loss = "" if epoch.loss is None else f"loss {epoch.loss:.4f}, "
        self.line(f"{self._title}, epoch {epoch.epoch}: {loss}validation AUC {epoch.auc:.4f}, {epoch.seconds:.1f} s")

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


@contextmanager
def watching() -> Iterator[tuple[Console, Bars]]:
    """Yields a console and a watcher that draws on it."""
    console = new_console()
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield console, Bars(console, progress)


class _Rate(ProgressColumn):
    """Steps or rows per second."""

    def render(self, task: Task) -> Text:
        """The speed, once it is known."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


def show(console: Console, records: Sequence[RunRecord]) -> None:
    """Prints the final tables of a run."""
    for record in records:
        title = f"Widths, budget {record.budget}, seed {record.seed}"
        table(console, title, markdown.WIDTH_HEADS, markdown.widths(record))
    table(console, "Full against compact", markdown.RESULT_HEADS, markdown.results(records))
    table(console, "Seconds per stage", markdown.SECOND_HEADS, markdown.seconds(records))


def describe_dataset(console: Console, data: "Dataset") -> None:
    """Prints a dataset's splits and fields, and the rule of each field."""
    rules = [{"rule": f.rule.values(), "length": f.length, "several": f.several} for f in data.encoder.fields]
    table(console, f"{data.source}, label '{data.info['label']}'", dataset.SPLIT_HEADS, dataset.split_rows(data.info))
    table(
        console,
        "Fields; unknown and null of train/valid/test",
        dataset.FIELD_HEADS,
        dataset.field_rows(data.info, rules),
    )
    for line in dataset.notes(data.info):
        console.print(line, soft_wrap=True)


def describe_model(console: Console, folder: Path) -> None:
    """Prints the fields of a model folder, and its bytes by part."""
    from fieldwise.exports.info import ModelInfo
    from fieldwise.reports import model

    info = ModelInfo.read(folder)
    table(console, f"{info.model.get('name')}, tables in {info.store}", model.FIELD_HEADS, model.field_rows(info))
    sizes = model.folder_bytes(info, folder)
    table(console, "Bytes", model.BYTES_HEADS, model.bytes_rows(sizes, str(info.store)))
    console.print(model.NOT_COUNTED, soft_wrap=True)


def table(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints one table, its cells as plain text."""
    grid = Table(*heads, title=printable(title), title_justify="left", box=None, padding=(0, 1, 0, 0))
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    console.print(grid)
    console.print()
