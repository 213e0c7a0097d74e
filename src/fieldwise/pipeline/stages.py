"""The stages from files to files. Read this first.

A run folder is readable without the library:

    settings.toml                     resolved settings, with every budget and seed of the run
    dataset/                          encoded rows, schema, vocabularies
    kinds.json                        what each raw column is, and why
    baselines/                        a constant, a logistic regression, each field by itself
    seed-0/pretrain/                  the full model
    seed-0/search/<budget>/           mask.json, the searched compact model, its trace
    seed-0/retrain/<budget>/          record.json: one line of the results table
    seed-0/compact/<budget>/          the model to deploy
    metrics.jsonl                     progress of the run, and the commands that made it
    record.json, report-DATA.md, .html   written last: complete

Each stage folder holds `stage.json` (everything its result depends on, written first), a checkpoint while the stage
runs, and `record.json` (written last). A complete stage is skipped; one made with other settings is refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import tomli_w

from fieldwise.core.files import write_json, write_text
from fieldwise.core.lock import exclusive
from fieldwise.core.records import RunRecords
from fieldwise.core.watcher import Watcher, Watchers
from fieldwise.data.kinds.check import KINDS
from fieldwise.data.store import Dataset
from fieldwise.pipeline.baselines import baselines
from fieldwise.pipeline.folder import Job, check_memory, check_stages, with_earlier
from fieldwise.pipeline.report import report
from fieldwise.pipeline.seed_run import SeedRun
from fieldwise.pipeline.settings import RunInput, RunSettings
from fieldwise.pipeline.sharded import check_sharded_processes, check_visible
from fieldwise.processes.ranks import current, splitting
from fieldwise.reports.dataset import notes
from fieldwise.reports.run.journal import Journal
from fieldwise.reports.run.view import open_run
from fieldwise.train.task import choose_device


def prepare(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> Dataset:
    """Encodes the source into the dataset folder `out`."""
    return settings.rows.prepare(out, watcher or Watcher())


def dataset_of(settings: RunSettings, out: Path, watcher: Watcher) -> Dataset:
    """Opens the dataset that the settings name, or prepares it in the run folder; notes what was not read."""
    folder = settings.run.dataset
    if folder is None:
        folder = out / "dataset"
        current().from_first(lambda: prepare(settings, folder, watcher).fingerprint)
    data = Dataset.open(folder)
    for line in notes(data.info):
        watcher.note(line)
    if data.kinds is not None and data.kinds.is_inferred:
        watcher.show(data.kinds.view())
    return data


def write_kinds(data: Dataset, out: Path) -> None:
    """Copies what each raw column is to the run folder, for its report."""
    if data.kinds is not None:
        write_json(out / KINDS, data.kinds.to_json())


def pretrain(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> None:
    """Trains the full model of every seed."""
    with _opened(settings, out, watcher) as (_, _, seeds):
        for seed in seeds:
            seed.pretrain()


def search(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> None:
    """Searches every budget of every seed, from the pretrained models."""
    with _opened(settings, out, watcher) as (_, _, seeds):
        for seed in seeds:
            for budget in settings.run.budgets:
                seed.search(budget)


def retrain(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> None:
    """Retrains every searched model, and evaluates each once on the test rows."""
    with _opened(settings, out, watcher) as (_, _, seeds):
        for seed in seeds:
            for budget in settings.run.budgets:
                seed.retrain(budget)


def run(settings: RunInput, out: Path | str, watcher: Watcher | None = None) -> RunRecords:
    """Runs all stages for every seed and budget, and returns one record per result; resumes an interrupted run.

    `settings` is a `RunSettings`, a dict of the tables of a settings file, or the path of a TOML file. `out` is the
    run folder. The records are those of the whole folder, results of earlier commands included.
    """
    settings, out, ranks = RunSettings.of(settings), Path(out), current()
    with _opened(settings, out, watcher) as (job, data, seeds):
        ranks.from_first(lambda: baselines(data, out, settings.run.device, job.watcher))
        for seed in seeds:
            seed.pretrain()
            for budget in settings.run.budgets:
                seed.search(budget)
                seed.retrain(budget)
        return ranks.from_first(lambda: _reported(out))


def _reported(out: Path) -> RunRecords:
    """Writes the report and the record of a complete run."""
    report(out)
    records = RunRecords(open_run(out).records)
    write_json(out / "record.json", [record.to_json() for record in records])
    return records


@contextmanager
def _opened(
    settings: RunSettings, out: Path, watcher: Watcher | None
) -> Iterator[tuple[Job, Dataset, Iterator[SeedRun]]]:
    """Locks the run folder for this process, and yields the dataset and the seeds.

    Checks everything that can be checked before any work, and opens or prepares the dataset. Of several processes, only
    the first locks, writes and reports.
    """
    ranks, device = current(), choose_device(settings.run.device)
    ranks.check_same("settings", {**settings.values(), "device": device.type})
    if settings.run.tables == "sharded":
        check_sharded_processes(settings.run.device)
    watcher = Watcher() if ranks.rank or watcher is None else watcher
    with nullcontext() if ranks.rank else exclusive(out):
        data = dataset_of(settings, out, watcher)
        ranks.check_same("rows", {"dataset": data.fingerprint})
        settings = settings.fitted(data)
        job = Job(settings, out, watcher if ranks.rank else Watchers(watcher, Journal(out)))
        ranks.from_first(lambda: _begin(job, data))
        if settings.run.tables == "sharded":
            check_visible(out)
        with splitting(settings.run.split_from):
            yield job, data, (SeedRun(job, data, seed) for seed in settings.run.seeds)


def _begin(job: Job, data: Dataset) -> None:
    """Refuses what cannot be run or resumed, and writes what the run folder holds from the start."""
    check_memory(job, data)
    check_stages(job, data)
    write_kinds(data, job.out)
    write_text(job.out / "settings.toml", tomli_w.dumps(with_earlier(job.settings, job.out).values()))
