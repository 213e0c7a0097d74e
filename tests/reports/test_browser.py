"""The page in a real browser, without network."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fieldwise.reports import write
from tests.reports.conftest import run_over

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
COMPARISON = Path(__file__).parents[1] / "data_files" / "comparison.json"
NASTY = "<script>alert(1)</script>"
MARKS = "svg [aria-label] path, svg [aria-label] rect, svg [aria-label] circle, svg [aria-label] line"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Opened:
    """A page opened from its file, offline; records every request and every error."""

    def __init__(self, browser: "Browser", path: Path, width: int = 1400, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            offline=True,
        )
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#making pre")

    def _refuse(self, dialog: "Dialog") -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def check(self, path: Path) -> None:
        """Asserts that only the file was requested, that there were no errors, and that the page fits its window."""
        assert self.complaints == []
        assert self.requests == [path.as_uri()]
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    def charts(self) -> dict[str, int]:
        """Returns the number of marks of each chart."""
        return {
            str(chart.get_attribute("data-chart")): len(chart.query_selector_all(MARKS))
            for chart in self.page.query_selector_all("[data-chart]")
        }

    def drawn(self, chart: str) -> str:
        return str(self.page.eval_on_selector(f"[data-chart='{chart}'] svg", "node => node.outerHTML"))


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (600, "dark")])
def test_every_chart_of_a_run_is_drawn(
    finished: Path, browser: "Browser", tmp_path: Path, width: int, scheme: str
) -> None:
    path = finished / "report-planted.html"
    opened = Opened(browser, path, width, scheme)
    charts = opened.charts()
    assert set(charts) == {
        "chart-widths", "chart-front", "chart-parameters", "chart-scores", "chart-live", "chart-moment",
        "chart-moment-widths", "chart-cosines-0", "chart-cosines-all", "chart-seconds", "chart-memory",
        "chart-verdict-auc", "chart-verdict-log_loss",
        *(f"chart-{stage}-{key}" for stage in ("pretrain", "search", "retrain") for key in ("auc", "loss")),
    }  # fmt: skip
    assert min(charts.values()) > 0, charts
    assert charts["chart-scores"] >= 24
    assert charts["chart-cosines-0"] >= 16
    opened.page.screenshot(path=tmp_path / "run.png", full_page=True)
    assert (tmp_path / "run.png").stat().st_size > 50_000
    opened.check(path)


def test_the_slider_moves_time_by_keyboard(finished: Path, browser: "Browser") -> None:
    path = finished / "report-planted.html"
    opened = Opened(browser, path)
    page = opened.page
    scores, words = opened.drawn("chart-moment"), page.inner_text("#dynamics-moment")
    rule = page.get_attribute("#chart-live line.now", "x1")
    page.focus("#dynamics-time")
    page.keyboard.press("Home")
    assert page.inner_text("#dynamics-moment") == "step 1 of 20" != words
    assert opened.drawn("chart-moment") != scores
    assert float(page.get_attribute("#chart-live line.now", "x1") or 0) < float(rule or 0)
    page.select_option("#dynamics-search", "1")
    assert "of 20" in page.inner_text("#dynamics-moment")
    opened.check(path)


def test_choices_change_what_is_drawn(finished: Path, browser: "Browser") -> None:
    path = finished / "report-planted.html"
    opened = Opened(browser, path)
    page = opened.page
    cosines, widths = opened.drawn("chart-cosines-0"), opened.drawn("chart-widths")
    page.select_option("#cosines-field", label="city")
    assert opened.drawn("chart-cosines-0") != cosines
    assert page.inner_text("#chart-cosines-0 figcaption").startswith("city: mean absolute cosine")
    page.select_option("#widths-sort", "name")
    assert opened.drawn("chart-widths") != widths
    first = page.query_selector("[data-chart='chart-widths'] [aria-label='y-axis tick label'] text")
    assert first is not None
    assert first.text_content() == "city"
    page.click("#widths summary")
    page.click("#widths th:nth-child(5) button")
    saved = [text.replace(",", "") for text in page.locator("#widths td:nth-child(5)").all_inner_texts()]
    assert saved == sorted(saved, key=int, reverse=True)
    opened.check(path)


def test_the_theme_button_and_paper_change_colors(finished: Path, browser: "Browser") -> None:
    opened = Opened(browser, finished / "report-planted.html", scheme="dark")
    page = opened.page

    def back() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = back()
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: light"
    assert back() == "rgb(255, 255, 255)" != dark
    page.click("#theme")
    assert back() == dark
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert back() == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert back() == dark
    assert len(page.pdf()) > 10_000
    opened.check(finished / "report-planted.html")


def test_a_field_s_name_is_text_wherever_it_stands(browser: "Browser", tmp_path: Path) -> None:
    path = run_over(tmp_path / "nasty", [NASTY, "b", "c\"'&`${d}"], 6) / "report-ManyFields.html"
    opened = Opened(browser, path)
    page = opened.page
    assert NASTY in page.inner_text("#cosines-field")
    page.click("#widths summary")
    assert NASTY in page.locator("#widths td:nth-child(1)").all_inner_texts()
    page.select_option("#cosines-field", "0")
    assert NASTY in page.inner_text("#chart-cosines-0 figcaption")
    assert page.locator("script").count() == 6
    opened.check(path)


def test_one_field_gives_a_usable_page(browser: "Browser", tmp_path: Path) -> None:
    path = run_over(tmp_path / "one", ["only"], 1) / "report-ManyFields.html"
    opened = Opened(browser, path, width=600)
    assert min(opened.charts().values()) > 0
    opened.check(path)


def test_500_fields_give_a_usable_page(browser: "Browser", tmp_path: Path) -> None:
    path = run_over(tmp_path / "many", [f"field_{place}" for place in range(500)], 300) / "report-ManyFields.html"
    assert path.stat().st_size < 3_000_000
    opened = Opened(browser, path)
    page = opened.page
    charts = opened.charts()
    assert min(charts.values()) > 0
    assert charts["chart-widths"] >= 1_000
    page.fill("#widths-find", "field_49")
    assert page.locator("[data-chart='chart-widths'] [aria-label='y-axis tick label'] text").count() == 11
    page.focus("#dynamics-time")
    page.keyboard.press("Home")
    assert page.inner_text("#dynamics-moment").startswith("step 1 ")
    opened.check(path)


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (600, "dark")])
def test_every_chart_of_a_comparison_is_drawn(browser: "Browser", tmp_path: Path, width: int, scheme: str) -> None:
    shutil.copy(COMPARISON, tmp_path / "comparison.json")
    path = write.html(tmp_path).paths[0]
    opened = Opened(browser, path, width, scheme)
    charts = opened.charts()
    assert {"chart-front-0", "chart-cost-0", "chart-heat"} <= set(charts)
    assert min(charts.values()) > 0
    heat = opened.drawn("chart-heat")
    opened.page.select_option("#heat-budget", index=1)
    assert opened.drawn("chart-heat") != heat
    rows = opened.page.locator("#table tbody tr").count()
    opened.page.click("#table th:nth-child(1) button")
    assert opened.page.locator("#table tbody tr").count() == rows > 1
    opened.page.screenshot(path=tmp_path / "comparison.png", full_page=True)
    opened.check(path)


def test_an_unfinished_run_says_so_on_its_page(finished: Path, browser: "Browser", tmp_path: Path) -> None:
    copy = shutil.copytree(finished, tmp_path / "copy")
    for stage in ("search", "retrain"):
        for seed in (0, 1):
            shutil.rmtree(copy / f"seed-{seed}" / stage)
    path = write.html(copy).paths[0]
    opened = Opened(browser, path)
    assert "retrain of 6 columns, seed 1: not complete" in opened.page.inner_text("#notices")
    assert set(opened.charts()) == {
        "chart-pretrain-auc", "chart-pretrain-loss", "chart-cosines-0", "chart-cosines-all", "chart-seconds",
        "chart-memory",
    }  # fmt: skip
    opened.check(path)
