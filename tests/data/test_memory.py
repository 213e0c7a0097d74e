"""Memory is bounded by the setting, not by the rows: measures the peak memory of a separate process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from tests.data.small_files import contents

ROWS = 3_000_000
SETTING = 1024
"""MiB; the raw rows are 1.5 times larger."""


def hex_text(draw: np.random.Generator, rows: int) -> pa.Array:
    """Distinct texts of 128 characters."""
    text = draw.bytes(64 * rows).hex().encode()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(128), rows, [None, pa.py_buffer(text)]).cast(pa.binary())


def write(path: Path) -> None:
    """Writes a field of distinct values, and three fields of 50,000 values too long for Parquet to compress."""
    draw = np.random.default_rng(0)
    known = hex_text(draw, 50_000).cast(pa.string())
    options = csv.WriteOptions(quoting_style="none")
    with path.open("wb") as file:
        for start in range(0, ROWS, 250_000):
            columns = {name: known.take(pa.array(draw.integers(0, len(known), 250_000))) for name in "abc"}
            label = pa.array((draw.random(250_000) < 0.2).astype(np.int8))
            table = pa.table({"click": label, "own": hex_text(draw, 250_000).cast(pa.string()), **columns})
            options.include_header = start == 0
            csv.write_csv(table, file, options)


START = """
import sys
from fieldwise.cli import main
from fieldwise.core.resident import peak_resident
try:
    main()
finally:
    sys.stdout.write(f"\\npeak {peak_resident() >> 20}")
"""


def peak_of(raw: Path, out: Path, memory: int) -> int:
    """Peak memory of `fieldwise prepare` in MiB, as it sees it: `wait4` counts from what this process has."""
    flags = ["--source", "table", "--label", "click", "--raw", str(raw), "--out", str(out)]
    sets = ["--set", f"engine.memory={memory}", "--set", "data.min_count=10"]
    command = [sys.executable, "-c", START, "prepare", *flags, *sets]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(said.rpartition("peak ")[2])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_more_rows_than_memory_stay_within_the_setting(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    write(raw)
    assert raw.stat().st_size > 1.4 * (SETTING << 20)
    assert peak_of(raw, tmp_path / "small", SETTING) < SETTING
    peak_of(raw, tmp_path / "large", 8 * SETTING)
    assert contents(tmp_path / "small") == contents(tmp_path / "large")
