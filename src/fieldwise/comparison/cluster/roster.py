"""Which workers of a cluster may run units: each is checked once, before its first unit."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from distributed import Future

from fieldwise.comparison.cells import Unit, Work, one_line
from fieldwise.comparison.cluster.client import Cluster, DiedError
from fieldwise.comparison.cluster.worker import Check
from fieldwise.core.errors import RunError
from fieldwise.core.hints import speaks_flags
from fieldwise.data.store import Dataset

PATIENCE: Final = 60.0
"""Seconds to wait for a worker where there is none."""
_CHECK: Final = 300.0
"""Seconds to wait for the first checks, which import torch, perhaps from a slow disk."""
_PACKAGES: Final = ("fieldwise", "torch")
_MARK: Final = ".cluster-"


class Roster:
    """The workers that passed the check. One that joins later and fails it is named once, and not used."""

    def __init__(self, cluster: Cluster, work: Work, units: Sequence[Unit], say: Callable[[str], None]) -> None:
        self._cluster, self._say = cluster, say
        self._checks: dict[str, Future[str | None]] = {}
        self._known: dict[str, str | None] = {}
        """One line for each worker that cannot run units, None for each that can."""
        self._alone_since = time.monotonic()
        models = tuple(dict.fromkeys(unit.model for unit in units if unit.method is None))
        for old in work.out.glob(f"{_MARK}*"):  # of a command that was killed
            old.unlink(missing_ok=True)
        self._token = work.out / f"{_MARK}{uuid4().hex}"  # a new name, which no machine's cache of the folder has
        self._token.write_text("", encoding="ascii")
        self._check = Check(work, models, Dataset.open(work.dataset).fingerprint, self._token.name, speaks_flags())

    def close(self) -> None:
        """Removes the file that workers look for."""
        self._token.unlink(missing_ok=True)

    def check_all(self) -> None:
        """Waits for a worker, and until every worker is checked; raises `RunError` if one cannot run units."""
        end = time.monotonic() + _CHECK
        while not self.usable() or self._checks:
            bad = [f"Worker {name} cannot run cells: {why}" for name, why in self._known.items() if why]
            if not bad and time.monotonic() > end:
                bad = [f"Worker {name} did not answer for {_CHECK:.0f} s. Restart it." for name in self._checks]
            if bad:
                raise RunError(bad[0])
            self._cluster.wait(list(self._checks.values()), 0.2)

    def usable(self) -> list[str]:
        """The workers that may run units now; checks new ones. Raises `RunError` if there has been none for a while."""
        there = self._cluster.workers()
        self._checks = {name: check for name, check in self._checks.items() if name in there}
        new = there - self._checks.keys() - self._known.keys()
        if new:
            self._check_new(new)
        for name in [name for name, check in self._checks.items() if check.done()]:
            self._note(name, self._answer(self._checks.pop(name)))
        found = sorted(name for name in there & self._known.keys() if self._known[name] is None)
        if found:
            self._alone_since = time.monotonic()
        elif not self._checks and time.monotonic() - self._alone_since > PATIENCE:
            raise RunError(
                f"The cluster has had no worker that can run cells for {PATIENCE:.0f} s. Start some with "
                "`dask worker ADDRESS`, and run the same command again: complete cells are skipped."
            )
        return found

    def _check_new(self, new: set[str]) -> None:
        """Compares the versions of new workers, and starts the checks that run there."""
        here, remote = self._cluster.versions(_PACKAGES)
        for name in sorted(new & remote.keys()):
            other = other_version(here, remote[name])
            if other is None:
                self._checks[name] = self._cluster.submit(name, Check.problem, self._check)
            else:
                self._note(name, other)

    def _answer(self, check: Future[str | None]) -> str | None:
        try:
            found: str | None = self._cluster.result(check)
        except DiedError:
            return "it died while it was checked."
        except Exception as error:  # such as a user's module that the worker cannot import
            return f"its check failed ({one_line(error)}). Modules that settings name must be importable there."
        return found

    def _note(self, name: str, why: str | None) -> None:
        self._known[name] = why
        if why:
            self._say(f"Worker {name} is not used: {why}")


def other_version(here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """One line if a worker's versions differ from those here; torch's builds of one version (cpu, cu130) may differ."""
    for name in ("python", *_PACKAGES):
        mine, other = (_short(name, str(each.get(name))) for each in (here, there))
        if mine != other:
            got = f"has no {name}" if there.get(name) is None else f"has {name} {other}"
            return f"it {got}, this machine has {mine}. Install the same version on both."
    return None


def _short(name: str, version: str) -> str:
    return ".".join(version.split(".")[:2]) if name == "python" else version.partition("+")[0]
