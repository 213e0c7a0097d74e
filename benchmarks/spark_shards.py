"""Spark against DuckDB on generated rows: the same rows per split, and the memory of each process.

    python benchmarks/spark_shards.py --rows 1000000 5000000
    python benchmarks/spark_shards.py --formats

Each preparation is a separate process on rows shaped like Criteo's (benchmarks/criteo_like.py). The resident memory of
the Python driver, of the JVM and of the Python workers of the executors is sampled every 50 ms; in local mode the JVM
holds the executors too. Mapped pages of files are counted apart, since the system drops them when it needs memory.

`--formats` compares arrays with Parquet for the shards: a write, a scan in order, and shuffled batches of 2,048 rows;
and batches gathered from several shards. Times are the best of three, of 100 for one batch.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEMORY = 2048
"""MiB for the engine."""
BATCH = 2048


def prepare_with(engine: str, folder: Path) -> dict[str, Any]:
    """Prepares the rows in this process, and tells when each stage ended."""
    import fieldwise as fw

    engines = {"duckdb": fw.DuckDB(memory=MEMORY), "spark": fw.Spark(master="local[2]", memory=MEMORY)}
    ends: dict[str, float] = {}
    started = time.perf_counter()

    def progress(stage: str, *_: int | None) -> None:
        ends[stage] = round(time.perf_counter() - started, 1)

    source = fw.data.Criteo(raw=folder / "rows.txt", tiers=0)
    data = fw.prepare(source, folder / engine, progress=progress, engine=engines[engine])
    ids = sum(data.schema.cardinalities)
    return {"ids": ids, "rows": data.info["rows"], "shards": len(data.shards), "stage_ends": ends}


def rows_digest(folder: Path) -> dict[str, str]:
    """A digest of the rows of each split as a multiset: the sorted digests of single rows."""
    import numpy as np

    import fieldwise as fw

    data = fw.Dataset.open(folder)
    found = {}
    for name in ("train", "valid", "test"):
        split = getattr(data, name)
        draw = np.random.default_rng(0).integers(1, 2**62, split.ids.shape[1] + 1, np.uint64) | np.uint64(1)
        parts = []
        for start in range(0, len(split), 2**16):
            ids, labels = split.ids[start : start + 2**16], split.labels[start : start + 2**16]
            mixed = np.column_stack([ids, labels]).astype(np.uint64) * draw
            parts.append((mixed ^ mixed >> np.uint64(29)).sum(1))  # wraps around
        found[name] = hashlib.sha256(np.sort(np.concatenate(parts)).tobytes()).hexdigest()[:16]
    return {**found, "fingerprint": data.fingerprint}


def sampled(pid: int) -> dict[str, dict[str, int]]:
    """Resident KiB of a process and its descendants by kind: memory of their own, and mapped files."""
    found: dict[str, dict[str, int]] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    pending = [pid]
    while pending:
        one = pending.pop()
        pending += children.get(one, [])
        try:
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{one}/status").read_text().splitlines())
        except OSError:
            continue
        kind = "driver" if one == pid else "jvm" if "java" in lines["Name"] else "workers"
        own = found.setdefault(kind, {"own": 0, "files": 0})
        own["own"] += int(lines.get("RssAnon", "0 kB").split()[0])
        own["files"] += int(lines.get("RssFile", "0 kB").split()[0])
    return found


def measure(engine: str, folder: Path) -> dict[str, Any]:
    """Prepares in a separate process; returns what it reported and the peaks of memory in MiB."""
    started, peaks = time.perf_counter(), {}
    with (folder / f"{engine}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, "--inside", engine, "--folder", str(folder)], stdout=log, stderr=log
        )
        while process.poll() is None:
            for kind, sizes in sampled(process.pid).items():
                for what, size in sizes.items():
                    key = f"{kind}_{what}"
                    peaks[key] = max(peaks.get(key, 0), size)
            time.sleep(0.05)
    text = (folder / f"{engine}.log").read_text()
    if process.returncode:
        raise SystemExit(f"{engine} failed:\n{text[-3000:]}")
    reported = json.loads(text.strip().splitlines()[-1])
    memory = {key: round(size / 1024) for key, size in sorted(peaks.items())}
    result = {"wall_s": round(time.perf_counter() - started, 1), "peak_mib": memory, **reported}
    print(f"{engine:7} {result}", flush=True)
    return result


def compare(rows: int, parent: Path | None) -> dict[str, Any]:
    """Prepares the same rows with both engines."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        subprocess.run([sys.executable, HERE / "criteo_like.py", str(rows), folder / "rows.txt"], check=True)
        found: dict[str, Any] = {"rows": rows, "raw_bytes": (folder / "rows.txt").stat().st_size}
        found |= {engine: measure(engine, folder) for engine in ("duckdb", "spark")}
        digests = {engine: rows_digest(folder / engine) for engine in ("duckdb", "spark")}
        found |= {"digests": digests["spark"], "same_rows_per_split": digests["duckdb"] == digests["spark"]}
        print(f"{rows:,} rows, the same per split: {found['same_rows_per_split']}", flush=True)
        return found
    finally:
        shutil.rmtree(folder)


def formats(folder: Path, rows: int, places: int = 39) -> dict[str, Any]:
    """Writes random ids as an array and as Parquet; reads both in order and in shuffled batches."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fieldwise.data.sharded import ShardedArray

    draw = np.random.default_rng(0)
    ids = np.minimum(draw.zipf(1.3, (rows, places)), 100_000).astype(np.int32)
    order = draw.permutation(rows)[: 50 * BATCH].reshape(50, BATCH)
    columns = {f"f{i}": np.ascontiguousarray(ids[:, i]) for i in range(places)}
    found: dict[str, Any] = {"rows": rows, "places": places}

    def timed(name: str, what: str, work: Any) -> None:
        found.setdefault(name, {})[what] = round(min(timeit.repeat(work, number=1, repeat=3)), 3)

    timed("arrays", "write_s", lambda: np.save(folder / "ids.npy", ids))
    mapped = np.load(folder / "ids.npy", mmap_mode="r")
    timed("arrays", "scan_s", lambda: sum(int(mapped[i : i + BATCH].sum()) for i in range(0, rows, BATCH)))
    timed("arrays", "50_shuffled_batches_s", lambda: [mapped[batch] for batch in order])
    for shards in (1, 4, 64, 256):
        parts = ShardedArray(np.array_split(mapped, shards))
        per_batch = min(timeit.repeat(lambda parts=parts: parts[order[0]], number=1, repeat=100))
        found.setdefault("shuffled_batch_ms_by_shards", {})[str(shards)] = round(1e3 * per_batch, 2)
    path = folder / "ids.parquet"
    timed("parquet", "write_s", lambda: pq.write_table(pa.table(columns), path, row_group_size=65_536))
    file = pq.ParquetFile(path)

    def as_rows(table: pa.Table) -> Any:
        return np.column_stack([column.to_numpy() for column in table.columns])

    groups = range(file.num_row_groups)
    timed("parquet", "scan_s", lambda: sum(int(as_rows(file.read_row_group(g)).sum()) for g in groups))

    def one_batch() -> None:  # a shuffled batch has rows of every row group
        for group in groups:
            as_rows(file.read_row_group(group))

    timed("parquet", "1_shuffled_batch_s", one_batch)
    for name, stored in (("arrays", folder / "ids.npy"), ("parquet", path)):
        found[name]["mb"] = round(stored.stat().st_size / 1e6, 1)
    return found


def save(name: str, found: dict[str, Any], before: float) -> None:
    """Writes a result with the machine and the versions."""
    record = {
        **found,
        "load_before": round(before, 1),
        "machine": {"cores": os.cpu_count(), "cpu": platform.machine(), "python": platform.python_version()},
        "versions": {one: version(one) for one in ("duckdb", "ibis-framework", "numpy", "pyarrow", "pyspark")},
    }
    (HERE / "results" / name).write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    """Measures, and writes a JSON file of results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--formats", action="store_true", help="compare arrays with Parquet instead")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(prepare_with(given.inside, given.folder)))
        return
    before = os.getloadavg()[0]
    if given.formats:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            found = formats(Path(folder), 1_000_000)
        print(found)
        save("spark_shards-formats.json", found, before)
        return
    save("spark_shards.json", {"memory": MEMORY, "sizes": [compare(rows, given.folder) for rows in given.rows]}, before)


if __name__ == "__main__":
    main()
