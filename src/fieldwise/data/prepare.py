"""Prepares a dataset folder: an engine reads, splits and counts rows; vocabularies are fitted; rows are encoded."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.core.errors import DataError
from fieldwise.core.files import writing
from fieldwise.core.hints import either, setting
from fieldwise.core.lock import exclusive
from fieldwise.core.registry import name_of
from fieldwise.core.schema import Schema
from fieldwise.core.settings import differing
from fieldwise.data import SOURCES
from fieldwise.data.encoder import Encoder, Unparsed, joined
from fieldwise.data.engines.engine import LABEL, SPLIT, Auto, Engine, Preparation, Progress, Staged, field
from fieldwise.data.fit import fit_vocabularies
from fieldwise.data.info import FORMAT, INFO
from fieldwise.data.source import Files, Source, rules_of
from fieldwise.data.split import SPLIT_RULES, SPLITS, ColumnSplit, RandomSplit, SplitRule
from fieldwise.data.store import Dataset, Summary, Writer

_CLICKS: Final = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
"""Labels that need no mapping."""


def prepare(
    source: Source,
    out: Path | str,
    split: SplitRule | None = None,
    progress: Progress = lambda *_: None,
    engine: Engine | None = None,
) -> Dataset:
    """Encodes a source into the folder `out`, which appears only when it is complete.

    A folder with equal settings is opened without preparing it again; one with other settings is refused. Every engine
    writes the same files. A lock allows one process at a time per folder.
    """
    out = Path(out)
    if _is_used(out):
        return _prepare(source, out, split, progress, engine)
    with exclusive(out, outside=True):
        return _prepare(source, out, split, progress, engine)


def _is_used(out: Path) -> bool:
    return out.exists() and not (out.is_dir() and not any(out.iterdir()))


def _prepare(source: Source, out: Path, split: SplitRule | None, progress: Progress, engine: Engine | None) -> Dataset:
    split, engine = split or RandomSplit(), engine or Auto()
    made = {
        "source": {"name": name_of(source, SOURCES), **source.origin()},
        "split": {"name": name_of(split, SPLIT_RULES), **split.origin()},
    }
    if _is_used(out):
        return _reopen(out, made)
    rows = source.open()
    rules = rules_of(rows, source)
    if isinstance(split, ColumnSplit) and split.column not in source.fields:
        rules.pop(split.column, None)  # it determines the split and is not an input
    work = out.absolute().with_name(f".{out.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    with _temporary(work):
        dataset, scratch = work / "dataset", work / "scratch"
        dataset.mkdir(parents=True)
        scratch.mkdir()
        staged = engine.stage(Preparation(rows, rules, split, scratch, progress))
        labels = _labels(staged, rows.label, rows.positive)
        lenient = isinstance(rows, Files) and rows.bad_rows == "skip"
        fitted = fit_vocabularies(staged, rules, rows.cells, lenient, engine.vocabulary_bytes, progress)
        encoder = Encoder(fitted.fields)
        info = _encode(staged, encoder, fitted.places, labels, dataset, progress)
        encoder.save(dataset, progress)
        info |= {"label": rows.label, "skipped": staged.skipped, "untimed": staged.untimed, "dropped": fitted.dropped}
        info["made"] = made
        (dataset / INFO).write_text(json.dumps(info, indent=1), encoding="utf-8")
        dataset.replace(out)
    return Dataset.open(out)


@contextmanager
def _temporary(work: Path) -> Iterator[None]:
    """Removes the work folder in any case; turns a full disk into a DiskError."""
    advice = (
        "Preparing needs about the size of the raw rows, and the same again for the dataset. Free some space, or "
        f"choose another {either('--out', 'out')}."
    )
    try:
        with writing(work.parent, advice):
            yield
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _reopen(out: Path, made: dict[str, Any]) -> Dataset:
    dataset = Dataset.open(out)
    changed = differing(dataset.info["made"], made)
    if changed:
        raise DataError(
            f"Dataset '{out}' was made with other settings: {'; '.join(changed)}. "
            "Use those settings, choose another folder, or remove this one."
        )
    return dataset


def _labels(staged: Staged, name: str, positive: tuple[str, ...]) -> pa.Array:
    """Returns the labels that count as a click; refuses empty labels, unmapped labels, and empty splits."""
    if not sum(staged.rows):
        raise DataError("The source holds no rows. Allowed: 1 or more. Check the raw file.")
    empty = [split for split, count in zip(SPLITS, staged.rows, strict=True) if count == 0]
    if empty:
        raise DataError(
            f"No rows in split {', '.join(empty)} (rows: {dict(zip(SPLITS, staged.rows, strict=True))}). "
            "Allowed: 1 or more each. Give more rows or other shares, or take valid from the training rows "
            f"({either('--set split.valid_share=0.1', 'valid_share=0.1')}) in a split by column."
        )
    if staged.labels.get(None):  # an unknown label is neither a click nor its absence
        raise DataError(
            f"Label '{name}' is empty in {staged.labels[None]:,} rows. Allowed: a value in every row. "
            "Remove these rows, or fill in the label."
        )
    found = sorted(value for value in staged.labels if value is not None)
    if positive:
        absent = [value for value in positive if value not in staged.labels]
        if absent:
            raise DataError(f"Label '{name}' has no value {absent}. Allowed: {found[:10]}. Fix data.positive.")
        return pa.array(positive, pa.string())
    wrong = [value for value in found if value.lower() not in _CLICKS]
    if wrong:
        shown = [int(value) if value.lstrip("-").isdigit() else value for value in wrong[:5]]
        raise DataError(
            f"Label '{name}' holds {shown}. Allowed: 0 and 1. List the values that are clicks, for example "
            f"{setting('data.positive', [wrong[-1]])}, or choose another label."
        )
    clicks = [value for value in found if _CLICKS[value.lower()]]
    if len(clicks) in (0, len(found)):
        raise DataError(
            f"Label '{name}' is {', '.join(found)} in all {sum(staged.rows):,} rows. Allowed: rows with and without a "
            "click. Give more rows, or choose another label."
        )
    return pa.array(clicks, pa.string())


def _encode(
    staged: Staged, encoder: Encoder, places: Sequence[int], clicks: pa.Array, work: Path, progress: Progress
) -> dict[str, Any]:
    """Writes the arrays of all rows; returns the content of `dataset.json`. `places` are the fields' staged columns."""
    counts = dict(zip(SPLITS, staged.rows, strict=True))
    summaries = {name: Summary(len(encoder.schema)) for name in SPLITS}
    unparsed = {name: Unparsed(encoder) for name in SPLITS}
    done, total = 0, sum(staged.rows)
    with Writer(work, encoder.schema.places, counts) as writer:
        for batch in staged.batches():
            columns = [batch.column(field(place)) for place in places]
            labels = pc.is_in(batch.column(LABEL), value_set=clicks).to_numpy(zero_copy_only=False).astype(np.uint8)
            split = np.asarray(batch.column(SPLIT))
            encoded = [entry.encode(column) for entry, column in zip(encoder.fields, columns, strict=True)]
            ids = joined(encoded)  # (rows, places)
            nulls = np.stack([part.nulls for part in encoded], axis=1)
            for index, name in enumerate(SPLITS):
                chosen = split == index
                writer.add(name, ids[chosen], labels[chosen])
                summaries[name].add(labels[chosen], encoder.unknown(ids[chosen]), nulls[chosen])
                unparsed[name].add(columns, encoded, chosen)
            done += batch.num_rows
            progress("encode rows", done, total)
    for counts_of_split in unparsed.values():
        counts_of_split.check()
    counted = {name: {**summaries[name].to_json(), "unparsed": unparsed[name].counts} for name in SPLITS}
    _check_classes({name: summary["clicks"] for name, summary in counted.items()}, counts)
    return {
        "format": FORMAT,
        "fingerprint": _fingerprint(work, encoder.schema),
        "rows": counts,
        "fields": encoder.schema.to_json(),
        "splits": counted,
    }


def _check_classes(clicks: dict[str, int], rows: dict[str, int]) -> None:
    """Refuses a split with one class, since it cannot be used for training or metrics."""
    for name, count in clicks.items():
        if count in (0, rows[name]):
            raise DataError(
                f"Split {name} has only one class: {count:,} clicks in {rows[name]:,} rows (clicks: {clicks}). "
                "Allowed: rows with and without a click in every split. Give more rows, other shares or another split."
            )


def _fingerprint(folder: Path, schema: Schema) -> str:
    digest = hashlib.sha256(json.dumps(schema.to_json()).encode())
    for name in SPLITS:
        for part in ("ids", "labels"):
            with (folder / f"{name}.{part}.npy").open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
