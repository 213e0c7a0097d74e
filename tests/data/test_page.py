"""The examples of the data page run."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldwise.core.settings import override
from fieldwise.data.store import Dataset
from fieldwise.pipeline.settings import RunSettings
from fieldwise.pipeline.stages import prepare, run

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
FIELDS = ("user_id", "city", "price", "visits", "genres", "hour")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(found)


def settings(**more: Any) -> RunSettings:
    return RunSettings.parse(override(tomllib.loads(block("toml")), [f"{k}={v}" for k, v in more.items()]))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a click log that has the columns of the page."""
    draw = np.random.default_rng(0)
    header = "row,time,user_id,city,price,visits,genres,click"
    assert f"`{header}`" in PAGE
    lines = [header]
    for row in range(600):
        genres = "|".join(draw.permutation(["crime", "drama", "war"])[: draw.integers(0, 4)])
        city, price = draw.choice(["Bern", "Basel", ""]), f"{draw.lognormal(2):.2f}"
        time = f"2026-03-{2 + row // 60:02} {row % 24:02}:59:00"
        lines.append(
            f"{row},{time},{draw.integers(40)},{city},{price},{draw.integers(300)},{genres},{draw.integers(2)}"
        )
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_settings_file_runs(workplace: Path) -> None:
    data = prepare(settings(), Path("data/clicks"))
    assert data.schema.names == FIELDS
    assert [field.rule.kind for field in data.encoder.fields] == [
        "category", "category", "quantile", "quantile", "category", "hour",
    ]  # fmt: skip
    few = {"run.dataset": "data/clicks", "pretrain.epochs": 1, "retrain.epochs": 1}
    (record,) = run(settings(**few), Path("runs/clicks"))
    assert record.fields == list(FIELDS)


def test_rows_in_memory_give_the_same_fields(workplace: Path) -> None:
    (workplace / "example.py").write_text(block("python"), encoding="utf-8")
    runpy.run_path(str(workplace / "example.py"))
    made, read = Dataset.open("data/frame"), prepare(settings(), Path("data/clicks"))
    assert made.schema == read.schema
    assert made.info["splits"] == read.info["splits"]
