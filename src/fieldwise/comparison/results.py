"""Compares searches under one protocol: the same rows, pretrained models and early stopping, and one test per cell.

    settings.toml                          resolved settings
    dataset/                               encoded rows
    baselines/                             a constant, and a logistic regression
    <model>/seed-0/pretrain/               the full model, shared by all methods
    <model>/<method>/seed-0/...            its own run folder: search, retrain, compact
    comparison.json, comparison.md         every cell, and the statistics over them
    report-DATA.html                       the same as a page

A cell is one method at one budget, on one model, with one seed. Cells that are complete are skipped, cells that failed
run again with the same command.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

from fieldwise.comparison.cells import Unit, Work, failure, job_of
from fieldwise.comparison.scheduler import outcomes
from fieldwise.comparison.settings import CompareInput, CompareSettings
from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.comparison import CellRecord, Comparison
from fieldwise.core.errors import SettingsError
from fieldwise.core.files import write_json, write_text
from fieldwise.core.hints import either
from fieldwise.core.lock import exclusive
from fieldwise.core.records import RunRecord, StageRecord
from fieldwise.core.watcher import Watcher
from fieldwise.pipeline.baselines import FOLDER as BASELINES
from fieldwise.pipeline.baselines import baselines
from fieldwise.pipeline.folder import check_memory, check_stages, read_record
from fieldwise.pipeline.stages import dataset_of, write_kinds
from fieldwise.reports import write
from fieldwise.reports.comparison.statistics import summarize
from fieldwise.reports.comparison.tables import markdown
from fieldwise.train.task import choose_device

if TYPE_CHECKING:
    from fieldwise.comparison.cluster.client import Cluster


def compare(
    settings: CompareInput,
    out: Path | str,
    jobs: int = 1,
    minutes: float | None = None,
    watcher: Watcher | None = None,
    say: Callable[[str], None] = lambda _: None,
    cluster: str | None = None,
) -> Comparison:
    """Runs every incomplete cell, and writes and returns the comparison over all complete ones.

    `settings` is a `CompareSettings`, a dict of the tables of a settings file, or the path of a TOML file. `jobs`
    cells run in parallel, each in its own process. After `minutes`, no further cell starts; the same call resumes.
    `say` receives one line per cell. `cluster` is the address of a Dask scheduler whose workers run the cells instead,
    one at a time on each; every machine sees `out` at the same path.
    """
    settings, out = CompareSettings.of(settings), Path(out).absolute() if cluster else Path(out)
    started, watcher = time.monotonic(), watcher or Watcher()
    with _joined(cluster, jobs) as joined, exclusive(out):  # worker processes run under this lock
        work = _open(settings, out, watcher, here=joined is None)
        settings = work.settings
        units = list(_units(settings, out))
        limit = None if minutes is None else started + 60 * minutes
        with closing(outcomes(work, units, jobs, limit, joined, say)) as ended:
            for done, (unit, error) in enumerate(ended, start=1):
                say(f"{done} of {len(units)}: {unit}: {'complete' if error is None else f'failed: {error}'}")
                watcher.rows("compare", done, len(units))
        found = gather(settings, out, joined.most if joined else jobs)
        write_json(out / "comparison.json", found.to_json())
        write_text(out / "comparison.md", markdown(found))
        write.html(out)
    return found


def gather(settings: CompareSettings, out: Path, jobs: int = 1) -> Comparison:
    """The comparison over the cells of a folder; `jobs` is recorded in it."""
    found = summarize(list(_cells(settings, out)), settings.compare.baseline, jobs, settings.values())
    return found.model_copy(update={"without_search": read_record(BaselineRecord, out / BASELINES / "record.json")})


def _joined(cluster: str | None, jobs: int) -> "AbstractContextManager[Cluster | None]":
    """The connection to the scheduler at an address, if one is given."""
    if cluster is None:
        return nullcontext()
    if jobs != 1:
        both = either(f"--jobs {jobs} and --cluster", f"jobs={jobs} and cluster")
        raise SettingsError(f"Got {both}. Allowed: one of them, since every worker of a cluster runs one cell.")
    try:
        from fieldwise.comparison.cluster.client import joined
    except ImportError as error:
        raise SettingsError(f"A cluster needs an extra ({error}). Run: pip install 'fieldwise[cluster]'.") from error
    return joined(cluster)


def _open(settings: CompareSettings, out: Path, watcher: Watcher, here: bool) -> Work:
    """Checks everything that can be checked before any work, and opens or prepares the dataset.

    Device and memory are checked where cells run: `here`, or on the workers of a cluster.
    """
    shared = settings.shared
    device = shared.run.device if here else "auto"
    choose_device(device)
    data = dataset_of(shared, out, watcher)
    settings = settings.fitted(data)
    for pair in settings.runs:
        job = job_of(settings, out, pair)
        if here:
            check_memory(job, data)
        check_stages(job, data)
    write_kinds(data, out)
    write_text(out / "settings.toml", tomli_w.dumps(settings.values()))
    baselines(data, out, device, watcher)
    return Work(settings, out, data.folder if here else data.folder.absolute())


def _units(settings: CompareSettings, out: Path) -> Iterator[Unit]:
    """The incomplete units, seed by seed, so that a comparison that stops early has complete seeds."""
    run = settings.shared.run
    for seed in run.seeds:
        for model in settings.compare.models:
            units = [Unit(model, seed, m, budget) for budget in run.budgets for m in settings.compare.methods]
            yield from (unit for unit in (Unit(model, seed), *units) if not unit.done(settings, out))


def _cells(settings: CompareSettings, out: Path) -> Iterator[CellRecord]:
    run = settings.shared.run
    for model, method in settings.runs:
        job = job_of(settings, out, (model, method))
        for budget in run.budgets:
            for seed in run.seeds:
                unit = Unit(model, seed, method, budget)
                error = failure(settings, out, unit)
                record = memory = None
                if unit.done(settings, out):
                    home = job.seed_folder(seed)
                    record = read_record(RunRecord, home / "retrain" / budget.slug / "record.json")
                    stage = read_record(StageRecord, home / "search" / budget.slug / "record.json")
                    memory = stage.peak_memory
                yield CellRecord(
                    model=model,
                    method=method,
                    budget=str(budget),
                    seed=seed,
                    state="complete" if record else "failed" if error else "open",
                    error=None if record else error,
                    uses_pretrained=job.settings.search.uses_pretrained or job.settings.retrain.distil > 0,
                    search_memory=memory,
                    record=record,
                )
