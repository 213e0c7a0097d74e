"""Everything a user can choose for a run, from a TOML file and flags, checked together."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, Field

from fieldwise.core.automatic import AUTO
from fieldwise.core.budget import Budget, BudgetText
from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import Trusted, name_of, resolve, unknown
from fieldwise.core.settings import Settings, Values, tables_from
from fieldwise.data import SOURCES
from fieldwise.data.engines import ENGINES
from fieldwise.data.engines.engine import Auto, Engine
from fieldwise.data.planted import Planted
from fieldwise.data.rules import Tiers
from fieldwise.data.source import TIERS, Source
from fieldwise.data.split import SPLIT_RULES as SPLIT_NAMES
from fieldwise.data.split import RandomSplit, SplitRule
from fieldwise.data.store import Dataset
from fieldwise.models import MODELS
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.factory import Factory, model_named
from fieldwise.models.model import Model, OwnModel
from fieldwise.models.stored import check_store
from fieldwise.pipeline.reader import Reader, engine_of, source_of, split_of
from fieldwise.pipeline.rows import RowSettings
from fieldwise.pipeline.sharded import check_sharded
from fieldwise.presets import filled
from fieldwise.searches import DEFAULT, SEARCHES, Elimination
from fieldwise.searches.search import Search, check_network
from fieldwise.train.average import check_average
from fieldwise.train.l2 import check_l2
from fieldwise.train.plan import check_tables_of_module
from fieldwise.train.pretraining import Pretrain, check_regularity
from fieldwise.train.retraining import Retrain, stored_for
from fieldwise.train.task import Device

T = TypeVar("T", bound=Settings)
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _differ(values: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise ValueError(f"'{repeated}' is named twice, which would repeat the same work. Name it once")
    return values


class Run(Settings):
    """Budgets and seeds to run, and where."""

    budgets: Annotated[tuple[BudgetText, ...], AfterValidator(_differ)] = Field((Budget.percent(25),), min_length=1)
    """One search per budget, all from the same pretrained model."""
    seeds: Annotated[tuple[Seed, ...], AfterValidator(_differ)] = Field((0,), min_length=1)
    """Integers from 0; one pretraining per seed."""
    device: Device = "auto"
    """auto, cpu or cuda; auto uses CUDA if it is available."""
    dataset: Path | None = None
    """A prepared dataset folder; without it, the source is prepared in the run folder."""
    tables: Literal["replicated", "sharded"] = "replicated"
    """Tables of several processes. replicated: each process has all; sharded: each has a part of the rows of large
    tables, which TorchRec moves between them. Sharded tables are float32, on CPUs."""
    sharded_from: int = Field(100_000, ge=1)
    """Rows from which tables are sharded, at least 1; all fields of one width count as one table."""

    @property
    def split_from(self) -> int | None:
        """Rows from which tables are sharded; None: no table is."""
        return self.sharded_from if self.tables == "sharded" else None


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run: one value per table of a settings file."""

    run: Run = field(default_factory=Run)
    data: Source | None = field(default_factory=Planted)
    """None if `run.dataset` names a prepared dataset and `[data]` is absent or incomplete."""
    split: SplitRule = field(default_factory=RandomSplit)
    engine: Engine = field(default_factory=Auto)
    model: Model = field(default_factory=DCNv2)
    pretrain: Pretrain = field(default_factory=Pretrain)
    search: Search = field(default_factory=Elimination)
    retrain: Retrain = field(default_factory=Retrain)

    @classmethod
    def parse(cls, values: Mapping[str, Any], trusted: Trusted = None) -> "RunSettings":
        """Settings from plain tables and the preset they name; one error lists every problem of every table.

        Classes outside the library are imported only if `trusted` names them; None trusts whatever the tables name.
        """
        kind = _search_class(values, trusted)
        values = _inherited(filled(values, kind.members if kind else None), kind)
        reader = _Reader(values, trusted)
        run = reader.table("run", Run)
        result = cls(
            run=run,
            data=source_of(values, reader, trusted, prepared=run is not None and run.dataset is not None),
            split=split_of(reader),
            engine=engine_of(reader),
            model=reader.model(),
            pretrain=reader.table("pretrain", Pretrain),
            search=reader.named("search", Search, SEARCHES, DEFAULT),  # type: ignore[type-abstract]
            retrain=reader.table("retrain", Retrain),
        )
        known = cls.__dataclass_fields__
        reader.problems += [unknown("settings", name, known) for name in values if name not in known]
        reader.problems += (
            [] if reader.problems else [*_of_factory(result), *_of_sharded(result), *_of_every_row(result)]
        )
        if reader.problems:
            raise SettingsError("\n".join(reader.problems))
        return result

    @property
    def rows(self) -> RowSettings:
        """The settings of the dataset; refuses those that name a prepared one."""
        if self.data is None:
            raise SettingsError(
                f"[run] dataset = '{self.run.dataset}' is already prepared, and [data] names nothing else to prepare. "
                "Remove run.dataset, and complete [data]."
            )
        return RowSettings(self.data, self.split, self.engine, tiers_for(self.model, self.run.budgets))

    @classmethod
    def of(cls, given: "RunInput") -> "RunSettings":
        """Settings from a `RunSettings`, which is returned unchanged, from plain tables, or from a TOML file."""
        return given if isinstance(given, RunSettings) else cls.parse(tables_from(given))

    def fitted(self, data: Dataset) -> "RunSettings":
        """The settings with numbers for `auto`, chosen for the dataset's training rows."""
        counts = data.info["rows"]["train"], data.info["splits"]["train"]["clicks"]
        trained = {name: getattr(self, name).fitted(*counts) for name in ("pretrain", "search", "retrain")}
        return replace(self, **trained)

    def values(self) -> Values:
        """Plain tables, as in a settings file; `parse` reads them back."""
        tables: Values = {
            "run": self.run.values(),
            "data": {"name": name_of(self.data, SOURCES), **self.data.values()} if self.data else None,
            "split": {"name": name_of(self.split, SPLIT_NAMES), **self.split.values()},
            "engine": {"name": name_of(self.engine, ENGINES), **self.engine.values()},
            "model": {"name": name_of(self.model, MODELS), **self.model.values()},
            "pretrain": self.pretrain.values(),
            "search": {"name": name_of(self.search, SEARCHES), **self.search.values()},
            "retrain": self.retrain.values(),
        }
        return _without_none(tables)


def tiers_for(model: Model, budgets: Sequence[Budget]) -> Tiers:
    """What `auto` is in `data.tiers`.

    A factory's module has a vector for every tier, and then two are better than three. A budget in columns counts each
    tier's, and fewer positions of a vector are worse than rare values that have all of them.
    """
    if not isinstance(model, OwnModel):
        return 0.25
    return 0.0 if all(budget.unit == "columns" for budget in budgets) else TIERS


RunInput = RunSettings | Mapping[str, Any] | Path | str
"""Settings as Python callers may give them: the object, the tables of a settings file, or the path of a TOML file."""


def _of_factory(settings: RunSettings) -> list[str]:
    """Problems of settings that a factory's model does not support, before any work."""
    if not isinstance(settings.model, Factory):
        return []
    search, retrain = settings.search, settings.retrain
    stages = [("pretrain", settings.pretrain), *(("search", inner) for inner in search.all()), ("retrain", retrain)]
    problems = [
        *(_problem(check_tables_of_module, name, getattr(stage, "optimizer", "adam")) for name, stage in stages),
        *(_problem(_check_stored, settings.model, retrain, budget) for budget in settings.run.budgets),
        _problem(check_network, search, settings.model),
    ]
    if retrain.drop_first_order:
        problems.append("[retrain] drop_first_order is not possible for a factory's model. Leave it out.")
    return [problem for problem in dict.fromkeys(problems) if problem]


def _of_sharded(settings: RunSettings) -> list[str]:
    """Problems of settings that sharded tables do not support, before any work."""
    problem = _problem(check_sharded, settings) if settings.run.tables == "sharded" else ""
    return [problem] if problem else []


def _of_every_row(settings: RunSettings) -> list[str]:
    """Problems of what concerns every row and an optimizer or sharded tables do not support, before any work."""
    retrain, sharded = settings.retrain, settings.run.tables == "sharded"
    problems = [
        _problem(check_regularity, settings.pretrain),
        _problem(check_average, settings.pretrain.average, sharded, "pretrain"),
        _problem(check_average, retrain.average, sharded, "retrain"),
        _problem(check_l2, retrain.l2, retrain.optimizer, sharded),
    ]
    return [problem for problem in problems if problem]


def _check_stored(model: Model, retrain: Retrain, budget: Budget) -> None:
    if budget.store != AUTO:  # chosen when the rows are known
        check_store(model, stored_for(retrain, budget).store)


def _problem(check: Callable[..., None], *given: Any) -> str:
    """What a check says of what it is given; empty if nothing is wrong."""
    try:
        check(*given)
    except SettingsError as error:
        return str(error)
    return ""


def _search_class(values: Mapping[str, Any], trusted: Trusted) -> type[Search] | None:
    """The class that `[search]` names. None if it names none, or none that can be used: `parse` reports that later."""
    search = values.get("search")
    if not isinstance(search, Mapping) or "name" not in search:
        return None
    with suppress(SettingsError):
        cls = resolve("search", SEARCHES, str(search["name"]), trusted)
        return cls if issubclass(cls, Search) else None
    return None


def _inherited(values: Values, kind: type[Search] | None) -> Values:
    """Tables with `[search]` completed by those that the search inherits."""
    given = {table: values[table] for table in kind.inherits if values.get(table) is not None} if kind else {}
    return {**values, "search": {**given, **values["search"]}} if given else values


def _without_none(values: Values) -> Values:
    """The values without None, which TOML cannot express; a missing key means the same."""
    inner = {k: _without_none(v) if isinstance(v, dict) else v for k, v in values.items()}
    return {k: v for k, v in inner.items() if v is not None}


class _Reader(Reader):
    """Reads the tables of a run."""

    def model(self) -> Model:
        """The settings of `[model]`, whose name may be that of a user's factory."""
        inner = self.inner_of("model")
        try:
            cls = model_named(str(inner.pop("name", "dcnv2")), self._trusted)
        except SettingsError as error:
            self.problems.append(str(error))
            return cast(Model, None)
        return self.read("model", cls, inner)
