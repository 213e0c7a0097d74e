"""The export targets of a model folder, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fieldwise.core.errors import SettingsError
from fieldwise.core.hints import either
from fieldwise.core.lock import exclusive
from fieldwise.exports import hand_over
from fieldwise.exports.folder import load
from fieldwise.exports.info import ModelInfo
from fieldwise.exports.onnx import to_onnx
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.program import to_pt2
from fieldwise.exports.tables import Tables
from fieldwise.exports.triton import to_triton
from fieldwise.models.model import Model

SERVING: Final[dict[str, Callable[[Predictor, Path, str], list[Path]]]] = {
    "onnx": lambda predictor, out, _: to_onnx(predictor, out / "model.onnx"),
    "pt2": lambda predictor, out, _: to_pt2(predictor, out / "model.pt2"),
    "triton": to_triton,
}
"""Targets that contain the model; the last argument names it in a repository of several."""
CONFIGS: Final[dict[str, Callable[[Tables, Path], list[Path]]]] = {
    "deepctr": hand_over.to_deepctr,
    "fuxictr": hand_over.to_fuxictr,
    "json": hand_over.to_json,
    "torcheasyrec": hand_over.to_torcheasyrec,
}
"""Targets that contain only the widths, for models trained by other libraries."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an export, and the tables if it wrote their widths."""

    paths: list[Path]
    tables: Tables | None


def export_to(target: str, model: Path, out: Path, align: int = 1, cls: type[Model] | None = None) -> Exported:
    """Writes the files of `target` to the folder `out`, locked against other processes.

    `cls` is the class of a model that is not part of the library.
    """
    with exclusive(out):
        return _export_to(target, model, out, align, cls)


def _export_to(target: str, model: Path, out: Path, align: int, cls: type[Model] | None) -> Exported:
    if target in SERVING:
        if align != 1:
            raise SettingsError(
                f"{either(f'--align {align}', f'align={align}')} does not apply to '{target}', which serves the "
                f"trained widths. Leave {either('--align', 'align')} out."
            )
        return Exported(SERVING[target](load(model, model=cls), out, model.resolve().name), None)
    tables = Tables.of(ModelInfo.read(model), align)
    if target == "torchrec":
        return Exported(hand_over.to_torchrec(load(model, model=cls), tables, out), tables)
    return Exported(CONFIGS[target](tables, out), tables)
