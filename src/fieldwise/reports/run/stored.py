"""Stored bytes of a run's models, next to those of the full model rounded without training."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from fieldwise.core.records import Bytes, Metrics, RunRecord

HEADS: Final = (
    "budget", "seed", "model", "store", "tables", "first-order", "of both: scales", "dense", "vocabularies", "folder",
    "test AUC",
)  # fmt: skip
NOTE: Final = (
    "Bytes. Budgets in bytes count tables and first-order weights, scales included, with `total` "
    "dense layers too, and never vocabularies. Full models in other types than float32 are rounded after training."
)
BYTES: Final = "stored bytes (tables, first-order weights and scales)"
"""What the size of a model counts in figures."""
Cells = tuple[object, ...]


def stored_rows(records: Sequence[RunRecord]) -> Iterable[Cells]:
    """Yields one row per compact model, then one per type of the full model, averaged over seeds."""
    for record in records:
        if record.compact_bytes:
            sizes = _sizes(record.compact_bytes)
            yield record.budget, record.seed, "compact", record.store, *sizes, f"{record.compact_test.auc:.4f}"
    first = {record.seed: record for record in records if record.full_bytes}
    for store in ("float32", *next(iter(first.values())).full_stored) if first else ():
        found = [_full(record, store) for record in first.values()]
        auc = fmean(test.auc for _, test in found)
        yield "", _seeds(first), "full", store, *_sizes(found[0][0]), f"{auc:.4f}"


def _full(record: RunRecord, store: str) -> tuple[Bytes, Metrics]:
    if store == "float32":
        assert record.full_bytes is not None
        return record.full_bytes, record.full_test
    return record.full_stored[store].bytes, record.full_stored[store].test


def _sizes(sizes: Bytes) -> Cells:
    parts = (sizes.tables, sizes.first_order, sizes.scales, sizes.dense, sizes.vocabularies, sizes.folder)
    return tuple(f"{size:,}" if size else "" for size in parts)


def _seeds(first: dict[int, RunRecord]) -> str:
    return f"all {len(first)}" if len(first) > 1 else str(*first)
