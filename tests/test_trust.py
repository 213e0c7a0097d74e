"""A file may name a class; it is imported only if this call names it too."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fieldwise as fw
from fieldwise.bench.process import Order, measure
from fieldwise.cli import main
from fieldwise.cli.options import settings_of
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.settings import read_toml
from fieldwise.exports.targets import export_to
from fieldwise.models.factory import model_named
from fieldwise.models.fm import FM
from fieldwise.pipeline.settings import RunSettings

MODULE = """
from pathlib import Path
from torch import nn
from fieldwise.searches.uniform import Uniform

Path(__file__).with_name("imported").touch()


class Mine(nn.Module):
    def __init__(self, schema, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(field.cardinality, width) for field in schema.fields)
        self.out = nn.Linear(width, 1)

    def forward(self, ids):
        return self.out(sum(table(ids[:, j]) for j, table in enumerate(self.tables)))


def build(schema, width: int = 2):
    return Mine(schema, width)


class Even(Uniform):
    "A search of one's own."
"""
FAST = [
    "--set", "data.rows=2000", "--set", "model.width=2", "--set", "pretrain.epochs=1", "--set", "retrain.epochs=1",
    "--device", "cpu", "--budget", "50%",
]  # fmt: skip


class Desk:
    """A working directory with a user's module, which leaves a file when it is imported."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self._monkeypatch = folder, capsys, monkeypatch
        (folder / "mine_here.py").write_text(MODULE)

    def imported(self) -> bool:
        return (self.folder / "imported").exists()

    def fresh(self) -> None:
        """Restores the state of a new process."""
        sys.modules.pop("mine_here", None)
        sys.path[:] = [path for path in sys.path if path not in ("", str(self.folder))]
        (self.folder / "imported").unlink(missing_ok=True)

    def __call__(self, *arguments: str | Path) -> tuple[int, str]:
        self.fresh()
        self._monkeypatch.setattr(sys, "argv", ["fieldwise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        code = stop.value.code
        return (code if isinstance(code, int) else 0), self._capsys.readouterr().err


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    desk = Desk(tmp_path, capsys, monkeypatch)
    desk.fresh()
    yield desk
    desk.fresh()


def refused(result: tuple[int, str], *says: str) -> None:
    code, error = result
    assert code == 2, error
    assert len(error.strip().splitlines()) == 1, error
    for words in says:
        assert words in error


def test_a_run_of_ones_own_model_resumes_and_serves_only_by_the_user_s_word(desk: Desk) -> None:
    code, error = desk("run", "--out", "r", "--model", "mine_here:build", "--search", "mine_here:Even", *FAST)
    assert (code, error) == (0, "")
    assert desk.imported()
    code, error = desk("run", "--out", "r")
    assert (code, len(error.splitlines())) == (2, 2)
    refused(
        desk("run", "--out", "r", "--search", "mine_here:Even"), "[model] 'mine_here:build' is named by a file",
        "Add --set model.name=mine_here:build", "if you trust it",
    )  # fmt: skip
    refused(
        desk("retrain", "--out", "r", "--set", "model.name=mine_here:build"), "Add --set search.name=mine_here:Even"
    )
    own = Path("r/seed-0/compact/50pct-parameters")
    rows = Path("rows.csv")
    names = fw.Dataset.open("r/dataset").schema.names
    rows.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    desk.fresh()
    refused(desk("predict", own, rows, "--out", "p.csv"), "Add --model mine_here:build")
    refused(desk("export", own, "--to", "pt2", "--out", "x"), "Add --model mine_here:build")
    refused(desk("bench-serve", own), "Add --model mine_here:build")
    for verb in (("report", "r"), ("watch", "r", "--once"), ("describe", "r/dataset")):
        assert desk(*verb)[0] == 0
    assert desk("export", own, "--to", "json", "--out", "x")[0] == 0  # exporting widths only needs no code
    assert not desk.imported()
    assert str(desk.folder) not in sys.path
    refused(desk("predict", own, rows, "--out", "p.csv", "--model", "fm"), "but got class 'fm'")
    assert desk("predict", own, rows, "--out", "p.csv", "--model", "mine_here:build")[0] == 0
    assert len(Path("p.csv").read_text().splitlines()) == 2
    # a settings file that is given is the user's word, though it is the folder's; so are flags
    assert desk("run", "r/settings.toml", "--out", "r")[0] == 0
    assert desk("run", "--out", "r", "--model", "mine_here:build", "--search", "mine_here:Even")[0] == 0


def test_workers_of_a_comparison_import_what_the_user_named(desk: Desk) -> None:
    flags = [
        "--set", "compare.models=['mine']", "--set", "models.mine.name=mine_here:build", "--set", "models.mine.width=2",
        "--set", "compare.methods=['even', 'uniform']", "--set", "methods.even.name=mine_here:Even",
        *FAST[:2], *FAST[4:],
    ]  # fmt: skip
    code, error = desk("compare", "--out", "c", "--jobs", "2", *flags)
    assert code == 0, error
    assert "failed" not in Path("c/comparison.json").read_text()
    result = desk("compare", "--out", "c")
    assert "[models.mine] 'mine_here:build'" in result[1]
    assert "Add --set models.mine.name=mine_here:build" in result[1]
    assert "Add --set methods.even.name=mine_here:Even" in result[1]
    assert result[0] == 2
    assert not desk.imported()
    words = ["--set", "models.mine.name=mine_here:build", "--set", "methods.even.name=mine_here:Even"]
    assert desk("compare", "--out", "c", *words)[0] == 0
    desk.fresh()
    with pytest.raises(SettingsError, match="mine_here:Even"):
        CompareSettings.parse(read_toml(Path("c/settings.toml")), trusted={"mine_here:build"})


def test_python_gives_the_class_itself(desk: Desk) -> None:
    mine = type("Mine", (FM,), {"__module__": "not_installed", "__doc__": "A model of one's own."})
    fw.export(mine().build(fw.Schema.of(user=50, city=7).layout(4)), "m")
    with pytest.raises(RunError, match=r"Add model=<its function or class>, if you trust it"):
        fw.load("m")
    assert isinstance(fw.load("m", model=mine).model.settings, mine)
    with pytest.raises(RunError, match=r"a model of class 'not_installed:Mine', but got class 'fm'"):
        fw.load("m", model=FM)
    with pytest.raises(SettingsError, match="'Path' takes"):
        fw.load("m", model=Path)  # type: ignore[arg-type]
    with pytest.raises(RunError, match="Add model=<its function or class>"):
        export_to("pt2", Path("m"), Path("x"))
    assert export_to("pt2", Path("m"), Path("x"), cls=mine).paths == [Path("x/model.pt2")]
    script = type("Mine", (FM,), {"__module__": "__main__", "__doc__": "Of a script, which others import by its name."})
    fw.export(script().build(fw.Schema.of(user=50, city=7).layout(4)), "s")
    assert isinstance(fw.load("s", model=mine).model.settings, mine)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ('[model]\nname = "mine_here:build"\n', "[model] 'mine_here:build'"),
        ('[data]\nname = "mine_here:Rows"\n', "--set data.name=mine_here:Rows"),
        ('[engine]\nname = "mine_here:Engine"\n', "--set engine.name=mine_here:Engine"),
        ('[split]\nname = "mine_here:Split"\n', "--set split.name=mine_here:Split"),
        ('[search]\nname = "race"\n[search.entrants."mine_here:Even"]\n', "Give the settings file as an argument"),
    ],
)
def test_no_table_of_a_run_s_own_settings_is_imported(desk: Desk, tables: str, says: str) -> None:
    Path("r").mkdir()
    Path("r/settings.toml").write_text(tables)
    refused(desk("run", "--out", "r"), says)
    assert not desk.imported()
    assert [path.name for path in Path("r").iterdir()] == ["settings.toml"]


def test_entrants_of_a_race_are_the_user_s_word_too(desk: Desk) -> None:
    Path("r").mkdir()
    Path("r/settings.toml").write_text('[search]\nname = "race"\n[search.entrants."mine_here:Even"]\n')
    chosen = settings_of(None, Path("r"), ["search.entrants={'mine_here:Even'={}}"])
    assert desk.imported()
    assert "mine_here:Even" in chosen.search.values()["entrants"]
    with pytest.raises(SettingsError, match=r"not a class\. Name a settings class"):
        RunSettings.parse({"search": {"name": "race", "entrants": {"mine_here:build": {}}}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise KeyError('x\\ny')", "KeyError: 'x\\ny'"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("def f(:", "SyntaxError: invalid syntax (mine_here.py, line 1)"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("build = 3", "is 3. Allowed: a function build(schema)"),
        ("", "the module has no 'build'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(desk: Desk, text: str, says: str) -> None:
    (desk.folder / "mine_here.py").write_text(text)
    refused(desk("run", "--out", "r", "--model", "mine_here:build"), "'mine_here:build'", says)
    assert not Path("r").exists()


@pytest.mark.parametrize(
    "name", ["../../x:Y", "a/b:C", "fieldwise.cli:main", "fieldwise:load", ".x:Y", "x:Y.z", "é à:B"]
)
def test_a_name_that_is_no_module_s_is_one_line(desk: Desk, name: str) -> None:
    refused(desk("run", "--out", "r", "--model", name), "[model]", name)
    assert str(desk.folder) not in sys.path


def test_a_process_that_measures_imports_the_class_it_is_given(desk: Desk) -> None:
    (desk.folder / "m").mkdir()
    order = Order(
        runtime="eager",
        path=Path("m"),
        ids=Path("ids.npy"),
        batches=[1],
        seconds=0.01,
        threads=1,
        model="mine_here:build",
    )
    np.save("ids.npy", np.zeros((1, 2), np.int32))
    fw.export(model_named("mine_here:build")().new(fw.Schema.of(user=50, city=7)), "m")
    desk.fresh()
    assert [latency.batch for latency in measure(order).latencies] == [1]
    with pytest.raises(RunError, match="Add model=<its function or class>"):
        measure(order.model_copy(update={"model": None}))


def test_the_working_directory_hides_nothing_that_is_installed(desk: Desk) -> None:
    for name in ("safetensors", "torch"):
        (desk.folder / f"{name}.py").write_text("raise RuntimeError('hijacked')")
    shutil.copy("mine_here.py", "other_here.py")
    try:
        assert desk("run", "--out", "r", "--model", "other_here:build", *FAST)[0] == 0
        assert sys.path[-1] == str(desk.folder)
    finally:
        sys.modules.pop("other_here", None)
