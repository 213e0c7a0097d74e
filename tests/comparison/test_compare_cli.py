"""`fieldwise compare`, with correct and incorrect input."""

from pathlib import Path

import pytest

from tests.command_line import cli

FAST = """
[run]
budgets = ["8 columns"]
device = "cpu"
[data]
name = "planted"
rows = 4000
[compare]
methods = ["mde", "random", "uniform"]
[model]
width = 4
[pretrain]
epochs = 1
[retrain]
epochs = 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "compare.toml"
    path.write_text(FAST)
    return path


def test_it_prints_a_table_says_what_is_left_and_goes_on_from_its_folder(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    nothing = cli("compare", file, "--out", out, "--minutes", "0")
    assert nothing.returncode == 0, nothing.stderr
    assert "3 cells: 3 open. Baseline: uniform. 3 cells are left: the same command resumes them." in nothing.stdout
    whole = cli("compare", "--out", out, "--seed", "0", "--seed", "1")
    assert whole.returncode == 0, whole.stderr
    assert "6 cells: 6 complete." in whole.stdout
    assert "left" not in whole.stdout.splitlines()[-1]
    for word in (
        "test AUC",
        "bytes",
        "full model, int8",
        "search x",
        "difference",
        "Holm",
        "full model",
        "comparison.md",
        "report-planted.html",
    ):
        assert word in whole.stdout
    assert max(len(line) for line in whole.stdout.splitlines() if line.startswith(("mde", "uniform"))) <= 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "hamm", "--method", "uniform"], "[compare.methods] unknown 'hamm'. Did you mean 'ham'?"),
        (["--method", "mde"], "[compare.baseline] unknown 'uniform'"),
        (["--set", "compare.basline=ham"], "Did you mean 'baseline'?"),
        (["--set", "methods.mde.temprature=1"], "[methods.mde] unknown 'temprature'. Did you mean 'temperature'?"),
        (["--budget", "999"], "above the full size of 24 columns"),
        (["--device", "tpu"], "[run] device = 'tpu'"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    arguments: list[str], says: str, file: Path, tmp_path: Path
) -> None:
    result = cli("compare", file, "--out", tmp_path / "out", *arguments)
    assert result.returncode == 2, result.stderr + result.stdout
    assert says in result.stderr
    assert result.stderr.startswith("fieldwise: ")
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_folder_with_other_settings_is_refused_with_the_keys(file: Path, tmp_path: Path) -> None:
    assert cli("compare", file, "--out", tmp_path / "out").returncode == 0
    result = cli("compare", "--out", tmp_path / "out", "--set", "methods.mde.temperature=0.5")
    assert result.returncode == 2
    assert "search.temperature (0.3 -> 0.5)" in result.stderr
