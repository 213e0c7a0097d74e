"""The work of a comparison, in units that can be killed and run again."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fieldwise.comparison.settings import CompareSettings, Pair
from fieldwise.core.budget import Budget
from fieldwise.core.errors import FieldwiseError
from fieldwise.core.files import write_json
from fieldwise.core.lock import exclusive
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.pipeline.folder import Job, read
from fieldwise.pipeline.seed_run import SeedRun


@dataclass(frozen=True)
class Unit:
    """One pretraining of a model; with a method and a budget, one cell."""

    model: str
    seed: int
    method: str | None = None
    budget: Budget | None = None

    def __str__(self) -> str:
        what = "pretrain" if self.method is None else f"{self.method} {self.budget}"
        return f"{what}, {self.model}, seed {self.seed}"

    def folder(self, settings: CompareSettings, out: Path) -> Path:
        """The stage folder; its record means that the unit is complete."""
        if self.method is None or self.budget is None:
            return out / self.model / f"seed-{self.seed}" / "pretrain"
        job = job_of(settings, out, (self.model, self.method))
        return job.seed_folder(self.seed) / "retrain" / self.budget.slug

    def done(self, settings: CompareSettings, out: Path) -> bool:
        """Whether the unit is complete."""
        return (self.folder(settings, out) / "record.json").exists()


@dataclass(frozen=True)
class Work:
    """Runs units of a comparison in its folder."""

    settings: CompareSettings
    out: Path
    dataset: Path

    def do(self, unit: Unit, watcher: Watcher | None = None, until: Callable[[], bool] = lambda: False) -> str | None:
        """Runs a unit; returns None, or one line if it failed, which does not stop the others.

        If another process still runs the unit, it waits for that one, until `until` returns true.
        """
        folder = unit.folder(self.settings, self.out)
        with exclusive(folder, until=until):
            try:
                self._do(unit, watcher or Watcher())
            except Exception as error:
                return self.give_up(unit, one_line(error), traceback.format_exc())
            (folder / "failed.json").unlink(missing_ok=True)
        return None

    def give_up(self, unit: Unit, why: str, details: str = "") -> str:
        """Marks a unit as failed, and returns the reason."""
        write_json(unit.folder(self.settings, self.out) / "failed.json", {"error": why, "traceback": details})
        return why

    def _do(self, unit: Unit, watcher: Watcher) -> None:
        data = Dataset.open(self.dataset)
        method = unit.method or self.settings.compare.methods[0]  # all methods share a pretraining
        run = SeedRun(job_of(self.settings, self.out, (unit.model, method), watcher), data, unit.seed)
        if unit.method is None or unit.budget is None:
            run.pretrain()
        else:
            run.search(unit.budget)
            run.retrain(unit.budget)


def job_of(settings: CompareSettings, out: Path, pair: Pair, watcher: Watcher | None = None) -> Job:
    """The run of one model and one method, in its own folder, with the model's shared pretraining."""
    model, method = pair
    return Job(settings.runs[pair], out / model / method, watcher or Watcher(), shared=out / model)


def one_line(error: BaseException) -> str:
    """An error in one line: the message of an error that a user can fix, else its type too."""
    return " ".join(str(error).split()) if isinstance(error, FieldwiseError) else repr(error)


def failure(settings: CompareSettings, out: Path, unit: Unit) -> str | None:
    """The reason why a unit failed when it last ran, or None."""
    marker = unit.folder(settings, out) / "failed.json"
    found = read(marker) if marker.exists() else {}
    return str(found.get("error", "the reason is not recorded.")) if found and isinstance(found, dict) else None
