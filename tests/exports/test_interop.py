"""Other libraries build their models from the exported files, in a separate environment (see CONTRIBUTING)."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from fieldwise.exports.folder import export, load
from fieldwise.exports.targets import export_to
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.model import HeadModel
from tests.exports.cases import Case, shaken

PYTHON = os.environ.get("FIELDWISE_INTEROP", "")
ZOO = os.environ.get("FUXICTR_ZOO", "")
CONSUMERS = Path(__file__).parent / "consumers"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not PYTHON, reason="set FIELDWISE_INTEROP to the Python that has torchrec, fuxictr, deepctr-torch"
    ),
]


@pytest.fixture
def model(case: Case, tmp_path: Path) -> Path:
    """A DeepFM with mixed widths, a field of width 0 and one with several values per row."""
    found, mask = shaken(DeepFM(width=7), case.data)
    assert {0, 1} < set(found.layout.widths)
    export(found, tmp_path / "model", case.data.encoder, mask)
    return tmp_path / "model"


def consume(name: str, *arguments: Path | str) -> list[str]:
    done = subprocess.run(
        [PYTHON, CONSUMERS / f"{name}.py", *arguments], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("ok: ")]


def test_torchrec_pools_the_same_embeddings(model: Path, case: Case, tmp_path: Path) -> None:
    written = export_to("torchrec", model, tmp_path / "out", align=4)
    assert written.tables is not None
    found, schema = load(model).model, case.data.schema
    assert isinstance(found, HeadModel)
    embedding = found.embedding
    ids = case.data.encoder.encode(case.rows)
    starts = np.cumsum([0, *schema.lengths])
    places = {name: list(range(starts[j], starts[j + 1])) for j, name in enumerate(schema.names)}
    parts = dict(zip(schema.names, embedding(torch.from_numpy(ids)).split(embedding.layout.widths, 1), strict=True))
    padded = [torch.nn.functional.pad(parts[t.field], (0, t.aligned - t.width)) for t in written.tables.tables]
    np.save(tmp_path / "out" / "ids.npy", ids)
    np.save(tmp_path / "out" / "expected.npy", torch.cat(padded, 1).detach().numpy())
    (tmp_path / "out" / "places.json").write_text(json.dumps(places))
    assert consume("by_torchrec", tmp_path / "out") == [f"ok: {len(padded)} tables"]


@pytest.mark.skipif(not ZOO, reason="set FUXICTR_ZOO to the model_zoo of FuxiCTR's repository")
def test_fuxictr_builds_its_models_and_takes_a_step(model: Path, case: Case, tmp_path: Path) -> None:
    export_to("fuxictr", model, tmp_path / "out")
    fields = [{"name": f.name, "cardinality": f.cardinality, "length": f.length} for f in case.data.schema.fields]
    (tmp_path / "out" / "fields.json").write_text(json.dumps(fields))
    said = consume("by_fuxictr", tmp_path / "out", ZOO)
    assert [line.split()[1] for line in said] == ["DCNv2", "DeepFM"]


def test_deepctr_builds_models_from_the_list(model: Path, tmp_path: Path) -> None:
    written = export_to("deepctr", model, tmp_path / "out")
    assert written.tables is not None
    columns = sum(table.width for table in written.tables.tables)
    assert consume("by_deepctr", tmp_path / "out") == [f"ok: WDL {columns} columns", f"ok: DCN {columns} columns"]
