"""The any-model page shows the measured numbers, and its code runs."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from tests.command_line import typed

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "any-model.md").read_text(encoding="utf-8")


def results(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        name = code.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(code)
        typed(f"python {name}", tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == {"example.py", "mymodel.py", "use.py", "store.py"}
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    small = "--set pretrain.epochs=1 --set retrain.epochs=1 --device cpu"
    for command in commands.strip().splitlines():
        typed(f"{command} {small if '--budget' in command else ''}", tmp_path)
    assert (tmp_path / "served" / "model.pt2").exists()


def test_the_matrix_is_the_one_measured_and_meets_its_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    any_model = import_module("any_model")
    measured = results("any_model.json")
    rows = measured["rows"]
    assert {any_model.PACKAGES.get(row["library"], row["library"]) for row in rows} < set(measured["versions"])
    inside = PAGE[PAGE.index(any_model.BEGIN) + len(any_model.BEGIN) : PAGE.index(any_model.END)]
    assert inside.strip() == any_model.page(rows)
    assert len(rows) >= 36
    assert max(row["difference"] for row in rows) <= 1e-6
    assert min(row["masked"] for row in rows) > 1e-4  # the dropped columns affected predictions
    counts = {library: sum(row["library"] == library for row in rows) for library in {row["library"] for row in rows}}
    wanted = {"fuxictr": 14, "deepctr-torch": 8, "torch-rechub": 8, "recbole": 6, "torchrec": 1, "by hand": 1}
    assert all(counts[library] >= least for library, least in wanted.items()), counts


def test_the_cost_is_the_one_measured_and_meets_its_goals() -> None:
    found = results("pruner.json")
    serving, training = found["serving"], found["training"]
    for kind, label in (("eager", "eager"), ("onnxruntime", "ONNX Runtime")):
        for form in ("compact", "folded"):
            cells = [f"{serving[kind][batch][f'full_over_{form}']:.2f}" for batch in ("1", "256")]
            assert f"| {label}, {form} | {cells[0]} | {cells[1]} |" in PAGE
    hooks, gate = training["hooks"], training["gate_step"]
    assert f"2,048 rows {hooks:.2f} times as long; a gate step takes {gate:.2f} of a training step" in PAGE
    assert hooks <= 1.1
    assert gate <= 1
    assert serving["onnxruntime"]["1"]["full_over_folded"] >= 1
    assert serving["onnxruntime"]["256"]["full_over_folded"] >= 2


def test_the_quality_is_the_one_measured_and_meets_its_goals() -> None:
    runs = results("foreign_models.json")["runs"]
    for name in {run["model"] for run in runs}:
        own = [run for run in runs if run["model"] == name]
        found = {kind: [run[kind] for run in own] for kind in ("full", "uniform", "searched")}
        cells = [f"{mean(values):.4f} ({stdev(values):.4f})" for values in found.values()]
        assert f"| {name} | {' | '.join(cells)} |" in PAGE
        assert mean(found["searched"]) >= mean(found["uniform"])
        assert mean(found["searched"]) >= mean(found["full"]) - 0.001
        assert len(own) == 5


def test_why_heads_keep_their_slices_is_as_measured() -> None:
    page, rows = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), results("slices.json")["models"]
    compacting = [row["seconds to compact"]["pruner"] / row["seconds to compact"]["slices"] for row in rows.values()]
    step = {name: row["training step, milliseconds"] for name, row in rows.items()}
    of_step = {name: f"{row['pruner'] / row['slices']:.2f}" for name, row in step.items()}
    batch = {name: row["milliseconds"]["256"] for name, row in rows.items()}
    kinds = ("pruner", "pruner, folded")
    of_batch = {name: [f"{row[kind] / row['slices']:.2f}" for kind in kinds] for name, row in batch.items()}
    for text in (
        f"takes {min(compacting):.0f} to {max(compacting):.0f} times as long",
        f"takes {of_step['dcnv2']} times as long for DCN-V2 and {of_step['autoint']} times",
        f"({of_step['fm']} for FM, {of_step['deepfm']} for DeepFM)",
        f"take {of_batch['dcnv2'][0]} and {of_batch['autoint'][0]} times as long",
        f"{of_batch['dcnv2'][1]} and {of_batch['autoint'][1]} folded",
        f"keep {rows['fm']['parameters']['pruner'] - rows['fm']['parameters']['slices']:,} numbers",
    ):
        assert text in " ".join(page.split())
    assert max(max(row["difference"].values()) for row in rows.values()) <= 1e-6


@pytest.mark.slow
def test_the_cost_benchmark_runs(tmp_path: Path) -> None:
    command: list[str | Path] = [
        sys.executable,
        ROOT / "benchmarks" / "pruner.py",
        "--rounds",
        "1",
        "--batch",
        "16",
        "--out",
        tmp_path / "o",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "o").read_text())["serving"]["columns"] == [624, 156]


@pytest.mark.interop
@pytest.mark.skipif(
    not os.environ.get("FIELDWISE_INTEROP"), reason="set FIELDWISE_INTEROP to a Python with the libraries"
)
@pytest.mark.parametrize("library", ["fuxictr", "deepctr-torch", "torch-rechub", "recbole", "torchrec"])
def test_public_models_of_a_library_are_exact(library: str, tmp_path: Path) -> None:
    zoo = os.environ.get("FUXICTR_ZOO", "")
    if library == "fuxictr" and not zoo:
        pytest.skip("set FUXICTR_ZOO to the model_zoo of FuxiCTR's repository")
    out = tmp_path / "rows.json"
    command: list[str | Path] = [
        os.environ["FIELDWISE_INTEROP"],
        ROOT / "benchmarks" / "any_model.py",
        "--refresh",
        "--out",
        out,
    ]
    command += ["--libraries", library, *(["--zoo", zoo] if zoo else [])]
    home = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=home)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) >= 1
    assert max(row["difference"] for row in rows) <= 1e-6
