"""The folders of a run: what each stage depends on, and whether it is complete."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from fieldwise.core.budget import Budget
from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.files import write_json
from fieldwise.core.hints import either
from fieldwise.core.plain_files import read_json
from fieldwise.core.records import Record, first_problem
from fieldwise.core.settings import Values, differing, read_toml, validate
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.models.stored import check_fields, check_store
from fieldwise.pipeline.settings import Run, RunSettings
from fieldwise.pipeline.sharded import check_sharded_store
from fieldwise.searches.total import tables_budget, typed_budget
from fieldwise.train.retraining import stored_for
from fieldwise.train.room import check_room
from fieldwise.train.task import choose_device

R = TypeVar("R", bound=Record)
LATER: Final[dict[str, Values]] = {"search": {"start": "searched"}, "retrain": {"average": 0.0}}
"""Settings that stage folders of earlier versions lack, with the values that those were made with."""


@dataclass(frozen=True)
class Job:
    """The settings, the run folder and the watcher of one command."""

    settings: RunSettings
    out: Path
    watcher: Watcher
    shared: Path | None = None
    """Another run folder whose pretrained models are used; None: this one's."""

    def pretrain_folder(self, seed: int) -> Path:
        """The folder of one seed's full model."""
        return (self.shared or self.out) / f"seed-{seed}" / "pretrain"

    def seed_folder(self, seed: int) -> Path:
        """The folder of one seed."""
        return self.out / f"seed-{seed}"

    def stages(self, data: Dataset) -> Iterator[tuple[Path, Values]]:
        """Every stage folder with the values its result depends on."""
        for seed in self.settings.run.seeds:
            for stage in ("pretrain", "search", "retrain"):
                for budget in self.settings.run.budgets[: 1 if stage == "pretrain" else None]:
                    yield self.stage(stage, data, seed, budget)

    def stage(self, stage: str, data: Dataset, seed: int, budget: Budget) -> tuple[Path, Values]:
        """One stage's folder and the values its result depends on."""
        tables = self.settings.values()
        needed = {"pretrain": ("model", "pretrain"), "search": ("model", "pretrain", "search")}
        names = needed.get(stage, ("model", "pretrain", "search", "retrain"))
        values: Values = {"dataset": data.fingerprint, "seed": seed, **{name: tables[name] for name in names}}
        if stage == "pretrain":
            return self.pretrain_folder(seed), values
        return self.seed_folder(seed) / stage / budget.slug, {**values, "budget": str(budget)}


def begin(watcher: Watcher, folder: Path, values: Values, title: str) -> bool:
    """Reports the stage to the watcher and writes `stage.json`; returns whether there is work to do."""
    done = (folder / "record.json").exists()
    watcher.begin(title, done)
    if done:
        shutil.rmtree(
            folder / "checkpoint", ignore_errors=True
        )  # the process may have been killed after writing the record
    else:
        write_json(folder / "stage.json", values)
    return not done


def end(folder: Path, record: Record) -> None:
    """Marks a stage as complete, and removes its checkpoint."""
    write_json(folder / "record.json", record.to_json())
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def check_stages(job: Job, data: Dataset) -> None:
    """Refuses, before any work, budgets that cannot be met, and stages made with other settings."""
    settings = job.settings
    for budget in settings.run.budgets:
        tables_budget(settings.model, data.schema, budget)
        typed = typed_budget(settings.model, data.schema, budget)
        store = stored_for(settings.retrain, typed).store
        check_store(settings.model, store)
        check_fields(store, data.schema)
        if settings.run.tables == "sharded":
            check_sharded_store(store)
    for folder, values in job.stages(data):
        if (folder / "stage.json").exists():
            agree(folder, values)


def check_memory(job: Job, data: Dataset) -> None:
    """Refuses too little memory for a full model that is still to be trained."""
    settings = job.settings
    if any(not (job.pretrain_folder(seed) / "record.json").exists() for seed in settings.run.seeds):
        device, split = choose_device(settings.run.device), settings.run.tables == "sharded"
        check_room(settings.model, data.schema, settings.pretrain, device, split)


def with_earlier(settings: RunSettings, out: Path) -> RunSettings:
    """The settings with the seeds and budgets that earlier commands ran in the same folder, those first.

    A command may run some of a run's seeds and budgets; the folder's settings keep them all.
    """
    with suppress(SettingsError):
        table = read_toml(out / "settings.toml").get("run", {})
        run, _ = validate(Run, table, "run")
        if run is not None:
            ran = {"seeds": "seed-*/*/stage.json", "budgets": "seed-*/*/*/stage.json"}
            earlier = {key: getattr(run, key) for key, stages in ran.items() if key in table and any(out.glob(stages))}
            both = {key: tuple(dict.fromkeys([*old, *getattr(settings.run, key)])) for key, old in earlier.items()}
            return replace(settings, run=settings.run.model_copy(update=both))
    return settings


def agree(folder: Path, values: Values) -> None:
    """Refuses a stage folder that was made with other settings; the error names the keys."""
    made = read(folder / "stage.json")
    for table, later in LATER.items():
        if table in made and table in values:
            made[table] |= {key: old for key, old in later.items() if key in values[table].keys() - made[table].keys()}
    changed = differing(made, values)
    if changed:
        raise RunError(
            f"'{folder}' was made with other settings: {'; '.join(changed)}. "
            f"Use those settings, choose another {either('--out', 'out')}, or remove that folder."
        )


def need(folder: Path, what: str, verb: str) -> None:
    """Raises `RunError` unless an earlier stage is complete."""
    if not (folder / "record.json").exists():
        first = either(f"Run `fieldwise {verb}` with this --out first.", f"Call `{verb}` with this folder first.")
        raise RunError(f"'{folder}': {what} is not complete. {first}")


def read(path: Path) -> Any:
    """The value of a JSON file of a run; the error names a file that cannot be read."""
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise RunError(f"'{path}' cannot be read ({error}). Remove its folder; the stage then runs again.") from error


def read_record(cls: type[R], path: Path) -> R:
    """A record of a run; the error names a file that cannot be read or is no such record."""
    try:
        return cls.model_validate(read(path))
    except ValidationError as error:
        raise RunError(
            f"'{path}' is damaged ({first_problem(error)}). Remove its folder; the stage then runs again."
        ) from error
