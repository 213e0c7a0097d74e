"""Tables on the console."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.display import printable
from fieldwise.core.records import RunRecord
from fieldwise.reports import dataset
from fieldwise.reports.run import headline, markdown, verdict

if TYPE_CHECKING:
    from fieldwise.data.store import Dataset


def show(console: Console, records: Sequence[RunRecord], baselines: BaselineRecord | None) -> None:
    """Prints the final tables of a run, its headline and its warnings."""
    for record in records:
        title = f"Widths, budget {record.budget}, seed {record.seed}"
        table(console, title, markdown.WIDTH_HEADS, markdown.widths(record))
    table(console, "Full against compact", markdown.RESULT_HEADS, markdown.results(records))
    table(console, "Seconds per stage", markdown.SECOND_HEADS, markdown.seconds(records))
    table(console, "Verdict", verdict.HEADS, verdict.verdict_rows(verdict.judged(records, baselines)))
    console.print(printable(headline.sentence(headline.chosen(records), baselines)), soft_wrap=True)
    for line in verdict.warnings(records, baselines):
        console.print(f"Warning: {printable(line)}", soft_wrap=True)
    for line in verdict.harms(records):
        console.print(printable(line), soft_wrap=True)


def describe_dataset(console: Console, data: "Dataset") -> None:
    """Prints a dataset's splits and fields, and the rule of each field."""
    rules = [
        {"rule": f.rule.values(), "length": f.length, "several": f.several, "tier": f.tier} for f in data.encoder.fields
    ]
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
    from fieldwise.exports.info import ModelInfo, folder_bytes
    from fieldwise.reports import model

    info = ModelInfo.read(folder)
    table(console, f"{info.model.get('name')}, tables in {info.store.label}", model.FIELD_HEADS, model.field_rows(info))
    sizes = folder_bytes(info, folder)
    table(console, "Bytes", model.BYTES_HEADS, model.bytes_rows(sizes, info.store.label))
    console.print(model.NOT_COUNTED, soft_wrap=True)


def table(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints one table, its cells as plain text."""
    grid = Table(*heads, title=printable(title), title_justify="left", box=None, padding=(0, 1, 0, 0))
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    console.print(grid)
    console.print()
