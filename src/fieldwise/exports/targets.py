"""Everything a model folder can be exported to, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fieldwise.core.errors import RunError
from fieldwise.exports import hand_over
from fieldwise.exports.folder import load
from fieldwise.exports.info import ModelInfo
from fieldwise.exports.onnx import to_onnx
from fieldwise.exports.program import to_pt2
from fieldwise.exports.tables import Tables
from fieldwise.exports.triton import to_triton

CONFIGS: Final[dict[str, Callable[[Tables, Path], list[Path]]]] = {
    "deepctr": hand_over.to_deepctr,
    "fuxictr": hand_over.to_fuxictr,
    "json": hand_over.to_json,
    "torcheasyrec": hand_over.to_torcheasyrec,
}
"""Widths alone, for models that are trained elsewhere."""


@dataclass(frozen=True, slots=True)
class Written:
    """The files of an export, and the tables where their widths were handed over."""

    paths: list[Path]
    tables: Tables | None


def export_to(target: str, model: Path, out: Path, align: int = 1) -> Written:
    """Writes what `target` reads into the folder `out`."""
    if target in ("onnx", "pt2", "triton"):
        if align != 1:
            raise RunError(f"--align {align} is for widths that are handed over; '{target}' serves the model as it is.")
        predictor = load(model)
        if target == "triton":
            return Written(to_triton(predictor, out, model.resolve().name), None)
        write = {"onnx": to_onnx, "pt2": to_pt2}[target]
        return Written(write(predictor, out / f"model.{target}"), None)
    if target == "torchrec":
        tables = Tables.of(ModelInfo.read(model), align)
        return Written(hand_over.to_torchrec(load(model), tables, out), tables)
    tables = Tables.of(ModelInfo.read(model), align)
    return Written(CONFIGS[target](tables, out), tables)
