"""docs/methods has a page per search that names every setting."""

from pathlib import Path

import pytest

from fieldwise.core.registry import resolve
from fieldwise.searches import SEARCHES
from fieldwise.searches.search import Search

PAGES = Path(__file__).parents[2] / "docs" / "methods"


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_has_a_page_that_names_its_settings(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}: ")
    cls = resolve("search", SEARCHES, name)
    assert issubclass(cls, Search)
    (settings,) = [line for line in text.splitlines() if line.startswith("**Settings**")]
    missing = [field for field in cls.model_fields if field not in settings]
    assert missing == []
    for part in ("**When to use it**", "**Cost**"):
        assert part in text


def test_no_page_is_left_of_a_search_that_is_gone() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(SEARCHES)
