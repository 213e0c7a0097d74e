"""The export targets of a model folder, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fieldwise.core.errors import SettingsError
from fieldwise.core.hints import either
from fieldwise.core.lock import exclusive
from fieldwise.core.store import Store
from fieldwise.exports import hand_over
from fieldwise.exports.folder import in_store, load, write_folder
from fieldwise.exports.info import ModelInfo
from fieldwise.exports.onnx import to_onnx
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.program import to_pt2
from fieldwise.exports.tables import Tables
from fieldwise.exports.triton import to_triton
from fieldwise.models.factory import Build
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

FOLDER: Final = "folder"
"""The target that is a model folder itself, to change its store."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an export, and the tables if it wrote their widths."""

    paths: list[Path]
    tables: Tables | None


def export_to(
    target: str,
    model: Path,
    out: Path,
    align: int = 1,
    cls: type[Model] | Build | None = None,
    store: Store | str | None = None,
) -> Exported:
    """Writes the files of `target` to the folder `out`, locked against other processes.

    `cls` is the factory or class of a model that is not part of the library. `store` is the type of its tables; by
    default they are written as the folder has them.
    """
    if out.resolve() == model.resolve():
        raise SettingsError(f"{either('--out', 'out')} '{out}' is the model's own folder. Name another.")
    if target in CONFIGS and store is not None:
        raise SettingsError(
            f"{either(f'--store {store}', f'store={str(store)!r}')} does not apply to '{target}', which holds no "
            f"weights. Leave {either('--store', 'store')} out."
        )
    with exclusive(out):
        return _export_to(target, model, out, align, cls, store)


def _in_store(model: Path, cls: type[Model] | Build | None, store: Store | str | None) -> Predictor:
    found = load(model, model=cls)
    return found if store is None else Predictor(in_store(found.model, store), found.given_encoder)


def _to_folder(predictor: Predictor, model: Path, out: Path) -> list[Path]:
    write_folder(predictor.model, out, predictor.given_encoder, [field.kept for field in ModelInfo.read(model).fields])
    return [out]


def _export_to(
    target: str, model: Path, out: Path, align: int, cls: type[Model] | Build | None, store: Store | str | None
) -> Exported:
    if target in SERVING or target == FOLDER:
        if align != 1:
            raise SettingsError(
                f"{either(f'--align {align}', f'align={align}')} does not apply to '{target}', which serves the "
                f"trained widths. Leave {either('--align', 'align')} out."
            )
        predictor = _in_store(model, cls, store)
        if target == FOLDER:
            return Exported(_to_folder(predictor, model, out), None)
        return Exported(SERVING[target](predictor, out, model.resolve().name), None)
    tables = Tables.of(ModelInfo.read(model), align)
    if target == "torchrec":
        return Exported(hand_over.to_torchrec(_in_store(model, cls, store), tables, out), tables)
    return Exported(CONFIGS[target](tables, out), tables)
