"""Runs units of a benchmark in parallel processes; each appends its rows to a JSON Lines file when it ends."""

import argparse
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from fieldwise.data.store import Dataset, Split
    from fieldwise.models.model import CTRModel, Model
    from fieldwise.train.pretraining import Pretrain
    from fieldwise.train.task import Task
    from fieldwise.train.trained import Trained

U = TypeVar("U")
Rows = list[dict[str, Any]]
MODELS: Final = ("fm", "deepfm", "autoint", "dcnv2")
TIERS: Final = "-tiers"
"""Ends the name of a dataset where its rows have tiers."""


@dataclass(frozen=True)
class Unit:
    """One dataset, model and seed."""

    dataset: Path
    model: str
    seed: int
    device: str

    @property
    def key(self) -> list[Any]:
        """What tells units apart in the output."""
        return [self.dataset.name, self.model, self.seed]

    def base(self) -> "Model":
        """The settings of the model."""
        from fieldwise.core.registry import resolve
        from fieldwise.models import MODELS as KNOWN

        return resolve("model", KNOWN, self.model)()

    def task(self, data: "Dataset") -> "Task":
        """The task of these rows."""
        from fieldwise.train.task import Task

        return Task.of(data, self.base(), self.seed, self.device)  # type: ignore[arg-type]

    def cases(self, pretraining: "Pretrain | None" = None) -> "tuple[Trained[CTRModel], dict[bool, Case]]":
        """The pretrained model of a dataset with tiers, and cases without and with tiers that start from it.

        A model of all columns is the same with tiers as without. Where no column has enough values for tiers, both
        cases are the same.
        """
        from fieldwise.data.joined import joined
        from fieldwise.data.store import Dataset, Split
        from fieldwise.train.pretraining import pretrain, split_tiers

        data = Dataset.open(self.dataset)
        task, test = self.task(data), data.test
        whole = task.joined()
        if whole is task and not data.info["made"]["source"].get("tiers"):
            raise SystemExit(f"{self.dataset} has no tiers. Prepare it again, without data.tiers=0.")
        first = pretrain(whole, pretraining)
        without = Case(whole.starting_from(first), Split(joined(test.ids, data.schema), test.labels))
        return first, {False: without, True: Case(task.starting_from(split_tiers(first, data.schema)), test)}


@dataclass(frozen=True)
class Case:
    """A task that starts from a pretrained model, and the test rows."""

    task: "Task"
    test: "Split"


def options(doc: str, seeds: int, models: Sequence[str] = MODELS, device: str = "auto") -> argparse.ArgumentParser:
    """The options of every benchmark of units, with these defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=models, choices=MODELS)
    seeds_help = "one number: the seeds below it; several: these"
    parser.add_argument("--seeds", nargs="+", type=int, default=range(seeds), action=_Seeds, help=seeds_help)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default=device, choices=["auto", "cpu", "cuda"])
    parser.add_argument("--minutes", type=float, default=1e9, help="no unit starts after this time")
    parser.add_argument("--out", type=Path, required=True)
    return parser


class _Seeds(argparse.Action):
    """One number is the count of seeds."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None) -> None:
        setattr(namespace, self.dest, range(values[0]) if len(values) == 1 else values)


def read(out: Path) -> Rows:
    """The rows measured so far."""
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def run_missing(
    measure: Callable[[U], Rows],
    units: Iterable[U],
    given: argparse.Namespace,
    key: Callable[[dict[str, Any]], list[Any]] = lambda row: row["unit"],
) -> Iterator[tuple[U, Rows, int]]:
    """Runs the units that the output lacks, as the options say; `key` is that of a row's unit."""
    done = [key(row) for row in read(given.out)]
    return run(measure, [unit for unit in units if unit.key not in done], given.out, given.jobs, given.minutes)


def run(
    measure: Callable[[U], Rows], units: Iterable[U], out: Path, jobs: int = 1, minutes: float = 1e9
) -> Iterator[tuple[U, Rows, int]]:
    """Yields each unit as it ends, with its rows and the number of units not started; none starts after `minutes`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    end, left = time.monotonic() + 60 * minutes, list(units)
    running: dict[Future[Rows], U] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_with, (os.getpid(),)) as pool:
        while True:
            while left and len(running) < jobs and time.monotonic() < end:
                unit = left.pop(0)
                running[pool.submit(measure, unit)] = unit
            if not running:
                return
            ended = next(as_completed(running))
            unit, rows = running.pop(ended), ended.result()
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            yield unit, rows, len(left)


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, which may be killed while a unit runs."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
