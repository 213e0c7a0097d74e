"""Measurements of the full and the compact model in every runtime."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fieldwise.bench.serve import bench
from fieldwise.exports.folder import export, load
from fieldwise.exports.program import compile_ahead
from fieldwise.models.compact import compact
from fieldwise.reports.serving import HEADS, serving_rows
from tests.models.factories import deep
from tests.models.factory_models import mask_for, model_of


def test_every_runtime_is_measured_that_is_there(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldwise.exports.program.shutil.which", lambda _: None)
    said: list[str] = []
    found = bench(served, seconds=0.02, batches=(1, 8, 64), say=said.append)
    assert found.missing == ["aotinductor: needs a C++ compiler. Install g++, or set CXX."]
    cells = {(cell.model, cell.runtime): cell for cell in found.cells}
    assert list(cells) == [(m, r) for r in ("eager", "onnxruntime") for m in ("full", "compact")]
    assert said == [f"{m}, float32, {r}" for r in ("eager", "onnxruntime", "aotinductor") for m in ("full", "compact")]
    for runtime in ("eager", "onnxruntime"):
        full, compact = cells["full", runtime], cells["compact", runtime]
        assert full.disk > compact.disk
        for cell in (full, compact):
            assert [latency.batch for latency in cell.measured.latencies] == [1, 8, 64]
            assert all(0 < entry.p50 <= entry.p99 and entry.calls >= 10 for entry in cell.measured.latencies)
            assert 2**20 < cell.measured.resident < 2**31
    table = list(serving_rows(found.to_json()))
    assert [row[0] for row in table] == ["full", "compact", "ratio"] * 2
    assert {len(row) for row in table} == {len(HEADS)}
    eager = cells["full", "eager"].disk / cells["compact", "eager"].disk
    assert table[2][3] == f"{eager:.1f} x"


@pytest.mark.slow
def test_a_model_compiled_ahead_agrees(served: Path, tmp_path: Path) -> None:
    predictor = load(served)
    compile_ahead(predictor.probability, tmp_path / "m.pt2")
    run = torch._inductor.aoti_load_package(str(tmp_path / "m.pt2"))
    fields = predictor.encoder.schema.fields
    ids = np.concatenate([np.random.default_rng(0).integers(0, f.cardinality, (300, f.length)) for f in fields], 1)
    for count in (1, 300):
        part = ids[:count].astype(np.int32)
        np.testing.assert_allclose(run(torch.from_numpy(part)).numpy(), predictor.of_ids(part), atol=1e-5)


@pytest.mark.slow
def test_a_factorys_model_is_measured_in_every_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldwise.exports.program.shutil.which", lambda _: None)
    export(compact(model_of(deep), mask_for(model_of(deep))), tmp_path / "m")
    found = bench(tmp_path / "m", seconds=0.02, batches=(1, 8), model=deep)
    assert [(cell.model, cell.runtime) for cell in found.cells] == [
        (model, runtime) for runtime in ("eager", "onnxruntime") for model in ("full", "compact")
    ]
