"""MovieLens-1M as published by GroupLens: ratings above 3 are clicks, below 3 are not, 3 is dropped."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from fieldwise.core.errors import DataError
from fieldwise.data.source import Source, SourceRows

Variant = Literal["ids", "recbole", "autoint"]
VARIANTS: Final[dict[Variant, tuple[str, ...]]] = {
    "ids": ("user", "movie", "gender", "age", "occupation", "zip", "genres"),
    "recbole": ("user", "movie", "age", "gender", "occupation", "genres", "year"),
    "autoint": ("gender", "age", "occupation", "zip", "genres", "year", "timestamp"),
}
"""The paper uses seven fields but does not name them; these are three common choices."""

_FILES: Final = {
    "ratings.dat": ("user", "movie", "rating", "timestamp"),
    "users.dat": ("user", "gender", "age", "occupation", "zip"),
    "movies.dat": ("movie", "title", "genres"),
}


class MovieLens1M(Source):
    """The zip file, or a folder with ratings.dat, users.dat and movies.dat."""

    raw: Path
    """Path of the zip file or the folder."""
    variant: Variant = "ids"
    """Choice of the seven fields: ids, recbole or autoint."""

    def open(self) -> SourceRows:
        """Returns the joined ratings; all genres of a movie are one value, timestamps are categories."""
        tables = {name: self._read(name, columns) for name, columns in _FILES.items()}
        movies = tables["movies.dat"]
        year = pc.struct_field(pc.extract_regex(movies["title"], r"\((?P<year>\d{4})\)\s*$"), "year")
        ratings = tables["ratings.dat"]
        ratings = ratings.filter(pc.not_equal(ratings["rating"], "3"))
        click = pc.greater(pc.cast(ratings["rating"], pa.int8()), 3).cast(pa.uint8())
        joined = (
            ratings.append_column("click", click)
            .join(tables["users.dat"], "user")
            .join(movies.append_column("year", year), "movie")
            .sort_by([("user", "ascending"), ("movie", "ascending")])  # a join does not preserve the order
        )
        fields = VARIANTS[self.variant]
        wanted = joined.select(list(dict.fromkeys([*fields, "click", "user", "movie"])))

        def batches() -> Iterator[pa.RecordBatch]:
            return iter(wanted.to_batches(max_chunksize=262_144))

        return SourceRows(fields, "click", ("user", "movie"), batches, wanted.num_rows)

    def origin(self) -> dict[str, Any]:
        """Returns the settings without the path, plus the file sizes."""
        sizes = {name: len(self._bytes(name)) for name in _FILES}
        return {**self.values(), "raw": sizes}

    def _bytes(self, name: str) -> bytes:
        hint = "Give the MovieLens-1M zip of GroupLens, or the folder ml-1m inside it."
        if not self.raw.exists():
            raise DataError(f"MovieLens-1M: '{self.raw}' does not exist. {hint}")
        try:
            if self.raw.is_dir():
                return (self.raw / name).read_bytes()
            with zipfile.ZipFile(self.raw) as archive:
                return archive.read(f"ml-1m/{name}")
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise DataError(f"MovieLens-1M: '{self.raw}' holds no {name} ({error}). {hint}") from error

    def _read(self, name: str, columns: tuple[str, ...]) -> pa.Table:
        text = self._bytes(name).decode("latin-1")
        try:
            return csv.read_csv(
                io.BytesIO(text.replace("\t", " ").replace("::", "\t").encode()),
                read_options=csv.ReadOptions(column_names=list(columns)),
                parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
                convert_options=csv.ConvertOptions(
                    column_types={column: pa.string() for column in columns}, strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
            raise DataError(
                f"MovieLens-1M: {name} in '{self.raw}' is damaged ({error}). "
                f"Allowed: lines of {'::'.join(columns)}. Download the archive again."
            ) from error
