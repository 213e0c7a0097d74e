"""From a source to a dataset folder, in two passes: count the training values, then encode every row."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.names import name_of
from fieldwise.core.schema import Field, Schema
from fieldwise.core.settings import differing
from fieldwise.data import SOURCES
from fieldwise.data.source import Rows, Source
from fieldwise.data.split import SPLITS, RandomSplit
from fieldwise.data.store import FORMAT, INFO, Dataset, Writer, vocabulary_file
from fieldwise.data.vocabulary import Counter, Vocabulary

Progress = Callable[[str, int, int | None], None]
"""Called with a pass's name, rows done and rows in all (None while unknown)."""


def prepare(
    source: Source,
    out: Path | str,
    split: RandomSplit | None = None,
    progress: Progress = lambda *_: None,
) -> Dataset:
    """Encodes a source into the folder `out`, which appears only when it is complete.

    A folder that was made the same way is opened as it is; one that was made otherwise is refused.
    """
    out, split = Path(out), split or RandomSplit()
    made = {"source": {"name": name_of(source, SOURCES), **source.origin()}, "split": split.values()}
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        return _reopen(out, made)
    rows = source.open()
    work = out.with_name(f".{out.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        _write(rows, source.min_count, split, work, made, progress)
        work.replace(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Dataset.open(out)


def _reopen(out: Path, made: dict[str, Any]) -> Dataset:
    dataset = Dataset.open(out)
    changed = differing(dataset.info["made"], made)
    if changed:
        raise DataError(
            f"Dataset '{out}' was made otherwise: {'; '.join(changed)}. "
            "Use those settings, name another folder, or remove this one."
        )
    return dataset


def _write(
    rows: Rows, min_count: int, split: RandomSplit, work: Path, made: dict[str, Any], progress: Progress
) -> None:
    places, vocabularies = _fit(rows, min_count, split, progress)
    counts = {name: sum(int((p == i).sum()) for p in places) for i, name in enumerate(SPLITS)}
    empty = [name for name, count in counts.items() if count == 0]
    if empty:
        raise DataError(
            f"No rows in split {', '.join(empty)} (rows: {counts}). Allowed: 1 or more each. "
            "Give more rows or other shares."
        )
    _encode(rows, places, vocabularies, counts, work, progress)
    for index, vocabulary in enumerate(vocabularies):
        vocabulary.save(work / vocabulary_file(index))
    cardinalities = [v.cardinality for v in vocabularies]
    schema = Schema(tuple(Field(n, c) for n, c in zip(rows.fields, cardinalities, strict=True)))
    info = {
        "format": FORMAT,
        "fingerprint": _fingerprint(work, schema),
        "label": rows.label,
        "rows": counts,
        "fields": schema.to_json(),
        "made": made,
    }
    (work / INFO).write_text(json.dumps(info, indent=1), encoding="utf-8")


def _fit(
    rows: Rows, min_count: int, split: RandomSplit, progress: Progress
) -> tuple[list[NDArray[np.uint8]], list[Vocabulary]]:
    """The split of every row, and the vocabularies of the training rows alone."""
    counters = [Counter() for _ in rows.fields]
    places: list[NDArray[np.uint8]] = []
    done = 0
    for batch in rows.batches():
        _check_labels(batch.column(rows.label), rows.label)
        places.append(split.assign(batch, rows.key))
        train = batch.filter(pa.array(places[-1] == 0))
        for counter, name in zip(counters, rows.fields, strict=True):
            counter.add(train.column(name))
        done += batch.num_rows
        progress("count values", done, rows.count)
    if not places:
        raise DataError("The source holds no rows. Allowed: 1 or more. Check the raw file.")
    return places, [counter.vocabulary(min_count) for counter in counters]


def _encode(
    rows: Rows,
    places: list[NDArray[np.uint8]],
    vocabularies: list[Vocabulary],
    counts: dict[str, int],
    work: Path,
    progress: Progress,
) -> None:
    writer = Writer(work, len(rows.fields), counts)
    done = 0
    for batch, place in zip(rows.batches(), places, strict=True):
        columns = [v.encode(batch.column(n)) for n, v in zip(rows.fields, vocabularies, strict=True)]
        ids = np.stack(columns, axis=1)  # (rows, F)
        labels = batch.column(rows.label).to_numpy(zero_copy_only=False).astype(np.uint8)
        for index, name in enumerate(SPLITS):
            chosen = place == index
            writer.add(name, ids[chosen], labels[chosen])
        done += batch.num_rows
        progress("encode rows", done, rows.count)
    writer.close()


def _check_labels(column: pa.Array, name: str) -> None:
    values = pc.unique(column).to_pylist()
    wrong = [value for value in values if value not in (0, 1)]
    if wrong:
        raise DataError(f"Label '{name}' holds {wrong[:5]}. Allowed: 0 and 1. Map the values or choose another label.")


def _fingerprint(folder: Path, schema: Schema) -> str:
    digest = hashlib.sha256(json.dumps(schema.to_json()).encode())
    for name in SPLITS:
        for part in ("ids", "labels"):
            with (folder / f"{name}.{part}.npy").open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
