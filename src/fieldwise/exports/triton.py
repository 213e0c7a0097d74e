"""Writes a model repository for Triton and KServe: the ONNX graph in a version folder, and its config."""

import json
from pathlib import Path
from typing import Final

from fieldwise.core.files import write_text
from fieldwise.exports.inputs import Input, Kind, inputs_of
from fieldwise.exports.onnx import to_onnx
from fieldwise.exports.predictor import Predictor

MAX_BATCH: Final = 4096
"""Maximum rows per batch that the server may form."""
_TYPES: Final[dict[Kind, str]] = {"text": "STRING", "whole": "INT64", "number": "FP64", "time": "INT64"}


def to_triton(predictor: Predictor, folder: Path, name: str) -> list[Path]:
    """Writes FOLDER/NAME/1/model.onnx, then FOLDER/NAME/config.pbtxt."""
    home = folder / name
    written = to_onnx(predictor, home / "1" / "model.onnx")
    entries = {entry.name: entry for entry in inputs_of(predictor.encoder)}
    write_text(home / "config.pbtxt", _config(name, list(entries.values())))
    return [home / "config.pbtxt", *written]


def _config(name: str, inputs: list[Input]) -> str:
    # the server cannot batch lists of different lengths
    together = not any(entry.several for entry in inputs)
    lines = [
        f"name: {json.dumps(name, ensure_ascii=False)}",
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {MAX_BATCH if together else 0}",
        *(_tensor("input", *shape, together) for entry in inputs for shape in _shapes(entry)),
        _tensor("output", "probability", "FP32", 1, together),
        *(["dynamic_batching { }"] if together else []),
    ]
    return "\n".join(lines) + "\n"


def _shapes(entry: Input) -> list[tuple[str, str, int]]:
    """Returns name, type and number of axes of each tensor of an input."""
    if entry.several:
        return [(entry.name, _TYPES[entry.kind], 2), (entry.length_name, "INT64", 1)]
    return [(entry.name, _TYPES[entry.kind], 1)]


def _tensor(what: str, name: str, kind: str, axes: int, together: bool) -> str:
    """Formats one tensor; if the server forms batches, it owns the first axis and reshapes to the graph's one axis."""
    quoted = json.dumps(name, ensure_ascii=False)
    dims = "[ 1 ] reshape { shape: [ ] }" if together else f"[ {', '.join(['-1'] * axes)} ]"
    return f"{what} [ {{ name: {quoted} data_type: TYPE_{kind} dims: {dims} }} ]"
