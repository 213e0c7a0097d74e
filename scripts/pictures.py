"""Take the pictures of docs/images from the pages of a run and of a comparison; needs Chromium and playwright.

    fieldwise run settings/movielens-1m.toml --raw ml-1m.zip --seed 0 --device cpu --out runs/movielens
    fieldwise pretrain settings/movielens-1m.toml --raw ml-1m.zip --out runs/plain --device cpu \
        --set pretrain.regularity.strength=0
    fieldwise report runs/movielens --against runs/plain
    fieldwise compare settings/compare-planted.toml --out runs/planted --jobs 2
    python scripts/pictures.py --run runs/movielens --comparison runs/planted

Look at each picture before you commit it.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOP: Final = {"width": 1400, "height": 1560}
"""Size of a picture of the beginning of a page."""
RUN: Final = {
    "run.png": None, "run-widths.png": "#widths", "run-search.png": "#dynamics", "run-cosines.png": "#cosines",
}  # fmt: skip
"""Pictures of a run, each the beginning of the page or one of its sections."""
COMPARISON: Final = {"comparison.png": None}


def take(browser: Any, folder: Path, pictures: dict[str, str | None], out: Path) -> None:
    """Take the pictures of one page, in the light theme and without a network."""
    (path,) = folder.glob("report-*.html")
    page = browser.new_context(viewport=TOP, color_scheme="light", offline=True).new_page()
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("#making pre")
    page.wait_for_timeout(500)
    for name, section in pictures.items():
        (page.locator(section) if section else page).screenshot(path=out / name)
        sys.stdout.write(f"{out / name}\n")


def main() -> None:
    """Take the pictures of the folders that are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="A run folder.")
    parser.add_argument("--comparison", type=Path, help="The folder of a comparison.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for folder, pictures in ((given.run, RUN), (given.comparison, COMPARISON)):
            if folder is not None:
                take(browser, folder, pictures, given.out)
        browser.close()


if __name__ == "__main__":
    main()
