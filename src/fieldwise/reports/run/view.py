"""Reads a run folder for the report: every complete stage, and a notice for each other one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar

from pydantic import ValidationError

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.budget import Budget
from fieldwise.core.errors import FieldwiseError, RunError, SettingsError
from fieldwise.core.hints import either
from fieldwise.core.plain_files import read_json
from fieldwise.core.records import Record, RunRecord, StageRecord, first_problem
from fieldwise.core.settings import Values, read_toml
from fieldwise.data.kinds.check import KINDS, Check
from fieldwise.reports.run import journal

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class StageView:
    """One complete stage."""

    stage: str
    seed: int
    budget: str | None
    """None for pretraining."""
    folder: Path
    record: StageRecord


@dataclass(frozen=True)
class RunView:
    """Everything complete in a run folder."""

    out: Path
    settings: Values
    stages: list[StageView]
    records: list[RunRecord]
    missing: list[str]
    """One line per missing or damaged file."""
    commands: list[str]
    baselines: BaselineRecord | None = None
    """None for runs without this stage."""
    kinds: Check | None = None
    """What each raw column is; None where the source names its own fields."""

    @property
    def source(self) -> str:
        """What the rows are called: in a record, else by the settings."""
        if self.records:
            return self.records[0].source
        data = self.settings.get("data", {})
        raw = str(data.get("raw", "")) if data.get("name") == "table" else ""
        return PurePath(raw).name or str(data.get("name", "data"))

    def stage(self, stage: str) -> list[StageView]:
        """Returns the complete stages of one kind."""
        return [view for view in self.stages if view.stage == stage]


def open_run(out: Path) -> RunView:
    """Reads a run folder; refuses a folder without any complete stage."""
    if not out.is_dir():
        raise RunError(f"'{out}' is not a run folder. Name a folder that {_by()} made.")
    missing: list[str] = []
    settings = _settings(out, missing)
    stages: list[StageView] = []
    records: list[RunRecord] = []
    for stage, seed, budget, folder in _places(out, settings):
        try:
            stages.append(StageView(stage, seed, budget, folder, _stage_record(stage, folder)))
            if stage == "retrain":
                records.append(RunRecord.model_validate(_read(folder / "record.json")))
        except RunError as error:
            missing.append(f"{_title(stage, seed, budget)}: {error}")
        except ValidationError as error:
            path = _shown(folder / "record.json")
            missing.append(f"{_title(stage, seed, budget)}: {path} is damaged ({first_problem(error)})")
    if not stages:
        raise RunError(
            f"'{out}' holds no complete stage: seed-*/pretrain/record.json is missing. "
            f"Name a folder that {_by()} made, or run it first."
        )
    baselines = _optional(BaselineRecord, out, "baselines/record.json", missing)
    kinds = _optional(Check, out, KINDS, missing)
    return RunView(out, settings, stages, records, missing, journal.commands(out), baselines, kinds)


def _by() -> str:
    return either("`fieldwise run --out`", "fw.run")


def _optional(kind: type[R], out: Path, name: str, missing: list[str]) -> R | None:
    """Reads a file that older runs do not have; a damaged one is a line of `missing`."""
    if not (out / name).exists():
        return None
    try:
        found: R = kind.model_validate(read_json(out / name))
    except (OSError, ValueError) as error:
        why = first_problem(error) if isinstance(error, ValidationError) else error
        missing.append(f"{name} is damaged ({why})")
        return None
    return found


def _settings(out: Path, missing: list[str]) -> Values:
    try:
        found = read_toml(out / "settings.toml")
        run = found.get("run", {})
        _ = [int(seed) for seed in run.get("seeds", [])], [Budget.parse(text) for text in run.get("budgets", [])]
        strange = [
            name for name in ("pretrain", "search", "data", "model") if not isinstance(found.get(name, {}), dict)
        ]
        if strange:
            raise ValueError(f"[{strange[0]}] is not a table")
    except SettingsError as error:
        missing.append(f"settings: {error}")
    except (FieldwiseError, AttributeError, TypeError, ValueError) as error:
        missing.append(f"settings: settings.toml is damaged ({error})")
    else:
        return found
    return {}


def _places(out: Path, settings: Values) -> Iterator[tuple[str, int, str | None, Path]]:
    """Yields every stage in the settings or with a folder, seed by seed."""
    run = settings.get("run", {})
    seeds = {int(seed) for seed in run.get("seeds", [])}
    seeds |= {int(name) for path in out.glob("seed-*") if (name := path.name.removeprefix("seed-")).isdigit()}
    budgets = {Budget.parse(text).slug: str(Budget.parse(text)) for text in run.get("budgets", [])}
    for seed in sorted(seeds):
        home = out / f"seed-{seed}"
        found = {path.parent.name: path for path in sorted(home.glob("*/*/stage.json"))}
        slugs = {**budgets, **{slug: _budget(path) for slug, path in found.items() if slug not in budgets}}
        yield "pretrain", seed, None, home / "pretrain"
        for slug in sorted(slugs, key=lambda slug: _order(slugs[slug])):
            for stage in ("search", "retrain"):
                yield stage, seed, slugs[slug], home / stage / slug


def _budget(path: Path) -> str:
    try:
        return str(Budget.parse(str(_read(path)["budget"])))
    except (FieldwiseError, KeyError, TypeError):
        return path.parent.name


def _order(budget: str) -> tuple[str, float]:
    try:
        parsed = Budget.parse(budget)
    except FieldwiseError:
        return "", 0.0
    return parsed.unit, parsed.amount


def _stage_record(stage: str, folder: Path) -> StageRecord:
    """Reads the record of a stage; for retraining, record.json is a row of the results, history.json its record."""
    if not folder.is_dir() or not (folder / "record.json").exists():
        raise RunError(f"not complete, {_shown(folder / 'record.json')} is missing")
    return StageRecord.model_validate(_read(folder / ("history.json" if stage == "retrain" else "record.json")))


def _title(stage: str, seed: int, budget: str | None) -> str:
    return f"{stage} of seed {seed}" if budget is None else f"{stage} of {budget}, seed {seed}"


def _shown(path: Path) -> str:
    """Returns a path relative to the run folder."""
    start = next(place for place, part in enumerate(path.parts) if part.startswith("seed-") and part[5:].isdigit())
    return "/".join(path.parts[start:])


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{_shown(path)} cannot be read ({error})") from error
