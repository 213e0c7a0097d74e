"""The tables that describe a dataset."""

from collections.abc import Iterator
from typing import Any, Final

SPLIT_HEADS: Final = ("split", "rows", "clicks", "label rate")
FIELD_HEADS: Final = ("field", "made by", "cardinality", "min count", "unknown %", "null %")


def split_rows(info: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields one table row per split."""
    for name, rows in info["rows"].items():
        clicks = info["splits"][name]["clicks"]
        yield name, f"{rows:,}", f"{clicks:,}", f"{clicks / max(1, rows):.2%}"


def field_rows(info: dict[str, Any], rules: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yields one table row per field; percentages are of the rows of each split."""
    for index, (field, entry) in enumerate(zip(info["fields"], rules, strict=True)):
        yield (
            field["name"],
            _made_by(field["name"], entry),
            f"{field['cardinality']:,}",
            str(entry["rule"]["min_count"]),
            _percentages(info, "unknown", index),
            _percentages(info, "nulls", index),
        )


def notes(info: dict[str, Any]) -> Iterator[str]:
    """Yields a line for everything that was not read as a value: bad rows, constant fields, missing times."""
    rows = sum(info["rows"].values())
    count = info["skipped"]
    if count:
        total = count + rows
        yield f"{count:,} bad row{' was' if count == 1 else 's were'} skipped, {count / total:.2%} of {total:,}."
    for name, holds in info.get("dropped", {}).items():
        yield f"Field '{name}' was left out: its training rows hold {holds}."
    if info.get("untimed"):
        yield f"Split by time: {info['untimed']:,} of {rows:,} rows have no time and are training rows."
    for index, field in enumerate(info["fields"]):
        bad = sum(split["unparsed"][index] for split in info["splits"].values() if split.get("unparsed"))
        if bad:
            share = f"{bad:,} of {rows:,} texts ({bad / rows:.2%})"
            yield f"Field '{field['name']}': {share} are no times and count as null."


def _made_by(name: str, entry: dict[str, Any]) -> str:
    rule = entry["rule"]
    detail = {"quantile": f", {len(rule['edges']) + 1} bins", "width": f", bins of {rule['width']:g}"}
    column = f" of {rule['column']}" if rule["column"] != name else ""
    several = f", up to {entry['length']} values" if entry["several"] else ""
    tier = f", {entry['tier']} values" if entry.get("tier") else ""
    return f"{rule['kind']}{column}{detail.get(rule['kind'], '')}{several}{tier}"


def _percentages(info: dict[str, Any], what: str, index: int) -> str:
    return "/".join(
        f"{100 * split[what][index] / max(1, info['rows'][name]):.1f}" for name, split in info["splits"].items()
    )
