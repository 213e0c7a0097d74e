"""A factory's model as a folder: weights and JSON, rebuilt by the factory, served as a graph."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode

import fieldwise as fw
from fieldwise.core.errors import FieldwiseError, RunError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.exports import modules
from fieldwise.exports.info import INFO, FileInfo, ModelInfo
from fieldwise.exports.meta import on_meta
from fieldwise.exports.modules import rebuilt
from fieldwise.exports.targets import export_to
from fieldwise.models.compact import compact
from fieldwise.models.factory import factory_of
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.stored import stored_bytes
from fieldwise.pruning.inside import draws
from fieldwise.pruning.narrow import Scatter
from tests.fuzz.hostile import sign
from tests.fuzz.mutate_files import SAFETENSORS
from tests.fuzz.mutate_values import JSON
from tests.models.factories import FACTORIES, Deep, deep, named, reading
from tests.models.factory_models import LISTS, PLAIN, mask_for, model_of


def stored(name: str, schema: fw.Schema, folder: Path) -> FactoryModel:
    small = compact(model_of(FACTORIES[name], schema), mask_for(model_of(FACTORIES[name], schema)))
    fw.export(small, folder)
    return small


@pytest.mark.parametrize("name", FACTORIES)
def test_a_model_comes_back_with_the_same_bits(name: str, tmp_path: Path) -> None:
    small, ids = stored(name, PLAIN, tmp_path / "m"), next(draws(PLAIN, 9))
    predictor = fw.load(tmp_path / "m", model=FACTORIES[name])
    assert torch.equal(predictor.model(ids), small(ids))
    assert predictor.model.needs == small.needs
    assert predictor.model.layout == small.layout
    assert {path.suffix for path in (tmp_path / "m").iterdir()} <= {".json", ".safetensors"}
    numbers = stored_bytes(small)
    there = sum(tensor.nbytes for tensor in load_file(tmp_path / "m" / "model.safetensors").values())
    tied = small.embedding.table(0).nbytes if name == "tied" and small.layout.widths[0] else 0  # stored twice
    assert numbers.tables + numbers.first_order + numbers.dense == there - tied
    assert isinstance(predictor.model, FactoryModel)
    again = compact(predictor.model, Mask.all(predictor.model.layout))  # a loaded model can be narrowed too
    assert torch.allclose(again(ids), small(ids), atol=1e-5)


def test_loading_needs_no_memory_for_full_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored("deep", PLAIN, tmp_path / "m")
    devices = []
    before = Deep.__init__

    def noted(self: Deep, *args: Any) -> None:
        before(self, *args)
        devices.append(self.deep[1].weight.device.type)

    monkeypatch.setattr(Deep, "__init__", noted)
    fw.load(tmp_path / "m", model=deep)
    assert devices == ["meta"]
    devices.clear()
    stored("reading", PLAIN, tmp_path / "r")
    devices.clear()
    fw.load(tmp_path / "r", model=reading)
    assert devices == ["meta", "cpu"]


def test_the_factory_is_imported_only_if_it_is_passed(tmp_path: Path) -> None:
    stored("deep", PLAIN, tmp_path / "m")
    with pytest.raises(RunError, match=r"'tests.models.factories:deep', which is not part of the library"):
        fw.load(tmp_path / "m")
    with pytest.raises(RunError, match=r"but got class 'tests.models.factories:named'"):
        fw.load(tmp_path / "m", model=named)
    with pytest.raises(SettingsError, match=r"Allowed: settings of a base model"):
        fw.load(tmp_path / "m", model=3)  # type: ignore[arg-type]


def changed(folder: Path, change: Any) -> None:
    """Changes model.json, with the digest that fits."""
    values = json.loads((folder / INFO).read_text())
    values.pop("digest")
    change(values)
    ModelInfo.model_validate(values).write(folder)


LIES: dict[str, tuple[Any, str]] = {
    "more rows": (lambda v: v["module"]["inputs"][1].update(cardinality=10**12), "has 1000000000000 rows|do not fit"),
    "another table": (lambda v: v["module"]["tables"][1].update(path="deep.1"), "is a Linear, not a table"),
    "no table": (lambda v: v["module"]["tables"][1].update(path="nowhere"), "has no table 'nowhere'"),
    "another width": (lambda v: v["fields"][1].update(width=1), "The stored tables have widths"),
    "more columns": (
        lambda v: v["module"]["narrow"]["modules"]["tables.1"].update(kept=[0, 1, 2, 3]), "do not fit|shape",
    ),
    "features that are not there": (
        lambda v: v["module"]["narrow"]["modules"]["deep.0"]["live"].__setitem__(0, -1), "Allowed: ascending places",
    ),
    "no list": (lambda v: v["module"]["narrow"]["modules"]["deep.0"].update(live="x"), "Allowed: ascending places"),
    "columns that are not there": (
        lambda v: v["module"]["narrow"]["modules"]["tables.1"].update(kept=[0, 99]), "Allowed: ascending places",
    ),
    "a full width beyond any memory": (lambda v: v["model"].update(width=2**40), "features, but .* numbers are stored"),
    "another call": (lambda v: v["module"].update(by_name=True), "cannot be called as model.json says: "),
    "another field": (lambda v: v.update(needs=["gender", "nobody"]), "nobody"),
    "another kind": (lambda v: v.update(module=None), "another kind of model"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_folder_that_claims_something_else_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    stored("deep", PLAIN, tmp_path / "m")
    change, says = LIES[name]
    changed(tmp_path / "m", change)
    with pytest.raises(RunError, match=says) as caught:
        fw.load(tmp_path / "m", model=deep)
    assert "\n" not in str(caught.value)


def test_claims_beyond_what_is_stored_allocate_nothing(tmp_path: Path) -> None:
    stored("reading", PLAIN, tmp_path / "m")
    changed(tmp_path / "m", lambda v: v["module"]["inputs"][0].update(cardinality=2**40))
    with pytest.raises(RunError, match=r"claim 1,099,511,627,790 ids, but .* numbers are stored"):
        fw.load(tmp_path / "m", model=reading)
    stored("reading", PLAIN, tmp_path / "m")
    changed(tmp_path / "m", lambda v: v["model"].update(width=2**40))
    with pytest.raises(RunError, match=r"The module has more than [\d,]* numbers, but fewer are stored"):
        fw.load(tmp_path / "m", model=reading)


def test_a_model_of_many_fields_that_keeps_few_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = fw.Schema(tuple(fw.Field(f"f{j}", 2) for j in range(50)))
    model = model_of(deep, schema)
    small = compact(model, Mask.of(model.layout, np.arange(model.layout.columns) < 3))
    fw.export(small, tmp_path / "m")
    monkeypatch.setattr(modules, "SPARE", 0)
    ids = next(draws(schema, 4))
    assert torch.equal(fw.load(tmp_path / "m", model=deep).model(ids), small(ids))


@pytest.mark.parametrize(("file", "kinds"), [("model.json", JSON), ("model.safetensors", SAFETENSORS)])
def test_mutated_files_with_matching_checksums_load_or_are_refused_in_one_line(
    file: str, kinds: dict[str, Any], tmp_path: Path
) -> None:
    stored("deep", PLAIN, tmp_path / "m")
    intact = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    refused = []
    for name, mutate in kinds.items():
        for seed in range(3):
            for other, data in intact.items():
                (tmp_path / "m" / other).write_bytes(data)
            (tmp_path / "m" / file).write_bytes(mutate(intact[file], Random(f"{name}/{seed}")))
            sign(tmp_path / "m")
            try:
                fw.load(tmp_path / "m", model=deep)
            except FieldwiseError as error:
                refused.append(str(error))
    assert len(refused) > len(kinds)
    assert not [line for line in refused if "\n" in line]


def test_another_precision_of_the_tables_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="store = 'int8': the tables of a factory's model are the module's own"):
        fw.export(model_of(deep), tmp_path / "m", store="int8")
    assert not (tmp_path / "m").exists()


def test_weights_of_another_type_are_refused(tmp_path: Path) -> None:
    small = stored("deep", PLAIN, tmp_path / "m")
    weights = load_file(tmp_path / "m" / "model.safetensors")
    info = ModelInfo.read(tmp_path / "m")
    assert info.module is not None
    settings = small.settings
    assert isinstance(rebuilt(settings, info, info.module, weights), FactoryModel)
    with pytest.raises(RunError, match=r"torch.float16"):
        rebuilt(settings, info, info.module, {name: tensor.half() for name, tensor in weights.items()})
    save_file({**weights, "module.other": torch.ones(1)}, tmp_path / "m" / "model.safetensors")
    changed(tmp_path / "m", lambda v: v["files"].update(
        {"model.safetensors": FileInfo.of(tmp_path / "m" / "model.safetensors").to_json()}
    ))  # fmt: skip
    with pytest.raises(RunError, match="'other' is not part of it"):
        fw.load(tmp_path / "m", model=deep)


@pytest.mark.parametrize("name", ["deep", "named"])
def test_a_pruners_compact_model_becomes_a_folder_and_a_graph(name: str, tmp_path: Path) -> None:
    model, build = model_of(FACTORIES[name], LISTS), FACTORIES[name]
    ids = next(draws(LISTS, 12))
    example = model.inside.inputs(ids)
    pruner = fw.Pruner(model.module, (example,), fw.searches.Magnitude(), "50% columns")
    small = pruner.compact().eval()
    with pytest.raises(SettingsError, match=r"Pass encoder=data.encoder and build="):
        fw.export(small, tmp_path / "m")
    adopted = factory_of(build)().adopted(small, LISTS)
    assert adopted.mask.widths == pruner.mask.widths
    fw.export(adopted, tmp_path / "m")
    expected = torch.sigmoid(adopted(ids)).detach().numpy()
    needed = [field.name in adopted.needs for field in LISTS.fields for _ in range(field.length)]
    for target in ("pt2", "onnx-ids"):
        given = ids[:, torch.tensor(needed)].int()
        if target == "pt2":
            export_to("pt2", tmp_path / "m", tmp_path / "out", cls=build)
            found = torch.export.load(tmp_path / "out" / "model.pt2").module()(given).detach().numpy()
        else:
            found = _by_onnx(fw.load(tmp_path / "m", model=build), given, tmp_path / "m.onnx")
        assert np.allclose(found, expected, atol=1e-6)


def _by_onnx(predictor: fw.Predictor, ids: torch.Tensor, path: Path) -> Any:
    pytest.importorskip("onnxscript")
    import onnxruntime

    from fieldwise.exports.onnx import ids_to_onnx

    ids_to_onnx(predictor.probability, path)
    return onnxruntime.InferenceSession(path).run(None, {"ids": ids.numpy()})[0]


def test_the_exported_graph_has_no_scatters(tmp_path: Path) -> None:
    small = stored("deep", PLAIN, tmp_path / "m")
    assert any(isinstance(module, Scatter) and len(module.live) < module.size for module in small.modules())
    export_to("pt2", tmp_path / "m", tmp_path / "out", cls=deep)
    graph = torch.export.load(tmp_path / "out" / "model.pt2").graph
    assert not [node for node in graph.nodes if "constant_pad" in str(node.target)]


def test_a_forward_without_a_graph_is_refused_in_one_line(tmp_path: Path) -> None:
    def branching(schema: fw.Schema) -> torch.nn.Module:
        return Branching(schema)

    fw.export(model_of(branching), tmp_path / "m")
    with pytest.raises(RunError, match="The module has no graph") as caught:
        export_to("pt2", tmp_path / "m", tmp_path / "out", cls=branching)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "model.pt2").exists()


class Branching(Deep):
    """Depends on values."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = super().forward(ids)
        return out if float(out.detach().sum()) > 0 else out * 2


def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    """On the meta device, a draw imports torch's compiler, which takes a second."""
    stored("deep", PLAIN, tmp_path / "m")
    drawn: list[str] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            drawn.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    with Seen(), on_meta():  # type: ignore[no-untyped-call]
        deep(PLAIN)
    assert "aten::empty.memory_format" in drawn or "aten::empty" in drawn
    assert not {name for name in drawn if "normal" in name or "uniform" in name}
    before = torch.random.get_rng_state()
    fw.load(tmp_path / "m", model=deep)
    assert torch.equal(torch.random.get_rng_state(), before)
