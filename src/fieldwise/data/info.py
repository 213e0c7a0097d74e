"""The content of `dataset.json`, validated."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fieldwise.data.split import SPLITS

INFO: Final = "dataset.json"
FORMAT: Final = "fieldwise-dataset/1"
SHARDED: Final = "fieldwise-dataset/2"
"""Format of a folder with more than one shard."""
MAX_PLACES: Final = 2**20
"""Maximum number of ids per row."""
_Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    """Values of exactly these types; unknown keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Field(_Strict):
    name: str
    cardinality: int = Field(ge=1, lt=2**31)
    length: int = Field(1, ge=1, le=1000)


class _Split(_Strict):
    clicks: _Count
    unknown: list[_Count]
    nulls: list[_Count]
    unparsed: list[_Count] = []


class _Source(_Strict):
    name: str


class _Made(_Strict):
    source: _Source
    split: dict[str, Any]


class _Info(_Strict):
    fingerprint: str
    rows: dict[Literal["train", "valid", "test"], _Count]
    fields: list[_Field] = Field(min_length=1)
    splits: dict[Literal["train", "valid", "test"], _Split]
    label: str
    skipped: _Count
    untimed: _Count = 0
    dropped: dict[str, str] = {}
    made: _Made
    format: str
    shards: dict[Literal["train", "valid", "test"], list[_Count]] | None = None

    @model_validator(mode="after")
    def _agrees(self) -> "_Info":
        if len(self.rows) < len(SPLITS) or len(self.splits) < len(SPLITS):
            raise ValueError(f"rows and splits must name {', '.join(SPLITS)}")
        if any({len(split.unknown), len(split.nulls)} != {len(self.fields)} for split in self.splits.values()):
            raise ValueError("unknown and nulls must have one count per field")
        if any(len(split.unparsed) not in (0, len(self.fields)) for split in self.splits.values()):
            raise ValueError("unparsed must have one count per field")
        self._check_shards()
        if len({field.name for field in self.fields}) < len(self.fields):
            raise ValueError("field names must be unique")
        if sum(field.length for field in self.fields) > MAX_PLACES:
            raise ValueError(f"a row may have at most {MAX_PLACES} ids")
        return self

    def _check_shards(self) -> None:
        if (self.shards is not None) != (self.format == SHARDED):
            raise ValueError(f"only the format {SHARDED} has shards")
        if self.shards is not None:
            if len(self.shards) < len(SPLITS) or len({len(rows) for rows in self.shards.values()}) != 1:
                raise ValueError(f"shards must have one count per shard for each of {', '.join(SPLITS)}")
            if any(sum(rows) != self.rows[name] for name, rows in self.shards.items()):
                raise ValueError("the rows of the shards must be those of the splits")


def validate_info(info: dict[str, Any]) -> None:
    """Raises ValidationError if this is not the content of a `dataset.json`."""
    _Info.model_validate(info)
