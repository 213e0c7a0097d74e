"""The scheduler of a comparison: order, pretrainings before cells, the time limit, and processes that die."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import cast

import pytest

from fieldwise.comparison import pool, scheduler
from fieldwise.comparison.cells import Unit, Work
from fieldwise.comparison.crew import Outcome
from fieldwise.core.budget import Budget

ORPHAN = "the pretraining of {}, seed 0 failed."


class FakeWork:
    """Work that records what was run; some units fail, and some kill their process the first times they run."""

    def __init__(self, failing: tuple[Unit, ...] = (), deaths: dict[Unit, int] | None = None) -> None:
        self._failing, self._deaths = failing, deaths or {}
        self._lock = threading.Lock()
        self.ran: list[Unit] = []
        self.ended: list[Unit] = []
        self.gave_up: dict[Unit, str] = {}
        self.together: dict[tuple[Unit, int], int] = {}
        """For each unit and try, how many units ran when it started, itself included."""
        self.threads: set[str | None] = set()

    def do(self, unit: Unit) -> str | None:
        with self._lock:
            self.ran.append(unit)
            tries = self.ran.count(unit)
            self.together[unit, tries] = len(self.ran) - len(self.ended)
            self.threads.add(os.environ.get("OMP_NUM_THREADS"))
        time.sleep(0.02)
        with self._lock:
            self.ended.append(unit)
        if tries <= self._deaths.get(unit, 0):
            raise BrokenProcessPool
        return "no luck" if unit in self._failing else None

    def give_up(self, unit: Unit, why: str, details: str = "") -> str:
        self.gave_up[unit] = why
        return why


def units(*models: str) -> list[Unit]:
    """A pretraining and two cells per model."""
    cells = [(None, None), ("ham", Budget.columns(8)), ("uniform", Budget.columns(8))]
    return [Unit(model, 0, method, budget) for model in models for method, budget in cells]


def run(work: FakeWork, given: list[Unit], jobs: int, limit: float | None = None) -> list[Outcome]:
    return list(scheduler.outcomes(cast(Work, work), given, jobs, limit))


@pytest.fixture(autouse=True)
def _threads_instead_of_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pool, "_pool", ThreadPoolExecutor)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    yield
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_unit_runs_once_and_a_failed_cell_stops_no_other(jobs: int) -> None:
    given = units("fm", "dcnv2")
    work = FakeWork(failing=(given[1],))
    found = run(work, given, jobs)
    assert dict(found) == {**dict.fromkeys(given), given[1]: "no luck"}
    assert Counter(work.ran) == Counter(given)
    assert work.gave_up == {}
    assert work.threads == {"7" if jobs == 1 else "1"}
    if jobs == 1:
        assert [unit for unit, _ in found] == given


@pytest.mark.parametrize("jobs", [2, 4])
def test_a_cell_waits_for_its_pretraining(jobs: int) -> None:
    given = units("fm", "dcnv2")
    work = FakeWork()
    run(work, given, jobs)
    for model in ("fm", "dcnv2"):
        own = [unit for unit in work.ran if unit.model == model]
        assert own[0].method is None
    assert set(work.ran[:2]) == {given[0], given[3]}, "the second pretraining starts while the first cells wait"
    assert max(work.together.values()) <= jobs


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_failed_pretraining_fails_its_cells_without_running_them(jobs: int) -> None:
    given = units("fm", "dcnv2")
    work = FakeWork(failing=(given[0],))
    found = dict(run(work, given, jobs))
    assert [found[unit] for unit in given] == ["no luck", *[ORPHAN.format("fm")] * 2, None, None, None]
    assert not set(work.ran) & set(given[1:3])
    assert work.gave_up == dict.fromkeys(given[1:3], ORPHAN.format("fm"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_unit_starts_after_the_limit(jobs: int) -> None:
    work = FakeWork()
    assert run(work, units("fm"), jobs, limit=time.monotonic() - 1) == []
    assert work.ran == []
    assert len(run(work, units("fm"), jobs, limit=time.monotonic() + 600)) == 3


def test_units_that_died_together_run_again_one_at_a_time_and_only_the_killer_fails() -> None:
    given = units("fm")
    killer, victim = given[1:]
    work = FakeWork(deaths={killer: 99, victim: 1})
    found = dict(run(work, given, jobs=2))
    assert found == {given[0]: None, killer: work.gave_up[killer], victim: None}
    assert "its process died" in work.gave_up[killer]
    assert Counter(work.ran) == {given[0]: 1, killer: pool.Pool.tries, victim: 2}
    assert (work.together[killer, 2], work.together[victim, 2]) == (1, 1)
