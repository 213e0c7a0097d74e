"""Prepares a dataset folder: an engine reads, splits and counts rows; vocabularies are fitted; rows are encoded."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.core.automatic import AUTO
from fieldwise.core.errors import DataError
from fieldwise.core.files import write_json, writing
from fieldwise.core.hints import either
from fieldwise.core.lock import exclusive
from fieldwise.core.registry import name_of
from fieldwise.core.settings import check_argument, differing
from fieldwise.data import SOURCES
from fieldwise.data.encoder import Encoder, Unparsed, joined
from fieldwise.data.engines.engine import LABEL, SPLIT, Auto, Engine, Preparation, Progress, StagedFields, field
from fieldwise.data.fit import fit_vocabularies
from fieldwise.data.info import FORMAT, INFO, fingerprint
from fieldwise.data.kinds.check import KINDS, with_counts
from fieldwise.data.kinds.choose import Candidates, choose_fields
from fieldwise.data.kinds.describe import described
from fieldwise.data.labels import clicks_of
from fieldwise.data.rare import choose_min_count, limit_ids, limited
from fieldwise.data.rules import Rule
from fieldwise.data.source import Files, Source, SourceRows, rules_of
from fieldwise.data.split import SPLIT_RULES, SPLITS, RandomSplit, SplitRule
from fieldwise.data.store import Dataset, Split, Summary, Writer
from fieldwise.data.tiers import Tiered, check_tiers

_CHUNK: Final = 2**18
"""Rows whose ids are rewritten together."""


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
    check_source(source, split, engine)
    out = Path(out)
    if _is_used(out):
        return _prepare(source, out, split, progress, engine)
    with exclusive(out, outside=True):
        return _prepare(source, out, split, progress, engine)


def check_source(source: object, split: object, engine: object) -> None:
    """Refuses arguments that are no source, split rule or engine."""
    check_argument(source, Source, "source", "fw.data.Frame(frame=rows, label='click') or fw.data.Table(...)")
    check_argument(split, (SplitRule, type(None)), "split", "fw.RandomSplit() or fw.TimeSplit(column='time')")
    check_argument(engine, (Engine, type(None)), "engine", "fw.DuckDB(memory=4096)")


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
    rules = rules_of(rows, source, split)
    work = out.absolute().with_name(f".{out.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    with _temporary(work):
        dataset, scratch = work / "dataset", work / "scratch"
        dataset.mkdir(parents=True)
        scratch.mkdir()
        staged = engine.stage(Preparation(rows, rules, split, scratch, progress))
        _check_rows(staged)
        labels = clicks_of(staged, rows.label, rows.positive)
        given = Candidates(staged, rows, source, rules, labels)
        chosen = choose_fields(given, progress)
        lenient = isinstance(rows, Files) and rows.bad_rows == "skip"
        fitted = fit_vocabularies(chosen.staged, chosen.rules, rows.cells, lenient, engine.vocabulary_bytes, progress)
        check_tiers(fitted.fields)
        encoder = Encoder(fitted.fields)
        info = _encode(chosen.staged, encoder, fitted.places, labels, dataset, progress)
        if source.min_count == AUTO:
            encoder, info = _without_rare(encoder, info, _open_counts(chosen.rules, rows, source), dataset)
        info |= {"label": rows.label, "skipped": staged.skipped, "untimed": staged.untimed, "dropped": fitted.dropped}
        info["made"] = made
        check = with_counts(described(given, chosen, made["source"]["name"], look=bool(rows.inferred)), info)
        tiered = Tiered(encoder, source.tiers)
        info = tiered.rewritten(dataset, info)
        tiered.encoder.save(dataset, progress)
        write_json(dataset / KINDS, tiered.named(check).to_json())
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


def _check_rows(staged: StagedFields) -> None:
    """Refuses empty sources and empty splits."""
    if not sum(staged.rows):
        raise DataError("The source holds no rows. Allowed: 1 or more. Check the raw file.")
    empty = [split for split, count in zip(SPLITS, staged.rows, strict=True) if count == 0]
    if empty:
        raise DataError(
            f"No rows in split {', '.join(empty)} (rows: {dict(zip(SPLITS, staged.rows, strict=True))}). "
            "Allowed: 1 or more each. Give more rows or other shares, or take valid from the training rows "
            f"({either('--set split.valid_share=0.1', 'valid_share=0.1')}) in a split by column."
        )


def _encode(
    staged: StagedFields, encoder: Encoder, places: Sequence[int], clicks: pa.Array, work: Path, progress: Progress
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
        "fingerprint": fingerprint(work, encoder.schema),
        "rows": counts,
        "fields": encoder.schema.to_json(),
        "splits": counted,
    }


def _open_counts(rules: Mapping[str, Rule], rows: SourceRows | Files, source: Source) -> set[str]:
    """Returns the fields whose minimum count neither the user nor the source sets, and whose values are categories."""
    given = {name for given in (rows.rules, source.fields) for name, rule in given.items() if rule.min_count}
    return {name for name, rule in rules.items() if rule.kind == "category" and name not in given}


def _without_rare(
    encoder: Encoder, info: dict[str, Any], names: set[str], work: Path
) -> tuple[Encoder, dict[str, Any]]:
    """Chooses a minimum count for these fields, and rewrites the arrays; equal to preparing with that count."""
    fields = [index for index, entry in enumerate(encoder.fields) if entry.name in names]
    arrays = {
        name: [np.load(work / f"{name}.{part}.npy", mmap_mode="r+") for part in ("ids", "labels")] for name in SPLITS
    }
    train, valid, _ = (Split(ids, labels) for ids, labels in arrays.values())
    count = choose_min_count(encoder.schema, train, valid, fields)
    if count == 1:
        return encoder, info
    encoder = limited(encoder, fields, count)
    for name, (ids, _) in arrays.items():
        unknown = np.zeros(len(encoder.schema), np.int64)
        for start in range(0, len(ids), _CHUNK):
            limit_ids(ids[start : start + _CHUNK], encoder.schema)
            unknown += encoder.unknown(ids[start : start + _CHUNK]).sum(0)
        ids.flush()
        info["splits"][name]["unknown"] = unknown.tolist()
    return encoder, {
        **info,
        "fingerprint": fingerprint(work, encoder.schema),
        "fields": encoder.schema.to_json(),
    }


def _check_classes(clicks: dict[str, int], rows: dict[str, int]) -> None:
    """Refuses a split with one class, since it cannot be used for training or metrics."""
    for name, count in clicks.items():
        if count in (0, rows[name]):
            raise DataError(
                f"Split {name} has only one class: {count:,} clicks in {rows[name]:,} rows (clicks: {clicks}). "
                "Allowed: rows with and without a click in every split. Give more rows, other shares or another split."
            )
