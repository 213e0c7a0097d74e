"""The dataset folder: arrays that are mapped, not loaded, with a schema and vocabularies beside them."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.schema import Schema
from fieldwise.data.split import SPLITS
from fieldwise.data.vocabulary import Vocabulary

INFO: Final = "dataset.json"
FORMAT: Final = "fieldwise-dataset/1"


@dataclass(frozen=True, slots=True)
class Split:
    """Encoded rows of one split."""

    ids: NDArray[np.int32]
    """(rows, F)"""
    labels: NDArray[np.uint8]
    """(rows,)"""

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
            info = json.loads((folder / INFO).read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"'{folder}' is no dataset: {INFO} is missing. Run `fieldwise prepare`.") from error
        except ValueError as error:
            raise DataError(f"'{folder / INFO}' is damaged ({error}). Prepare the dataset again.") from error
        if info.get("format") != FORMAT:
            raise DataError(f"'{folder}' has format {info.get('format')!r}. Allowed: {FORMAT!r}.")
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

    def vocabulary(self, field: str) -> Vocabulary:
        """The values of one field."""
        return Vocabulary.load(self.folder / vocabulary_file(self.schema.names.index(field)))

    def _split(self, name: str) -> Split:
        rows = self.info["rows"][name]
        # mode "c": pages stay shared and clean, yet torch may wrap them without a warning
        try:
            ids = np.load(self.folder / f"{name}.ids.npy", mmap_mode="c", allow_pickle=False)
            labels = np.load(self.folder / f"{name}.labels.npy", mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"Dataset '{self.folder}': the {name} split cannot be read ({error}). Prepare it again."
            ) from error
        if ids.shape != (rows, len(self.schema)) or labels.shape != (rows,):
            raise DataError(
                f"Dataset '{self.folder}': {name} holds {ids.shape} ids and {labels.shape} labels, "
                f"its {INFO} says {rows} rows of {len(self.schema)} fields. Prepare it again."
            )
        return Split(ids, labels)


class Writer:
    """Writes the arrays of a new dataset into a folder, row batch by row batch."""

    def __init__(self, folder: Path, fields: int, rows: dict[str, int]) -> None:
        self._place = dict.fromkeys(SPLITS, 0)
        self._ids = {s: _array(folder / f"{s}.ids.npy", np.int32, (rows[s], fields)) for s in SPLITS}
        self._labels = {s: _array(folder / f"{s}.labels.npy", np.uint8, (rows[s],)) for s in SPLITS}

    def add(self, split: str, ids: NDArray[np.int32], labels: NDArray[np.uint8]) -> None:
        """Appends rows to a split."""
        start = self._place[split]
        self._place[split] = end = start + len(labels)
        self._ids[split][start:end] = ids
        self._labels[split][start:end] = labels

    def close(self) -> None:
        """Flushes everything to disk."""
        for array in (*self._ids.values(), *self._labels.values()):
            array.flush()


def _array(path: Path, dtype: type, shape: tuple[int, ...]) -> "np.memmap[Any, Any]":
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)


def vocabulary_file(index: int) -> str:
    """Where the vocabulary of the field at this place lies; numbered, since names may hold any character."""
    return f"vocabulary-{index:03d}.parquet"
