"""Small complete runs for the report tests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from fieldwise.train import retraining

STAGE = {"batch": 256, "epochs": 2, "learning_rate": 0.02}
SMALL: dict[str, Any] = {
    "run": {"budgets": ["6 columns", "40% parameters"], "seeds": [0, 1], "device": "cpu"},
    "data": {"name": "planted", "rows": 3000},
    "model": {"name": "dcnv2", "width": 4},
    "pretrain": STAGE,
    "search": {"name": "ham", "trace_every": 2, **STAGE},
    "retrain": {**STAGE, "learning_rate": 0.005},
}


def run_of(out: Path, **changes: dict[str, Any]) -> Path:
    """Makes a run of the small settings with changes; None removes a setting."""
    merged = {name: {**values, **changes.get(name, {})} for name, values in SMALL.items()}
    tables = {name: {k: v for k, v in values.items() if v is not None} for name, values in merged.items()}
    pipeline.run(RunSettings.parse(tables), out)
    return out


def run_over(out: Path, names: list[str], columns: int) -> Path:
    """Makes a run over fields of these names."""
    return run_of(
        out,
        run={"budgets": [f"{columns} columns"], "seeds": [0]},
        data={"name": "tests.reports.many_fields:ManyFields", "rows": None, "names": names},
        model={"name": "fm"},
    )


def data_of(page: Path) -> dict[str, Any]:
    """Returns the JSON embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    value: dict[str, Any] = json.loads(found[1])
    return value


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two budgets, two seeds; every retraining finds its first rate too high."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retraining, "is_worse", lambda history: len(history) > 1)
        return run_of(tmp_path_factory.mktemp("runs") / "small")
