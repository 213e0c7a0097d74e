"""The dataset folder: memory-mapped arrays, schema, rules and vocabularies."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fieldwise.core.display import Shown, View
from fieldwise.core.errors import DataError
from fieldwise.core.hints import either
from fieldwise.core.plain_files import read_json
from fieldwise.core.records import first_problem
from fieldwise.core.schema import Schema
from fieldwise.data.encoder import Encoder
from fieldwise.data.info import FORMAT, INFO, SHARDED, validate_info
from fieldwise.data.joined import JoinedIds
from fieldwise.data.kinds.check import KINDS, Check
from fieldwise.data.sharded import ShardedArray
from fieldwise.data.shards import PARTS, Shard, arrays, as_one, folder_of
from fieldwise.data.split import SPLITS
from fieldwise.data.vocabulary import Vocabulary

_ROWS: Final = 2**16
"""Rows checked per chunk."""


@dataclass(frozen=True, slots=True, repr=False)
class Split:
    """Encoded rows of one split."""

    ids: NDArray[np.int32] | ShardedArray | JoinedIds
    """(rows, places): one id per field, more for multi-valued fields."""
    labels: NDArray[np.uint8] | NDArray[np.float32]
    """(rows,): clicks, or soft labels between 0 and 1 for training."""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Split({len(self):,} rows, {self.ids.shape[1]} ids each)"


@dataclass(frozen=True, repr=False)
class Dataset(Shown):
    """An encoded click log in a folder. Splits are opened on first use."""

    folder: Path
    info: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> "Dataset":
        """Reads the description of a dataset folder; refuses other folders."""
        folder = Path(folder)
        try:
            info = read_json(folder / INFO)
        except FileNotFoundError as error:
            inside = folder / "dataset"  # of a run
            do = f"Name '{inside}'." if (inside / INFO).is_file() else _make()
            raise DataError(f"'{folder}' is not a dataset: {INFO} is missing. {do}") from error
        except OSError as error:
            raise DataError(f"'{folder}' is not a dataset: {error}. {_make()}") from error
        except ValueError as error:
            raise DataError(f"'{folder / INFO}' is damaged ({error}). Prepare the dataset again.") from error
        found = info.get("format") if isinstance(info, dict) else None
        if found not in (FORMAT, SHARDED):
            raise DataError(
                f"'{folder}' has format {found!r:.80}. Allowed: {FORMAT!r} and {SHARDED!r}. Prepare it again."
            )
        try:
            validate_info(info)
        except ValidationError as error:
            raise DataError(
                f"'{folder / INFO}' is damaged ({first_problem(error)}). Prepare the dataset again."
            ) from error
        return cls(folder, info)

    @property
    def fingerprint(self) -> str:
        """Digest of the encoded rows and the schema."""
        return str(self.info["fingerprint"])

    @property
    def source(self) -> str:
        """Name of the source."""
        return str(self.info["made"]["source"]["name"])

    @property
    def title(self) -> str:
        """What reports call the rows: the raw files of the source `table`, else the source."""
        files = self.info["made"]["source"].get("raw")
        if self.source != "table" or not isinstance(files, dict) or not files:
            return self.source.rpartition(":")[2]
        first = str(next(iter(files)))
        return first if len(files) == 1 else f"{first} and {len(files) - 1} more"

    @cached_property
    def schema(self) -> Schema:
        """Fields and cardinalities."""
        return Schema.from_json(self.info["fields"])

    @cached_property
    def train(self) -> Split:
        """Rows for training weights."""
        return self._split("train")

    @cached_property
    def valid(self) -> Split:
        """Rows for early stopping, gates and the choice of settings."""
        return self._split("valid")

    @cached_property
    def test(self) -> Split:
        """Rows for the final evaluation."""
        return self._split("test")

    @cached_property
    def kinds(self) -> Check | None:
        """What each raw column is, and why; None for a folder of an earlier version."""
        try:
            return Check.model_validate(read_json(self.folder / KINDS))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            why = first_problem(error)
        except (OSError, ValueError) as error:
            why = str(error)
        raise DataError(f"'{self.folder / KINDS}' is damaged ({why}). Prepare the dataset again.")

    @cached_property
    def encoder(self) -> Encoder:
        """Encoder of new raw rows."""
        return Encoder.open(self.folder, self.schema)

    def view(self) -> View:
        """The splits with their label rates, and the fields with their unknown and null values."""
        rows, splits = self.info["rows"], self.info["splits"]
        sizes = (f"{name} {n:,} ({splits[name]['clicks'] / max(1, n):.2%} clicks)" for name, n in rows.items())
        lines = (f"Rows: {', '.join(sizes)}", *([f"Bad rows skipped: {n:,}"] if (n := self.info["skipped"]) else []))
        percent = {
            what: [
                "/".join(f"{100 * splits[name][what][i] / max(1, n):.1f}" for name, n in rows.items())
                for i in range(len(self.schema))
            ]
            for what in ("unknown", "nulls")
        }
        fields = zip(self.schema.fields, percent["unknown"], percent["nulls"], strict=True)
        return View(
            f"Dataset '{self.folder}': {self.source}, label '{self.info['label']}', {len(self.schema)} fields",
            lines,
            ("field", "cardinality", "unknown % train/valid/test", "null %"),
            tuple((field.name, f"{field.cardinality:,}", unknown, null) for field, unknown, null in fields),
        )

    def vocabulary(self, field: str) -> Vocabulary:
        """Returns the vocabulary of a field."""
        return self.encoder.fields[self.schema.names.index(field)].vocabulary

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The folders of arrays, in the order of the rows; the dataset folder itself if there is only one."""
        rows: dict[str, list[int]] = self.info.get("shards") or {name: [n] for name, n in self.info["rows"].items()}
        count = len(rows[SPLITS[0]])
        return tuple(
            Shard(folder_of(self.folder, index, count), {name: rows[name][index] for name in SPLITS})
            for index in range(count)
        )

    def _split(self, name: str) -> Split:
        try:
            ids, labels = (arrays(self.shards, name, part) for part in PARTS)
        except (OSError, ValueError, OverflowError, SyntaxError, TypeError, EOFError, TokenError) as error:
            raise DataError(
                f"Dataset '{self.folder}': the {name} split cannot be read ({error}). Prepare it again."
            ) from error
        for rows, *found in zip((n for s in self.shards if (n := s.rows[name])), ids, labels, strict=True):
            self._check_arrays(name, rows, *found)
        return Split(as_one(ids), labels[0] if len(labels) == 1 else np.concatenate(labels))

    def _check_arrays(self, split: str, rows: int, ids: NDArray[np.int32], labels: NDArray[np.uint8]) -> None:
        if ids.shape != (rows, self.schema.places) or labels.shape != (rows,):
            raise DataError(
                f"Dataset '{self.folder}': {split} holds {ids.shape} ids and {labels.shape} labels, "
                f"{INFO} says {rows} rows of {len(self.schema)} fields. Prepare it again."
            )
        if ids.dtype != np.int32 or labels.dtype != np.uint8:
            raise DataError(
                f"Dataset '{self.folder}': {split} holds ids of type {ids.dtype} and labels of type {labels.dtype}. "
                "Allowed: int32 and uint8. Prepare it again."
            )
        _check_rows(self.folder, split, self.schema, ids, labels)


def _make() -> str:
    return either("Run `fieldwise prepare`.", "Make one with fw.prepare.")


def _check_rows(folder: Path, split: str, schema: Schema, ids: NDArray[np.int32], labels: NDArray[np.uint8]) -> None:
    """Refuses ids outside a field's table, which would read another field's rows, and labels other than 0 and 1.

    Checks once, so that training does not have to. Only multi-valued fields may have padding, -1.
    """
    owners = np.repeat(np.arange(len(schema)), schema.lengths)
    multi_valued = np.asarray(schema.lengths)[owners] > 1
    limits = np.asarray(schema.cardinalities)[owners] + multi_valued
    for start in range(0, len(labels), _ROWS):
        part = ids[start : start + _ROWS].view(np.uint32)  # negative ids become very large
        largest = part.max(0).astype(np.int64)
        if multi_valued.any():
            largest[multi_valued] = (part[:, multi_valued] + np.uint32(1)).max(0)  # padding becomes 0
        if (largest >= limits).any():
            bad = schema.names[owners[int((largest >= limits).argmax())]]
            raise DataError(
                f"Dataset '{folder}': {split} holds ids of '{bad}' that are out of range. Prepare it again."
            )
        if labels[start : start + _ROWS].max() > 1:
            raise DataError(f"Dataset '{folder}': {split} holds labels other than 0 and 1. Prepare it again.")
