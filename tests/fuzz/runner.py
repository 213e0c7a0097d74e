"""Makes cases by number, runs them in forks, judges and counts them. Seed and number determine a case."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any, Final

from tests.fuzz.flags import MODULES
from tests.fuzz.hostile import EVIL
from tests.fuzz.oracle import MEMORY, SECONDS, Verdict, judge
from tests.fuzz.targets import FACTORY_KINDS, KINDS, OWN, Target

ROOT: Final = Path(__file__).resolve().parents[2]
FLAGS: Final = 6
"""Cases per kind of flags for each case of a file mutation, because flags have more variants."""
_SINGLE: Final = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


@dataclass(frozen=True)
class Result:
    """One case and its outcome."""

    number: int
    target: str
    mutation: str
    file: str
    command: str
    state: str
    wrong: str
    seconds: float
    memory: int


class Server:
    """A process that runs jobs in forks of itself."""

    def __init__(self, installed: Path) -> None:
        path = os.pathsep.join([str(installed), str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, **_SINGLE, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=ROOT,
        )  # fmt: skip

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Runs one job and returns its outcome."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the server ended"
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


class Fuzzer:
    """Runs cases in an empty folder, `jobs` in parallel."""

    def __init__(
        self, folder: Path, seed: int = 0, jobs: int = 1, seconds: float = SECONDS, factory: bool = False
    ) -> None:
        self._folder, self._seed, self._jobs, self._seconds = folder, seed, jobs, seconds
        kinds = FACTORY_KINDS if factory else KINDS
        self._order = [kind for kind in kinds for _ in range(FLAGS if kind[0].words else 1)]
        Random(seed).shuffle(self._order)
        self._base, installed = folder / "base", folder / "installed"
        for made in (self._base, installed):
            made.mkdir(parents=True)
        (installed / "installed_evil.py").write_text(EVIL)
        self._servers: SimpleQueue[Server] = SimpleQueue()
        started = [Server(installed) for _ in range(jobs)]
        wanted = {"build": str(self._base), "model": OWN if factory else None}
        built = started[0].ask(self._job(folder, [], seconds=120) | wanted)
        assert built["code"] == 0, (folder / "stderr").read_text()
        for server in started:
            self._servers.put(server)

    def run(self, numbers: Iterable[int]) -> Iterator[Result]:
        """Runs cases and yields their results in order."""
        with ThreadPoolExecutor(self._jobs) as pool:
            yield from pool.map(self.case, numbers)

    @property
    def turn(self) -> int:
        """The number of cases after which every kind has run."""
        return len(self._order)

    def kind(self, number: int) -> tuple[Target, str]:
        """Returns the target and mutation of a case."""
        return self._order[number % len(self._order)]

    def case(self, number: int, keep: bool = False) -> Result:
        """Runs one case; removes its folder unless `keep`."""
        result = self._once(number, keep)
        if result.wrong.startswith("hang") and self._seconds >= SECONDS:
            return self._once(number, keep)  # the machine may have been busy
        return result

    def _once(self, number: int, keep: bool) -> Result:
        target, kind = self.kind(number)
        draw, folder = Random(f"{self._seed}/{number}"), self._folder / f"case-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        file, same = self._make(folder, target, kind, draw)
        command = target.command(draw)
        server = self._servers.get()
        try:
            found = server.ask(self._job(folder, list(command)))
        finally:
            self._servers.put(server)
        verdict = (
            Verdict("accepted")
            if same and found["code"] == 0
            else judge(folder, found, command, _must(target, kind, command))
        )
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        return Result(
            number, target.name, kind, file, " ".join(command), verdict.state, verdict.wrong,
            round(found["seconds"], 3), found["memory"],
        )  # fmt: skip

    def close(self) -> None:
        """Ends the processes."""
        while not self._servers.empty():
            self._servers.get().close()

    def _job(self, folder: Path, arguments: list[str], seconds: float | None = None) -> dict[str, Any]:
        work = folder / "work" if arguments else folder
        ways = {name: str(folder / name) for name in ("stdout", "stderr")}
        limits = {"seconds": seconds or self._seconds, "memory": 2 * MEMORY}
        return {"arguments": arguments, "folder": str(work), **ways, **limits}

    def _make(self, folder: Path, target: Target, kind: str, draw: Random) -> tuple[str, bool]:
        """Makes the case's folder; returns the mutated file, and whether its content is unchanged."""
        work, outside = folder / "work", folder / "outside"
        outside.mkdir(parents=True)
        (outside / "x").write_text("untouched")
        for need in target.needs:
            source, place = self._base / need, work / need
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
        for name, text in {**MODULES, "evil": EVIL}.items():
            (work / f"{name}.py").write_text(text)
        file = target.mutate(work, kind, draw)
        one, two = work / file, self._base / file
        same = one.is_file() and not one.is_symlink() and one.stat().st_size == two.stat().st_size
        return file, (same and one.read_bytes() == two.read_bytes()) or _same_values(one, two)


def _same_values(one: Path, two: Path) -> bool:
    """Whether two JSON files differ in white space only."""
    if one.suffix != ".json" or one.is_symlink() or not one.is_file() or one.stat().st_size > 2**20:
        return False
    try:
        found: bool = json.loads(one.read_bytes()) == json.loads(two.read_bytes())
    except (ValueError, RecursionError):
        return False
    return found


def _must(target: Target, kind: str, command: Sequence[str]) -> bool:
    """Returns whether exit code 0 is a failure in any case, because changed files were read."""
    return command[0] == "predict" and (target.refused or kind == "unlisted")


def counts(results: Iterable[Result]) -> dict[str, dict[str, dict[str, int]]]:
    """Returns the number of accepted, refused and failed cases per target and mutation."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for one in results:
        entry = found.setdefault(one.target, {}).setdefault(one.mutation, {"accepted": 0, "refused": 0, "failed": 0})
        entry[one.state] += 1
    return {target: dict(sorted(kinds.items())) for target, kinds in sorted(found.items())}


def failures(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Returns the failed cases as plain values."""
    return [asdict(one) for one in results if one.state == "failed"]
