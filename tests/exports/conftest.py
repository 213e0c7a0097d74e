"""One dataset, one model and its folder, made once for all serving tests."""

from pathlib import Path

import pytest
import torch

from fieldwise.exports.folder import export
from fieldwise.models.dcnv2 import DCNv2
from tests.exports.cases import Case, awkward, shaken


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The awkward rows."""
    return awkward(tmp_path_factory.mktemp("awkward"))


@pytest.fixture(scope="session")
def served(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a compact DCN-V2 over the awkward rows."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("served") / "model"
    model, mask = shaken(DCNv2(width=5), case.data)
    export(model, folder, case.data.encoder, mask)
    return folder
