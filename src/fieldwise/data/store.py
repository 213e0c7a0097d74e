"""The dataset folder: arrays that are mapped, not loaded, with a schema, rules and vocabularies beside them."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fieldwise.core.errors import DataError
from fieldwise.core.plain_files import check_regular, read_json
from fieldwise.core.records import first_problem
from fieldwise.core.schema import Schema
from fieldwise.data.encoder import Encoder
from fieldwise.data.info import FORMAT, INFO, check
from fieldwise.data.split import SPLITS
from fieldwise.data.vocabulary import Vocabulary

_ROWS: Final = 2**16
"""Rows that are checked at a time."""


@dataclass(frozen=True, slots=True)
class Split:
    """Encoded rows of one split."""

    ids: NDArray[np.int32]
    """(rows, places): one column for each field, more where a row may hold several values"""
    labels: NDArray[np.uint8] | NDArray[np.float32]
    """(rows,); clicks, or for training what stands between no click and one"""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """An encoded click log in a folder. Splits are opened when first asked for."""

    folder: Path
    info: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> "Dataset":
        """Reads what the folder says of itself; refuses one that is not a dataset."""
        folder = Path(folder)
        try:
            info = read_json(folder / INFO)
        except FileNotFoundError as error:
            raise DataError(f"'{folder}' is no dataset: {INFO} is missing. Run `fieldwise prepare`.") from error
        except OSError as error:
            raise DataError(f"'{folder}' is no dataset: {error}. Run `fieldwise prepare`.") from error
        except ValueError as error:
            raise DataError(f"'{folder / INFO}' is damaged ({error}). Prepare the dataset again.") from error
        found = info.get("format") if isinstance(info, dict) else None
        if found != FORMAT:
            raise DataError(f"'{folder}' has format {found!r:.80}. Allowed: {FORMAT!r}.")
        try:
            check(info)
        except ValidationError as error:
            raise DataError(
                f"'{folder / INFO}' is damaged ({first_problem(error)}). Prepare the dataset again."
            ) from error
        return cls(folder, info)

    @property
    def fingerprint(self) -> str:
        """Stands for the encoded rows and the schema."""
        return str(self.info["fingerprint"])

    @property
    def source(self) -> str:
        """The name of the source it was made from."""
        return str(self.info["made"]["source"]["name"])

    @cached_property
    def schema(self) -> Schema:
        """Fields and cardinalities."""
        return Schema.from_json(self.info["fields"])

    @cached_property
    def train(self) -> Split:
        """Rows that weights are fitted on."""
        return self._split("train")

    @cached_property
    def valid(self) -> Split:
        """Rows that choose: early stops, gates, settings."""
        return self._split("valid")

    @cached_property
    def test(self) -> Split:
        """Rows that are read once, at the end."""
        return self._split("test")

    @cached_property
    def encoder(self) -> Encoder:
        """Encodes new raw rows as the dataset's own were encoded."""
        return Encoder.open(self.folder, self.schema)

    def vocabulary(self, field: str) -> Vocabulary:
        """The values of one field."""
        return self.encoder.fields[self.schema.names.index(field)].vocabulary

    def _split(self, name: str) -> Split:
        rows = self.info["rows"][name]
        # mode "c": pages stay shared and clean, yet torch may wrap them without a warning
        try:
            ids, labels = (_mapped(self.folder / f"{name}.{part}.npy") for part in ("ids", "labels"))
        except (OSError, ValueError, OverflowError, SyntaxError, TypeError) as error:
            raise DataError(
                f"Dataset '{self.folder}': the {name} split cannot be read ({error}). Prepare it again."
            ) from error
        if ids.shape != (rows, self.schema.places) or labels.shape != (rows,):
            raise DataError(
                f"Dataset '{self.folder}': {name} holds {ids.shape} ids and {labels.shape} labels, "
                f"its {INFO} says {rows} rows of {len(self.schema)} fields. Prepare it again."
            )
        if ids.dtype != np.int32 or labels.dtype != np.uint8:
            raise DataError(
                f"Dataset '{self.folder}': {name} holds ids of type {ids.dtype} and labels of type {labels.dtype}. "
                "Allowed: int32 and uint8. Prepare it again."
            )
        _check_rows(self.folder, name, self.schema, ids, labels)
        return Split(ids, labels)


def _mapped(path: Path) -> NDArray[Any]:
    check_regular(path)
    found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return found


def _check_rows(folder: Path, split: str, schema: Schema, ids: NDArray[np.int32], labels: NDArray[np.uint8]) -> None:
    """Refuses ids that no row of a field's table has, which would be another field's, and labels but 0 and 1.

    One pass, so that training need not ask; padding, -1, is only for fields with several values a row.
    """
    owners = np.repeat(np.arange(len(schema)), schema.lengths)
    several = np.asarray(schema.lengths)[owners] > 1
    limits = np.asarray(schema.cardinalities)[owners] + several
    for start in range(0, len(labels), _ROWS):
        part = ids[start : start + _ROWS].view(np.uint32)  # below 0 becomes very large
        largest = part.max(0).astype(np.int64)
        if several.any():
            largest[several] = (part[:, several] + np.uint32(1)).max(0)  # and padding 0
        if (largest >= limits).any():
            bad = schema.names[owners[int((largest >= limits).argmax())]]
            raise DataError(
                f"Dataset '{folder}': {split} holds ids of '{bad}' that it does not have. Prepare it again."
            )
        if labels[start : start + _ROWS].max() > 1:
            raise DataError(f"Dataset '{folder}': {split} holds labels other than 0 and 1. Prepare it again.")


class Summary:
    """What there is in one split: clicks, and for each field unknown and empty values."""

    def __init__(self, fields: int) -> None:
        self._clicks = 0
        self._unknown = np.zeros(fields, np.int64)
        self._nulls = np.zeros(fields, np.int64)

    def add(self, labels: NDArray[np.uint8], unknown: NDArray[np.bool_], nulls: NDArray[np.bool_]) -> None:
        """Counts some rows more."""
        self._clicks += int(labels.sum())
        self._unknown += unknown.sum(0)
        self._nulls += nulls.sum(0)

    def to_json(self) -> dict[str, Any]:
        """Plain counts."""
        return {"clicks": self._clicks, "unknown": self._unknown.tolist(), "nulls": self._nulls.tolist()}


class Writer:
    """Writes the arrays of a new dataset into a folder, row batch by row batch."""

    def __init__(self, folder: Path, places: int, rows: dict[str, int]) -> None:
        self._files = {}
        for name in SPLITS:
            self._files[name] = (
                _array(folder / f"{name}.ids.npy", np.dtype(np.int32), (rows[name], places)),
                _array(folder / f"{name}.labels.npy", np.dtype(np.uint8), (rows[name],)),
            )

    def add(self, split: str, ids: NDArray[np.int32], labels: NDArray[np.uint8]) -> None:
        """Appends rows to a split."""
        for file, array in zip(self._files[split], (ids, labels), strict=True):
            file.write(np.ascontiguousarray(array).data)

    def close(self) -> None:
        """Flushes everything to disk."""
        for files in self._files.values():
            for file in files:
                file.flush()
                os.fsync(file.fileno())
                file.close()


def _array(path: Path, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> BinaryIO:
    """A new .npy file after its header; written as a stream, since a full disk kills whoever writes to mapped pages."""
    file = path.open("wb")
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return file
