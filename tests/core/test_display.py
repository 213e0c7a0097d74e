"""Values show themselves: text on a console, a table in a notebook, and names are never markup."""

from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
import torch

import fieldwise as fw
from fieldwise.core.display import Shown, View
from fieldwise.data.store import Dataset

HOSTILE = ["<script>alert(1)</script>", 'a"b&amp;', "line\nbreak", "</table><img src=x>"]


class Tags(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(html: str) -> Tags:
    found = Tags()
    found.feed(html)
    return found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A dataset whose field names look like markup."""
    columns = {name: [f"v{i * (k + 3) % 7}" for i in range(300)] for k, name in enumerate(HOSTILE)}
    rows = pa.table({**columns, "<i>click": [i % 2 for i in range(300)]})
    return fw.prepare(fw.data.Frame(frame=rows, label="<i>click"), tmp_path_factory.mktemp("data") / "<u>hostile")


@pytest.fixture(scope="module")
def full(hostile: Dataset) -> fw.Trained[Any]:
    return fw.pretrain(fw.Task.of(hostile, fw.models.FM(width=2), device="cpu"), fw.Pretrain(epochs=1))


def test_every_result_shows_hostile_names_as_text(hostile: Dataset, full: fw.Trained[Any]) -> None:
    task = fw.Task.of(hostile, fw.models.FM(width=2), device="cpu")
    found = fw.search(task.starting_from(full.model), fw.searches.Magnitude(), "50%")
    predictor = fw.Predictor(full.model, hostile.encoder)
    fields: list[Shown] = [hostile, hostile.schema, task, task.layout, found, found.mask, predictor]
    for value in fields:
        page = parsed(value._repr_html_())
        assert page.tags <= {"div", "strong", "br", "table", "thead", "tbody", "tr", "th", "td"}
        assert "<script>alert(1)</script>" in page.texts, type(value)
        assert "line break" in page.texts
        assert "<script>alert(1)</script>" in repr(value) == str(value)
    assert parsed(full._repr_html_()).tags == {"div", "strong", "br", "table", "thead", "tbody", "tr", "th", "td"}
    assert "<u>hostile" in repr(hostile).splitlines()[0]


def test_what_each_value_says(hostile: Dataset, full: fw.Trained[Any]) -> None:
    task = fw.Task.of(hostile, fw.models.FM(width=2), device="cpu")
    found = fw.search(task.starting_from(full.model), fw.searches.Magnitude(), "2 columns")
    assert repr(fw.Budget.parse("25%")) == "Budget('25% parameters')"
    assert repr(found.mask).splitlines()[0] == "Mask: 2 of 8 (25.0%) columns, 16 of 64 (25.0%) parameters"
    assert repr(found).splitlines()[0].startswith("SearchResult: budget 2 columns, validation AUC 0.")
    assert repr(full).splitlines()[0].startswith("Trained FM: best validation AUC 0.")
    assert [line.split()[0] for line in repr(full).splitlines()[2:]] == ["epoch", "0", "1"]
    lines = repr(hostile).splitlines()
    assert lines[0].endswith("/<u>hostile': fieldwise.data.frame:Frame, label '<i>click', 4 fields")
    assert lines[1] == "Rows: " + ", ".join(
        f"{name} {len(split):,} ({split.labels.mean():.2%} clicks)"
        for name, split in (("train", hostile.train), ("valid", hostile.valid), ("test", hostile.test))
    )
    assert repr(hostile.encoder) == f"Encoder(4 fields: {', '.join(HOSTILE)})"
    assert repr(hostile.train) == f"Split({len(hostile.train)} rows, 4 ids each)"
    assert "Reads 4 of 4 fields" in repr(fw.Predictor(full.model, None))
    assert repr(task).splitlines()[1].endswith(", no starting model, device cpu")


def test_a_long_table_is_cut_and_counted() -> None:
    view = View("Many", (), ("field", "width"), tuple((f"f{i}", i) for i in range(1000)))
    assert view.text().splitlines()[1] == "field  width"
    assert view.text().splitlines()[-1] == "... and 970 more"
    assert view.text().splitlines()[-2] == "f29       29"
    assert view.html().count("<tr>") == 1 + 200
    assert "... and 800 more" in view.html()
    assert View("Only a title").html() == "<div><div><strong>Only a title</strong></div></div>"
    assert View("Only a title").text() == "Only a title"


def test_a_pruner_shows_its_tables() -> None:
    model = torch.nn.ModuleDict({"<b>": torch.nn.Embedding(10, 4)})

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = model

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.tables["<b>"](ids).sum(1)
            return found

    pruner = fw.Pruner(Own(), (torch.zeros(3, dtype=torch.long),), fw.searches.Magnitude(), "50%")
    page = parsed(pruner._repr_html_())
    assert page.tags == {"pre"}
    assert "".join(page.texts) == repr(pruner)


@pytest.mark.parametrize("package", ["data", "gates", "models", "searches"])
def test_dir_lists_what_a_package_offers(package: str) -> None:
    home = getattr(fw, package)
    assert dir(home) == sorted(dir(home))
    for name in dir(home):
        assert getattr(home, name), name


def test_dir_lists_the_public_names_and_nothing_else() -> None:
    assert [name for name in dir(fw) if not name.startswith("__")] == fw.__all__


def test_budgets_are_text_wherever_a_budget_is_taken(hostile: Dataset, full: fw.Trained[Any]) -> None:
    task = fw.Task.of(hostile, fw.models.FM(width=2), device="cpu").starting_from(full.model)
    scores = range(task.layout.columns)
    assert fw.select(scores, task.layout, "25%") == fw.select(scores, task.layout, fw.Budget.percent(25))
    assert fw.select(scores, task.layout, 3).columns == 3
    found = fw.search(task, fw.searches.Uniform(), "4 columns")
    assert found.budget == fw.Budget.columns(4)
    with pytest.raises(fw.FieldwiseError, match="Budget 'lots' is not understood"):
        fw.search(task, fw.searches.Uniform(), "lots")
    with pytest.raises(fw.FieldwiseError, match=r"got <class '.*Uniform'>.*Call the class"):
        fw.search(task, fw.searches.Uniform, "4 columns")  # type: ignore[arg-type]
