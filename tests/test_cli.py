"""The command line, with correct and incorrect input."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fieldwise.cli import main
from fieldwise.cli.options import aligned
from fieldwise.core.settings import read_toml
from fieldwise.pipeline.settings import RunSettings
from tests.command_line import FAST, cli


def test_the_command_line_starts_without_torch_and_lists_everything() -> None:
    code = (
        "import sys; sys.argv = ['fieldwise', '{}']\n"
        "import fieldwise.cli\n"
        "try: fieldwise.cli.main()\n"
        "except SystemExit as stop: assert stop.code in (0, None), stop.code\n"
        "assert 'torch' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    for verb in ("--help", "list"):
        result = subprocess.run([sys.executable, "-c", code.format(verb)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
    for name in ("planted", "movielens-1m", "dcnv2", "autoint", "sam-gs", "uniform"):
        assert name in result.stdout


def test_rows_are_prepared_without_the_settings_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = ["prepare", "--source", "planted", "--set", "data.rows=2000"]
    monkeypatch.setitem(sys.modules, "fieldwise.pipeline.settings", None)  # importing torch takes a second
    assert cli(*planted, "--out", tmp_path / "a").returncode == 0
    said = cli(*planted, "--out", tmp_path / "b", "--set", "split.x=1", "--set", "engine.y=2").stderr
    assert "[split] unknown 'x'" in said
    assert "[engine] unknown 'y'" in said
    monkeypatch.undo()
    assert "[model] unknown 'x'" in cli(*planted, "--out", tmp_path / "b", "--set", "model.x=1").stderr


def test_a_run_from_flags_prints_its_tables_and_goes_on(tmp_path: Path) -> None:
    result = cli("run", *FAST, "--out", tmp_path / "r", "--budget", "8", "--search", "sam", "--model", "fm")
    assert result.returncode == 0, result.stderr
    for word in ("field", "cardinality", "width before", "width after", "parameters saved", "test AUC", "log loss"):
        assert word in result.stdout
    assert "report-planted.md" in result.stdout
    again = cli("run", "--out", tmp_path / "r")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("already complete") == 5
    more = cli("run", "--out", tmp_path / "r", "--budget", "6", "--seed", "0")
    assert more.returncode == 0, more.stderr
    assert "search 8 columns" not in more.stdout, "only the budgets of the command run"
    assert read_toml(tmp_path / "r" / "settings.toml")["run"]["budgets"] == ["8 columns", "6 columns"]
    assert cli("report", tmp_path / "r").stdout.startswith("# sam on planted, fm")


def test_a_flag_that_changes_the_method_drops_the_old_method_s_settings(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[search]\nname = "ham"\npatience = 1\n[run]\nbudgets = ["8"]\n')
    result = cli("run", file, *FAST, "--out", tmp_path / "r", "--search", "random", "--set", "search.x=1")
    assert "patience" not in result.stderr
    assert "[search] unknown 'x'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "no.toml"], "Cannot read settings 'no.toml'"),
        (["run", "--source", "movielens-1m", "--raw", "no.zip"], "'no.zip' does not exist"),
        (["run", "--source", "movielens-1m", "--raw", "OTHER"], "holds no ratings.dat"),
        (["run", "--source", "movielens-1m"], "[data] raw"),
        (["run", "rows.csv"], "'rows.csv' is no settings file. Look at a table with `fieldwise check rows.csv --label"),
        (["run", "--raw", "no.csv"], "[data] label is missing. Set it with --set data.label=VALUE."),
        (["run", "--raw", "no.csv", "--label", "a"], "'no.csv' does not exist"),
        (["run", "--budget", "0", *FAST], "above 0"),
        (["run", "--budget", "999", *FAST], "above the full size of 24 columns"),
        (["run", "--budget", "lots"], "is not understood"),
        (["run", "--search", "hamm"], "[search] unknown 'hamm'. Did you mean 'ham'?"),
        (["run", "--set", "search.epochs=2"], "It has no name, so it is 'elimination'; [search] name chooses another."),
        (
            ["run", "--set", "data.tiers=2"],
            "[data] tiers = 2: allowed: 0 (one field), a fraction below 1, or two ascending ones, such as "
            "[0.1, 0.35].\n",
        ),
        (["run", "--model", "dcn"], "[model] unknown 'dcn'. Did you mean 'dcnv2'?"),
        (["run", "--source", "plantd"], "Did you mean 'planted'?"),
        (["run", "--set", "model.hiden=[8]"], "[model] unknown 'hiden'. Did you mean 'hidden'?"),
        (["run", "--set", "modle.hidden=[8]"], "Did you mean 'model'?"),
        (
            ["run", "--set", "search.name=ham", "--set", "search.gate.etta=1"],
            "[search.gate] unknown 'etta'. Did you mean 'eta'?",
        ),
        (["run", "--set", "pretrain.epochs=0"], "greater than or equal to 1"),
        (["run", "--set", "nonsense"], "--set table.key=value"),
        (["run", "--device", "tpu"], "[run] device = 'tpu'"),
        (["run", "--dataset", "no-such"], "is not a dataset"),
        (["run", "--set", "pretrain.learning_rate=1e30", *FAST], "became nan at step"),
        (["search", *FAST[-2:]], "is not complete. Run `fieldwise pretrain`"),
        (["report", "no-such"], "is not a run folder"),
        (["describe", "no-such"], "is not a dataset"),
        (["prepare", "--source", "table", "--raw", "OTHER"], "[data] label"),
        (["prepare", "--engine", "dask"], "[engine] unknown 'dask'"),
        (["prepare", "--source", "movielens-1m", "--raw", "OTHER"], "holds no ratings.dat"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    filled = [str(tmp_path / "other.zip") if word == "OTHER" else word for word in arguments]
    out: list[str | Path] = [] if arguments[0] in ("report", "describe") else ["--out", tmp_path / "out"]
    result = cli(*filled, *out)
    assert result.returncode == 2, result.stderr + result.stdout
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("fieldwise: ")
    assert len(result.stderr.strip().splitlines()) == 1
    leftovers = [p for p in tmp_path.rglob("*") if "partial" in p.name]
    assert leftovers == []


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = cli("run", "--out", tmp_path / "file" / "run", *FAST)
    assert result.returncode == 2
    assert "could not be read or written" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_table_runs_from_flags_and_is_described(tmp_path: Path) -> None:
    rows = [f"{(i * 7) % 5 % 2},{i % 13},u{i % 31},{i * 0.37:.2f}" for i in range(4_000)]
    raw = tmp_path / "clicks.csv"
    raw.write_text("\n".join(["click,item,user,price", *rows, "1,2", ""]))
    flags = ["--raw", str(raw), "--label", "click", "--bad-rows", "skip", "--budget", "25%"]
    result = cli("run", "--out", tmp_path / "r", *flags, *FAST[2:])
    assert result.returncode == 0, result.stderr
    assert "1 bad row was skipped, 0.02% of 4,001." in result.stdout.splitlines()
    shown = cli("describe", tmp_path / "r" / "dataset")
    assert shown.returncode == 0, shown.stderr
    for words in ("table, label 'click'", "quantile, 64 bins", "category", "1 bad row was skipped", "unknown %"):
        assert words in shown.stdout
    wrong = cli("describe", tmp_path / "r")
    assert wrong.stderr.strip().endswith(f"Name '{tmp_path / 'r' / 'dataset'}'.")


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    result = cli("run", "--out", tmp_path / "r", "--set", "model.hiden=1", "--search", "hm", "--set", "run.seeds=x")
    assert result.returncode == 2
    for says in ("'hiden'", "'hm'", "seeds"):
        assert says in result.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--seed", "0", "--seed", "1", "--seed", "0"), "[run] seeds = [0, 1, 0]: '0' is named twice"),
        (("--budget", "25%", "--budget", "25% parameters"), "'25% parameters' is named twice"),
    ],
)
def test_the_same_seed_or_budget_twice_is_refused(tmp_path: Path, flags: tuple[str, ...], says: str) -> None:
    result = cli("run", "--out", tmp_path / "r", *flags)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_budgets_that_differ_by_their_alignment_alone_are_one_when_all_are_aligned() -> None:
    settings = RunSettings.parse({"run": {"budgets": ["25%", "25% align 4", "10%"]}})
    assert [str(budget) for budget in aligned(settings, 4).run.budgets] == [
        "25% parameters align 4",
        "10% parameters align 4",
    ]


def test_a_folder_with_other_settings_is_refused_with_the_keys(tmp_path: Path) -> None:
    assert cli("run", "--out", tmp_path / "r", "--budget", "8", *FAST).returncode == 0
    result = cli("run", "--out", tmp_path / "r", "--set", "search.gate.eta=0.5")
    assert result.returncode == 2
    assert "search.gate.eta (0.001 -> 0.5)" in result.stderr


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({}, ("PASSIVE", "1000")),
        ({"GOMP_SPINCOUNT": "7"}, ("PASSIVE", "7")),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ("ACTIVE", None)),
    ],
)
def test_threads_spin_for_a_moment_unless_the_user_says_how_they_wait(
    given: dict[str, str], waits: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["fieldwise", "list", "models"])
    with pytest.raises(SystemExit):
        main()
    assert (os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT")) == waits


def test_the_package_runs_as_a_module() -> None:
    found = subprocess.run([sys.executable, "-m", "fieldwise", "list"], capture_output=True, text=True, check=True)
    assert "elimination" in found.stdout
    bad = subprocess.run(
        [sys.executable, "-m", "fieldwise", "run", "no.toml"], capture_output=True, text=True, check=False
    )
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr
