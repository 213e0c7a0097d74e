"""The commands that `kills.py` kills, and what must be equal however often they were."""

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fieldwise.searches import SEARCHES

ROWS: Final = 2_000
UNEQUAL: Final = ("seconds", "peak_memory", "search_seconds", "search_memory", "search_share", "total_share")
"""Keys of records that hold times, shares of times, or memory."""
UNTRAINED: Final = ("magnitude", "magnitude-rms", "mde", "random", "sseds", "uniform")
RUN: Final = (
    "run", "--source", "table", "--raw", "clicks.csv", "--label", "click", "--device", "cpu", "--budget", "9",
    "--model", "dcnv2", "--set", "model.width=4", "--set", "pretrain.epochs=3", "--set", "retrain.epochs=3", "--set",
    "pretrain.batch=64", "--set", "retrain.batch=64",
)  # fmt: skip
PREPARE: Final = ("prepare", "--source", "table", "--raw", "clicks.csv", "--label", "click")
COMPARE: Final = """\
[compare]
methods = ["ham", "uniform"]
[run]
budgets = ["6", "9"]
device = "cpu"
[data]
name = "table"
raw = "clicks.csv"
label = "click"
[model]
width = 4
[pretrain]
epochs = 2
batch = 64
[retrain]
epochs = 2
batch = 64
[methods.ham]
epochs = 2
batch = 64
"""


@dataclass(frozen=True)
class Command:
    """A command, its share of the kills, and what it ends with."""

    name: str
    words: tuple[str, ...]
    share: float
    outcome: Callable[[Path], Any]
    """The output folder to plain values."""
    group: str
    """The row of the table it is counted in."""
    needs_model: bool = False
    """Whether it works on a model that a run has left."""


def commands() -> list[Command]:
    """All of them; shares add up to 1."""
    found = [
        Command(
            f"run, {name}", (*RUN, "--search", name, *_brief(name), "--out", "out"), 0.5 / len(SEARCHES), numbers, "run"
        )
        for name in SEARCHES
    ]
    spark = ("--engine", "spark", "--set", "engine.memory=1024")
    found += [
        Command("prepare, DuckDB", (*PREPARE, "--engine", "duckdb", "--out", "out"), 0.15, contents, "prepare, DuckDB"),
        Command("prepare, Spark", (*PREPARE, *spark, "--out", "out"), 0.05, contents, "prepare, Spark"),
        Command("compare", ("compare", "compare.toml", "--jobs", "2", "--out", "out"), 0.15, numbers, "compare"),
    ]
    shares = {"onnx": 0.06, "pt2": 0.03, "json": 0.03, "triton": 0.03}
    for target, share in shares.items():
        words = ("export", "model", "--to", target, "--out", "out")
        outcome = contents if target == "json" else predictions
        found.append(Command(f"export, {target}", words, share, outcome, f"export, {target}", needs_model=True))
    return found


def _brief(name: str) -> tuple[str, ...]:
    """Few epochs of small batches, where a search trains."""
    if name in UNTRAINED:
        return ()
    flags = {"race": (), "rounds": ("search.epochs=2",)}.get(name, ("search.epochs=3", "search.batch=64"))
    more = {"optembed": ("search.evolution.generations=2",)}.get(name, ())
    return tuple(word for flag in (*flags, *more) for word in ("--set", flag))


def write_inputs(folder: Path) -> None:
    """A click log and the settings of a comparison."""
    draw = random.Random(0)
    lines = ["click,user,item,city,price"]
    for _ in range(ROWS):
        user, item = draw.randrange(60), draw.randrange(30)
        click = int(draw.random() < (0.8 if (user * item) % 2 else 0.2))
        lines.append(f"{click},u{user},{item},{draw.choice('abcdefgh')},{draw.random() * 9:.2f}")
    (folder / "clicks.csv").write_text("\n".join(lines) + "\n")
    (folder / "compare.toml").write_text(COMPARE)


def numbers(out: Path) -> Any:
    """Every record and mask without what a clock or the memory says, and the bits of every model."""
    found: dict[str, Any] = {}
    for name in ("record.json", "mask.json", "comparison.json", "dataset.json"):
        for path in sorted(out.rglob(name)):
            found[str(path.relative_to(out))] = timeless(json.loads(path.read_text()))
    for path in sorted([*out.rglob("model.safetensors"), *out.rglob("*.npy"), *out.rglob("vocabulary-*.parquet")]):
        found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found
    return found


def contents(out: Path) -> Any:
    """Every file's bits."""
    found = {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files(out)}
    assert found
    return found


def predictions(out: Path) -> Any:
    """The names of the files, and what the exported graph predicts; the graph's own bits hold names of the moment."""
    names = [str(path.relative_to(out)) for path in files(out)]
    graphs = {name: _predicted(out / name) for name in names if name.endswith((".onnx", ".pt2"))}
    assert graphs
    return {"files": names, "predictions": graphs}


def _predicted(path: Path) -> list[float]:
    import numpy as np

    if path.suffix == ".pt2":
        import torch

        program = torch.export.load(path)
        found: list[float] = program.module()(*program.example_inputs[0]).tolist()
        return found
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kinds = {"tensor(string)": (np.str_, "u7"), "tensor(int64)": (np.int64, 7), "tensor(double)": (np.float64, 1.5)}
    rows: dict[str, Any] = {}
    for one in session.get_inputs():
        kind, value = kinds.get(one.type, (np.float32, 1.5))
        rows[one.name] = np.full(
            [3, *(1 if not isinstance(size, int) else size for size in one.shape[1:])], value, kind
        )
    return [float(number) for number in np.ravel(session.run(None, rows)[0])]


def files(out: Path) -> list[Path]:
    """Every file below a folder, in order."""
    return sorted(path for path in out.rglob("*") if path.is_file())


def timeless(value: Any) -> Any:
    """Plain values without keys that no two runs share."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key not in UNEQUAL}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def half_files(folder: Path) -> Iterator[str]:
    """Files under their own name that are not whole; those named as partial may be half until the next command."""
    for path in files(folder):
        if any(part.endswith(".partial") for part in path.relative_to(folder).parts):
            continue
        if path.suffix == ".json" and not _readable(path):
            yield str(path)
        if path.suffix == ".safetensors" and not _holds_its_tensors(path):
            yield str(path)
        if path.suffix == ".parquet" and (path.read_bytes()[:4], path.read_bytes()[-4:]) != (b"PAR1", b"PAR1"):
            yield str(path)


def _readable(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except ValueError:
        return False
    return True


def _holds_its_tensors(path: Path) -> bool:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError:
        return False
    return len(data) == 8 + length + max(
        (one["data_offsets"][1] for k, one in header.items() if k != "__metadata__"), default=0
    )
