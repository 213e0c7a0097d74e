"""The stages from files to files. Read this first.

A run folder is readable without the library:

    settings.toml                     resolved settings
    dataset/                          encoded rows, schema, vocabularies
    seed-0/pretrain/                  the full model
    seed-0/search/<budget>/           mask.json, the searched compact model, its trace
    seed-0/retrain/<budget>/          record.json: one line of the results table
    seed-0/compact/<budget>/          what you deploy
    metrics.jsonl                     what the run said while it worked, and the commands that made it
    record.json, report.md, report.html   written last: complete

Each stage folder holds `stage.json` (what its result depends on, written first), a checkpoint while it works, and
`record.json` (written last). A stage that is complete is skipped; one made with other settings is refused.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tomli_w
import torch
from safetensors.torch import save_file

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.files import replacing, write_json, write_text
from fieldwise.core.lock import alone
from fieldwise.core.mask import Mask
from fieldwise.core.records import RunRecord, StageRecord
from fieldwise.core.registry import name_of
from fieldwise.core.version import __version__
from fieldwise.core.watcher import Watcher, Watchers
from fieldwise.data import SOURCES
from fieldwise.data.prepare import prepare as prepare_rows
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import export, load
from fieldwise.models import MODELS
from fieldwise.models.check import check_model
from fieldwise.pipeline.folder import Job, begin, check_stages, end, need, read, read_record
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports import write
from fieldwise.reports.run.journal import Journal
from fieldwise.reports.run.view import open_run
from fieldwise.searches import SEARCHES
from fieldwise.searches.search import SearchResult
from fieldwise.searches.search import search as search_columns
from fieldwise.train.evaluate import evaluate
from fieldwise.train.memory import forget_peak, peak_memory
from fieldwise.train.stages import pretrain as pretrain_model
from fieldwise.train.stages import retrain as retrain_model
from fieldwise.train.task import Task, choose_device


def prepare(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> Dataset:
    """Encodes the source into the dataset folder `out`."""
    watcher = watcher or Watcher()
    if settings.data is None:
        raise SettingsError(
            f"[run] dataset = '{settings.run.dataset}' is prepared already, and [data] does not say what else to "
            "prepare. Leave run.dataset out, and complete [data]."
        )
    watcher.begin(f"prepare {name_of(settings.data, SOURCES)}", done=out.exists())
    return prepare_rows(settings.data, out, settings.split, watcher.rows, settings.engine)


def pretrain(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> None:
    """Trains the full model of every seed."""
    with _opened(settings, out, watcher) as (job, data):
        for seed in settings.run.seeds:
            pretrain_one(job, data, seed)


def search(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> None:
    """Searches every budget of every seed, from the pretrained models."""
    with _opened(settings, out, watcher) as (job, data):
        for seed in settings.run.seeds:
            for budget in settings.run.budgets:
                search_one(job, data, seed, budget)


def retrain(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> None:
    """Retrains every searched model, and reads the test rows once."""
    with _opened(settings, out, watcher) as (job, data):
        for seed in settings.run.seeds:
            for budget in settings.run.budgets:
                retrain_one(job, data, seed, budget)


def report(out: Path) -> list[RunRecord]:
    """Writes report.md and report.html over every complete search of a run folder, and returns their records."""
    write.md(out)
    write.html(out)
    return open_run(out).records


def run(settings: RunSettings, out: Path, watcher: Watcher | None = None) -> list[RunRecord]:
    """All stages in order, for every seed and budget; resumes where a run in `out` stopped."""
    with _opened(settings, out, watcher) as (job, data):
        for seed in settings.run.seeds:
            pretrain_one(job, data, seed)
            for budget in settings.run.budgets:
                search_one(job, data, seed, budget)
                retrain_one(job, data, seed, budget)
        records = report(out)
        write_json(out / "record.json", [record.to_json() for record in records])
    return records


@contextmanager
def _opened(settings: RunSettings, out: Path, watcher: Watcher | None) -> Iterator[tuple[Job, Dataset]]:
    """The run folder, for one process at a time.

    Checks everything that can be checked before any work, and opens or prepares the dataset.
    """
    watcher = watcher or Watcher()
    choose_device(settings.run.device)
    given = settings.run.dataset
    with alone(out):
        data = Dataset.open(given) if given else prepare(settings, out / "dataset", watcher)
        job = Job(settings, out, Watchers(watcher, Journal(out)))
        check_stages(job, data)
        write_text(out / "settings.toml", tomli_w.dumps(settings.values()))
        yield job, data


def pretrain_one(job: Job, data: Dataset, seed: int) -> None:
    """Trains the full model of one seed, unless it is there."""
    folder, values = job.stage("pretrain", data, seed, job.settings.run.budgets[0])
    if begin(job, folder, values, f"pretrain, seed {seed}"):
        if name_of(job.settings.model, MODELS) not in MODELS:  # a user's own, which no test has seen
            check_model(job.settings.model, data.schema)
        forget_peak()
        trained = pretrain_model(_task(job, data, seed), job.settings.pretrain, folder / "checkpoint", job.watcher)
        export(trained.model, folder)
        record = StageRecord(history=trained.history, seconds=trained.seconds, peak_memory=peak_memory())
        end(folder, record)


def search_one(job: Job, data: Dataset, seed: int, budget: Budget) -> None:
    """Searches one budget of one seed, unless it is done."""
    folder, values = job.stage("search", data, seed, budget)
    full = job.pretrain_folder(seed)
    if begin(job, folder, values, f"search {budget}, seed {seed}"):
        forget_peak()
        need(full, f"the pretraining of seed {seed}", "pretrain")
        task = _task(job, data, seed).starting_from(load(full, model=type(job.settings.model)).model)
        result = search_columns(task, job.settings.search, budget, folder / "checkpoint", job.watcher)
        write_json(folder / "mask.json", result.mask.to_json())
        export(result.model, folder, mask=result.mask)
        _write_traces(result, folder)
        record = StageRecord(
            history=list(result.history),
            seconds=result.seconds,
            peak_memory=peak_memory(),
            summary=result.summary,
        )
        end(folder, record)


def retrain_one(job: Job, data: Dataset, seed: int, budget: Budget) -> None:
    """Retrains one searched model and reads the test rows once, unless it is done."""
    folder, values = job.stage("retrain", data, seed, budget)
    searched = job.seed_folder(seed) / "search" / budget.slug
    if begin(job, folder, values, f"retrain {budget}, seed {seed}"):
        forget_peak()
        need(searched, f"the search of {budget}, seed {seed}", "search")
        own = type(job.settings.model)
        task = _task(job, data, seed).starting_from(load(job.pretrain_folder(seed), model=own).model)
        start = load(searched, model=own).model
        trained = retrain_model(task, start, job.settings.retrain, folder / "checkpoint", job.watcher)
        mask = Mask.from_json(read(searched / "mask.json"))
        export(trained.model, job.seed_folder(seed) / "compact" / budget.slug, data.encoder, mask)
        stage = StageRecord(history=trained.history, seconds=trained.seconds, peak_memory=peak_memory())
        write_json(folder / "history.json", stage.to_json())
        end(folder, _record(job, data, task, budget, stage))


def _record(job: Job, data: Dataset, task: Task, budget: Budget, last: StageRecord) -> RunRecord:
    """One line of the results table; here, at the end, the test rows are read."""
    home = job.seed_folder(task.seed)
    before = read_record(StageRecord, job.pretrain_folder(task.seed) / "record.json")
    search = read_record(StageRecord, home / "search" / budget.slug / "record.json")
    mask = Mask.from_json(read(home / "search" / budget.slug / "mask.json"))
    device, own = str(task.torch_device), type(job.settings.model)
    full = load(job.pretrain_folder(task.seed), device, own).model
    small = load(home / "compact" / budget.slug, device, own).model
    assert search.summary is not None
    return RunRecord(
        data=data.fingerprint,
        source=data.source,
        model=name_of(job.settings.model, MODELS),
        search=name_of(job.settings.search, SEARCHES),
        budget=str(budget),
        seed=task.seed,
        fields=list(data.schema.names),
        cardinalities=list(data.schema.cardinalities),
        widths_before=list(mask.full.widths),
        widths_after=list(mask.widths),
        full_size=full.size(),
        compact_size=small.size(),
        full_valid=evaluate(full, task.valid),
        full_test=evaluate(full, data.test),
        compact_valid=evaluate(small, task.valid),
        compact_test=evaluate(small, data.test),
        summary=search.summary,
        seconds={"pretrain": before.seconds, "search": search.seconds, "retrain": last.seconds},
        peak_memory=max(before.peak_memory, search.peak_memory, last.peak_memory),
        device=str(task.torch_device),
        settings=job.settings.values(),
        versions={
            "fieldwise": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    )


def _task(job: Job, data: Dataset, seed: int) -> Task:
    return Task.of(data, job.settings.model, seed, job.settings.run.device)


def _write_traces(result: SearchResult, folder: Path) -> None:
    for place, trace in enumerate(result.traces):
        with replacing(folder / f"trace-{place}.safetensors") as work:
            about = {"limit": str(trace.limit), "every": str(trace.every)}
            save_file(trace.tensors(), work, metadata=about)
