"""Folder locks: one process at a time, and which one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from fieldwise.core.errors import RunError
from fieldwise.core.lock import Holder, exclusive, holder

HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom fieldwise.core.lock import exclusive\n"
    "with exclusive(Path(sys.argv[1]), outside=sys.argv[2] == 'beside'):\n    print('held', flush=True)\n"
    "    time.sleep(60)\n"
)


@contextmanager
def held(folder: Path, where: str = "inside") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a folder."""
    command = [sys.executable, "-c", HOLD, str(folder), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_another_process_is_named_and_its_death_frees_the_folder(where: str, tmp_path: Path) -> None:
    folder, beside = tmp_path / "new" / "out[b]", where == "beside"
    with held(folder, where) as process:
        with pytest.raises(RunError) as refused, exclusive(folder, outside=beside):
            raise AssertionError("two work there")
        assert f"'{folder}' is in use by process {process.pid} since 20" in str(refused.value)
        assert f"(-c {str(folder)!r} {where})" in str(refused.value)
        assert "\n" not in str(refused.value)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with exclusive(folder, outside=beside):
        assert folder.exists() != beside
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
    assert list((tmp_path / "new").rglob("*")) == ([] if beside else [folder])


def test_two_threads_are_two_as_well_and_nothing_is_left(tmp_path: Path) -> None:
    refused: list[str] = []

    def other() -> None:
        try:
            with exclusive(tmp_path / "a" / "b"):
                pass
        except RunError as error:
            refused.append(str(error))

    with exclusive(tmp_path / "a" / "b"):
        thread = Thread(target=other)
        thread.start()
        thread.join()
        assert holder(tmp_path / "a" / "b") is not None
    assert f"process {os.getpid()} " in refused[0]
    assert list(tmp_path.iterdir()) == []
    other()
    assert len(refused) == 1


def test_who_holds_a_folder_can_be_asked(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with held(tmp_path) as process:
        found = holder(tmp_path)
        assert isinstance(found, Holder)
        assert found.process == process.pid
    assert (tmp_path / ".lock").exists()  # killed
    assert holder(tmp_path) is None
