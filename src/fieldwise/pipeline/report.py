"""The report of a folder, whether of a run or of a comparison."""

from pathlib import Path

from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import unknown
from fieldwise.reports import write
from fieldwise.reports.write import Written


def report(folder: Path | str, kind: str | None = None, against: Path | str | None = None) -> Written:
    """Writes the report of a run or comparison into its folder, and returns the paths and notices.

    `kind` chooses the page (html), the tables (md) or the figures (png); without it, the tables if there are any, and
    the page. `against` names another run, whose pretrained columns are compared with this one's.
    """
    folder, against = Path(folder), Path(against) if against else None
    if kind is not None and kind not in write.FORMATS:
        raise SettingsError(unknown("report", kind, write.FORMATS))
    if kind is not None:
        return write.FORMATS[kind](folder, against)
    page = write.html(folder, against)
    tables = write.md(folder).paths if write.has_tables(folder) else []
    return Written([*tables, *page.paths], page.notices)
