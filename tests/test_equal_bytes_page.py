"""The page at equal stored bytes: its numbers, and that it agrees with the results."""

import json
from pathlib import Path

import pytest

from evidence.equal_bytes import (
    IMAGES,
    PAGES,
    PLAIN,
    RESULTS,
    TUNED,
    Models,
    filled,
    front,
    full,
    plain,
    read,
    short,
    trivial,
    untuned,
)


@pytest.fixture
def models(tmp_path: Path) -> Models:
    """One model, two seeds: at 1/8 the full model in int4 fits, with its scales, and is the best without a search."""
    lines = []
    for seed in (0, 1):
        for method, share, store, size, auc in (
            ("full", 1, "float32", 8000, 0.8), ("plain full", 1, "float32", 8000, 0.78),
            ("full", 1, "int8", 2000, 0.799), ("full", 1, "int4", 1009, 0.795),
            ("plain uniform", 8, "int4", 1000, 0.76), ("plain uniform", 16, "int4", 500, 0.72),
            ("uniform", 8, "int8", 1000, 0.78), ("uniform", 8, "int4", 1000, 0.79),
            ("elimination", 8, "int8", 1000, 0.81), ("elimination", 8, "mixed", 1000, 0.82),
            ("uniform", 16, "int8", 500, 0.7), ("uniform", 16, "int4", 500, 0.71),
            ("elimination", 16, "int8", 500, 0.70), ("elimination", 16, "mixed", 500, 0.70),
        ):  # fmt: skip
            noise = seed / 1000 * (2 if method == "elimination" else 1)
            row = {"model": "fm", "seed": seed, "method": method, "share": share, "store": store, "bytes": size}
            seconds = {"full": 20, "plain full": 15, "uniform": 10, "plain uniform": 30, "elimination": 15}[method]
            pretraining = 15 if method.startswith("plain") else 20
            lines.append(json.dumps({**row, "auc": auc + noise, "seconds": seconds, "pretraining": pretraining}))
    path = tmp_path / "equal.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return read(path)


def test_the_best_answer_without_a_search_must_fit(models: Models) -> None:
    assert trivial(models["fm"][8], 8) == ("full", 1, "int4")
    assert trivial(models["fm"][16], 16) == ("uniform", 16, "int4")


def test_differences_are_paired_by_seed(models: Models) -> None:
    first, second = front(models)[2:]
    start = "| FM | 1/8 | 2 | 0.8005 | full int4 0.7955 | 0.8210 | +0.0255 | +0.0205 | 0.00 | 0.75 | 0.012 | 0.025 |"
    assert first.startswith(start)
    assert "| 1/16 | 2 | 0.8005 | uniform int4 0.7105 | 0.7010 | -0.0095 | -0.0995 | 0.50 | 0.75 |" in second


def test_seeds_of_tuning_are_left_out(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(untuned(models)) == 2, "all were"
    monkeypatch.setitem(TUNED, "fm", 1)
    assert untuned(models)[2:] == ["| FM | 1/8 | 1 | +0.0260 |  |", "| FM | 1/16 | 1 | -0.0090 |  |"]
    monkeypatch.setitem(TUNED, "fm", 0)
    assert untuned(models)[2] == "| FM | 1/8 | 2 | +0.0255 | 0.012 |"


def test_answers_trained_plainly_have_their_own_table(models: Models) -> None:
    del models["fm"][16]["plain uniform", 16, "int4"][1]
    first, second = plain(models)[2:]
    start = "| FM | 1/8 | 2 | 0.8005 | full int4 0.7955 | 0.8210 | +0.0255 | +0.0205 | 0.00 | 0.75 | 0.012 | 0.025 |"
    assert first == start
    one = "| FM | 1/16 | 1 | 0.8000 | plain uniform int4 0.7200 | 0.7000 | -0.0200 | -0.1000 | 2.00 | 0.75 | 1 | 1 |"
    assert second == one, "one seed has no p"


def test_the_short_table_marks_the_better(models: Models) -> None:
    lines = short(models)
    assert lines[0] == "| bytes, of 8 to 8 KB | test AUC, mean of 2 seeds | FM |"
    assert lines[2:5] == [
        "| 1 | full model, float32 | 0.8005 |",
        "| 1/8 | one width for all fields, int4 | 0.7955 |",
        "| 1/8 | the default, int4 and int8 | **0.8210** |",
    ]


def test_full_models_of_the_paper_stand_beside(models: Models) -> None:
    assert full(models)[2:] == ["| default pretraining | 0.8005 |", "| the paper's orthogonality | 0.8985 |"]


def test_the_page_on_disk_agrees_with_the_results() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "<!-- picture equal-bytes -->" in text
        images = IMAGES.relative_to(page.parent).as_posix()
        assert filled(text, read(RESULTS, PLAIN), images) == text, "run: python -m evidence.equal_bytes"
