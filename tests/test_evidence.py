"""The pages of `docs/results` agree with their data."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest

from evidence import orthogonality, write
from evidence.data import FORMAT, About, Cell, Evidence, Pretrained, Search, gather, read_evidence
from evidence.data import write as write_data
from evidence.grid import Grid, difference, spread
from evidence.page import OPEN, filled, unfounded
from evidence.pages import PAGES
from evidence.pictures import fingerprint
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.errors import RunError
from fieldwise.core.settings import differing, override, read_toml
from fieldwise.pipeline.settings import RunSettings

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
DATA = sorted((RESULTS / "data").glob("*.json"))
FILES = ROOT / "tests" / "data_files"
NEEDS = sorted({need for page in PAGES.values() for need in page.needs})
MADE = {
    "autodim-avazu-short": (
        "autodim-avazu",
        ["methods.ham.epochs=3", "compare.models=['dcnv2']", "compare.methods=['ham']", "compare.baseline=ham"],
    ),
    "distil-criteo-plain": ("distil-criteo", ["retrain.distil=0"]),
    "distil-movielens-plain": ("distil-movielens", ["retrain.distil=0"]),
    "figure-4-without": ("figure-4", ["pretrain.regularity.strength=0"]),
}
"""Data made with the settings file of other data, and flags."""


def settings_file(name: str) -> Path:
    file = MADE.get(name, (name, []))[0]
    return next(path for path in (ROOT / "settings").rglob("*.toml") if path.stem == file)


def resolved(name: str) -> CompareSettings | RunSettings:
    values = override(read_toml(settings_file(name)), MADE.get(name, ("", []))[1])
    values["data"]["raw"] = "raw"
    return CompareSettings.parse(values) if "compare" in values else RunSettings.parse(values)


def text_of(name: str) -> str:
    return (RESULTS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in PAGES if (RESULTS / f"{name}.md").exists()])
def test_a_page_s_tables_and_pictures_are_those_of_its_data(name: str) -> None:
    page, text = PAGES[name], text_of(name)
    data = write.data_of(page, RESULTS)
    assert filled(text, page, data) == text, f"run: python -m evidence.write {name}"
    for picture, item in page.pictures.items():
        path = RESULTS / "images" / f"{picture}.png"
        known = all(need in data for need in item.needs)
        assert path.exists() == known
        if known:
            mark = fingerprint([RESULTS / "data" / f"{need}.json" for need in item.needs])
            assert mark.encode() in path.read_bytes(), f"run: python -m evidence.write {name}"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda p: p.stem)
def test_figures_in_a_page_s_words_are_in_its_tables(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if OPEN not in text:
        assert unfounded(text) == []


@pytest.mark.parametrize("name", [name for name in PAGES if (RESULTS / f"{name}.md").exists()])
def test_a_page_shows_the_commands_of_all_its_data(name: str) -> None:
    text = text_of(name).replace(" \\\n ", "")
    for need in PAGES[name].needs:
        file, flags = MADE.get(need, (need, []))
        assert f"settings/paper/{file}.toml" in text or f"settings/{file}.toml" in text
        assert all(f"--set {flag}" in text for flag in flags if not flag.startswith("compare."))
    assert f"python -m evidence.write {name} " in text


@pytest.mark.parametrize("path", DATA, ids=lambda p: p.stem)
def test_data_is_whole_and_of_the_settings_file_that_stands_beside_it(path: Path) -> None:
    assert path.stem in NEEDS, "no page needs it"
    evidence, chosen = read_evidence(path), resolved(path.stem)
    lines = differing(evidence.about.settings, json.loads(json.dumps(chosen.values())))
    changed = [line for line in lines if not line.startswith(("run.device", "data.raw", "engine"))]
    assert [line for line in changed if "(None -> " not in line] == []  # a new key with a default is no change
    assert evidence.about.name == path.stem
    assert re.fullmatch("[0-9a-f]{12,40}", evidence.about.commit)
    if isinstance(chosen, CompareSettings):
        run = chosen.shared.run
        wanted = [(*pair, str(b), seed) for pair in chosen.runs for b in run.budgets for seed in run.seeds]
        assert sorted((c.model, str(c.method), str(c.budget), c.seed) for c in evidence.cells) == sorted(wanted)


# The tests below use synthetic data, so that pages work before their grids have run.


def made_up(name: str) -> Evidence:
    draw, chosen = random.Random(name), resolved(name)
    fields = {"user": 60, "movie": 40, "genres": 9, "timestamp": 30}
    values = json.loads(json.dumps(chosen.values()))
    about = About(
        name=name, machine="m", device="cpu", jobs=1, versions={}, commit="0" * 12, settings=values, fields=fields
    )
    if not isinstance(chosen, CompareSettings):
        return Evidence(about=about, pretrained=tuple(pretrained(draw, seed) for seed in chosen.run.seeds))
    run = chosen.shared.run
    places = [(*pair, str(budget)) for pair in chosen.runs for budget in run.budgets]
    cells = [cell(draw, model, seed, method, budget) for model, method, budget in places for seed in run.seeds]
    full = [cell(draw, model, seed) for model in chosen.compare.models for seed in run.seeds]
    return Evidence(about=about, full=tuple(full), cells=tuple(cells))


def pretrained(draw: random.Random, seed: int) -> Pretrained:
    cosines = [round(draw.uniform(-1, 1), 4) for _ in range(28)]
    return Pretrained(seed=seed, valid_auc=0.8, epochs=3, seconds=9.0, cosines={"user": cosines, "genres": cosines})


def cell(draw: random.Random, model: str, seed: int, method: str | None = None, budget: str | None = None) -> Cell:
    widths = [draw.randint(0, 8) for _ in range(4)]
    return Cell(
        model=model, method=method, budget=budget, seed=seed, auc=draw.uniform(0.8, 0.9), log_loss=0.3,
        valid_auc=draw.uniform(0.8, 0.9), valid_log_loss=0.3, widths=widths, embedding=60 * widths[0] + 9,
        first_order=0, dense=100, seconds={"search": 1.0, "retrain": 1.0}, own=12,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with data for every page that has a settings file."""
    results = tmp_path_factory.mktemp("results")
    shutil.copytree(RESULTS, results, dirs_exist_ok=True)
    known = {path.stem for path in (ROOT / "settings").rglob("*.toml")} | set(MADE)
    for name in NEEDS:
        if name in known and not (results / "data" / f"{name}.json").exists():
            write_data(results / "data" / f"{name}.json", made_up(name))
    return results


@pytest.mark.parametrize("name", [name for name in PAGES if (RESULTS / f"{name}.md").exists()])
def test_every_page_can_be_made_from_whole_data(name: str, folder: Path) -> None:
    write.main([name, "--results", str(folder)])
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert OPEN not in text
    for picture in PAGES[name].pictures:
        assert f"![{picture}](images/{picture}.png)" in text
        assert (folder / "images" / f"{picture}.png").stat().st_size > 10_000


def test_a_comparison_becomes_compact_data_that_reads_back(tmp_path: Path) -> None:
    whole = json.loads((FILES / "comparison.json").read_text())
    whole["cells"] = [cell for cell in whole["cells"] if cell["state"] == "complete"]
    (tmp_path / "comparison.json").write_text(json.dumps(whole))
    found = gather(tmp_path, "m", "c")
    assert len(found.cells) == len(whole["cells"])
    for one, cell in zip(found.cells, whole["cells"], strict=True):
        record = cell["record"]
        assert (one.model, one.method, one.budget, one.seed) == (
            cell["model"], cell["method"], cell["budget"], cell["seed"],
        )  # fmt: skip
        assert one.auc == round(record["compact_test"]["auc"], 6)
        assert one.embedding == record["compact_size"]["embedding"]
    write_data(tmp_path / "small.json", found)
    assert read_evidence(tmp_path / "small.json") == found
    assert json.loads((tmp_path / "small.json").read_text())["format"] == FORMAT
    assert (tmp_path / "small.json").stat().st_size < (FILES / "comparison.json").stat().st_size / 4
    grid = Grid(found)
    for row in whole["rows"]:
        mean, *_ = spread(grid.cells(row["model"], row["budget"], row["method"])).split()
        assert mean == f"{row['auc']:.4f}"
        if row["test"]:
            base = grid.cells(row["model"], row["budget"], whole["baseline"])
            ours = difference(grid.cells(row["model"], row["budget"], row["method"]), base)
            assert ours.mean == pytest.approx(row["test"]["difference"], abs=1e-6)
            assert ours.t == pytest.approx(row["test"]["t"], rel=0.05)


def test_a_comparison_that_is_not_complete_is_refused(tmp_path: Path) -> None:
    shutil.copy(FILES / "comparison.json", tmp_path)
    with pytest.raises(RunError, match="6 of 60 cells are not complete"):
        gather(tmp_path, "m", "c")


def test_a_page_with_other_tables_or_a_folder_of_another_name_is_refused(tmp_path: Path) -> None:
    page = PAGES["dynamics"]
    with pytest.raises(RunError, match=r"The page has table summary\. Allowed, once each: picture figure-3, table"):
        filled("<!-- table summary -->\n<!-- end -->", page, {})
    with pytest.raises(SystemExit, match=r"\[dynamics, run folders\] unknown 'figure-4'"):
        write.main(["dynamics", str(tmp_path / "figure-4")])
    with pytest.raises(SystemExit, match=r"\[page\] unknown 'dynamic'. Did you mean 'dynamics'?"):
        write.main(["dynamic"])


def test_a_figure_that_no_table_has_is_found() -> None:
    page = "It gains 0.0012 to +.0034, in `0.9999` code and 0.12345.\n\n| a |\n| --- |\n| +0.0012 (p 0.3) |\n"
    assert unfounded(page) == [".0034"]


def test_gains_are_tested_in_both_ways_and_set_beside_the_paper_s() -> None:
    with_it, without = made_up("figure-2"), made_up("table-2")
    lines = orthogonality.gains(with_it, without)
    assert len(lines) == 2 + len(orthogonality.PAPER)
    same = orthogonality.gains(with_it, with_it)
    assert "| fm | 14 columns | +0.0000 | 10 | 1 | 1 | level | +0.0006 | level | yes |" in same
    assert "| deepfm | 14 columns | +0.0000 | 10 | 1 | 1 | level | +0.0029 | higher | no |" in same


def test_a_search_is_read_in_full(tmp_path: Path) -> None:
    search = Search(
        budget="2", seed=0, steps=3, limit=2, live=[[0, 1, 2], [3, 1, 2]], reactivated=1, every=0.5, owners=[0, 0, 1],
        kept=[1, 0, 1], moments=[1, 3], scores=[[2, 1], [2, -1], [2, 3]], auc=[0.7, 0.8], selected_auc=0.75,
    )  # fmt: skip
    draw = random.Random(0)
    about = made_up("figure-4").about.model_copy(update={"fields": {"a": 5, "b": 9}})
    one = cell(draw, "dcnv2", 0, "ham", "2")
    evidence = Evidence(about=about, full=(one,), cells=(one,), searches=(search,))
    data = {"figure-3": evidence}
    text = filled(text_of("dynamics"), PAGES["dynamics"], data)
    assert "| steps until the target was first reached | 2 |" in text
    assert "| fewest and most live columns after that | 1 and 2 |" in text
    assert f"| a | 5 | 2 | {one.widths[0]} | +500.00 | -500.00 |" in text
