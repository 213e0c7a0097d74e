"""The contents of reports of complete and damaged folders."""

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.data.kinds.check import KINDS, Check
from fieldwise.exports.folder import load
from fieldwise.reports import write
from fieldwise.reports.comparison.page_data import comparison_data
from fieldwise.reports.file_names import data_name, report_name
from fieldwise.reports.page import LIBRARIES, embedded
from fieldwise.reports.run import dynamics, figures, headline, journal
from fieldwise.reports.run.cosines import cosines
from fieldwise.reports.run.page_data import run_data
from fieldwise.reports.run.view import open_run
from tests.reports.conftest import data_of, run_of


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


def test_a_run_ends_with_a_page_that_says_what_its_records_say(finished: Path) -> None:
    data = data_of(finished / "report-planted.html")
    records = json.loads((finished / "record.json").read_text())
    assert [r["after"] for r in data["results"]] == [r["widths_after"] for r in records]
    assert [r["compact"]["auc"] for r in data["results"]] == [r["compact_test"]["auc"] for r in records]
    assert [field["name"] for field in data["fields"]] == records[0]["fields"]
    assert data["notices"] == []
    assert len(data["stages"]) == 2 + 4 + 4
    assert all(stage["seconds"] > 0 and stage["memory"] > 0 and stage["history"] for stage in data["stages"])
    assert data["versions"] == records[0]["versions"]
    assert data["settings"]["search"]["name"] == "ham"
    assert len(data["commands"]) == 1


def test_a_page_names_no_address_to_load_from(finished: Path) -> None:
    class Loads(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [str(v) for k, v in attrs if k in ("src", "href") and not str(v).startswith("#")]

    page = (finished / "report-planted.html").read_text()
    reader = Loads()
    reader.feed(page)
    assert reader.found == []
    assert len(page.encode()) < 3_000_000
    for _, library in LIBRARIES.values():
        assert library in page
    assert page.count("and this permission notice appear in all copies") == len(LIBRARIES)


def test_text_inside_the_data_cannot_end_its_element() -> None:
    nasty = "</script><script>alert(1)</script><!-- & \u2028"
    text = embedded({nasty: nasty})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {nasty: nasty}


def test_the_headline_speaks_of_the_smallest_budget_that_is_about_best(finished: Path) -> None:
    records = open_run(finished).records
    for auc, expected in ((0.9, "6 columns"), (0.7, "40% parameters")):
        changed = [
            r.model_copy(update={"compact_valid": r.compact_valid.model_copy(update={"auc": auc})})
            if r.budget == "6 columns"
            else r.model_copy(update={"compact_valid": r.compact_valid.model_copy(update={"auc": 0.9004})})
            for r in records
        ]
        assert {r.budget for r in headline.chosen(changed)} == {expected}
    one = [r for r in records if r.budget == "6 columns"]
    said = headline.sentence(one)
    tables, whole = (
        " to ".join(headline.size(mean([getattr(r.stored_sizes[place], part) for r in one])) for place in (0, 1))
        for part in ("tables", "weights")
    )
    assert f"the embedding tables shrink from {tables} (" in said
    assert f"the whole model from {whole} (" in said
    assert "Mean of 2 seeds; in parentheses: 95% intervals from the" in said
    assert headline.size(1024) == "1.0 KiB"


def test_the_dynamics_end_where_the_search_ended(finished: Path) -> None:
    view = open_run(finished)
    for stage in view.stage("search"):
        (part,) = dynamics.parts(stage, view.settings["search"])
        mask = Mask.from_json(json.loads((stage.folder / "mask.json").read_text()))
        drawn = dynamics.drawn(part, 10_000)
        assert stage.record.summary is not None
        assert drawn["steps"] == stage.record.summary.steps
        assert drawn["at"][-1] == drawn["steps"] - 1
        assert len(drawn["scores"]) == mask.full.columns == len(drawn["owners"])
        assert len(drawn["moments"]) == len(drawn["widths"]) == len(drawn["scores"][0])
        assert sum(drawn["kept"]) == mask.columns
        assert drawn["limit"] == part.budget.limit(mask.full)
        every = np.asarray(drawn["scores"]).T * drawn["scale"]
        np.testing.assert_allclose(every[-1], part.arrays["scores"][-1], atol=drawn["scale"])


def test_many_columns_are_thinned_evenly_and_peaks_stay(finished: Path) -> None:
    scores = np.tile(np.arange(3_000.0), (5, 1))
    chosen = dynamics._chosen_columns(scores)
    assert len(chosen) == dynamics.COLUMNS
    assert {0, 2_999} <= set(chosen.tolist())
    counts = np.full(10_000, 7)
    counts[[1234, 8765]] = 0, 99
    assert {0, 1234, 8765, 9_999} <= set(dynamics._lowest_and_highest(counts).tolist())


def test_cosines_are_those_of_the_model_s_tables(finished: Path) -> None:
    folder = finished / "seed-0" / "pretrain"
    model = load(folder).model
    found = cosines(folder)
    for j, name in enumerate(model.layout.schema.names):
        table = model.embedding.table(j).detach().double().numpy()
        length = np.linalg.norm(table, axis=0)
        np.testing.assert_allclose(found[name], (table.T @ table) / np.outer(length, length), atol=1e-12)


def test_another_run_stands_beside_this_one(finished: Path, tmp_path: Path) -> None:
    other = run_of(tmp_path / "plain", run={"seeds": [1], "budgets": ["6"]}, pretrain={"regularity": {"strength": 0}})
    data = run_data(open_run(finished), open_run(other))
    assert [panel["label"] for panel in data["cosines"]] == [
        "with orthogonality (cosine, 0.001)",
        "without orthogonality",
    ]


def test_what_is_missing_is_named_and_the_rest_is_shown(copy: Path) -> None:
    shutil.rmtree(copy / "seed-1" / "retrain" / "6-columns")
    (copy / "seed-0" / "search" / "6-columns" / "trace-0.safetensors").write_bytes(b"short")
    (copy / "seed-0" / "retrain" / "40pct-parameters" / "record.json").write_text("{")
    (copy / "seed-1" / "pretrain" / "record.json").write_text('{"history": []}')
    written = write.html(copy)
    lines = "\n".join(written.notices)
    assert "retrain of 6 columns, seed 1: not complete, seed-1/retrain/6-columns/record.json is missing" in lines
    assert "retrain of 40% parameters, seed 0: seed-0/retrain/40pct-parameters/record.json cannot be read" in lines
    assert "pretrain of seed 1: seed-1/pretrain/record.json is damaged (seconds: Field required)" in lines
    assert "the trace in search/6-columns" in lines or "seed-0/search/6-columns" in lines
    assert len(written.notices) == 4
    data = data_of(copy / "report-planted.html")
    assert data["notices"] == written.notices
    assert [(r["seed"], r["budget"]) for r in data["results"]] == [(0, "6 columns"), (1, "40% parameters")]
    assert len(data["searches"]) == 3


def test_a_run_that_only_pretrained_has_a_page(copy: Path) -> None:
    for stage in ("search", "retrain", "compact"):
        for seed in (0, 1):
            shutil.rmtree(copy / f"seed-{seed}" / stage)
    written = write.html(copy)
    assert len(written.notices) == 8
    data = data_of(copy / "report-planted.html")
    assert data["headline"] == "No search of this run is complete yet."
    assert [field["name"] for field in data["fields"]][:2] == ["user", "item"]
    assert len(data["cosines"]) == 1
    with pytest.raises(RunError, match="holds no complete search"):
        write.md(copy)


def test_settings_that_cannot_be_read_are_a_notice(copy: Path) -> None:
    (copy / "settings.toml").write_text("= broken")
    assert [line for line in write.html(copy).notices if "are not TOML" in line]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no complete stage"):
        write.html(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_figures_are_png_files(finished: Path, copy: Path) -> None:
    written = write.png(copy)
    names = {path.stem.removesuffix("-planted") for path in written.paths}
    assert names == {
        "front", "widths-6-columns", "widths-40pct-parameters",
        *(f"{what}-{budget}-seed-{seed}" for what in ("scores", "live") for budget in ("6-columns", "40pct-parameters")
          for seed in (0, 1)),
    }  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written.paths)


def test_a_missing_extra_is_named(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"fieldwise\[plots\]"):
        write.png(shutil.copytree(finished, tmp_path / "run"))


def test_damaged_comparisons_are_refused(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text("{")
    with pytest.raises(RunError, match=r"comparison.json' cannot be read"):
        write.html(tmp_path)
    with pytest.raises(RunError, match="Not a comparison"):
        comparison_data({"format": "x"})
    with pytest.raises(RunError, match="A damaged comparison"):
        comparison_data({"format": "fieldwise-comparison/1", "cells": [{}]})


def test_the_journal_says_what_happened(finished: Path) -> None:
    lines, view = list(journal.read_metrics(finished)), open_run(finished)
    slow = {
        (r.budget, r.seed): f"retrain {r.compact_size.embedding} parameters at rate 1, seed {r.seed}"
        for r in view.records
    }
    titles = {line["title"] for line in lines if line["event"] == "stage"}
    assert titles - {"baselines: a constant, and a logistic regression"} == {
        f"{what}seed {seed}"
        for seed in (0, 1)
        for what in (
            "pretrain, ",
            "search 6 columns, ",
            "search 40% parameters, ",
            "retrain 6 columns, ",
            "retrain 40% parameters, ",
        )
    } | set(slow.values()), "each pretraining was at its best within two epochs"
    for stage in view.stages:
        title = f"{stage.stage}{' ' + stage.budget if stage.budget else ''}, seed {stage.seed}"
        tried = [title, *([slow[stage.budget or "", stage.seed]] if stage.stage == "retrain" else [])]
        epochs = [[line["auc"] for line in lines if line["event"] == "epoch" and line["title"] == t] for t in tried]
        assert [epoch.auc for epoch in stage.record.history] in epochs
    gates = [line for line in lines if line["event"] == "gate"]
    assert len(gates) == 8, "two epochs of four searches"
    assert gates[0]["live"] == sum(gates[0]["widths"].values()) == 24
    assert gates[0]["limit"] == 6


def test_a_line_cut_short_by_a_kill_spoils_nothing(finished: Path, copy: Path) -> None:
    before = list(journal.read_metrics(copy))
    with (copy / journal.FILE).open("a") as file:
        file.write('{"event": "epo')
    assert list(journal.read_metrics(copy)) == before
    writer = journal.Journal(copy)
    writer.begin("again", done=True)
    assert [line["event"] for line in journal.read_metrics(copy)][len(before) :] == ["command", "stage"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("planted", "planted"),
        ("clicks.csv", "clicks"),
        ("clicks.2024.csv.gz", "clicks.2024"),
        ("part-0.parquet and 6 more", "part-0.parquet-and-6-more"),
        ("../../<x> y.tsv", "x-y"),
        ("x" * 300, "x" * 60),
    ],
)
def test_a_report_s_file_says_which_data_it_is_about(source: str, name: str) -> None:
    assert data_name(source) == name
    assert report_name(source) == f"report-{name}"
    assert report_name("...") == "report"


def test_the_columns_of_the_data_are_in_both_reports(copy: Path) -> None:
    one: dict[str, object] = {
        "name": "user <b>",
        "kind": "category",
        "reason": "values repeat",
        "cardinality": 3,
        "nulls": 0.5,
    }
    one |= {"unknown": None, "examples": ["a"], "suspects": [], "rules": {}}
    check = Check.model_validate(
        {"source": "rows.csv", "label": "click", "rows": {"train": 10}, "clicks": {"train": 4}, "columns": [one]}
    )
    (copy / KINDS).write_text(json.dumps(check.to_json()))
    write.md(copy)
    write.html(copy)
    text = (copy / "report-planted.md").read_text()
    assert "## Columns\n\nrows.csv: 10 rows, label 'click' (40.0% clicks)" in text
    assert r"| user \<b\> | category | 3 | 50.0 |" in text
    assert data_of(copy / "report-planted.html")["columns"]["rows"][0][:2] == ["user <b>", "category"]
