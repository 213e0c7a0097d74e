"""The commands of the stages: one each, and one that runs them all."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldwise.cli.console import describe_dataset, show
from fieldwise.cli.launch import in_processes
from fieldwise.cli.many import rank
from fieldwise.cli.options import (
    Align,
    BadRows,
    Budgets,
    DatasetFolder,
    DeviceName,
    EngineName,
    Header,
    Label,
    Master,
    ModelName,
    Out,
    PresetName,
    Processes,
    Profiled,
    Raw,
    SearchName,
    Seeds,
    Sets,
    SettingsFile,
    Source,
    TensorBoard,
    aligned,
    settings_of,
    tables_of,
)
from fieldwise.core.watcher import Watcher, Watchers
from fieldwise.reports.progress import watching

if TYPE_CHECKING:
    from fieldwise.pipeline.settings import RunSettings


def prepare(
    out: Annotated[Path, typer.Option(help="The dataset folder to create.")],
    settings: SettingsFile = None,
    source: Source = None,
    raw: Raw = None,
    label: Label = None,
    header: Header = None,
    bad_rows: BadRows = None,
    engine: EngineName = None,
    master: Master = None,
    set_: Sets = None,
) -> None:
    """Encode raw rows into a dataset folder."""
    values, trusted = tables_of(
        settings, None, set_, source=source, raw=raw, label=label, header=header, bad_rows=bad_rows, engine=engine,
        master=master,
    )  # fmt: skip
    from fieldwise.pipeline.rows import RowSettings

    chosen = RowSettings.parse(values, trusted)
    with watching() as (console, watcher):
        data = chosen.prepare(out, watcher)
        describe_dataset(console, data)
        rows = ", ".join(f"{name} {count:,}" for name, count in data.info["rows"].items())
        console.print(f"{rows} rows of {len(data.schema)} fields in {out}", soft_wrap=True)


def pretrain(
    out: Out,
    settings: SettingsFile = None,
    preset: PresetName = None,
    source: Source = None,
    raw: Raw = None,
    label: Label = None,
    header: Header = None,
    bad_rows: BadRows = None,
    engine: EngineName = None,
    master: Master = None,
    dataset: DatasetFolder = None,
    model: ModelName = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Train the full model, for every seed."""
    chosen = settings_of(
        settings, out, set_, preset=preset, source=source, raw=raw, label=label, header=header, bad_rows=bad_rows,
        engine=engine, master=master, dataset=dataset, model=model, seeds=seed, device=device,
    )  # fmt: skip
    _stage("pretrain", chosen, out, tensorboard)


def search(
    out: Out,
    settings: SettingsFile = None,
    preset: PresetName = None,
    search: SearchName = None,
    budget: Budgets = None,
    align: Align = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Search the widths from the pretrained model, for every budget and seed."""
    chosen = settings_of(settings, out, set_, preset=preset, search=search, budgets=budget, seeds=seed, device=device)
    _stage("search", aligned(chosen, align), out, tensorboard)


def retrain(
    out: Out,
    settings: SettingsFile = None,
    preset: PresetName = None,
    budget: Budgets = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Retrain the compact models of a search, and evaluate them on the test rows."""
    chosen = settings_of(settings, out, set_, preset=preset, budgets=budget, seeds=seed, device=device)
    _stage("retrain", chosen, out, tensorboard)


def run(
    out: Out,
    settings: SettingsFile = None,
    preset: PresetName = None,
    source: Source = None,
    raw: Raw = None,
    label: Label = None,
    header: Header = None,
    bad_rows: BadRows = None,
    engine: EngineName = None,
    master: Master = None,
    dataset: DatasetFolder = None,
    model: ModelName = None,
    search: SearchName = None,
    budget: Budgets = None,
    align: Align = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
    processes: Processes = None,
    tensorboard: TensorBoard = False,
    profile: Profiled = False,
) -> None:
    """Run all stages in order; the same command resumes an interrupted run."""
    chosen = settings_of(
        settings, out, set_, preset=preset, source=source, raw=raw, label=label, header=header, bad_rows=bad_rows,
        engine=engine, master=master, dataset=dataset, model=model, search=search, budgets=budget, seeds=seed,
        device=device,
    )  # fmt: skip
    if processes is not None and processes > 1:
        more = [name for name, given in {"--tensorboard": tensorboard, "--profile": profile}.items() if given]
        in_processes(processes, aligned(chosen, align), out, more)
        return
    from fieldwise.pipeline import stages as pipeline
    from fieldwise.reports.file_names import report_name
    from fieldwise.reports.run.profile import PAGE, Profile
    from fieldwise.reports.run.view import open_run

    with watching() as (console, watcher):
        with Profile(out) if profile and not rank() else nullcontext() as profiled:
            watchers = Watchers(*filter(None, (_also(watcher, out, tensorboard), profiled)))
            records = pipeline.run(aligned(chosen, align), out, watchers)
        if rank():  # the first process shows them
            return
        show(console, records, open_run(out).baselines)
        for ending in (".md", ".html"):
            console.print(f"Report: {out / report_name(records[0].source)}{ending}", soft_wrap=True)
        if profiled:
            said = f"Profile: {out / PAGE}" if profiled.wrote else "No profile: every stage was complete before."
            console.print(said, soft_wrap=True)


def _stage(verb: str, settings: "RunSettings", out: Path, tensorboard: bool) -> None:
    from fieldwise.pipeline import stages as pipeline

    verbs = {"pretrain": pipeline.pretrain, "search": pipeline.search, "retrain": pipeline.retrain}
    with watching() as (console, watcher):
        verbs[verb](settings, out, _also(watcher, out, tensorboard))
        console.print(f"{verb} is complete in {out}", soft_wrap=True)


def _also(watcher: Watcher, out: Path, tensorboard: bool) -> Watcher:
    """The watcher, plus one that writes TensorBoard events if `tensorboard` is set."""
    if not tensorboard or rank():
        return watcher
    from fieldwise.reports.run.events import Events

    return Watchers(watcher, Events(out / "tensorboard"))
