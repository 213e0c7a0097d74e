"""The page of test AUC over stored bytes: what is compared, and that pages on disk agree with the results."""

import json
from pathlib import Path

import pytest

from evidence import stored_bytes
from evidence.page import OPEN
from evidence.pictures import fingerprint
from evidence.stored_bytes import DATA, DRAWN, IMAGES, PAGES, RESULTS, filled
from evidence.stored_bytes_picture import draw
from evidence.stored_bytes_rows import Models, differences, read

CELLS = [
    ("full", 1.0, "float32", 4000, 0.80),
    ("full", 1.0, "int8", 1009, 0.80),  # scales may exceed a quarter by 1%
    ("full", 1.0, "int4", 505, 0.79),
    ("uniform", 0.25, "float32", 1000, 0.70),
    ("ham", 0.25, "float32", 1000, 0.75),
    ("ham", 0.25, "int8", 250, 0.7495),
    ("ham", 0.5, "float16", 1000, 0.82),
    ("ham", 0.5, "float32", 2000, 0.85),
    ("ham", 0.5, "int4 after", 250, 0.99),
]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of three seeds of FM, and one of DCN-V2."""
    rows = [
        {"model": model, "seed": seed, "method": method, "fraction": fraction, "store": store, "bytes": size,
         "numbers": 9, "auc": auc + 0.001 * seed * (method == "ham"), "valid": auc}
        for model, seeds in (("dcnv2", 1), ("fm", 3))
        for method, fraction, store, size, auc in CELLS
        for seed in reversed(range(seeds))
    ]  # fmt: skip
    (tmp_path / DATA["movielens"]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def found(results: Path) -> Models:
    return read(results / DATA["movielens"])


def test_what_fits_the_same_bytes_is_compared(found: Models) -> None:
    lines = stored_bytes.front(found)
    quarter = next(line for line in lines if "| FM | 1,000 (1/4) |" in line)
    assert "| full, int8 | 1,009 | 0.8000 | ham, float16, 0.5 of the numbers | 1,000 | 0.8210 | +0.0210 |" in quarter
    eighth = next(line for line in lines if "| FM | 500 (1/8) |" in line)
    assert "| full, int4 | 505 | 0.7900 | ham, int8, 0.25 of the numbers | 250 | 0.7505 | -0.0395 |" in eighth
    assert not any("1/16" in line for line in lines), "nothing trivial fits"
    assert all(line.endswith("|  | not different |") for line in lines if "DCN-V2" in line), "one seed has no test"
    assert "worse |" in eighth


def test_types_are_compared_with_the_same_widths(found: Models) -> None:
    lines = stored_bytes.costs(found)
    int8 = next(line for line in lines if line.startswith("| int8"))
    assert "| int8 | 4 | -0.0005 | FM, ham, 0.25 of the numbers | 2 | FM -0.0005, DCN-V2 -0.0005 |" in int8
    plain, rounded = (found["fm"]["ham", 0.25, store] for store in ("float32", "int8"))
    assert differences(plain, rounded[1:]) == pytest.approx([-0.0005] * 2), "only common seeds"


def test_pages_say_how_many_seeds_there_are_and_what_is_missing(results: Path) -> None:
    page = "".join(f"<!-- {name} -->\nold\n<!-- end -->\n" for name in (
        "table bytes-movielens-seeds", "picture bytes-movielens", "table bytes-movielens-grid",
        "table bytes-criteo-front",
    ))  # fmt: skip
    text = filled(page, results, "images")
    assert "Seeds: FM 3, DCN-V2 1." in text
    assert "(images/bytes-movielens.png)" in text
    assert "| ham | 9 |  | 0.8210 (1,000) |" in text.replace("0.8510 (2,000)", "")
    assert f"<!-- table bytes-criteo-front -->\n{OPEN}\n<!-- end -->" in text
    assert "old" not in text
    assert filled(text, results, "images") == text


def test_a_picture_holds_the_fingerprint_of_its_data(found: Models, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(found, "evidence-mark", tmp_path / "picture.png")
    assert b"evidence-mark" in (tmp_path / "picture.png").read_bytes()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_on_disk_agree_with_the_results(page: Path) -> None:
    text, images = page.read_text(encoding="utf-8"), IMAGES.relative_to(page.parent).as_posix()
    assert "<!-- table bytes-movielens-" in text
    assert filled(text, RESULTS, images) == text, "run: python -m evidence.stored_bytes"
    for name in DRAWN:
        file, picture = DATA[name], IMAGES / f"bytes-{name}.png"
        assert picture.exists() == (RESULTS / file).exists()
        if picture.exists():
            assert fingerprint([RESULTS / file]).encode() in picture.read_bytes(), (
                "run: python -m evidence.stored_bytes"
            )
