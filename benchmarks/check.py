"""Times `fw.check` of a table of 40 columns against the time in which DuckDB materializes it as a table in memory.

    python benchmarks/check.py --rows 1000000 --rounds 3 --out benchmarks/results/check-1000000.json

The rows are generated (benchmarks/criteo_like.py) and written as CSV and as Parquet before the clock starts. A round
times DuckDB and then `check` on each file, in one process with imports done; DuckDB uses all cores and detects types.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import criteo_like
import duckdb
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

import fieldwise as fw

CHUNK = 500_000


def write(folder: Path, rows: int) -> dict[str, Path]:
    """Writes the rows in both formats."""
    parts = [criteo_like.criteo_rows(min(CHUNK, rows - start), i) for i, start in enumerate(range(0, rows, CHUNK))]
    table = pa.concat_tables(parts)
    csv.write_csv(table, folder / "rows.csv")
    pq.write_table(table, folder / "rows.parquet")
    return {"csv": folder / "rows.csv", "parquet": folder / "rows.parquet"}


def materialize(path: Path) -> None:
    """Reads a file into a table in DuckDB's memory."""
    reader = "read_csv" if path.suffix == ".csv" else "read_parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rows AS SELECT * FROM {reader}('{path}')")


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Returns the wall time and the CPU time of a call."""
    started, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - used


def main() -> None:
    """Runs the rounds and writes medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    record: dict[str, object] = {
        "rows": given.rows, "columns": 40, "cores": os.cpu_count(), "load": os.getloadavg()[0],
        "python": platform.python_version(), "duckdb": version("duckdb"), "fieldwise": fw.__version__,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), given.rows)
        fw.check(pq.read_table(paths["parquet"]).slice(0, 1_000), label="label")  # imports
        for name, path in paths.items():
            times: dict[str, list[tuple[float, float]]] = {"duckdb": [], "check": []}
            for _ in range(given.rounds):
                times["duckdb"].append(seconds(lambda path=path: materialize(path)))
                times["check"].append(seconds(lambda path=path: fw.check(path, label="label")))
            wall, cpu = (
                {who: round(statistics.median(pair[i] for pair in pairs), 2) for who, pairs in times.items()}
                for i in (0, 1)
            )
            ratio = round(wall["check"] / wall["duckdb"], 2)
            record[name] = {"seconds": wall, "cpu_seconds": cpu, "ratio": ratio, "rounds": times}
            print(name, wall, cpu, f"check takes {ratio} times as long", flush=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
