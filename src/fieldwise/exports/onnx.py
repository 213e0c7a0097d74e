"""Exports one ONNX graph from raw values to the probability."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from fieldwise.core.errors import RunError
from fieldwise.core.files import replacing
from fieldwise.core.version import __version__
from fieldwise.exports.inputs import inputs_of
from fieldwise.exports.predictor import Predictor, Probability
from fieldwise.exports.program import export_program, quiet

if TYPE_CHECKING:
    import onnx_ir as ir

EXTERNAL_ABOVE: Final = 2**31 - 2**27
"""Weights of more bytes than this go into a separate file; a protobuf message holds at most 2 GiB."""
_DATA: Final = ".data"


def to_onnx(predictor: Predictor, path: Path | str) -> list[Path]:
    """Writes the graph from raw values to the probability; weights over about 2 GiB go into `NAME.data`."""
    return _save(_whole(predictor), Path(path))


def ids_to_onnx(probability: Probability, path: Path) -> list[Path]:
    """Writes the graph from ids to the probability, without the encoding of raw values."""
    return _save(_model(probability), path)


def _whole(predictor: Predictor) -> "ir.Model":
    _require()
    import onnx_ir as ir
    from onnx_ir.passes.common import NameFixPass

    from fieldwise.exports.onnx_front import Front

    front, model = Front(predictor.encoder), _model(predictor.probability)
    graph = model.graph
    (ids,) = graph.inputs
    for value in front.tape.initializers:
        graph.register_initializer(value)
    graph.insert_before(graph[0], front.tape.nodes)
    ir.convenience.replace_all_uses_with(ids, front.ids)
    graph.inputs.clear()
    graph.inputs.extend(front.inputs.values())
    graph.outputs[0].shape = ir.Shape(["batch"])
    model.opset_imports["ai.onnx.ml"] = 4
    entries = {entry.name: entry.to_json() for entry in inputs_of(predictor.encoder)}
    model.metadata_props["fieldwise.inputs"] = json.dumps(list(entries.values()), ensure_ascii=False)
    NameFixPass()(model)
    return model


def _model(probability: Probability) -> "ir.Model":
    """Returns the graph from ids to the probability."""
    _require()
    with quiet():
        program = torch.onnx.export(
            export_program(probability), dynamo=True, input_names=["ids"], output_names=["probability"], verbose=False
        )
    assert program is not None
    model: ir.Model = program.model
    for node in model.graph:
        node.metadata_props.clear()  # source locations, with paths of this machine
    model.producer_name, model.producer_version = "fieldwise", __version__
    return model


def _save(model: "ir.Model", path: Path) -> list[Path]:
    """Writes the data file first and the graph last, so its presence means that the export is complete."""
    import onnx_ir as ir

    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    external, data = weights > EXTERNAL_ABOVE, path.with_name(path.name + _DATA)
    with replacing(path) as work:
        if external:
            with replacing(data) as data_work:
                ir.save(model, work, format="protobuf", external_data=data_work.name)
            _point_to(work, data.name)
        else:
            ir.save(model, work, format="protobuf")
    return [path, data] if external else [path]


def _point_to(path: Path, data: str) -> None:
    """Writes the final name of the data file into the graph."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = data
    path.write_bytes(model.SerializeToString())


def _require() -> None:
    try:
        import onnx_ir
        import onnxscript

        assert onnx_ir
        assert onnxscript
    except ImportError as error:
        raise RunError(f"ONNX needs an extra ({error}). Run: pip install 'fieldwise[onnx]'.") from error
