"""Memory of the process, on systems that report it differently; no module needs Unix."""

import ast
import sys
from pathlib import Path

import pytest

from fieldwise.core import resident

SOURCE = Path(__file__).parents[2] / "src"
UNIX_MODULES = {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
UNIX_CALLS = {f"os.{name}" for name in ("fork", "getuid", "geteuid", "killpg", "mkfifo", "sched_getaffinity", "uname")}
UNIX_CALLS |= {"signal.SIGKILL", "signal.SIGHUP", "signal.SIGUSR1", "signal.alarm"}


def test_macos_counts_bytes_and_others_kibibytes() -> None:
    assert resident.maxrss_bytes(300_000_000, "darwin") == 300_000_000
    assert resident.maxrss_bytes(300_000, "linux") == 307_200_000
    assert resident.maxrss_bytes(300_000, "freebsd14") == 307_200_000


@pytest.mark.skipif(sys.platform != "linux", reason="compares two sources that only Linux has")
def test_without_a_status_file_the_peak_is_the_process_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    by_status = resident.peak_resident()
    monkeypatch.setattr(resident, "_STATUS", tmp_path / "none")
    by_process = resident.peak_resident()
    assert by_process == resident.resident_memory()
    assert 2**24 < by_process < 2**36
    assert by_process >= by_status - 2**21, "both count the same pages; the kernel adds them up in steps"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert resident.peak_resident() == pytest.approx(by_process / 1024, rel=0.1)


def test_without_the_module_resource_memory_is_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(resident, "_STATUS", tmp_path / "none")
    monkeypatch.setattr(resident, "_CLEAR", tmp_path / "absent" / "clear")
    resident.forget_peak_resident()
    assert resident.peak_resident() == resident.resident_memory() == 0


def test_no_module_needs_what_only_unix_has() -> None:
    found = [f"{path.name}: {name}" for path in sorted(SOURCE.rglob("*.py")) for name in sorted(_unix_only(path))]
    assert found == []


def _unix_only(path: Path) -> set[str]:
    """Modules imported outside a `try`, and attributes used, that Windows does not have."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {inner for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in guarded:
            names |= {alias.name for alias in node.names} & UNIX_MODULES
        elif isinstance(node, ast.ImportFrom) and node not in guarded:
            names |= {node.module or ""} & UNIX_MODULES
        elif isinstance(node, ast.Attribute):
            names |= {ast.unparse(node)} & UNIX_CALLS
    return names
