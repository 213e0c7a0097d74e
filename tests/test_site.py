"""The documentation site: built without network, complete, its links alive, usable from files."""

import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fieldwise
from fieldwise.cli.app import COMMANDS
from fieldwise.data import SOURCES
from fieldwise.gates import GATES
from fieldwise.models import MODELS
from fieldwise.searches import SEARCHES
from tests.command_line import typed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_NETWORK = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


class Links(HTMLParser):
    """Addresses that a page points to, anchors that it has, and its text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.navigation: set[str] = set()
        self.text = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values[key] or "" for key in ("id", "name") if values.get(key)}
        target = values.get("href") or values.get("src")
        if target and tag != "base":
            self.targets.append(target)
            if tag in ("script", "img", "link", "iframe"):
                self.fetched.append(target)
            if "md-nav__link" in (values.get("class") or ""):
                self.navigation.add(target)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds, from a copy of what it reads."""
    pytest.importorskip("zensical", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("reference"))
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for command in recipe("docs"):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, **NO_NETWORK},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def recipe(target: str) -> list[list[str]]:
    """The commands of a target of the Makefile, as arguments for Python."""
    (block,) = re.findall(
        rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    commands = [line.strip().removeprefix("$(BIN)/").split() for line in block.splitlines() if "$(BIN)" in line]
    commands = [command[1:] if command[0] == "python" else ["-m", *command] for command in commands]
    return [[word.replace("scripts/", f"{ROOT}/scripts/") for word in command] for command in commands]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    """Every page of the site."""
    return {path: Links(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_document_is_a_page_that_the_navigation_of_the_first_page_reaches(
    site: Path, pages: dict[Path, Links]
) -> None:
    index = site / "index.html"
    reached = {(site / urllib.parse.unquote(target.partition("#")[0])).resolve() for target in pages[index].navigation}
    assert set(pages) <= reached
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    written = {site / path.with_name(path.name.replace("README", "index")).with_suffix(".html") for path in documents}
    assert written <= set(pages)


def test_every_link_and_anchor_is_alive(site: Path, pages: dict[Path, Links]) -> None:
    dead = []
    for page, found in pages.items():
        for target in found.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or target.startswith("//"):
                continue
            path = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
            anchor = urllib.parse.unquote(parts.fragment)
            inside = path.is_file() and path.is_relative_to(site)
            if not inside or (anchor and path in pages and anchor not in pages[path].anchors):
                dead.append(f"{page.relative_to(site)}: {target}")
    assert dead == []


def test_no_page_fetches_anything_from_elsewhere(pages: dict[Path, Links]) -> None:
    assert [target for found in pages.values() for target in found.fetched if "//" in target] == []


def test_no_page_shows_what_its_markdown_should_have_become(pages: dict[Path, Links]) -> None:
    for page, found in pages.items():
        assert not re.search(r"^:::|<!--|^\|\s?-{3}|\]\([\w./-]+\.md\)", found.text, re.MULTILINE), page


def test_the_reference_has_every_public_name(site: Path, pages: dict[Path, Links]) -> None:
    reference = {page.stem: found for page, found in pages.items() if page.parent.name == "reference"}
    python = reference["python"].text
    assert [name for name in fieldwise.__all__ if f"fw.{name}" not in python] == []
    for page, names in {"data": SOURCES, "gates": GATES, "models": MODELS, "searches": SEARCHES}.items():
        assert set(names) <= reference[page].anchors
    assert set(COMMANDS) <= reference["command-line"].anchors
    assert {"run", "pretrain", "retrain", "compare", "split", "engine"} <= reference["settings"].anchors


def test_the_examples_of_the_first_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    export = 'fw.export(small.model, "compact", data.encoder, found.mask)'  # README's
    (tmp_path / "example.py").write_text(f"{code}\n{export}\n", encoding="utf-8")
    for command in ("python example.py", *commands.strip().splitlines()):
        typed(command, tmp_path)
    assert (tmp_path / "runs" / "first" / "report-planted.html").exists()
    assert (tmp_path / "compact" / "model.json").exists()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as driver:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


LOOKED_AT = ("index.html", "reference/python.html", "results/beyond.html", "architecture.html")
"""One page of each kind; the slow test takes all."""


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_pages_fit_the_window_and_ask_for_nothing(site: Path, browser: "Browser", width: int, scheme: str) -> None:
    look(browser, [site / name for name in LOOKED_AT], width, scheme)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (390, "light")])
def test_all_pages_fit_the_window(pages: dict[Path, Links], browser: "Browser", width: int, scheme: str) -> None:
    look(browser, list(pages), width, scheme)


def look(browser: "Browser", paths: list[Path], width: int, scheme: str) -> None:
    """Opens pages as files, offline: none is wider than the window, asks for anything or complains."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light", offline=True
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else complaints.append(request.url))
    for path in paths:
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)") == []
    background = str(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    light = sum(map(int, re.findall(r"\d+", background)[:3])) > 384
    assert light == (scheme == "light")
    assert complaints == []
    context.close()


def test_the_search_finds_pages_without_a_server(site: Path, browser: "Browser") -> None:
    page = browser.new_context(offline=True, viewport={"width": 1400, "height": 900}).new_page()
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("orthogonality")
    page.get_by_text(re.compile(r"^\d+ results$")).wait_for()
    assert page.get_by_text("Search is unavailable").count() == 0
