"""The commands that `kills.py` kills, and the outcomes that must not depend on kills."""

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
"""Keys of records that hold times, ratios of times, or memory."""
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
    """A command, its fraction of the kills, and its outcome."""

    name: str
    words: tuple[str, ...]
    share: float
    outcome: Callable[[Path], Any]
    """Returns the outcome in an output folder as plain values."""
    group: str
    """The row of the table in which it is counted."""
    needs_model: bool = False
    """Whether it needs the model of a complete run."""


def commands() -> list[Command]:
    """Returns all commands; their fractions sum to 1."""
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
    """Returns settings for few epochs of small batches, if the search trains."""
    if name in UNTRAINED:
        return ()
    flags = {"race": (), "rounds": ("search.epochs=2",)}.get(name, ("search.epochs=3", "search.batch=64"))
    more = {"optembed": ("search.evolution.generations=2",)}.get(name, ())
    return tuple(word for flag in (*flags, *more) for word in ("--set", flag))


def write_inputs(folder: Path) -> None:
    """Writes a click log and the settings of a comparison."""
    draw = random.Random(0)
    lines = ["click,user,item,city,price"]
    for _ in range(ROWS):
        user, item = draw.randrange(60), draw.randrange(30)
        click = int(draw.random() < (0.8 if (user * item) % 2 else 0.2))
        lines.append(f"{click},u{user},{item},{draw.choice('abcdefgh')},{draw.random() * 9:.2f}")
    (folder / "clicks.csv").write_text("\n".join(lines) + "\n")
    (folder / "compare.toml").write_text(COMPARE)


def numbers(out: Path) -> Any:
    """Returns every record and mask without times and memory, and the hash of every model."""
    found: dict[str, Any] = {}
    for name in ("record.json", "mask.json", "comparison.json", "dataset.json"):
        for path in sorted(out.rglob(name)):
            found[str(path.relative_to(out))] = timeless(json.loads(path.read_text()))
    for path in sorted([*out.rglob("model.safetensors"), *out.rglob("*.npy"), *out.rglob("vocabulary-*.parquet")]):
        found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found
    return found


def contents(out: Path) -> Any:
    """Returns the hash of every file."""
    found = {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files(out)}
    assert found
    return found


def predictions(out: Path) -> Any:
    """Returns the file names and the predictions of the exported graph, whose bytes differ between exports."""
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
    """Returns every file below a folder, in order."""
    return sorted(path for path in out.rglob("*") if path.is_file())


def timeless(value: Any) -> Any:
    """Returns plain values without the keys that differ between runs."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key not in UNEQUAL}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def half_files(folder: Path) -> Iterator[str]:
    """Yields truncated files under their final name; *.partial files may be truncated until the next command."""
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
