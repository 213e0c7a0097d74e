"""What a source of raw rows must say."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pydantic import Field

from fieldwise.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Rows:
    """Raw rows in batches of columns; each call of `batches` reads them again, in the same order."""

    fields: tuple[str, ...]
    """The columns that become fields, in order."""
    label: str
    """The column of 0 and 1."""
    key: tuple[str, ...]
    """The columns that name a row; the split is a hash of them."""
    batches: Callable[[], Iterator[pa.RecordBatch]]
    count: int | None = None
    """How many rows there are, where that is known before reading."""


class Source(Settings):
    """Settings of a source; `open` gives its rows."""

    min_count: int = Field(1, ge=1)
    """Values seen fewer times in the training rows share the id `unknown`."""

    @abstractmethod
    def open(self) -> Rows:
        """The raw rows; refuses missing or foreign files."""

    def origin(self) -> dict[str, Any]:
        """What identifies the raw rows, wherever they lie: the settings, and sizes of files."""
        return self.values()
