"""Exports the model from ids to the probability with torch.export, or compiles it for this machine."""

import io
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fieldwise.core.errors import RunError
from fieldwise.core.files import replacing
from fieldwise.exports.predictor import Predictor, Probability
from fieldwise.models.factory_model import FactoryModel
from fieldwise.pruning.folding import fold
from fieldwise.pruning.narrow_layers import NARROW


def export_program(probability: Probability) -> torch.export.ExportedProgram:
    """Returns the exported program: ids (B, places) to probabilities (B,), for any B."""
    device = next(probability.parameters()).device
    ids = torch.zeros(3, probability.places, dtype=torch.int32, device=device)
    shapes = ({0: torch.export.Dim("batch")},)
    with quiet():
        if not isinstance(probability.model, FactoryModel):
            with torch.no_grad():  # with gradients, a head may run layers that are for training steps
                return torch.export.export(probability, (ids,), dynamic_shapes=shapes)
        try:
            return _without_origins(torch.export.export(_folded(probability, ids), (ids,), dynamic_shapes=shapes))
        except Exception as error:  # a user's forward may raise anything while it is traced
            line = (str(error).strip().splitlines() or [""])[0]
            raise RunError(
                f"The module has no graph: {type(error).__name__} ({line[:200]}). torch.export needs a forward without "
                "control flow on values, for any number of rows. Predict with the model folder itself."
            ) from error


def _without_origins(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns the program without paths of modules and files: torch cannot read a stored path that has a comma."""
    for node in program.graph.nodes:
        for name in ("nn_module_stack", "stack_trace", "from_node"):
            node.meta.pop(name, None)
    return program


def _folded(probability: Probability, ids: torch.Tensor) -> torch.nn.Module:
    """Returns a compact module without scatters between its narrow tables and layers, so that one row is not slower."""
    narrow = any(isinstance(module, NARROW) for module in probability.modules())
    return fold(probability, (ids,)) if narrow else probability


def to_pt2(predictor: Predictor, path: Path | str) -> list[Path]:
    """Writes the model from ids to the probability with torch.export."""
    path, held = Path(path), io.BytesIO()  # torch's file writer ends the process if a write fails
    with quiet():
        torch.export.save(export_program(predictor.probability), held)
    with replacing(path) as work:
        work.write_bytes(held.getbuffer())
    return [path]


def compile_ahead(probability: Probability, path: Path) -> None:
    """Compiles the model for this machine with AOTInductor."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++")):
        raise RunError("needs a C++ compiler. Install g++, or set CXX.")
    with quiet():
        torch._inductor.aoti_compile_and_package(export_program(probability), package_path=str(path))


@contextmanager
def quiet() -> Iterator[None]:
    """Silences torch's warnings during an export: they concern torch's own code and optional packages."""
    loggers = {logger: logger.level for logger in map(logging.getLogger, ("torch.onnx", "onnxscript"))}
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in loggers.items():
            logger.setLevel(level)
