"""Presets lie below what a user says, and keep published settings as they are."""

import inspect
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fieldwise.cli.app import COMMANDS
from fieldwise.cli.options import settings_of
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.errors import SettingsError
from fieldwise.core.settings import differing, read_toml
from fieldwise.models import MODELS
from fieldwise.pipeline.settings import RunSettings
from fieldwise.presets import PRESETS, text_of
from fieldwise.searches import SEARCHES
from tests.command_line import cli

ROOT = Path(__file__).parent.parent
SHIPPED = json.loads((ROOT / "tests" / "data_files" / "shipped_settings.json").read_text(encoding="utf-8"))
PAPER = tomllib.loads(text_of("paper"))


def values_of(**tables: Any) -> Any:
    return RunSettings.parse({"preset": "paper", **tables}).values()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_settings_keep_the_values_they_were_published_with(name: str) -> None:
    tables = read_toml(ROOT / "settings" / name)
    if tables["data"]["name"] == "movielens-1m":
        tables["data"]["raw"] = "ml-1m.zip"
    cls = CompareSettings if "compare" in tables else RunSettings
    lines = differing(SHIPPED[name], cls.parse(tables).values())
    assert [line for line in lines if "(None -> " not in line] == [], "a further key is no change"


@pytest.mark.parametrize("search", PAPER["searches"])
def test_a_search_has_every_value_that_the_preset_says(search: str) -> None:
    found = values_of(search={"name": search})
    said = {key: value for key, value in PAPER["searches"][search].items() if key != "entrants"}  # those: test_race.py
    assert found["search"] == {**found["search"], **said, "name": search}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_every_value_that_the_preset_says(model: str) -> None:
    found = values_of(model={"name": model})["model"]
    assert found == {**found, **PAPER["model"], **PAPER["models"][model], "name": model}


def test_the_preset_names_only_what_there_is_and_chooses_the_paper_s_method() -> None:
    assert set(PAPER["searches"]) <= set(SEARCHES)
    assert set(PAPER["models"]) == set(MODELS)
    found = values_of()
    assert (found["model"]["name"], found["search"]["name"]) == ("dcnv2", "ham")
    assert found["pretrain"]["regularity"] == {"strength": 0.001, "form": "raw", "place": "loss"}


def test_what_the_user_says_stands_above_the_preset_key_by_key() -> None:
    found = values_of(
        pretrain={"regularity": {"strength": 0.0}}, search={"name": "ham", "gate": {"eta": 0.5}}, model={"width": 8}
    )
    assert found["pretrain"]["regularity"] == {"strength": 0.0, "form": "raw", "place": "loss"}
    assert found["search"]["gate"] == {"epsilon": 0.01, "eta": 0.5, "mu": 5e-5}
    assert (found["search"]["patience"], found["model"]["width"]) == (3, 8)


def test_a_comparison_s_methods_take_the_table_of_the_search_they_name() -> None:
    methods = {"slow": {"name": "ham", "gate": {"mu": 1e-5}}, "autodim": {"candidates": [1, 2]}}
    models = {"narrow": {"name": "deepfm", "width": 8}}
    compare = {"models": ["narrow", "fm"], "methods": ["slow", "autodim", "uniform"]}
    found = CompareSettings.parse({"preset": "paper", "compare": compare, "methods": methods, "models": models})
    values = found.values()
    assert values["methods"]["slow"]["patience"] == 3
    assert values["methods"]["slow"]["gate"] == {"epsilon": 0.01, "eta": 0.001, "mu": 1e-5}
    assert values["methods"]["autodim"]["candidates"] == [1, 2]
    assert {label: model["width"] for label, model in values["models"].items()} == {"narrow": 8, "fm": 16}
    assert "preset" not in values
    assert CompareSettings.parse(values) == found


def test_a_flag_chooses_it_and_the_run_folder_holds_its_values_without_it(tmp_path: Path) -> None:
    file, out = tmp_path / "s.toml", tmp_path / "out"
    file.write_text('[search]\nname = "sam"\nepochs = 4\n')
    chosen = settings_of(file, out, ["retrain.patience=7"], preset="paper")
    assert chosen.search.values()["epochs"] == 4
    assert (chosen.retrain.patience, chosen.pretrain.regularity.place) == (7, "loss")
    other = settings_of(file, out, None, preset="paper", search="ham").search.values()
    assert (other["epochs"], other["patience"]) == (10, 3), "another method takes its own table"
    result = cli("compare", "--preset", "paper", "--out", out, "--minutes", "0", "--set", "data.rows=2000")
    assert result.returncode == 0, result.stderr
    kept = read_toml(out / "settings.toml")
    assert "preset" not in kept
    assert kept["methods"]["ham"]["patience"] == 3
    again = cli("compare", "--out", out, "--minutes", "0")
    assert again.returncode == 0, again.stderr
    assert read_toml(out / "settings.toml") == kept


@pytest.mark.parametrize("given", ["papr", ["paper"], {"name": "paper"}, 3])
def test_an_unknown_preset_is_refused_with_the_names_there_are(given: Any) -> None:
    for cls in (RunSettings, CompareSettings):
        with pytest.raises(SettingsError, match=r"^\[preset\] unknown '.*'\..* Choose from: paper\.$"):
            cls.parse({"preset": given})


def test_what_is_no_table_is_told_as_without_a_preset() -> None:
    with pytest.raises(SettingsError, match=r"\[search\] must be a table, got 3"):
        values_of(search=3)
    with pytest.raises(SettingsError, match=r"\[search\] unknown '\[1\]'"):
        values_of(search={"name": [1]})


def test_every_command_that_trains_takes_it() -> None:
    takes = {verb for verb, command in COMMANDS.items() if "preset" in inspect.signature(command).parameters}
    assert takes == {"pretrain", "search", "retrain", "run", "compare"}


@pytest.mark.parametrize("verb", ["run", "compare"])
def test_an_unknown_one_is_one_line_and_nothing_is_written(verb: str, tmp_path: Path) -> None:
    result = cli(verb, "--preset", "papers", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert result.stderr.strip() == ("fieldwise: [preset] unknown 'papers'. Did you mean 'paper'? Choose from: paper.")
    assert not (tmp_path / "out").exists()


def test_presets_are_listed() -> None:
    rows = [line.split() for line in cli("list").stdout.splitlines()]
    assert [row[1] for row in rows if row and row[0] == "preset"] == list(PRESETS)


@pytest.mark.slow
def test_a_wheel_contains_the_presets(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(tmp_path), str(ROOT)]
    assert subprocess.run(command, check=False).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    assert [f"fieldwise/presets/{name}" for name in PRESETS.values() if f"fieldwise/presets/{name}" not in held] == []
