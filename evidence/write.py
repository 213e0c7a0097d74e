"""Writes a page of `docs/results` from run folders, or again from its existing data.

    python -m evidence.write PAGE [RUN_FOLDER ...] [--machine TEXT] [--commit HASH]

The name of a run folder is the name of its data: runs/paper/figure-2 becomes docs/results/data/figure-2.json. For a
comparison, its comparison.json is sufficient. Then all tables and figures with available data are regenerated.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from evidence.data import Evidence, gather, read_evidence, write
from evidence.page import Page, filled
from evidence.pages import PAGES
from evidence.pictures import draw, fingerprint
from fieldwise.core.errors import FieldwiseError, RunError
from fieldwise.core.files import write_text
from fieldwise.core.registry import unknown

RESULTS: Final = Path(__file__).resolve().parent.parent / "docs" / "results"


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", help=", ".join(PAGES))
    parser.add_argument("runs", nargs="*", type=Path, help="run folders, named like their data")
    parser.add_argument("--machine", help="description of the machine of the runs; default: this machine")
    parser.add_argument("--commit", help="commit of the code that ran; default: the one checked out")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the pages")
    given = parser.parse_args(arguments)
    try:
        if given.page not in PAGES:
            raise RunError(unknown("page", given.page, PAGES))
        page = PAGES[given.page]
        for out in given.runs:
            if out.name not in page.needs:
                raise RunError(unknown(f"{given.page}, run folders", out.name, page.needs))
            found = gather(out, given.machine or _machine(), given.commit or _commit())
            write(_data(given.results, out.name), found)
        write_page(given.page, given.results)
    except (FieldwiseError, OSError) as error:
        sys.exit(f"evidence: {error}")


def data_of(page: Page, results: Path) -> dict[str, Evidence]:
    """Returns the available data of a page."""
    paths = {name: _data(results, name) for name in page.needs}
    return {name: read_evidence(path) for name, path in paths.items() if path.exists()}


def write_page(name: str, results: Path) -> None:
    """Regenerates the tables and figures of a page."""
    page, path = PAGES[name], results / f"{name}.md"
    data = data_of(page, results)
    write_text(path, filled(path.read_text(encoding="utf-8"), page, data))
    for picture, item in page.pictures.items():
        if all(need in data for need in item.needs):
            mark = fingerprint([_data(results, need) for need in item.needs])
            draw(item, [data[need] for need in item.needs], mark, results / "images" / f"{picture}.png")


def _data(results: Path, name: str) -> Path:
    return results / "data" / f"{name}.json"


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        raise RunError("git is not installed, so the commit is unknown. Pass --commit HASH.")
    found = subprocess.run(  # noqa: S603
        [git, "rev-parse", "--short=12", "HEAD"], cwd=RESULTS, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


if __name__ == "__main__":
    main()
