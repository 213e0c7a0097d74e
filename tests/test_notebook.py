"""The page about notebooks runs, as a script and in a kernel; progress is drawn in both."""

import os
import re
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fieldwise as fw
from fieldwise.core.records import Epoch
from fieldwise.reports import notebook
from fieldwise.reports.notebook import Cell, in_notebook

PAGE = (Path(__file__).parent.parent / "docs" / "notebook.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
EPOCH = Epoch(epoch=1, loss=0.5, auc=0.75, log_loss=0.6, seconds=1.25)


def test_the_page_runs_as_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(BLOCKS), "notebook.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("pretrain, epoch 0: validation AUC 0.")
    assert any(line.startswith("retrain, epoch 1: loss 0.") for line in lines)
    assert (tmp_path / "compact" / "model.json").exists()


@pytest.mark.interop
def test_the_page_runs_in_a_kernel(tmp_path: Path) -> None:
    """Needs nbclient and ipykernel."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    tab = "import fieldwise as fw\nget_ipython().kernel.do_complete('fw.Bud', 6)['matches']"
    cells = [nbformat.v4.new_code_cell(code) for code in [*BLOCKS, tab]]
    book = nbformat.v4.new_notebook(cells=cells)
    os.environ.setdefault("IPYTHONDIR", str(tmp_path / "ipython"))
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    dataset, training = book.cells[1].outputs, book.cells[2].outputs
    assert "<td>user:frequent</td>" in dataset[-1].data["text/html"]
    assert [output.output_type for output in training] == ["display_data", "execute_result"], "one output, updated"
    shown = training[0].data["text/html"]
    assert "<td>retrain</td><td>2</td>" in shown
    assert "<progress" not in shown, "the bar ends with its epoch"
    assert "SearchResult: budget 25% parameters" in training[1].data["text/html"]
    assert not [output for cell in book.cells for output in cell.outputs if output.output_type == "stream"]
    assert book.cells[-1].outputs[0].data["text/plain"] == "['Budget']"


class Shown:
    """Stands for IPython's display: keeps what is shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: list[str] = []
        handle = SimpleNamespace(update=self.pages.append)

        def show(page: str, display_id: bool) -> SimpleNamespace:
            self.pages.append(page)
            return handle

        display = SimpleNamespace(HTML=lambda page: page, display=show)
        shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()), display=display)
        monkeypatch.setitem(sys.modules, "IPython", shell)
        monkeypatch.setitem(sys.modules, "IPython.display", display)


def test_a_cell_shows_the_bar_the_epochs_and_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    assert in_notebook()
    monkeypatch.setattr(notebook, "_EVERY", 0.0)
    watcher = fw.Progress()
    watcher.begin("pretrain <b>, seed 0", done=False)
    watcher.rows("encode", 5, None)
    watcher.step("pretrain", 1, 3, 10)
    assert shown.pages[-1].endswith(
        "<progress value='3' max='10'></progress> pretrain &lt;b&gt;, seed 0, epoch 1: 3 of 10</div>"
    )
    watcher.note("2 bad rows were skipped.")
    watcher.epoch("pretrain", EPOCH)
    assert "<progress" not in shown.pages[-1]
    assert "2 bad rows were skipped." in shown.pages[-1]
    assert "<td>1</td><td>0.5000</td><td>0.7500</td><td>0.6000</td><td>1.2</td>" in shown.pages[-1]
    watcher.begin("search", done=True)
    assert "search: already complete" in shown.pages[-1]
    assert all("<b>" not in page for page in shown.pages)


def test_a_cell_is_not_drawn_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    monkeypatch.setattr(notebook, "_EVERY", 60.0)
    cell = Cell()
    for step in range(1, 1001):
        cell.step("pretrain", 1, step, 1000)
    assert len(shown.pages) <= 2
    assert "1,000 of 1,000" in shown.pages[-1]


def test_outside_a_notebook_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    watcher = fw.Progress()
    watcher.epoch("pretrain", EPOCH)
    with watcher as same:
        same.begin("search", done=False)
        same.rows("count", 1, 2)
        same.step("search", 1, 1, 2)
        same.note("a note")
        same.epoch("search", EPOCH)
        same.epoch("pretrain", EPOCH.model_copy(update={"averaged_auc": 0.76}))
    line = "loss 0.5000, validation AUC 0.7500, 1.2 s"
    averaged = "search, epoch 1: loss 0.5000, validation AUC 0.7500 (0.7600 averaged), 1.2 s"
    expected = [f"pretrain, epoch 1: {line}", "search: begins", "a note", f"search, epoch 1: {line}", averaged]
    assert capsys.readouterr().out.splitlines() == expected


def test_a_progress_can_be_copied() -> None:
    watcher: Any = fw.Progress()
    assert deepcopy(watcher) is not watcher
