"""A user's factory through all stages: run, resume, compare, report, predict, export."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import torch

import fieldwise as fw
from fieldwise.core.errors import FieldwiseError, SettingsError
from fieldwise.core.registry import resolve
from fieldwise.models.compact import compact
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches import SEARCHES
from tests.command_line import cli
from tests.models.factories import deep, named

DEEP, NAMED = "tests.models.factories:deep", "tests.models.factories:named"
OWN_NETWORK = {"autodim", "optembed", "pep"}


def tables(planted: fw.Dataset, build: str, search: str, **more: Any) -> dict[str, Any]:
    few = {"epochs": 2, "batch": 512}
    return {
        "run": {"dataset": str(planted.folder), "device": "cpu", "budgets": ["25%"]},
        "model": {"name": build},
        "pretrain": few,
        "search": {"name": search, **few},
        "retrain": few,
        **more,
    }


@pytest.fixture(scope="module")
def trained(planted: fw.Dataset) -> fw.Task:
    task = fw.Task.of(planted, named, device="cpu")
    return task.starting_from(fw.pretrain(task, fw.Pretrain(epochs=1)).model)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_works_or_says_why_not(name: str, trained: fw.Task) -> None:
    cls: Any = resolve("search", SEARCHES, name)
    given: dict[str, Any] = (
        {"rounds": 2} if name == "rounds" else {"entrants": {"uniform": {}, "sseds": {}}} if name == "race" else {}
    )
    search = cls(**given, **({"epochs": 1} if "epochs" in cls.model_fields else {}))
    if name in OWN_NETWORK:
        with pytest.raises(SettingsError, match=f"{cls.__name__} trains .* it needs a model of the library") as caught:
            fw.search(trained, search, "25%")
        assert "\n" not in str(caught.value)
        return
    found = fw.search(trained, search, "25%")
    assert found.mask.params <= trained.layout.params // 4
    assert found.model.layout == found.mask.layout
    assert trained.start is not None
    wanted, weights = compact(trained.start, found.mask).state_dict(), found.model.state_dict()
    same = all(torch.equal(weights[key], wanted[key]) for key in wanted)
    assert same == (name != "mde"), "slices of the pretrained model, unless the weights are new"
    small = fw.retrain(trained, found.model, fw.Retrain(epochs=1)).model
    assert small.size().embedding == found.mask.params


class Stop(fw.Watcher):
    """Ends the process, as a signal does, at the second epoch of a stage."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def epoch(self, stage: str, epoch: Any) -> None:
        if stage == self._stage and epoch.epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("build", "search", "stages"), [(DEEP, "ham", ("pretrain", "search", "retrain")), (NAMED, "rounds", ("search",))]
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    planted: fw.Dataset, build: str, search: str, stages: tuple[str, ...], tmp_path: Path
) -> None:
    settings = tables(planted, build, search)
    (whole,) = fw.run(settings, tmp_path / "whole")
    for stage in stages:
        with pytest.raises(KeyboardInterrupt):
            fw.run(settings, tmp_path / "stopped", Stop(stage))
    (found,) = fw.run(settings, tmp_path / "stopped")
    left = {"seconds", "peak_memory"}
    assert found.model_dump(exclude=left) == whole.model_dump(exclude=left)
    assert found.model == build
    assert found.fields == list(planted.schema.names)
    for place in ("seed-0/compact/25pct-parameters", "seed-0/pretrain"):
        weights = [(tmp_path / run / place / "model.safetensors").read_bytes() for run in ("whole", "stopped")]
        assert weights[0] == weights[1]
    (page,) = (tmp_path / "whole").glob("report*.html")
    assert "noise_c" in page.read_text()


def test_the_command_line_runs_predicts_and_exports_it(planted: fw.Dataset, tmp_path: Path) -> None:
    few = ["--set", "pretrain.epochs=1", "--set", "search.epochs=1", "--set", "retrain.epochs=1", "--device", "cpu"]
    done = cli(
        "run", "--dataset", planted.folder, "--model", DEEP, "--set", "model.width=8", "--preset", "paper",
        "--budget", "30%", "--out", tmp_path / "r", *few,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    folder = tmp_path / "r" / "seed-0" / "compact" / "30pct-parameters"
    refused = cli("predict", folder, tmp_path / "rows.csv", "-o", tmp_path / "p.parquet")
    assert refused.returncode == 2
    assert f"Add --model {DEEP}" in refused.stderr
    predictor = fw.load(folder, model=deep)
    rows = {name: ["1", "2", ""] for name in planted.schema.names}
    csv.write_csv(predictor.encoder.table(rows), tmp_path / "rows.csv")
    done = cli("predict", folder, tmp_path / "rows.csv", "-o", tmp_path / "p.parquet", "--model", DEEP)
    assert done.returncode == 0, done.stderr
    found = pq.read_table(tmp_path / "p.parquet")["probability"].to_numpy()
    assert np.array_equal(found, predictor.predict(csv.read_csv(tmp_path / "rows.csv").cast(
        predictor.encoder.table(rows).schema
    )))  # fmt: skip
    for target, path in (("pt2", "model.pt2"), ("torchrec", "torchrec.json"), ("json", "widths.json")):
        done = cli("export", folder, "--to", target, "--out", tmp_path / target, "--model", DEEP)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / target / path).exists()
    graph = torch.export.load(tmp_path / "pt2" / "model.pt2").module()
    ids = torch.from_numpy(planted.test.ids[:50])
    needed = [j for j, name in enumerate(planted.schema.names) if name in predictor.model.needs]
    expected = torch.sigmoid(predictor.model(ids))
    assert torch.allclose(graph(ids[:, needed]), expected, atol=1e-6)


BAD = {
    "no such function": (["--model", "tests.models.factories:nothing"], "the module has no 'nothing'"),
    "wrong signature": (["--model", "tests.models.test_factory:two"], "Give hidden a default"),
    "raises": (["--model", "tests.models.test_factory:raising"], "raising(schema) raised KeyError"),
    "unknown keyword": (["--model", DEEP, "--set", "model.widht=3"], "[model] unknown 'widht'. Did you mean 'width'?"),
    "its own network": (["--model", DEEP, "--search", "pep"], "[search] PEP trains thresholds inside the tables"),
    "a race with one": (
        ["--model", DEEP, "--search", "race", "--set", "search.entrants={pep={}}"], "[search] PEP trains",
    ),
    "rows of tables": (["--model", DEEP, "--set", "pretrain.optimizer=rowwise-adagrad"], "Choose adam or dense-adam"),
    "rows of tables in a race": (
        ["--model", DEEP, "--search", "race", "--set", "search.entrants={ham={optimizer='rowwise-adagrad'}}"],
        "[search] optimizer = 'rowwise-adagrad' updates tables of the library",
    ),
    "another precision": (["--model", DEEP, "--set", "retrain.store=int8"], "store = 'int8': the tables of a factory"),
    "a budget of another precision": (["--model", DEEP, "--budget", "4 KB float16"], "store = 'float16': the tables"),
    "first order": (["--model", DEEP, "--set", "retrain.drop_first_order=true"], "[retrain] drop_first_order is not"),
    "below one column": (["--model", DEEP, "--budget", "1 parameters"], "1 parameters"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_before_any_work(name: str, planted: fw.Dataset, tmp_path: Path) -> None:
    flags, says = BAD[name]
    done = cli("run", "--dataset", planted.folder, "--device", "cpu", "--out", tmp_path / "r", *flags)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert says in done.stderr
    assert not list(tmp_path.glob("r/seed-*"))


def test_what_only_tables_of_the_library_have_is_refused_in_python_too(trained: fw.Task) -> None:
    small = fw.search(trained, fw.searches.Uniform(), "25%").model
    rows: Any = {"epochs": 1, "optimizer": "rowwise-adagrad"}
    calls: dict[str, Callable[[], object]] = {
        r"\[pretrain\] optimizer = 'rowwise-adagrad'": lambda: fw.pretrain(trained, fw.Pretrain(**rows)),
        r"\[search\] optimizer = 'rowwise-adagrad'": lambda: fw.search(trained, fw.searches.HAM(**rows), "25%"),
        r"\[retrain\] optimizer = 'rowwise-adagrad'": lambda: fw.retrain(trained, small, fw.Retrain(**rows)),
        "store = 'float16'": lambda: fw.retrain(trained, small, fw.Retrain(store="float16")),
        "drop_first_order is not possible": lambda: fw.retrain(trained, small, fw.Retrain(drop_first_order=True)),
    }
    for says, call in calls.items():
        with pytest.raises(FieldwiseError, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_tiers_rates_of_tables_and_schedules_work_with_factories(tmp_path: Path) -> None:
    few = {"epochs": 1}
    settings = {
        "run": {"device": "cpu", "budgets": ["25%"]},
        "data": {"name": "planted", "rows": 1_500, "tiers": 0.25},
        "model": {"name": NAMED},
        "pretrain": few,
        "search": {"name": "sseds"},
        "retrain": {**few, "schedule": "decay", "decay": {"table_rate": 3.0}},
    }
    (record,) = fw.run(settings, tmp_path / "r")
    assert {"user:frequent", "user:rare"} < set(record.fields)
    found = fw.load(tmp_path / "r" / "seed-0" / "compact" / "25pct-parameters", model=named)
    probabilities = found.predict(
        {name: ["1", "2"] for name in ("user", "item", "city", "noise_a", "noise_b", "noise_c")}
    )
    assert len(probabilities) == 2


def test_a_comparison_takes_factories_beside_our_models(planted: fw.Dataset, tmp_path: Path) -> None:
    settings = {
        "run": {"dataset": str(planted.folder), "device": "cpu", "budgets": ["25%"]},
        "compare": {"models": ["mine", "fm"], "methods": ["sseds", "uniform"]},
        "models": {"mine": {"name": DEEP, "width": 6}, "fm": {"width": 4}},
        "pretrain": {"epochs": 1},
        "retrain": {"epochs": 1},
    }
    found = fw.compare(settings, tmp_path / "c")
    assert [(cell.model, cell.state) for cell in found.cells] == [("mine", "complete")] * 2 + [("fm", "complete")] * 2
    assert found.cells[0].record is not None
    assert found.cells[0].record.widths_before == [6] * 6
    with pytest.raises(SettingsError, match=r"\[methods.pep\] PEP trains"):
        fw.compare({**settings, "compare": {"models": ["mine"], "methods": ["pep", "uniform"]}}, tmp_path / "d")


def test_a_preset_does_not_set_keys_that_a_factory_does_not_have(planted: fw.Dataset) -> None:
    found = RunSettings.parse({"preset": "paper", "model": {"name": NAMED}})
    assert found.model.values() == {}
    assert found.pretrain.regularity.place == "loss"
