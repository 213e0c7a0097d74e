"""What a run with sharded tables refuses, before any work."""

from pathlib import Path
from typing import TYPE_CHECKING

from fieldwise.core.errors import SettingsError
from fieldwise.core.hints import either
from fieldwise.core.store import FLOAT32, Store
from fieldwise.models.factory import Factory
from fieldwise.processes.ranks import current
from fieldwise.train.task import Device, choose_device

if TYPE_CHECKING:
    from fieldwise.pipeline.settings import RunSettings

_INSTEAD = "or choose [run] tables = 'replicated'."


def check_sharded(settings: "RunSettings") -> None:
    """Refuse models, searches and stores that need whole tables in every process."""
    if isinstance(settings.model, Factory):
        raise SettingsError(
            "[run] tables = 'sharded' splits tables of the library; a factory's tables are the module's own. Choose a "
            f"model of `fieldwise list`, {_INSTEAD}"
        )
    for search in settings.search.all():
        if not search.shards:
            raise SettingsError(
                f"[search] {type(search).__name__} does not work with [run] tables = 'sharded'. Choose elimination, a "
                "gate (ham, sam, sam-sigmoid, sam-gs, ham-p), sseds, rounds, race, magnitude, mde, uniform or random, "
                f"{_INSTEAD}"
            )
    check_sharded_store(settings.retrain.store)


def check_sharded_store(store: Store | None) -> None:
    """Refuse stored types other than float32."""
    if store not in (None, FLOAT32):
        raise SettingsError(
            f"The tables of [run] tables = 'sharded' are trained and stored as float32, got {store}. Write budgets "
            f"without a type and no [retrain] store; {either('fieldwise export --store', 'fw.export(..., store=...)')} "
            "converts the result. Or choose [run] tables = 'replicated'."
        )


def check_sharded_processes(device: Device) -> None:
    """Refuse GPUs, and processes without TorchRec."""
    if choose_device(device).type != "cpu":
        raise SettingsError(
            f"[run] tables = 'sharded' works on CPUs, device = '{device}' is a GPU. Choose device = 'cpu', {_INSTEAD}"
        )
    if current().size > 1:
        from fieldwise.tables.torchrec_rows import check_installed

        check_installed()


def check_visible(out: Path) -> None:
    """Refuse a process that does not see the run folder, which exists."""
    if not (out / "settings.toml").exists():
        raise SettingsError(
            f"This process does not see the run folder '{out}', where each process writes its part of a checkpoint. "
            f"Choose a folder that all machines see, {_INSTEAD}"
        )
