"""The JSON schema for editors agrees with the parser."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from fieldwise.cli.app import app
from fieldwise.cli.schema import comparison_schema, run_schema
from fieldwise.core.settings import read_toml
from fieldwise.models import MODELS
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches import SEARCHES

ROOT = Path(__file__).parent.parent
RUN = jsonschema.Draft202012Validator(run_schema())
COMPARISON = jsonschema.Draft202012Validator(comparison_schema())


def problems(values: dict[str, Any]) -> list[str]:
    checker = COMPARISON if "compare" in values else RUN
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(values)]


@pytest.mark.parametrize("file", sorted((ROOT / "settings").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_settings_file_fits(file: Path) -> None:
    assert problems(read_toml(file)) == []


def test_schemas_are_schemas() -> None:
    jsonschema.Draft202012Validator.check_schema(RUN.schema)
    jsonschema.Draft202012Validator.check_schema(COMPARISON.schema)


@pytest.mark.parametrize("table", ["model", "search"])
def test_every_default_as_a_run_folder_holds_it_fits(table: str) -> None:
    for name in {"model": MODELS, "search": SEARCHES}[table]:
        assert problems(RunSettings.parse({table: {"name": name}}).values()) == [], name


@pytest.mark.parametrize(
    "values",
    [
        {"nothing": {}},
        {"run": {"seed": [0]}},
        {"run": {"seeds": ["a"]}},
        {"run": {"budgets": []}},
        {"run": {"budgets": [{"amount": 25}]}},
        {"run": {"device": "tpu"}},
        {"preset": "papers"},
        {"data": {"name": "planted", "raw": 3}},
        {"model": {"name": "dcnv3"}},
        {"model": {"cross_layer": 2}},
        {"model": {"name": "fm", "cross_layers": 2}},
        {"search": {"name": "ham", "gate": {"nothing": 1}}},
        {"engine": {"name": "postgres"}},
        {"split": {"name": "random", "seed": -1}},
        {"compare": {"models": []}},
        {"compare": {}, "search": {"name": "ham"}},
        {"compare": {}, "methods": {"ham": {"nothing": 1}}},
        {"compare": {}, "methods": {"mine": {"gate": {}}}},
    ],
    ids=str,
)
def test_what_the_parser_refuses_does_not_fit(values: dict[str, Any]) -> None:
    assert problems(values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"run": {"budgets": [14, "25%"], "dataset": "data/planted"}},
        {"model": {"cross_layers": 2}},
        {"model": {"name": "mymodel:Mine", "anything": 1}},
        {"data": {"name": "movielens-1m"}},
        {"compare": {"methods": ["mine"]}, "methods": {"mine": {"name": "ham", "epochs": 2}, "sam": {}}},
        {"compare": {"models": ["wide"]}, "models": {"wide": {"name": "mymodel:Mine", "x": 1}}, "model": {"width": 8}},
    ],
    ids=str,
)
def test_what_the_parser_takes_fits(values: dict[str, Any]) -> None:
    assert problems(values) == []


def test_defaults_are_as_a_file_holds_them() -> None:
    definitions = RUN.schema["$defs"]
    assert definitions["run"]["properties"]["budgets"]["default"] == ["25% parameters"]
    assert definitions["run"]["properties"]["seeds"]["default"] == [0]


def test_the_command_prints_or_writes_it(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["schema"])
    assert said.exit_code == 0
    assert json.loads(said.output) == RUN.schema
    wrote = CliRunner().invoke(app, ["schema", "--comparison", "-o", str(tmp_path / "compare.schema.json")])
    assert wrote.exit_code == 0
    assert json.loads((tmp_path / "compare.schema.json").read_text(encoding="utf-8")) == COMPARISON.schema
