"""The benchmarks run: each is started with a small workload and fieldwise as the only contender."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.models import autoint
from fieldwise.train.evaluate import predictions
from fieldwise.train.pretraining import Pretrain

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize(("shape", "fields"), [("criteo", 39), ("movielens", 7)])
def test_against_times_turns_and_sees_the_loss_fall(shape: str, fields: int, tmp_path: Path) -> None:
    out = tmp_path / "against.json"
    where = ["--shape", shape, "--environments", str(tmp_path), "--out", str(out)]
    what = ["--only", "fieldwise", "recbole", "--models", "dcnv2", "--rounds", "1", "--steps", "1"]
    command = [sys.executable, str(BENCHMARKS / "against.py"), *where, *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"recbole is skipped: no {tmp_path}/recbole-venv/bin/python" in done.stdout
    record = json.loads(out.read_text())
    assert (record["fields"], record["rows"]) == (fields, 2048)
    (found,) = record["models"]["dcnv2"].values()
    assert len(found["seconds"]) == 1
    assert found["losses"] == sorted(found["losses"], reverse=True)
    width = fields * 16
    mlp = (width + 1) * 16 + 17 * 16 + 4 * 16
    assert found["parameters"] == record["table_rows"] * 16 + 3 * (width + 1) * width + mlp + width + 17


def test_attention_takes_turns_with_operations_of_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    attention = import_module("attention")
    ways: list[tuple[int, int]] = []

    def timed(step: Callable[[], None]) -> float:
        step()
        ways.append((vars(autoint)["FEWEST"], vars(autoint)["WIDEST"]))
        return float(len(ways))

    for name, value in {"seconds": timed, "ROUNDS": 2, "ROWS": 8, "FIELDS": (3,)}.items():
        monkeypatch.setattr(attention, name, value)
    for name, limit in attention.OWN.items():
        monkeypatch.setattr(autoint, name, limit)
    threads = torch.get_num_threads()
    attention.main()
    torch.set_num_threads(threads)
    assert ways == 4 * [(2**62, 0), (16, 8)]
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| 3 | 1 | 1000.0 | 2000.0 | 2.00 |",
        "| 3 | 2 | 5000.0 | 6000.0 | 1.20 |",
    ]


def test_settle_sees_that_settled_rows_end_where_dense_adam_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    settle = import_module("settle")
    apart, here = settle.trained, settle.inside
    monkeypatch.setattr(settle, "trained", lambda case, to: (here if case.way == "dense" else apart)(case, to))
    out = tmp_path / "settle.json"
    what = ["--shapes", "movielens", "--models", "fm", "--batches", "256", "--ways", "settled", "dense"]
    sizes = ["--steps", "20", "--epochs", "1", "--rounds", "1", "--strength", "0.1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["settle.py", *what, *sizes])
    threads = torch.get_num_threads()
    settle.main()
    torch.set_num_threads(threads)
    settled, dense = json.loads(out.read_text())["cases"]
    assert (settled["by_rows"], dense["by_rows"]) == (True, False)
    assert settled["from_dense"] < 1e-5
    assert settled["auc"] == pytest.approx(dense["auc"], abs=1e-4)


@pytest.mark.slow
def test_a_command_that_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    out = tmp_path / "kills.json"
    what = ["--kills", "2", "--jobs", "1", "--only", "prepare, DuckDB", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "kills.py"), *what], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(out.read_text())["rows"]
    assert row["kills"] >= 2
    assert (row["equal"], row["problems"]) == (row["folders"], 0)


def test_robust_pairs_by_seed_and_averages_over_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    robust = import_module("robust")

    def row(data: str, seed: int, method: str, schedule: str, auc: float) -> dict[str, object]:
        unit = [data, "fm", seed]
        return {"unit": unit, "method": method, "schedule": schedule, "fraction": 0.25, "auc": auc, "cost": 0.5}

    rows = [row("a", seed, "uniform", "constant", 0.7 + seed / 100) for seed in (0, 1)]
    rows += [row("a", seed, "ham", "decay", 0.71 + seed / 100) for seed in (0, 1, 2)]  # seed 2 has no partner
    rows += [row("b", 0, "uniform", "constant", 0.6), row("b", 0, "ham", "decay", 0.59)]
    rows += [row("b-tiers", 0, "ham", "decay", 0.62)]
    rows += [{"unit": ["b", "fm", 0], "method": "mde", "schedule": "decay", "fraction": 0.25, "refused": "too small"}]
    found = robust.summary([*rows, {**row("a", 0, "full", "", 0.9), "fraction": 1.0}])
    assert found == [
        "ham, decay: +0.0000, above in 1 of 2 cells, worst -0.0100, cost 0.50 trainings",
        "ham, decay, tiers: +0.0200, above in 1 of 1 cells, worst +0.0200, cost 0.50 trainings",
        "uniform, constant: +0.0000, above in 0 of 2 cells, worst +0.0000, cost 0.50 trainings",
    ]


def test_cases_without_and_with_tiers_start_from_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    resumable = import_module("resumable")
    rows = pa.table({
        "user": [f"u{i % 7 * (i % 300 + 1) % 301}" if i % 500 else None for i in range(3000)],  # null is rare
        "page": [str(i % 11) for i in range(3000)],
        "click": [int(i % 7 < 3) for i in range(3000)],
    })  # fmt: skip
    for name, tiers in (("tiered", "auto"), ("plain", 0)):
        prepare(Frame(frame=rows, label="click", min_count=1, tiers=tiers), out=tmp_path / name)
    unit = resumable.Unit(tmp_path / "tiered", "fm", 0, "cpu")
    first, cases = unit.cases(Pretrain(epochs=1, harmful="keep"))
    assert first.epochs == 1
    assert len(cases[True].task.schema) > len(cases[False].task.schema) == 2
    plain, tiered = (predictions(case.task.start, case.test)[0] for case in (cases[False], cases[True]))
    torch.testing.assert_close(plain, tiered)
    assert plain.std() > 0
    prepare(Frame(frame=rows.drop_columns("user"), label="click", min_count=1), out=tmp_path / "narrow")
    _, cases = resumable.Unit(tmp_path / "narrow", "fm", 0, "cpu").cases(Pretrain(epochs=1, harmful="keep"))
    assert cases[True].task.schema == cases[False].task.schema, "no column has enough values for tiers"
    plain, tiered = (predictions(case.task.start, case.test)[0] for case in (cases[False], cases[True]))
    torch.testing.assert_close(plain, tiered, rtol=0, atol=0)
    with pytest.raises(SystemExit, match="has no tiers"):
        resumable.Unit(tmp_path / "plain", "fm", 0, "cpu").cases()


def test_joined_times_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    joined, threads = import_module("joined"), torch.get_num_threads()
    rows = pa.table({"user": [f"u{i % 300}" for i in range(3000)], "click": [int(i % 7 < 3) for i in range(3000)]})
    prepare(Frame(frame=rows, label="click", min_count=1), out=tmp_path / "data")
    way, out = joined.retraining.joined_model, tmp_path / "joined.json"
    what = ["--models", "fm", "--budgets", "50% parameters", "6% bytes int4", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["joined.py", str(tmp_path / "data"), *what])
    joined.main()
    torch.set_num_threads(threads)
    found = json.loads(out.read_text())
    assert [(row["model"], row["budget"]) for row in found] == [("fm", "50% parameters"), ("fm", "6% bytes int4")]
    assert all(min(row["pretraining"], row["tiers"], row["joined"]) > 0 for row in found)
    assert joined.retraining.joined_model is way


def test_robust_tells_refused_budgets_from_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    robust = import_module("robust")
    rows = pa.table({
        "user": [f"u{i % 300}" for i in range(3000)], "page": [f"p{i % 11}" for i in range(3000)],
        "click": [int(i % 7 < 3) for i in range(3000)],
    })  # fmt: skip
    prepare(Frame(frame=rows, label="click", min_count=1), out=tmp_path / "data")
    entrants = tuple(robust.Entrant.parse(text) for text in ("mde:decay:tiers", "magnitude:decay:tiers"))
    unit = robust.Cell(tmp_path / "data", "fm", 0, "cpu", (0.25, 0.03), entrants, {"epochs": 1, "harmful": "keep"})
    _, *found = robust.rows_of(unit)
    assert [(row["method"], row["fraction"]) for row in found if "refused" in row] == [("mde", 0.03)]
    assert [(row["method"], row["fraction"]) for row in found if 0 < row.get("auc", 0) < 1] == [
        ("mde", 0.25), ("magnitude", 0.25), ("magnitude", 0.03),
    ]  # fmt: skip
    assert "too small for mde" in found[2]["refused"]
    assert robust.missing(found, ["data", "fm", 0], entrants, (0.25, 0.03)) == (), "neither is measured again"


def test_robust_runs_the_entrants_that_the_output_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    robust = import_module("robust")
    plain, tiers = (robust.Entrant.parse(text) for text in ("uniform:decay", "elimination:decay:tiers"))
    there = {"method": "elimination", "schedule": "decay", "fraction": 0.25, "unit": ["a-tiers", "fm", 0]}
    assert robust.missing([there], ["a", "fm", 0], (plain, tiers), (0.25,)) == (plain,)
    assert robust.missing([there], ["a", "fm", 0], (plain, tiers), (0.25, 0.03)) == (plain, tiers)
    assert robust.missing([there], ["a", "fm", 1], (tiers,), (0.25,)) == (tiers,)
    for text in ("uniform", "uniform:fast", "best:decay", "uniform:decay:rows"):
        monkeypatch.setattr(sys, "argv", ["robust.py", "--out", "rows.jsonl", "--entrants", text])
        with pytest.raises(SystemExit):
            robust.main()
        assert f"got '{text}', allowed: SEARCH:constant|decay" in capsys.readouterr().err


def test_robust_takes_another_split_for_each_seed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    robust, seen = import_module("robust"), list[Any]()

    def noted(measure: object, units: list[Any], *more: object) -> list[Any]:
        seen.extend(units)
        return []

    monkeypatch.setattr(robust, "run", noted)
    given = ["runs/{seed}/a", "runs/b", "--seeds", "2", "--models", "fm", "--out", str(tmp_path / "rows.jsonl")]
    monkeypatch.setattr(sys, "argv", ["robust.py", *given])
    robust.main()
    assert [(str(unit.dataset), unit.key) for unit in seen] == [
        ("runs/0/a", ["a", "fm", 0]), ("runs/b", ["b", "fm", 0]),
        ("runs/1/a", ["a", "fm", 1]), ("runs/b", ["b", "fm", 1]),
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["robust.py", "runs/a-{seed}", *given])
    with pytest.raises(SystemExit):
        robust.main()
    assert "a-{seed}: {seed} must be in a parent folder" in capsys.readouterr().err


def test_equal_bytes_runs_the_shares_that_the_output_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    equal, out, seen = import_module("equal_bytes"), tmp_path / "rows.jsonl", list[Any]()

    def noted(measure: object, units: list[Any], *more: object) -> list[Any]:
        seen.extend(units)
        return []

    monkeypatch.setattr(equal, "run", noted)
    row = {"model": "fm", "seed": 0, "share": 8}
    there = {"elimination": "mixed", "plain full": "int4", "plain uniform": "int4"}
    out.write_text("".join(json.dumps({**row, "method": name, "store": store}) + "\n" for name, store in there.items()))
    for more in ([], ["--plain"], ["--store", "int8"]):
        given = ["runs/a", "--seeds", "2", "--models", "fm", "--shares", "8", "16", "--out", str(out), *more]
        monkeypatch.setattr(sys, "argv", ["equal_bytes.py", *given])
        equal.main()
    assert [(unit.seed, unit.shares, unit.plain, unit.store) for unit in seen] == [
        (0, (16,), False, "mixed"), (1, (8, 16), False, "mixed"), (0, (16,), True, "mixed"),
        (1, (8, 16), True, "mixed"), (0, (8, 16), False, "int8"), (1, (8, 16), False, "int8"),
    ]  # fmt: skip


def test_units_append_their_rows_and_none_starts_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    resumable = import_module("resumable")
    out = tmp_path / "new" / "rows.jsonl"
    assert list(resumable.run(squares, [1, 2], out, minutes=0)) == []
    assert resumable.read(out) == []
    assert list(resumable.run(squares, [2, 3], out)) == [(2, [{"square": 4}], 1), (3, [{"square": 9}], 0)]
    assert resumable.read(out) == [{"square": 4}, {"square": 9}]


def test_units_that_the_output_has_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    resumable = import_module("resumable")
    out = tmp_path / "rows.jsonl"
    out.write_text('{"unit": ["a", "fm", 1]}\n')
    parser = resumable.options("", seeds=3)
    assert parser.parse_args(["--out", str(out)]).seeds == range(3)
    assert parser.parse_args(["--out", str(out), "--seeds", "2"]).seeds == range(2)
    given = parser.parse_args(["--out", str(out), "--seeds", "1", "4"])
    assert (given.seeds, given.models) == ([1, 4], resumable.MODELS)
    units = [resumable.Unit(Path("runs", "a"), "fm", seed, "cpu") for seed in given.seeds]
    monkeypatch.setattr(resumable, "run", lambda _, units, *more: (list(units), *more))
    assert resumable.run_missing(squares, units, given) == (units[1:], out, 1, 1e9)


def squares(number: int) -> list[dict[str, int]]:
    return [{"square": number * number}]
