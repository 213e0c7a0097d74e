"""Texts about a model folder: its fields, and its bytes by part."""

from collections.abc import Iterator
from typing import Final

from fieldwise.core.records import Bytes
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.store import Store
from fieldwise.exports.info import FieldInfo, ModelInfo

FIELD_HEADS: Final = ("field", "cardinality", "width", "first-order", "type", "bytes")
BYTES_HEADS: Final = ("part", "bytes")
NOT_COUNTED: Final = "Budgets in bytes count tables, first-order weights and scales; with `total`, dense layers too. \
They do not count vocabularies."


def field_rows(info: ModelInfo) -> Iterator[tuple[str, str, int, str, str, str]]:
    """One row per field: its columns, stored type, and bytes, scales included."""
    stores = info.store.of([field.name for field in info.fields])
    for field, store in zip(info.fields, stores, strict=True):
        size = _alone(field, field.width, store) + _alone(field, field.first_order, store)
        first = "yes" if field.first_order else "no"
        yield field.name, f"{field.cardinality:,}", field.width, first, str(store), f"{size:,}"


def bytes_rows(sizes: Bytes, store: str) -> list[tuple[str, str]]:
    """One row per part of a model folder."""
    parts = {
        f"tables ({store})": sizes.tables,
        f"first-order weights ({store})": sizes.first_order,
        "of both: scales": sizes.scales,
        "dense layers (float32)": sizes.dense,
        "vocabularies": sizes.vocabularies,
        "whole folder": sizes.folder,
    }
    return [(part, f"{size:,}") for part, size in parts.items()]


def _alone(field: FieldInfo, width: int, store: Store) -> int:
    return store.bytes(Layout(Schema.of(only=field.cardinality), (width,)))
