"""Avazu's click-through-rate challenge in its original format: CSV with a header."""

from pathlib import Path
from typing import Any, Final, Literal

from fieldwise.core.errors import DataError
from fieldwise.data.files import TEXT, find, sizes
from fieldwise.data.rules import Rule
from fieldwise.data.source import BadRows, Files, MinCount, Source
from fieldwise.data.text_layout import layout_of

COLUMNS: Final = (
    "id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain",
    "app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type", "C14", "C15", "C16",
    "C17", "C18", "C19", "C20", "C21",
)  # fmt: skip


class Avazu(Source):
    """The original CSV, plain or gzip. Drops the row id; every other column is categorical."""

    raw: Path
    """Path of a file, a folder or a glob."""
    hour: Literal["whole", "parts"] = "whole"
    """whole: keep the raw hour (22 fields); parts: hour of day, weekday and weekend (24 fields)."""
    min_count: MinCount = 4
    """Values with fewer training rows than this map to `unknown`; at least 1, or auto (docs/data.md)."""
    bad_rows: BadRows = "stop"
    """Rows with a wrong number of columns: stop with an error, or skip and count them."""

    def open(self) -> Files:
        """Finds the files and checks their headers."""
        paths = find(self.raw, TEXT)
        for path in paths:
            header = layout_of(path, (), ",").columns
            if header != COLUMNS:
                raise DataError(
                    f"Avazu: '{path}' begins with '{','.join(header)[:60]}'. Allowed: the {len(COLUMNS)} columns "
                    f"{', '.join(COLUMNS[:3])}, ... C21. For other files use the source `table`."
                )
        parts = {
            name: Rule(column="hour", kind=name, time_format="%y%m%d%H") for name in ("hour", "weekday", "weekend")
        }
        rules = parts if self.hour == "parts" else {}
        fields = dict.fromkeys([*rules, *COLUMNS[2:]])
        return Files(paths, COLUMNS, tuple(fields), "click", rules, bad_rows=self.bad_rows)

    def origin(self) -> dict[str, Any]:
        """Returns the settings without the path, plus the file sizes."""
        return {**self.values(), "raw": sizes(find(self.raw, TEXT))}
