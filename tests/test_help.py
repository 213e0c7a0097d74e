"""What the command line says about itself: help in full, and completion by the shell."""

import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fieldwise.cli.app import COMMANDS, app

FULL = re.compile(r"\\(?=\[)")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_shows_every_word_of_its_options(name: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    result = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})
    assert result.exit_code == 0
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())
    for parameter in command.params:
        assert " ".join(FULL.sub("", parameter.help or "").split()) in shown, parameter.name


def complete(*words: str) -> list[str]:
    """What bash offers at the end of these words, in a process of its own that must not import torch."""
    code = (
        "import sys\nfrom fieldwise.cli import main\nsys.argv = ['fieldwise']\n"
        "try: main()\nfinally: assert not {'torch', 'pyarrow'} & set(sys.modules)"
    )
    line = {"COMP_WORDS": " ".join(["fieldwise", *words]), "COMP_CWORD": str(len(words))}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "_FIELDWISE_COMPLETE": "complete_bash", **line},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (("pre",), ["prepare", "pretrain", "predict"]),
        (("run", "--search", "sam-"), ["sam-gs", "sam-sigmoid"]),
        (("prepare", "--source", "mo"), ["movielens-1m"]),
        (("run", "--bad-rows", "s"), ["stop", "skip"]),
    ],
)
def test_the_shell_completes_commands_and_names(words: tuple[str, ...], offers: list[str]) -> None:
    assert complete(*words) == offers


@pytest.mark.parametrize(
    ("flag", "offers"),
    [
        ("--engine", ["auto", "arrow", "duckdb", "spark"]),
        ("--model", ["autoint", "dcnv2", "deepfm", "fm"]),
        ("--preset", ["paper"]),
        ("--device", ["auto", "cpu", "cuda"]),
    ],
)
def test_every_flag_that_takes_a_name_completes_it(flag: str, offers: list[str]) -> None:
    env = {"_FIELDWISE_COMPLETE": "complete_bash", "COMP_WORDS": f"fieldwise run {flag} ", "COMP_CWORD": "3"}
    result = CliRunner().invoke(app, [], env=env, prog_name="fieldwise")
    assert set(offers) <= set(result.output.split())


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
