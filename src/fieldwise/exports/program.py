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


def export_program(probability: Probability) -> torch.export.ExportedProgram:
    """Returns the exported program: ids (B, places) to probabilities (B,), for any B."""
    device = next(probability.parameters()).device
    ids = torch.zeros(3, probability.places, dtype=torch.int32, device=device)
    with quiet():
        return torch.export.export(probability, (ids,), dynamic_shapes=({0: torch.export.Dim("batch")},))


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
