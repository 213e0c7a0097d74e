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


def request(*words: str) -> dict[str, str]:
    """What bash asks at the end of these words."""
    line = {"COMP_WORDS": " ".join(["fieldwise", *words]), "COMP_CWORD": str(len(words))}
    return {"_FIELDWISE_COMPLETE": "complete_bash", **line}


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (("pre",), {"prepare", "pretrain", "predict"}),
        (("run", "--search", "sam-"), {"sam-gs", "sam-sigmoid"}),
        (("prepare", "--source", "mo"), {"movielens-1m"}),
        (("run", "--bad-rows", "s"), {"stop", "skip"}),
        (("run", "--engine", ""), {"auto", "arrow", "duckdb", "spark"}),
        (("run", "--model", "d"), {"dcnv2", "deepfm"}),
        (("run", "--preset", ""), {"paper"}),
        (("run", "--device", ""), {"auto", "cpu", "cuda"}),
        (("compare", "--method", "uni"), {"uniform"}),
    ],
)
def test_the_shell_completes_commands_and_names(words: tuple[str, ...], offers: set[str]) -> None:
    result = CliRunner().invoke(app, [], env=request(*words), prog_name="fieldwise")
    assert offers <= set(result.output.split())


def test_completing_imports_no_torch() -> None:
    code = (
        "import sys\nfrom fieldwise.cli import main\nsys.argv = ['fieldwise']\n"
        "try: main()\nfinally: assert not {'torch', 'pyarrow'} & set(sys.modules)"
    )
    env = {**os.environ, **request("run", "--search", "sam-")}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["sam-gs", "sam-sigmoid"]


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
