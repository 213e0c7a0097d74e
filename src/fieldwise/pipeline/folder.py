"""The folders of a run: what each stage depends on, whether it is complete, and who watches."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from fieldwise.core.budget import Budget
from fieldwise.core.errors import RunError
from fieldwise.core.files import write_json
from fieldwise.core.plain_files import read_json
from fieldwise.core.records import Record, RunRecord, StageRecord, first_problem
from fieldwise.core.settings import Values, differing
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.pipeline.settings import RunSettings
from fieldwise.train.room import check_room
from fieldwise.train.task import choose_device

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Job:
    """Settings, the run folder they work in, and who watches."""

    settings: RunSettings
    out: Path
    watcher: Watcher
    shared: Path | None = None
    """The run folder whose pretrained models are used, where they are not this one's own."""

    def pretrain_folder(self, seed: int) -> Path:
        """The full model of one seed."""
        return (self.shared or self.out) / f"seed-{seed}" / "pretrain"

    def seed_folder(self, seed: int) -> Path:
        """Everything of one seed."""
        return self.out / f"seed-{seed}"

    def stages(self, data: Dataset) -> Iterator[tuple[Path, Values]]:
        """Every stage folder with what its result depends on."""
        for seed in self.settings.run.seeds:
            for stage in ("pretrain", "search", "retrain"):
                for budget in self.settings.run.budgets[: 1 if stage == "pretrain" else None]:
                    yield self.stage(stage, data, seed, budget)

    def stage(self, stage: str, data: Dataset, seed: int, budget: Budget) -> tuple[Path, Values]:
        """One stage's folder and what its result depends on."""
        tables = self.settings.values()
        needed = {"pretrain": ("model", "pretrain"), "search": ("model", "pretrain", "search")}
        names = needed.get(stage, ("model", "pretrain", "search", "retrain"))
        values: Values = {"dataset": data.fingerprint, "seed": seed, **{name: tables[name] for name in names}}
        if stage == "pretrain":
            return self.pretrain_folder(seed), values
        return self.seed_folder(seed) / stage / budget.slug, {**values, "budget": str(budget)}


def begin(job: Job, folder: Path, values: Values, title: str) -> bool:
    """Whether the stage has work to do; says so, and marks the folder as its own."""
    done = (folder / "record.json").exists()
    job.watcher.begin(title, done)
    if done:
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)  # a kill may have come between record and clearing
    else:
        write_json(folder / "stage.json", values)
    return not done


def end(folder: Path, record: StageRecord | RunRecord) -> None:
    """Marks a stage as complete, and clears its checkpoint."""
    write_json(folder / "record.json", record.to_json())
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def check_stages(job: Job, data: Dataset) -> None:
    """Refuses, before any work, what cannot be done: budgets, memory, stages that were made with other settings."""
    settings = job.settings
    for budget in settings.run.budgets:
        budget.limit(data.schema.layout(settings.model.width))
    for folder, values in job.stages(data):
        if (folder / "stage.json").exists():
            agree(folder, values)
    if any(not (job.pretrain_folder(seed) / "record.json").exists() for seed in settings.run.seeds):
        check_room(settings.model, data.schema, settings.pretrain, choose_device(settings.run.device))


def agree(folder: Path, values: Values) -> None:
    """Refuses a stage folder that was made with other settings, and names the keys."""
    changed = differing(read(folder / "stage.json"), values)
    if changed:
        raise RunError(
            f"'{folder}' was made with other settings: {'; '.join(changed)}. "
            "Use those settings, name another --out, or remove that folder."
        )


def need(folder: Path, what: str, verb: str) -> None:
    """Refuses to go on without an earlier stage."""
    if not (folder / "record.json").exists():
        raise RunError(f"'{folder}': {what} is not complete. Run `fieldwise {verb}` with this --out first.")


def read(path: Path) -> Any:
    """A JSON file of a run; says which, where it cannot be read."""
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise RunError(
            f"'{path}' cannot be read ({error}). Remove its folder; the stage is then made again."
        ) from error


def read_record(cls: type[R], path: Path) -> R:
    """A record of a run; says which, where it cannot be read or is none."""
    try:
        return cls.model_validate(read(path))
    except ValidationError as error:
        raise RunError(
            f"'{path}' is damaged ({first_problem(error)}). Remove its folder; the stage is then made again."
        ) from error
