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
from contextlib import contextmanager
from pathlib import Path

import tomli_w

from fieldwise.core.errors import SettingsError
from fieldwise.core.files import write_json, write_text
from fieldwise.core.lock import exclusive
from fieldwise.core.records import RunRecords
from fieldwise.core.registry import name_of
from fieldwise.core.watcher import Watcher, Watchers
from fieldwise.data import SOURCES
from fieldwise.data.kinds.check import KINDS
from fieldwise.data.prepare import prepare as prepare_rows
from fieldwise.data.store import Dataset
from fieldwise.pipeline.baselines import baselines
from fieldwise.pipeline.folder import Job, check_stages, with_earlier
from fieldwise.pipeline.report import report
from fieldwise.pipeline.seed_run import SeedRun
from fieldwise.pipeline.settings import RunInput, RunSettings
from fieldwise.reports.dataset import notes
from fieldwise.reports.run.journal import Journal
from fieldwise.reports.run.view import open_run
from fieldwise.train.task import choose_device


def prepare(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> Dataset:
    """Encodes the source into the dataset folder `out`."""
    watcher = watcher or Watcher()
    if settings.data is None:
        raise SettingsError(
            f"[run] dataset = '{settings.run.dataset}' is already prepared, and [data] names nothing else to prepare. "
            "Remove run.dataset, and complete [data]."
        )
    watcher.begin(f"prepare {name_of(settings.data, SOURCES)}", done=out.exists())
    return prepare_rows(settings.data, out, settings.split, watcher.rows, settings.engine)


def dataset_of(settings: RunSettings, out: Path, watcher: Watcher) -> Dataset:
    """Opens the dataset that the settings name, or prepares it in the run folder; notes what was not read."""
    given = settings.run.dataset
    data = Dataset.open(given) if given else prepare(settings, out / "dataset", watcher)
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
    settings, out = RunSettings.of(settings), Path(out)
    with _opened(settings, out, watcher) as (job, data, seeds):
        baselines(data, out, settings.run.device, job.watcher)
        for seed in seeds:
            seed.pretrain()
            for budget in settings.run.budgets:
                seed.search(budget)
                seed.retrain(budget)
        report(out)
        records = RunRecords(open_run(out).records)
        write_json(out / "record.json", [record.to_json() for record in records])
    return records


@contextmanager
def _opened(
    settings: RunSettings, out: Path, watcher: Watcher | None
) -> Iterator[tuple[Job, Dataset, Iterator[SeedRun]]]:
    """Locks the run folder for this process, and yields the dataset and the seeds.

    Checks everything that can be checked before any work, and opens or prepares the dataset.
    """
    watcher = watcher or Watcher()
    choose_device(settings.run.device)
    with exclusive(out):
        data = dataset_of(settings, out, watcher)
        settings = settings.fitted(data)
        job = Job(settings, out, Watchers(watcher, Journal(out)))
        check_stages(job, data)
        write_kinds(data, out)
        write_text(out / "settings.toml", tomli_w.dumps(with_earlier(settings, out).values()))
        yield job, data, (SeedRun(job, data, seed) for seed in settings.run.seeds)
