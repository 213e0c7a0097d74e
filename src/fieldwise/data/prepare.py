"""Prepares a dataset folder: an engine reads, splits and counts rows; vocabularies are fitted; rows are encoded."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fieldwise.core.automatic import AUTO
from fieldwise.core.errors import DataError
from fieldwise.core.files import write_json, writing
from fieldwise.core.hints import either
from fieldwise.core.lock import exclusive
from fieldwise.core.registry import name_of
from fieldwise.core.settings import check_argument, differing
from fieldwise.data import SOURCES
from fieldwise.data.encode import Encoding, Rewriting, encode, rewrite
from fieldwise.data.encoder import Encoder
from fieldwise.data.engines.engine import Auto, Engine, Preparation, Progress, StagedFields
from fieldwise.data.fit import fit_vocabularies
from fieldwise.data.info import FORMAT, INFO, SHARDED
from fieldwise.data.kinds.check import KINDS, with_counts
from fieldwise.data.kinds.choose import Candidates, choose_fields
from fieldwise.data.kinds.describe import described
from fieldwise.data.labels import clicks_of
from fieldwise.data.rare import MAX_IDS, MAX_VALID, choose_min_count, limited, thinned
from fieldwise.data.rules import Rule
from fieldwise.data.shards import Shard, arrays, as_one, fingerprint, folder_of
from fieldwise.data.source import Files, Source, SourceRows, rules_of
from fieldwise.data.split import SPLIT_RULES, SPLITS, RandomSplit, SplitRule
from fieldwise.data.store import Dataset
from fieldwise.data.tiers import Tiered, check_tiers


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
    if is_used(out):
        return _prepare(source, out, split, progress, engine)
    with exclusive(out, outside=True):
        return _prepare(source, out, split, progress, engine)


def check_source(source: object, split: object, engine: object) -> None:
    """Refuses arguments that are no source, split rule or engine."""
    check_argument(source, Source, "source", "fw.data.Frame(frame=rows, label='click') or fw.data.Table(...)")
    check_argument(split, (SplitRule, type(None)), "split", "fw.RandomSplit() or fw.TimeSplit(column='time')")
    check_argument(engine, (Engine, type(None)), "engine", "fw.DuckDB(memory=4096)")


def is_used(out: Path) -> bool:
    """Returns whether a folder holds anything."""
    return out.exists() and not (out.is_dir() and not any(out.iterdir()))


def _prepare(source: Source, out: Path, split: SplitRule | None, progress: Progress, engine: Engine | None) -> Dataset:
    split, engine = split or RandomSplit(), engine or Auto()
    made = {
        "source": {"name": name_of(source, SOURCES), **source.origin()},
        "split": {"name": name_of(split, SPLIT_RULES), **split.origin()},
    }
    if is_used(out):
        return _reopen(out, made)
    source = source.cut(source.cuts)
    made["source"]["tiers"] = source.values()["tiers"]
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
        tiered, limits = Tiered(encoder, source.cuts), source.min_count == AUTO
        tiers = tiered.ids if tiered.splits_fields and not limits else None
        encoding = Encoding(
            encoder, tuple(fitted.places), labels, scratch, engine.shard_rows, tiers, engine.encoding_threads
        )
        shards, splits = encode(chosen.staged, encoding, progress)
        _check_classes(splits, staged.rows)
        if limits:
            encoder = _without_rare(encoder, shards, _open_counts(chosen.rules, rows, source))
            tiered = Tiered(encoder, source.cuts)
            if encoder is not encoding.encoder or tiered.splits_fields:
                shards, unknown = rewrite(chosen.staged, shards, Rewriting(encoder, tiered.ids, scratch))
                splits = {name: {**split, "unknown": unknown[name]} for name, split in splits.items()}
        info = _info(shards, tiered, splits)
        info |= {"label": rows.label, "skipped": staged.skipped, "untimed": staged.untimed, "dropped": fitted.dropped}
        info["made"] = made
        counted = {**info, "fields": encoder.schema.to_json(), "splits": splits}
        check = with_counts(described(given, chosen, made["source"]["name"], look=bool(rows.inferred)), counted)
        _move(shards, dataset)
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
        _remove(work)


def _remove(work: Path) -> None:
    """Removes the work folder; waits for processes of an engine that was stopped and that still write into it."""
    for _ in range(50):
        shutil.rmtree(work, ignore_errors=True)
        if not work.exists():
            return
        time.sleep(0.1)


def _reopen(out: Path, made: dict[str, Any]) -> Dataset:
    dataset = Dataset.open(out)
    before = dataset.info["made"]
    source = {**before["source"], "tiers": before["source"].get("tiers") or 0.0}  # earlier versions wrote none
    if made["source"]["tiers"] == AUTO:
        made = {**made, "source": {**made["source"], "tiers": source["tiers"]}}
    changed = differing({**before, "source": source}, made)
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


def _info(shards: Sequence[Shard], tiered: Tiered, splits: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of `dataset.json` that follows from the encoded rows."""
    schema = tiered.encoder.schema
    rows = {name: [shard.rows[name] for shard in shards] for name in SPLITS}
    return {
        "format": FORMAT if len(shards) == 1 else SHARDED,
        "fingerprint": fingerprint(shards, schema),
        "rows": {name: sum(counts) for name, counts in rows.items()},
        "fields": schema.to_json(),
        "splits": {name: tiered.counts(split) for name, split in splits.items()} if tiered.splits_fields else splits,
        **({} if len(shards) == 1 else {"shards": rows}),
    }


def _move(shards: Sequence[Shard], dataset: Path) -> None:
    """Moves the arrays into the dataset folder."""
    for index, shard in enumerate(shards):
        folder = folder_of(dataset, index, len(shards))
        folder.mkdir(exist_ok=True)
        for path in shard.folder.iterdir():
            path.replace(folder / path.name)


def _open_counts(rules: Mapping[str, Rule], rows: SourceRows | Files, source: Source) -> set[str]:
    """Returns the fields whose minimum count neither the user nor the source sets, and whose values are categories."""
    given = {name for given in (rows.rules, source.fields) for name, rule in given.items() if rule.min_count}
    return {name for name, rule in rules.items() if rule.kind == "category" and name not in given}


def _without_rare(encoder: Encoder, shards: Sequence[Shard], names: set[str]) -> Encoder:
    """Chooses a minimum count for these fields; returns the encoder without their rare values."""
    fields = [index for index, entry in enumerate(encoder.fields) if entry.name in names]
    limits = {"train": max(2, MAX_IDS // encoder.schema.places), "valid": MAX_VALID}
    train, valid = (
        thinned(as_one(arrays(shards, name, "ids")), as_one(arrays(shards, name, "labels")), most)
        for name, most in limits.items()
    )
    count = choose_min_count(encoder.schema, train, valid, fields)
    return encoder if count == 1 else limited(encoder, fields, count)


def _check_classes(splits: dict[str, Any], rows: Sequence[int]) -> None:
    """Refuses a split with one class, since it cannot be used for training or metrics."""
    clicks = {name: split["clicks"] for name, split in splits.items()}
    for (name, count), total in zip(clicks.items(), rows, strict=True):
        if count in (0, total):
            raise DataError(
                f"Split {name} has only one class: {count:,} clicks in {total:,} rows (clicks: {clicks}). "
                "Allowed: rows with and without a click in every split. Give more rows, other shares or another split."
            )
