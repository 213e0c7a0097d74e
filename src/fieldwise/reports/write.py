"""Writes the report of a run or a comparison to its folder, in the requested format."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fieldwise.core.errors import RunError
from fieldwise.core.files import write_text
from fieldwise.core.hints import either
from fieldwise.core.plain_files import read_json
from fieldwise.reports.comparison.page_data import comparison_data
from fieldwise.reports.file_names import report_name
from fieldwise.reports.page import page
from fieldwise.reports.run import markdown
from fieldwise.reports.run.page_data import run_data
from fieldwise.reports.run.view import RunView, open_run

COMPARISON: Final = "comparison.json"


@dataclass(frozen=True)
class Written:
    """The files written, and one notice for each thing that they could not show."""

    paths: list[Path]
    notices: list[str]


def html(out: Path, against: Path | None = None) -> Written:
    """Writes report-DATA.html, one self-contained file; `against` is a run whose pretrained columns are compared."""
    data = _comparison(out) if is_comparison(out) else run_data(open_run(out), open_run(against) if against else None)
    path = out / f"{report_name(data['source'])}.html"
    write_text(path, page(data))
    return Written([path], data["notices"])


def md(out: Path, _against: Path | None = None) -> Written:
    """Writes report-DATA.md with the tables of a run; `compare` has already written those of a comparison."""
    if is_comparison(out):
        if not (out / "comparison.md").exists():
            raise RunError(f"'{out}/comparison.md' is missing. {_again()}")
        return Written([out / "comparison.md"], [])
    view = _searched(out)
    path = out / f"{report_name(view.source)}.md"
    write_text(path, markdown.report(view.records, view.baselines, view.kinds))
    return Written([path], view.missing)


def png(out: Path, against: Path | None = None) -> Written:
    """Writes figures/*.png, charts for papers (needs the extra `plots`)."""
    from fieldwise.reports.run import figures

    if is_comparison(out):
        data = _comparison(out)
        return Written(figures.of_comparison(data, out / "figures"), data["notices"])
    data = run_data(open_run(out), open_run(against) if against else None)
    return Written(figures.of_run(data, out / "figures"), data["notices"])


FORMATS: Final[dict[str, Callable[[Path, Path | None], Written]]] = {"html": html, "md": md, "png": png}


def is_comparison(out: Path) -> bool:
    """Returns whether a folder holds a comparison rather than a run."""
    return (out / COMPARISON).exists()


def has_tables(out: Path) -> bool:
    """Returns whether `md` has anything to show: a complete search of a run, or the tables of a comparison."""
    return (out / "comparison.md").exists() if is_comparison(out) else bool(open_run(out).records)


def _searched(out: Path) -> RunView:
    view = open_run(out)
    if not view.records:
        raise RunError(f"'{out}' holds no complete search: seed-*/retrain/*/record.json is missing. Run it first.")
    return view


def _comparison(out: Path) -> dict[str, Any]:
    try:
        value = read_json(out / COMPARISON)
    except (OSError, ValueError) as error:
        raise RunError(f"'{out / COMPARISON}' cannot be read ({error}). {_again()}") from error
    return comparison_data(value)


def _again() -> str:
    return either("Run `fieldwise compare` with this --out again.", "Call fw.compare with this folder again.")
