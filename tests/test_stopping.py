"""Ctrl-C and SIGTERM: one line, the signal's exit code, no partial files, and the same command resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fieldwise.cli.stop import LINES
from fieldwise.core.settings import read_toml
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from tests.command_line import FAST, cli

RESUMES = "fieldwise: stopped. Run the same command again to resume from the last complete epoch.\n"
MAIN = "from fieldwise.cli import main; main()"
RUN = ["--budget", "8", "--model", "fm", *FAST, "--set", "data.rows=2000", "--set", "retrain.distil=0.0"]


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )


def stopped(number: int, after: str, *arguments: str | Path) -> tuple[int, str]:
    """Sends a signal to a command and its children once it prints `after`; returns its exit code and stderr."""
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if after in line:
                os.killpg(process.pid, number)
                break
        process.stdout.read()
        said = process.stderr.read()
    for _ in range(100):  # the processes side by side end with it
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return process.returncode, said
        time.sleep(0.1)
    raise AssertionError("a process is still running")


def hidden(folder: Path) -> list[Path]:
    return list(folder.rglob(".*"))


def figures(out: Path) -> Any:
    (record,) = json.loads((out / "record.json").read_text())
    return {k: v for k, v in record.items() if k not in ("seconds", "peak_memory")}


@pytest.mark.parametrize(
    ("module", "number", "code"),
    [("typer", signal.SIGINT, 130), ("torch", signal.SIGINT, 130), ("torch", signal.SIGTERM, 143)],
)
def test_a_signal_while_modules_are_imported_is_one_line(module: str, number: int, code: int, tmp_path: Path) -> None:
    hook = (
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == '{module}': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    result = python(hook + MAIN, "run", "--out", tmp_path / "r")
    assert (result.returncode, result.stdout, result.stderr) == (code, "", RESUMES)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_stopped_twice_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    out = tmp_path / "r"
    for number, code, after in (
        (signal.SIGINT, 130, "pretrain, seed 0, epoch 1"),
        (signal.SIGTERM, 143, "search 8 columns, seed 0, epoch 0"),
    ):
        assert stopped(number, after, "run", "--out", out, *RUN) == (code, RESUMES)
        assert hidden(out) == []
    again = cli("run", "--out", out, *RUN)
    assert again.returncode == 0, again.stderr
    assert "pretrain, seed 0: already complete" in again.stdout
    pipeline.run(RunSettings.parse(read_toml(out / "settings.toml")), tmp_path / "whole")
    assert figures(out) == figures(tmp_path / "whole")


@pytest.mark.parametrize(
    ("jobs", "number", "code"),
    [
        ("2", signal.SIGINT, 130),
        pytest.param("1", signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param("1", signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("2", signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_comparison_that_is_stopped_ends_with_all_its_processes(
    jobs: str, number: int, code: int, tmp_path: Path
) -> None:
    file = tmp_path / "compare.toml"
    file.write_text(
        '[run]\nbudgets = ["8 columns"]\ndevice = "cpu"\nseeds = [0, 1, 2]\n[data]\nname = "planted"\nrows = 4000\n'
        '[compare]\nmethods = ["ham", "uniform"]\n[pretrain]\nepochs = 8\npatience = 8\n'
    )
    out = tmp_path / "out"
    assert stopped(number, "1 of 9", "compare", file, "--out", out, "--jobs", jobs) == (code, RESUMES)
    assert [path for path in hidden(out) if path.suffix != ".partial"] == []  # those go when the folder is resumed
    assert list(out.glob("dcnv2/seed-*/pretrain/record.json"))


def test_a_preparation_that_is_stopped_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    hook = (
        "import os\nfrom fieldwise.data.shards import Writer\n"
        f"Writer.add = lambda *_: os.kill(os.getpid(), {int(signal.SIGTERM)})\n"
    )
    result = python(hook + MAIN, "prepare", "--out", tmp_path / "data", "--set", "data.rows=2000")
    assert result.returncode == 143
    assert result.stderr == f"fieldwise: stopped. {LINES['prepare']}\n"
    assert list(tmp_path.iterdir()) == []


LISTEN = (
    "import os, signal, sys, time\nfrom fieldwise.cli.stop import Stop, Stopped\nstop = Stop('run')\nstop.listen()\n"
)
KILL = "os.kill(os.getpid(), signal.SIGINT)"


def test_a_second_ctrl_c_ends_at_once_and_says_the_line_once() -> None:
    clearing = f"try:\n    {KILL}\nfinally:\n    {KILL}\n    print('cleared')\n"
    result = python(LISTEN + clearing)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", RESUMES)


def test_a_signal_that_python_loses_is_heard_again() -> None:
    lost = (
        f"class Lost:\n    def __del__(self): {KILL}\nLost()\n"
        "try:\n    time.sleep(20)\nexcept Stopped:\n    stop.end()\n"
    )
    result = python(LISTEN + lost)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", RESUMES)


def test_an_import_that_leaves_a_file_unfinished_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text(f"import os, signal, time\n{KILL}\ntime.sleep(0.2)\nprint('imported')\n")
    code = (
        LISTEN + "from fieldwise.core.files import replacing\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "try:\n"
        f"    with replacing(Path({str(tmp_path)!r}) / 'file'):\n        import slow_module\n        time.sleep(20)\n"
        "except Stopped:\n    stop.end()\n"
    )
    result = python(code)
    assert (result.returncode, result.stdout, result.stderr) == (130, "imported\n", RESUMES)
    assert hidden(tmp_path) == []


def test_a_signal_that_is_ignored_stays_so() -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    result = python("import signal\n" + ignored + LISTEN + KILL + "\nprint('works on')")
    assert (result.returncode, result.stdout, result.stderr) == (0, "works on\n", "")
