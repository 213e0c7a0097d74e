"""Encodes staged rows to shards, here or in an engine's own processes; both run the same code."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.in_order import in_order
from fieldwise.data.encoder import Encoder, has_unknown, joined
from fieldwise.data.engines.engine import LABEL, SPLIT, Done, Part, Progress, StagedFields, field
from fieldwise.data.rare import limit_ids
from fieldwise.data.shards import Counts, Shard, Writer
from fieldwise.data.split import SPLITS
from fieldwise.data.tiers import TierIds
from fieldwise.data.unparsed import Unparsed, UnparsedTexts

_CHUNK: Final = 2**16
"""Rows whose ids are rewritten together."""


@dataclass(frozen=True)
class Made:
    """A shard, and the counts of its rows by split."""

    shard: Shard
    counts: dict[str, Counts]
    unparsed: dict[str, UnparsedTexts]


class _Rows(NamedTuple):
    """The encoded rows of a batch."""

    ids: NDArray[np.int32]
    """(rows, places), by split."""
    labels: NDArray[np.uint8]
    ends: list[int]
    """Row at which each split begins, and the end of the last."""
    counts: dict[str, Counts]
    unparsed: dict[str, UnparsedTexts]


@dataclass(frozen=True)
class Encoding:
    """Encodes parts of the staged rows."""

    encoder: Encoder
    places: tuple[int, ...]
    """Staged column of each field."""
    clicks: pa.Array
    """Labels that are clicks."""
    folder: Path
    """Where shards are written; every process sees it."""
    shard_rows: int
    """Maximum rows per shard."""
    tiers: TierIds | None = None
    """Tiers of the fields, if they have some; counts are of the fields."""
    threads: int = 1

    def __call__(self, part: Part, done: Done) -> list[Made]:
        """Writes one shard, or more if the part has many rows; none if it has none."""
        return [self._shard(batches, done) for batches in divided(part.batches(), self.shard_rows)]

    def _shard(self, batches: Iterable[pa.RecordBatch], done: Done) -> Made:
        counts = {name: Counts(len(self.encoder.schema)) for name in SPLITS}
        unparsed = {name: Unparsed(self.encoder.fields) for name in SPLITS}
        places = self.encoder.schema.places if self.tiers is None else self.tiers.places
        with (
            Writer(self.folder, places) as writer,
            closing(in_order(self._encoded, batches, self.threads)) as parts,
        ):
            for rows in parts:
                for name, (start, end) in zip(SPLITS, pairwise(rows.ends), strict=True):
                    writer.add(name, rows.ids[start:end], rows.labels[start:end])
                    counts[name].join(rows.counts[name])
                    unparsed[name].join(rows.unparsed[name])
                done(len(rows.labels))
        return Made(writer.shard, counts, {name: texts.found for name, texts in unparsed.items()})

    def _encoded(self, batch: pa.RecordBatch) -> _Rows:
        columns = [batch.column(field(place)) for place in self.places]
        clicks = pc.is_in(batch.column(LABEL), value_set=self.clicks)
        labels = clicks.to_numpy(zero_copy_only=False).astype(np.uint8)
        encoded = [entry.encode(column) for entry, column in zip(self.encoder.fields, columns, strict=True)]
        unknown, nulls = [has_unknown(part.ids) for part in encoded], [part.nulls for part in encoded]
        split, counts, unparsed = np.asarray(batch.column(SPLIT)), {}, {}
        for index, name in enumerate(SPLITS):
            chosen = split == index
            counts[name] = Counts.of(labels, unknown, nulls, chosen)
            texts = Unparsed(self.encoder.fields)
            texts.add(columns, encoded, chosen)
            unparsed[name] = texts.found
        ids = joined(encoded) if self.tiers is None else self.tiers(joined(encoded))
        order = np.argsort(split, kind="stable")
        ends = np.searchsorted(split[order], range(len(SPLITS) + 1)).tolist()
        return _Rows(np.ascontiguousarray(ids).take(order, axis=0), labels[order], ends, counts, unparsed)


def divided(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yields groups of batches with this many rows each, the last with fewer; read each group before the next."""
    rest = (batch for batch in batches if len(batch))
    current = next(rest, None)

    def group() -> Iterator[pa.RecordBatch]:
        nonlocal current
        room = rows
        while current is not None and room:
            taken = min(room, len(current))
            yield current.slice(0, taken)
            room -= taken
            current = current.slice(taken) if taken < len(current) else next(rest, None)

    while current is not None:
        yield group()


def encode(staged: StagedFields, encoding: Encoding, progress: Progress) -> tuple[list[Shard], dict[str, Any]]:
    """Encodes all rows; returns the shards in the order of the rows, and the counts of each split as JSON values."""
    total, seen = sum(staged.rows), 0

    def done(rows: int) -> None:
        nonlocal seen
        seen += rows
        progress("encode rows", seen, total)

    made = list(chain.from_iterable(staged.each(encoding, staged.parts(), done)))
    if seen < total:  # other processes do not tell
        progress("encode rows", total, total)
    counts = {name: Counts(len(encoding.encoder.schema)) for name in SPLITS}
    unparsed = {name: Unparsed(encoding.encoder.fields) for name in SPLITS}
    for one in made:
        for name in SPLITS:
            counts[name].join(one.counts[name])
            unparsed[name].join(one.unparsed[name])
    _check_complete(counts, staged.rows)
    for texts in unparsed.values():
        texts.check()
    found = {name: {**counts[name].to_json(), "unparsed": unparsed[name].counts} for name in SPLITS}
    return [one.shard for one in made], found


def _check_complete(counts: dict[str, Counts], rows: Sequence[int]) -> None:
    """Refuses shards that hold other rows than were staged."""
    encoded = [counts[name].rows for name in SPLITS]
    if encoded != list(rows):
        raise DataError(
            f"{sum(rows):,} rows were read, and {sum(encoded):,} encoded. Allowed: the same rows. "
            "Another process changed the files; prepare again."
        )


@dataclass(frozen=True)
class Rewriting:
    """Changes the ids of encoded rows: rare values become `unknown`, and fields become tiers."""

    limited: Encoder
    """The encoder without rare values."""
    tiers: TierIds
    folder: Path

    def __call__(self, shard: Shard, done: Done) -> Made:
        """Writes a new shard; the counts are those before tiers, and only of unknown values."""
        counts = {name: Counts(len(self.limited.schema)) for name in SPLITS}
        with Writer(self.folder, self.tiers.places) as writer:
            for name in (name for name in SPLITS if shard.rows[name]):
                ids, labels = shard.array(name, "ids"), shard.array(name, "labels")
                for start in range(0, len(labels), _CHUNK):
                    chunk = np.array(ids[start : start + _CHUNK], order="F")
                    limit_ids(chunk, self.limited.schema)
                    counts[name].unknown += self.limited.unknown(chunk).sum(0)
                    writer.add(name, self.tiers(chunk), labels[start : start + _CHUNK])
                done(len(labels))
        return Made(writer.shard, counts, {})


def rewrite(staged: StagedFields, shards: Sequence[Shard], rewriting: Rewriting) -> tuple[list[Shard], dict[str, Any]]:
    """Rewrites all shards; returns the new ones, and the rows of each split with unknown values per field."""
    made = []
    for old, new in zip(shards, staged.each(rewriting, shards, lambda _: None), strict=True):
        made.append(new)
        shutil.rmtree(old.folder)
    unknown = {name: sum(one.counts[name].unknown for one in made) for name in SPLITS}
    return [one.shard for one in made], {name: np.asarray(count).tolist() for name, count in unknown.items()}
