"""Comparisons on a Dask cluster of two worker processes on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from distributed import LocalCluster
from distributed.client import FuturesCancelledError

from fieldwise.comparison.cells import Unit, Work
from fieldwise.comparison.cluster import client, crew, roster
from fieldwise.comparison.cluster.worker import Check, Unwanted
from fieldwise.comparison.results import compare
from fieldwise.core.comparison import Comparison
from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.lock import Holder, exclusive, holder
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from tests.command_line import START, cli
from tests.comparison.small_comparison import figures, settings

ROOT = Path(__file__).parents[2]
BROKEN = {"bug": {"name": "tests.comparison.broken:Raises"}, "death": {"name": "tests.comparison.broken:Dies"}}
CHOSEN = settings(
    compare={"models": ["dcnv2"], "methods": ["ham", "bug", "uniform"]},
    methods={"ham": {"batch": 64, "epochs": 8}, **BROKEN},
    run={"seeds": [0], "budgets": ["8"]},
)
DEATH = settings(
    compare={"models": ["dcnv2"], "methods": ["uniform", "death"]}, methods=BROKEN, run={"seeds": [0], "budgets": ["8"]}
)


class Machines:
    """A scheduler, and worker processes without a nanny."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._workers: list[subprocess.Popen[bytes]] = []

    def fill(self) -> None:
        """Starts workers until two run."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        words = [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--no-nanny", "--nthreads", "1"]
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        while len(self._workers) < 2:
            more, env = ["--no-dashboard", "--host", "127.0.0.1"], {**os.environ, "PYTHONPATH": path}
            self._workers.append(subprocess.Popen([*words, *more], env=env, stderr=subprocess.DEVNULL))

    def kill(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            worker.kill()
            worker.wait()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as scheduler:
        found = Machines(scheduler.scheduler_address)
        try:
            yield found
        finally:
            found.kill()


@pytest.fixture
def address(machines: Machines) -> str:
    machines.fill()
    with client.joined(machines.address) as joined:
        end = time.monotonic() + 60
        while len(joined.workers()) < 2 and time.monotonic() < end:
            time.sleep(0.02)
    return machines.address


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(CHOSEN, tmp_path_factory.mktemp("serial") / "out")


def kill_worker_in(cell: Path) -> int:
    """Kills the process that runs a cell, once its search has a checkpoint; returns its id."""
    end, search = time.monotonic() + 60, cell / "search" / "8-columns"
    while time.monotonic() < end and not any(search.rglob("checkpoint.json")):
        time.sleep(0.005)
    runs = holder(cell / "retrain" / "8-columns")
    assert isinstance(runs, Holder)
    os.kill(runs.process, signal.SIGKILL)
    return runs.process


def test_a_worker_that_is_killed_loses_no_cell_and_the_table_is_the_same(
    address: str, serial: Comparison, tmp_path: Path
) -> None:
    nothing = compare(CHOSEN, tmp_path / "out", minutes=0, cluster=address)
    assert {cell.state for cell in nothing.cells} == {"open"}
    lines: list[str] = []
    with ThreadPoolExecutor(1) as thread:
        killed = thread.submit(kill_worker_in, tmp_path / "out" / "dcnv2" / "ham" / "seed-0")
        found = compare(CHOSEN, tmp_path / "out", say=lines.append, cluster=address)
    assert killed.result() != os.getpid()
    assert figures(found) == figures(serial)
    assert found.jobs == 2
    assert [cell.error for cell in found.cells if cell.method == "bug"] == ["RuntimeError('two\\nlines')"]
    assert len(lines) == 4
    assert not list((tmp_path / "out").rglob(".*"))


@pytest.mark.slow
def test_a_client_that_stops_ends_its_cells_and_the_next_one_resumes(
    address: str, serial: Comparison, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def stop(line: str) -> None:
        if "bug" in line:  # it fails at once, while `ham` runs
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(CHOSEN, out, say=stop, cluster=address)
    ham = out / "dcnv2" / "ham" / "seed-0" / "retrain" / "8-columns"
    while holder(ham):
        time.sleep(0.01)
    assert not (ham / "record.json").exists(), "it was ended early"
    assert figures(compare(CHOSEN, out, cluster=address)) == figures(serial)


@pytest.mark.slow
def test_a_client_that_is_killed_leaves_no_cell_running_and_the_same_command_resumes(
    address: str, serial: Comparison, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    compare(CHOSEN, out, minutes=0)
    words = ["compare", str(out / "settings.toml"), "--out", str(out), "--cluster", address]
    with subprocess.Popen([*START, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("1 of"))
        time.sleep(0.1)
        process.kill()
    again = cli(*words)
    assert again.returncode == 0, again.stderr
    found = Comparison.model_validate(json.loads((out / "comparison.json").read_text()))
    assert figures(found) == figures(serial)


@pytest.mark.slow
def test_a_cell_that_kills_its_workers_fails_and_the_others_complete(
    address: str, machines: Machines, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(compare, DEATH, tmp_path / "out", cluster=address)
        while not running.done():
            machines.fill()
            time.sleep(0.1)
    states = {cell.method: (cell.state, cell.error) for cell in running.result().cells}
    assert states["uniform"] == ("complete", None)
    assert states["death"][0] == "failed"
    assert "its worker died 3 times" in (states["death"][1] or "")


@pytest.mark.slow
def test_a_scheduler_that_dies_is_one_line_and_the_cells_can_be_resumed(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "scheduler.json"
    compare(CHOSEN, out, minutes=0)
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    scheduler = subprocess.Popen([*words, "--host", "127.0.0.1", "--scheduler-file", str(file)])
    while not file.exists() or not file.read_text():
        time.sleep(0.05)
    machines = Machines(json.loads(file.read_text())["address"])
    machines.fill()
    command = [*START, "compare", str(out / "settings.toml"), "--out", str(out), "--cluster", machines.address]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            begun = any(line.startswith("1 of") for line in process.stdout)
            scheduler.kill()
            _, shown = process.communicate()
    finally:
        scheduler.kill()
        scheduler.wait()
        machines.kill()
    assert (begun, process.returncode) == (True, 2), shown
    assert shown.startswith(f"fieldwise: The scheduler at '{machines.address}' no longer answers (")
    assert len(shown.splitlines()) == 1
    assert {cell.state for cell in compare(CHOSEN, out).cells} == {"complete", "failed"}


def test_where_no_scheduler_answers_it_says_so_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and says nothing
        for given in (f"tcp://127.0.0.1:{silent.getsockname()[1]}", "tcp://127.0.0.1:1", "host", "http://127.0.0.1:1"):
            with patch.object(client, "_ANSWER", 0.3):
                done = cli("compare", "--out", tmp_path / "out", "--cluster", given)
            assert done.returncode == 2
            assert done.stderr.startswith(f"fieldwise: --cluster {given}: no Dask scheduler answers there (")
            assert "Start one with `dask scheduler`" in done.stderr
            assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_cluster_without_workers_is_one_line(machines: Machines, tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as empty,
        patch.object(roster, "PATIENCE", 0.3),
        pytest.raises(RunError, match=r"no worker that can run cells for 0 s. Start some with `dask worker ADDRESS`"),
    ):
        compare(CHOSEN, tmp_path / "out", cluster=empty.scheduler_address)


def test_what_was_cancelled_or_ended_early_runs_again(tmp_path: Path) -> None:
    class Ended:
        def __init__(self, error: BaseException) -> None:
            self._error = error

        def result(self, timeout: float) -> None:
            raise self._error

    cluster = client.Cluster(None, "tcp://host:8786")  # type: ignore[arg-type]
    for error in (FuturesCancelledError([]), Unwanted(), TimeoutError()):
        with pytest.raises(client.DiedError):
            cluster.result(Ended(error))  # type: ignore[arg-type]
    with pytest.raises(ModuleNotFoundError):
        cluster.result(Ended(ModuleNotFoundError()))  # type: ignore[arg-type]


def test_jobs_and_a_cluster_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"Got jobs=2 and cluster. Allowed: one of them"):
        compare(CHOSEN, tmp_path / "out", jobs=2, cluster="tcp://127.0.0.1:1")


def test_without_dask_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in [name for name in sys.modules if name.startswith("fieldwise.comparison.cluster")]:
        monkeypatch.delitem(sys.modules, name)
    done = cli("compare", "--out", tmp_path / "out", "--cluster", "tcp://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.endswith("Run: pip install 'fieldwise[cluster]'.\n")
    assert len(done.stderr.splitlines()) == 1


def test_a_worker_with_other_versions_is_named() -> None:
    here = {"python": "3.11.7.final.0", "torch": "2.13.0+cpu", "fieldwise": "0.2.0"}
    assert roster.other_version(here, {**here, "python": "3.11.9.final.0", "torch": "2.13.0+cu130"}) is None
    for change, says in (
        ({"python": "3.12.1.final.0"}, "it has python 3.12, this machine has 3.11."),
        ({"torch": "2.12.0"}, "it has torch 2.12.0, this machine has 2.13.0."),
        ({"fieldwise": None}, "it has no fieldwise, this machine has 0.2.0."),
    ):
        assert roster.other_version(here, {**here, **change}) == f"{says} Install the same version on both."


def test_a_worker_checks_the_folder_the_dataset_and_its_memory(planted: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with exclusive(out):
        work = Work(CHOSEN, out, planted.folder)
        check = Check(work, ("dcnv2",), planted.fingerprint, ".lock", flags=False)
        assert check.problem() is None
        with patch("fieldwise.train.room.available", lambda _: 10):
            assert "to train, 10.0 B of memory are available on cpu" in str(check.problem())
            assert replace(check, models=()).problem() is None
        for other, says in (
            (replace(check, work=replace(work, out=tmp_path / "elsewhere")), "elsewhere' ([Errno 2] No such file"),
            (replace(check, token=".lock-of-another"), "Every machine must see that folder at the same path."),
            (replace(check, fingerprint="x"), f"its '{planted.folder}' is another dataset."),
            (replace(check, work=replace(work, dataset=tmp_path)), "is not a dataset: dataset.json is missing."),
        ):
            assert says in str(other.problem())
    assert not list(tmp_path.rglob(".*"))


def test_two_processes_that_want_one_pretraining_train_it_once(planted: Dataset, tmp_path: Path) -> None:
    class Counts(Watcher):
        begun: tuple[bool, ...] = ()

        def begin(self, title: str, done: bool) -> None:
            Counts.begun += (done,) if title == "pretrain, seed 0" else ()

    work = Work(CHOSEN.fitted(planted), tmp_path / "out", planted.folder)
    with ThreadPoolExecutor(2) as threads:  # each opens the lock's file by itself, as processes do
        both = [threads.submit(work.do, Unit("dcnv2", 0), Counts()) for _ in range(2)]
    assert [each.result() for each in both] == [None, None]
    assert Counts.begun == (False, True)


def test_a_file_that_another_machine_wrote_is_awaited(tmp_path: Path) -> None:
    unit, work = Unit("dcnv2", 0), Work(CHOSEN, tmp_path, tmp_path)
    folder = unit.folder(CHOSEN, tmp_path)
    folder.mkdir(parents=True)
    lookups = iter([[], [], [folder / "record.json"]])
    with patch.object(crew, "_LOOK", 0), patch.object(Path, "iterdir", lambda _: next(lookups)):
        crew.await_file(unit, work, "record.json")
    with suppress(StopIteration):
        pytest.fail(f"looked less often: {next(lookups)}")
