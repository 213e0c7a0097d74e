"""Loading takes the memory of the file, once: ten million rows of 16 columns in int8, in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fieldwise.core.schema import Schema
from fieldwise.core.store import Store
from fieldwise.exports.folder import write_folder
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.stored import StoredModel

ROWS = 10_000_000
CODE = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from fieldwise.exports.folder import load
torch.set_num_threads(1)

def memory(key):  # VmRSS or VmHWM, in bytes
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

def use(folder, rows):
    ids = np.random.default_rng(0).integers(0, rows, (20_000, 1)).astype(np.int32)
    predictor = load(folder)
    predictor.of_ids(ids)
    return predictor

use(sys.argv[1], 10)  # what the libraries take once
before, peak = memory("VmRSS"), memory("VmHWM")
kept = use(sys.argv[2], int(sys.argv[3]))
print(json.dumps({"resident": memory("VmRSS") - before, "peak": memory("VmHWM") - peak}))
"""


def written(folder: Path, rows: int, store: str) -> Path:
    model = StoredModel(DCNv2(), Schema.of(user=rows).layout(16), None, Store.parse(store)).eval()
    for name, buffer in model.embedding.named_buffers():
        if "scales" in name:
            buffer.fill_(0.01)
        elif "table" in name:
            buffer.copy_(torch.randint(0, 100, (1, buffer.shape[1])))
    write_folder(model, folder, None, [None])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("store", ["int8", "int4"])
def test_loading_takes_at_most_the_file_and_a_third(tmp_path: Path, store: str) -> None:
    folders = written(tmp_path / "small", 16, store), written(tmp_path / "m", ROWS, store)
    command = [sys.executable, "-c", CODE, *map(str, folders), str(ROWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    size = (tmp_path / "m" / "model.safetensors").stat().st_size
    assert found["resident"] <= 1.3 * size, found
    assert found["peak"] <= 1.3 * size, found
