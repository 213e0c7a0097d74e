"""The contents of `model.json`: everything about a model except its weights and vocabularies."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from fieldwise.core.errors import RunError
from fieldwise.core.files import write_json
from fieldwise.core.plain_files import open_regular, read_json
from fieldwise.core.records import Bytes, Record, Size, first_problem
from fieldwise.core.schema import Field as SchemaField
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.store import FLOAT32, StoreText

INFO: Final = "model.json"
WEIGHTS: Final = "model.safetensors"
FORMAT: Final = "fieldwise-model/2"
_FileName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]


class FieldInfo(Record):
    """One field and its columns."""

    name: str
    cardinality: int = Field(ge=1)
    length: int = Field(1, ge=1, le=1000)
    """Maximum number of values per row."""
    width: int = Field(ge=0)
    first_order: int = Field(ge=0, le=1)
    """1 where the field has first-order weights."""
    kept: list[int] | None = None
    """Indices of these columns in the full model, if known."""
    shared: list[Annotated[int, Field(ge=0)]] | None = None
    """Positions of these columns in the vector that the tiers of a column share; None if each field has its own."""


class FileInfo(Record):
    """Size and digest of a file in the folder."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "FileInfo":
        """Reads a file and returns its size and digest."""
        with open_regular(path) as file:
            return cls(bytes=os.fstat(file.fileno()).st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


class TableInfo(Record):
    """One table of a factory's module."""

    path: str
    """The path of the full table in the module."""
    fields: list[Annotated[int, Field(ge=0)]]
    """Indices in `fields` of the fields whose columns it holds."""


class InputInfo(Record):
    """One field of the rows that a factory's module takes."""

    name: str
    cardinality: int = Field(ge=1)
    length: int = Field(1, ge=1, le=1000)


class NarrowInfo(Record):
    """The narrow modules of a compact module, as `pruning.rebuilding.describe` returns them."""

    format: str
    modules: dict[str, dict[str, Any]]
    """Each by its path, with the columns or features that it keeps."""


class ModuleInfo(Record):
    """A factory's module: its inputs and output, its tables, and its narrow modules."""

    inputs: list[InputInfo] = Field(min_length=1)
    by_name: bool
    """Whether it takes a mapping from field names to ids."""
    probabilities: bool
    """Whether it ends in a sigmoid."""
    first_order: int = Field(ge=0)
    """Numbers in tables of width 1."""
    tables: list[TableInfo] = Field(min_length=1)
    narrow: NarrowInfo


class ModelInfo(Record):
    """The contents of `model.json`."""

    format: Literal["fieldwise-model/2"] = FORMAT
    model: dict[str, Any]
    """The base model's name and settings."""
    fields: list[FieldInfo] = Field(min_length=1)
    store: StoreText = FLOAT32
    """The stored type of tables and first-order weights."""
    needs: list[str]
    """The fields that a prediction reads."""
    size: Size
    bytes: Bytes | None = None
    """Bytes of the weights, by part."""
    versions: dict[str, str]
    files: dict[_FileName, FileInfo]
    module: ModuleInfo | None = None
    """Only of a factory's model, whose `fields` are its tables."""

    @property
    def inputs(self) -> Schema:
        """The fields whose ids the model takes."""
        if self.module is None:
            return self.layout.schema
        return Schema(tuple(SchemaField(f.name, f.cardinality, f.length) for f in self.module.inputs))

    @property
    def layout(self) -> Layout:
        """The fields and their widths."""
        fields = tuple(SchemaField(f.name, f.cardinality, f.length) for f in self.fields)
        shared = tuple(tuple(f.shared) for f in self.fields if f.shared is not None) or None
        return Layout(Schema(fields), tuple(f.width for f in self.fields), shared)

    @property
    def linear(self) -> Layout:
        """The layout of the first-order weights: width 1 for each field that has one."""
        return Layout(self.layout.schema, tuple(f.first_order for f in self.fields))

    def on_disk(self, folder: Path) -> dict[str, int]:
        """Bytes of the files that encode raw values, and of all files of the folder."""
        sizes = {name: file.bytes for name, file in self.files.items()}
        encoding = sum(size for name, size in sizes.items() if name != WEIGHTS)
        return {"vocabularies": encoding, "folder": sum(sizes.values()) + (folder / INFO).stat().st_size}

    def write(self, folder: Path) -> None:
        """Writes `model.json`, with a digest of itself."""
        values = self.to_json()
        if self.module is None:
            del values["module"]
        write_json(folder / INFO, {**values, "digest": _digest(values)})

    @classmethod
    def read(cls, folder: Path) -> "ModelInfo":
        """Reads and checks `model.json`, and no other file."""
        try:
            values = read_json(folder / INFO)
        except OSError as error:
            raise RunError(f"'{folder}' holds no model: {error.strerror or error}. {_hint(folder)}") from error
        except ValueError as error:
            raise RunError(f"'{folder / INFO}' is damaged ({error}). Export the model again.") from error
        found = values.pop("format", None) if isinstance(values, dict) else None
        if found != FORMAT:
            raise RunError(f"'{folder / INFO}' has format {found!r}. Allowed: {FORMAT!r}. Export the model again.")
        values["format"], digest = found, values.pop("digest", None)
        if _digest(values) != digest:
            raise RunError(f"'{folder / INFO}' was changed after it was written. Export the model again.")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise RunError(f"'{folder / INFO}' is not valid: {first_problem(error)}. Export it again.") from error


def folder_bytes(info: ModelInfo, folder: Path) -> Bytes:
    """Bytes of a model folder, by part; an older folder's parts follow from its widths."""
    found = info.bytes or Bytes(
        tables=info.store.bytes(info.layout), first_order=info.store.bytes(info.linear), dense=4 * info.size.dense
    )
    return found.model_copy(update=info.on_disk(folder))


def field_infos(layout: Layout, linear: Layout | None, kept: Sequence[Sequence[int] | None]) -> list[FieldInfo]:
    """Returns one `FieldInfo` per field; `kept` are the indices of its columns in the full model, if known."""
    return [
        FieldInfo(
            name=field.name,
            cardinality=field.cardinality,
            length=field.length,
            width=layout.widths[j],
            first_order=linear.widths[j] if linear else 0,
            kept=None if (own := kept[j]) is None else list(own),
            shared=None if layout.shared is None else list(layout.shared[j]),
        )
        for j, field in enumerate(layout.schema.fields)
    ]


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _hint(folder: Path) -> str:
    """Returns advice for a folder without a model: if it is a run, the paths of its models."""
    below = sorted(folder.glob(f"seed-*/compact/*/{INFO}"))
    if below:
        return f"It is a run; name one of its models: {', '.join(str(path.parent) for path in below[:4])}."
    return f"Name a folder with {INFO}, such as RUN/seed-0/compact/BUDGET."
