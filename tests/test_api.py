"""The public API: `import fieldwise as fw`."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fieldwise as fw
from fieldwise.core.errors import FieldwiseError, SettingsError
from fieldwise.data import SOURCES
from fieldwise.data.engines import ENGINES
from fieldwise.data.split import SPLIT_RULES

NAMES = Path(__file__).parent.parent / "docs" / "names.md"
SMALL: dict[str, Any] = {
    "run": {"budgets": [fw.Budget.columns(8)], "device": "cpu"},
    "data": {"name": "planted", "rows": 2000},
    "model": {"name": "fm", "width": 4},
    "pretrain": {"epochs": 1},
    "search": {"name": "uniform"},
    "retrain": {"epochs": 1},
}


def test_all_is_a_literal_sorted_list_of_names_that_are_importable_and_documented() -> None:
    tree = ast.parse(inspect.getsource(fw))
    (literal,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    ]
    assert ast.literal_eval(literal) == fw.__all__ == sorted(set(fw.__all__))
    for name in fw.__all__:
        value = getattr(fw, name)
        assert value.__doc__, name
        assert inspect.ismodule(value) or value.__name__ == name
    assert sorted([*fw._HOMES, *fw._PACKAGES]) == fw.__all__
    assert set(fw.__all__) <= set(dir(fw))
    assert "__version__" in dir(fw)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fw.nothing


def test_every_engine_and_split_rule_is_public() -> None:
    for path in (*ENGINES.values(), *SPLIT_RULES.values()):
        assert path.partition(":")[2] in fw.__all__
    for path in SOURCES.values():
        assert hasattr(fw.data, path.partition(":")[2])


def test_import_fieldwise_and_dir_import_no_torch() -> None:
    code = (
        "import sys, fieldwise as fw; dir(fw); fw.Budget, fw.Mask, fw.select\n"
        "assert not {'torch', 'pyarrow', 'duckdb'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_run_report_and_compare_take_plain_values(tmp_path: Path) -> None:
    records = fw.run(SMALL, out=str(tmp_path / "run"))
    (record,) = records
    assert repr(record).splitlines()[0] == "RunRecord: uniform on planted, fm, budget 8 columns, seed 0"
    assert [line.split()[0] for line in repr(record).splitlines()[1:]] == ["model", "full", "compact"]
    assert repr(records).startswith("1 records: uniform on planted, fm\nbudget")
    hostile = records[0].model_copy(update={"source": "<script>"})
    assert "<script>" not in hostile._repr_html_()
    assert "<script>" in repr(hostile)
    assert (record.budget, record.search, record.compact_size.columns) == ("8 columns", "uniform", 8)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len({path.stat().st_mode for path in files}) == 1, "files of one folder have one mode"
    assert fw.run(tmp_path / "run" / "settings.toml", out=tmp_path / "run") == [record], "a path, and a complete run"
    assert fw.run(fw.RunSettings.of(SMALL), out=tmp_path / "run") == [record]
    assert [path.name for path in fw.report(str(tmp_path / "run")).paths] == [
        "report-planted.md",
        "report-planted.html",
    ]
    assert [path.name for path in fw.report(tmp_path / "run", "md").paths] == ["report-planted.md"]
    tables = {name: SMALL[name] for name in ("run", "data", "pretrain", "retrain")}
    tables |= {"model": {"width": 4}, "compare": {"models": ["fm"], "methods": ["uniform"]}}
    tables["run"] = {**tables["run"], "dataset": str(tmp_path / "run" / "dataset")}
    found = fw.compare(tables, out=str(tmp_path / "comparison"))
    assert [cell.record.compact_test for cell in found.cells if cell.record] == [record.compact_test]
    assert repr(found).startswith("Comparison: 1 cells, 1 complete; baseline uniform\nFull fm: test AUC 0.")
    assert f"<td>{record.compact_test.auc:.4f}</td>" in found._repr_html_()
    assert fw.compare(tmp_path / "comparison" / "settings.toml", out=tmp_path / "comparison") == found
    names = [path.name for path in fw.report(tmp_path / "comparison").paths]
    assert names == ["comparison.md", "report-planted.html"]


def test_training_settings_are_values(tmp_path: Path) -> None:
    data = fw.prepare(fw.data.Planted(rows=2000), out=tmp_path / "data", split=fw.RandomSplit(seed=1), engine=fw.Auto())
    task = fw.Task.of(data, fw.models.FM(width=2), device="cpu")
    regularity = fw.SoftOrthogonality(strength=0)
    full = fw.pretrain(task, fw.Pretrain(learning_rate=0.01, batch=512, epochs=1, regularity=regularity))
    assert isinstance(full, fw.Trained)
    assert len(full.history) == 2
    assert issubclass(fw.Pretrain, fw.Training)
    assert issubclass(fw.Retrain, fw.Training)


@pytest.mark.parametrize("call", [fw.run, fw.compare], ids=["run", "compare"])
def test_settings_that_are_no_settings_are_refused(call: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"Settings of type int. Allowed: a settings object, a dict of tables"):
        call(3, out=tmp_path / "out")
    with pytest.raises(SettingsError, match="Cannot read settings"):
        call(tmp_path / "no.toml", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_mistakes_in_python_are_errors_of_the_library(tmp_path: Path) -> None:
    layout = fw.Schema.of(user=50, city=7).layout(4)
    with pytest.raises(FieldwiseError, match=r"Scores must be one number per column, shape \(8,\)"):
        fw.select([1, 2, 3], layout, fw.Budget.columns(2))
    with pytest.raises(FieldwiseError, match=r"\[report\] unknown 'htm'. Did you mean 'html'\?"):
        fw.report(tmp_path, "htm")


def test_every_new_name_of_the_list_of_renames_exists() -> None:
    rows = [line.strip("|").split("|") for line in NAMES.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    names = [name for row in rows for name in re.findall(r"`((?:\w+\.)+\w+)", row[1]) if not name.endswith(".toml")]
    assert len(names) > 60
    for name in names:
        *modules, last = name.removeprefix("fw.").removeprefix("Predictor.").split(".")
        home = import_module(".".join(["fieldwise", *modules])) if name[0].islower() else fw.Predictor
        try:
            assert hasattr(home, last) or import_module(f"{home.__name__}.{last}")
        except ImportError:
            raise AssertionError(f"docs/names.md: {name}") from None
