"""What README and settings files show is run; what the package promises holds."""

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fieldwise
from fieldwise.cli.app import COMMANDS
from fieldwise.comparison.results import compare
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.budget import Budget
from fieldwise.core.registry import resolve
from fieldwise.core.settings import override, read_toml
from fieldwise.data import SOURCES
from fieldwise.gates import GATES
from fieldwise.models import MODELS
from fieldwise.pipeline.settings import RunSettings
from fieldwise.pipeline.stages import run
from fieldwise.searches import SEARCHES
from tests.command_line import typed
from tests.data import small_files

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXPORT = 'fw.export(small.model, "compact", data.encoder, found.mask)'
SMALL = ["pretrain.epochs=1", "retrain.epochs=1", "model.width=8", "run.device=cpu"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path, movielens_zip: Path) -> Path:
    """A folder as a reader of README has it: the settings, and the archive beside them."""
    shutil.copytree(ROOT / "settings", tmp_path / "settings")
    shutil.copy(movielens_zip, tmp_path / "ml-1m.zip")
    return tmp_path


def shell(command: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_readme_python_is_the_example_of_the_first_page(tmp_path: Path) -> None:
    """With more rows, and one line less; tests/test_site.py runs that one."""
    (code,) = blocks("python")
    assert len(ast.parse(code).body) == 1 + 5, "the import, and five lines"
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), flags=re.DOTALL)
    assert shown.splitlines()[:-1] == code.replace("Planted()", "Planted(rows=3_000)").splitlines()
    assert f"`{EXPORT}`" in README


@pytest.mark.slow
def test_readme_python_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    (tmp_path / "example.py").write_text(f"{code}\n{EXPORT}\n", encoding="utf-8")
    typed("python example.py", tmp_path)
    assert (tmp_path / "compact" / "model.json").exists()


def test_readme_settings_and_commands_run(tmp_path: Path) -> None:
    (settings,) = blocks("toml")
    (commands,) = blocks("sh")
    (tmp_path / "clicks.toml").write_text(settings, encoding="utf-8")
    rows = [f"{i % 40},{i * 7 % 30},{i % 3 * 2.5},{int(i % 40 < i * 7 % 30)}" for i in range(600)]
    (tmp_path / "clicks.csv").write_text("user_id,item_id,price,click\n" + "\n".join(rows) + "\n", encoding="utf-8")
    for command in commands.strip().splitlines():
        typed(command, tmp_path)
    assert {path.name for path in (tmp_path / "runs" / "clicks").iterdir()} >= {
        "report-clicks.html",
        "seed-0",
        "seed-1",
    }
    assert (tmp_path / "predicted.parquet").exists()


def test_readme_installs_as_install_md_does() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    shown = [line for block in blocks("") for line in block.splitlines() if "pip" in line or "venv" in line]
    assert len(shown) == 4
    assert [line for line in shown if f"\n{line}\n" not in page] == []


def test_the_commands_of_the_page_about_runs_run(workplace: Path) -> None:
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    small = [word for value in SMALL for word in ("--set", value)]
    for command in commands.strip().splitlines():
        planted = ["--set", "data.rows=3000"] if "quickstart" in command else []
        typed(command, workplace, *(small + planted if command.startswith("fieldwise run") else []))


def test_the_page_about_runs_names_budgets_that_parse() -> None:
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    section = page.split("## Budgets")[1].split("\n## ")[0]
    texts = [
        text
        for cell in re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
        for text in re.findall(r"`(.+?)`", cell)
    ]
    assert len(texts) == 12
    assert {Budget.parse(text).unit for text in texts} == {"columns", "parameters", "bytes"}


FILES = {path: read_toml(path) for path in sorted((ROOT / "settings").rglob("*.toml"))}
PAPER = [path for path in FILES if path.parent.name == "paper"]


@pytest.fixture(scope="session")
def raw_files(movielens_zip: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each source, what makes it small: its own rows, or a small file of its shape."""
    folder = tmp_path_factory.mktemp("raw")
    return {
        "planted": "data.rows=3000",
        "movielens-1m": f"data.raw={movielens_zip}",
        "criteo": f"data.raw={small_files.criteo(folder / 'criteo.txt')}",
        "avazu": f"data.raw={small_files.avazu(folder / 'avazu.csv')}",
    }


@pytest.mark.parametrize("file", [p for p, values in FILES.items() if "compare" not in values], ids=lambda p: p.stem)
def test_every_settings_file_runs(file: Path, raw_files: dict[str, str], tmp_path: Path) -> None:
    values = read_toml(file)
    more = [raw_files[values["data"]["name"]], "run.budgets=['9']", "run.seeds=[0]"]
    chosen = RunSettings.parse(override(values, [*SMALL, *more]))
    records = run(chosen, tmp_path / "out")
    assert [record.compact_size.columns for record in records] == [9]


COMPARISONS = [path for path, values in FILES.items() if "compare" in values]
UNTRAINED = ("elimination", "magnitude", "magnitude-rms", "mde", "random", "sseds", "uniform")


@pytest.mark.parametrize("file", COMPARISONS, ids=lambda p: p.stem)
def test_every_comparison_file_runs_on_its_last_model(file: Path, raw_files: dict[str, str], tmp_path: Path) -> None:
    values = FILES[file]
    methods, budget = values["compare"]["methods"], values["run"]["budgets"][0].replace("27k", "2k")
    few = [f"methods.{name}.epochs=1" for name in methods if name not in UNTRAINED]
    few += [f"methods.{name}.evolution.generations=1" for name in methods if name == "optembed"]
    few += [f"methods.{name}.stages=['60', '40']" for name in methods if name == "ham-three"]
    small = ["pretrain.epochs=1", "retrain.epochs=1", "run.device=cpu", "run.seeds=[0]", f"run.budgets=['{budget}']"]
    small += [f"compare.models=['{values['compare']['models'][-1]}']", raw_files[values["data"]["name"]]]
    found = compare(CompareSettings.parse(override(values, [*small, *few])), tmp_path / "out")
    assert found.complete, [cell.error for cell in found.cells]
    assert [cell.method for cell in found.cells] == methods
    if budget.endswith(" columns"):
        assert {f"{cell.record.compact_size.columns} columns" for cell in found.cells if cell.record} == {budget}


def test_every_search_is_in_a_comparison_file() -> None:
    chosen = {name for file in COMPARISONS for name in FILES[file]["compare"]["methods"]}
    assert set(SEARCHES) - chosen <= {"race"}, "a race is made of others: its page takes the best of their cells"


@pytest.mark.parametrize("file", PAPER, ids=lambda p: p.stem)
def test_every_settings_file_of_the_paper_begins_with_its_command(file: Path) -> None:
    words = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").split()
    assert words[0] == "fieldwise"
    assert words[2] == f"settings/paper/{file.name}"
    assert words[words.index("--out") + 1] == f"runs/paper/{file.stem}"
    options = {name for p in inspect.signature(COMMANDS[words[1]]).parameters for name in [f"--{p}"]}
    assert {word for word in words if word.startswith("--")} <= options


def test_the_public_door_opens_and_is_documented() -> None:
    assert fieldwise.__all__ == sorted(set(fieldwise.__all__))
    for name in fieldwise.__all__:
        value = getattr(fieldwise, name)
        assert inspect.getdoc(value), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fieldwise.nothing
    assert fieldwise.models.DCNv2().cross_layers == 3
    with pytest.raises(AttributeError, match="no attribute 'DCNv3'"):
        _ = fieldwise.models.DCNv3


@pytest.mark.parametrize("table", [SOURCES, MODELS, GATES, SEARCHES])
def test_every_table_entry_is_a_documented_settings_class(table: dict[str, str]) -> None:
    for name in table:
        cls: Any = resolve("table", table, name)
        assert cls.__doc__
        for key, field in cls.model_fields.items():
            assert field.description, f"{name}.{key} has no docstring"


def test_no_test_file_is_imported_by_another() -> None:
    """What several need is in conftest.py or a module of helpers."""
    pattern = re.compile(r"^\s*(?:from|import) tests[\w.]*\.test_", flags=re.MULTILINE)
    assert [path for path in sorted((ROOT / "tests").rglob("*.py")) if pattern.search(path.read_text("utf-8"))] == []


def modules() -> list[Path]:
    return sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.stem)
def test_no_module_reads_pickles_evaluates_text_or_grows_too_long(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    assert not called & {"eval", "exec", "torch.load", "torch.save", "pickle.load", "__import__"}
    assert not imported & {"pickle", "dill", "joblib", "cloudpickle"}
    assert "allow_pickle=True" not in source
    assert len(source.splitlines()) <= 300


def test_importing_a_module_leaves_torch_out_of_core() -> None:
    names = [p.stem for p in (ROOT / "src" / "fieldwise" / "core").glob("*.py") if p.stem != "__init__"]
    code = "import sys\n" + "".join(f"import fieldwise.core.{n}\n" for n in names) + "assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert import_module("fieldwise.core.mask")


def results(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def test_the_page_about_speed_says_what_was_measured() -> None:
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8").splitlines()
    lines = []
    for table, measured in results("speed").items():
        for row in measured["cases"]:
            numbers = [f"{row['step_s'] * 1e3:.1f}", f"{row['thousand_a_second']:.1f}", f"{row['epoch_s']:.2f}"]
            shown = [f"{row['memory']:.2f}"] if table == "memory" else numbers
            lines.append(f"| {row['case']['name']} | {' | '.join(shown)} |")
    kernels = [results(name)["results"] for name in ("gpu-none", "gpu-tables", "gpu")]
    for name in kernels[0].keys() - {"movielens dcnv2, step by step"}:
        row = kernels[-1][name]
        speeds = " | ".join(f"{each[name]['samples_a_second'] / 1e6:.2f}" for each in kernels)
        lines.append(f"| {name} | {speeds} | {row['epoch_s']:.3f} | {row['share']:.1%} |")
    ways = results("gpu")["sums"]
    lines += [f"| {way} | {ways['width 16'][way]:.2f} | {ways['width 1'][way]:.2f} |" for way in ways["width 1"]]
    missing = [line for line in lines if line not in page]
    assert len(lines) > 10
    assert not missing


def test_the_page_about_scale_has_the_table_that_the_script_works_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    billions = import_module("billions")
    assert billions.table() in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    few = billions.Assumed(rows=1e9, ids=1e6, gpus=2)
    found = {name: value for name, _, value in billions.lines(few, billions.Measured.read())}
    assert found["tables with Adam, per GPU"] == "192 MB"
    assert found["order of an epoch, per process"] == "8.0 GB"


def test_the_page_about_scaling_laws_has_the_exponents_of_the_measured_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    laws, found = import_module("laws"), results("laws")["laws"]
    assert "\n".join(laws.table(found)) in (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert list(found) == list(laws.LAWS)
    for law in found.values():
        for unit in ("cpu_s", "mib"):
            assert law[unit] == laws.fitted(law["sizes"], [point[unit] for point in law["points"]])


def test_the_page_about_the_design_says_what_a_local_cluster_costs() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = results("cluster")["results"]
    assert f"take {found['dask']['cpu_s']} instead of {found['pool']['cpu_s']} CPU seconds" in page


@pytest.mark.parametrize("shape", ["criteo", "movielens"])
def test_the_page_about_speed_says_how_others_fared(shape: str) -> None:
    names = {"fuxictr": "fuxictr", "deepctr": "deepctr-torch", "recbole": "recbole", "torchrec": "torchrec"}
    models = results(f"against-{shape}")["models"]
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8").splitlines()
    for contender in models["fm"]:
        cells = []
        for found in models.values():
            speed = f"{found[contender]['thousand_rows_a_second']['median']:.1f}" if contender in found else ""
            ours = speed and contender.startswith("fieldwise")
            cells.append(f"{speed} ({found[contender]['ratio']:.1f}x)" if ours else speed)
        rows = [line for line in page if line.startswith(f"| {names.get(contender, 'fieldwise')}")]
        assert any(line.endswith(" | " + " | ".join(cells) + " |") for line in rows), (contender, cells)
