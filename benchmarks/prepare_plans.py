"""Plans of our own for the work of `benchmarks/prepare.py`, in polars and in DuckDB: what a user with time would write.

Both read the rows, split them by a hash of the row number, bin the integers, fit vocabularies of values with ten
training rows or more, and write int32 ids of every split. Neither checks rows, limits memory, or can encode new rows.
"""

from pathlib import Path
from typing import Any

import numpy as np

INTEGERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
FIELDS = [*INTEGERS, *CATEGORIES]
MIN_COUNT = 10


def polars(folder: Path) -> dict[str, Any]:
    """One scan into memory, then per field a count, an enumeration of its frequent values and a cast to it."""
    import polars as pl

    kinds = {"label": pl.Int8, **dict.fromkeys(INTEGERS, pl.Int64), **dict.fromkeys(CATEGORIES, pl.String)}
    z = pl.col(INTEGERS)
    bins = pl.when(z > 2).then(z.cast(pl.Float64).log().pow(2).floor()).otherwise(z - 2).cast(pl.Int64).cast(pl.String)
    rows = (
        pl.scan_csv(folder / "rows.txt", separator="\t", has_header=False, schema=kinds)
        .with_row_index("row")
        .with_columns(bins, split=(pl.col("row").hash(0) % 10).replace(dict.fromkeys(range(8), 0) | {8: 1, 9: 2}))
        .collect()
    )
    train = rows.filter(pl.col("split") == 0)
    counted = pl.collect_all(
        train.lazy().group_by(name).len().filter(pl.col("len") >= MIN_COUNT).sort("len", name, descending=[True, False])
        for name in FIELDS
    )
    known = {name: table[name] for name, table in zip(FIELDS, counted, strict=True)}
    ids = rows.select(
        "split",
        *(
            pl.col(n).cast(pl.Enum(v.drop_nulls()), strict=False).to_physical().cast(pl.Int32).add(1).fill_null(0)
            for n, v in known.items()
        ),
    )
    for split, part in ids.partition_by("split", as_dict=True, include_key=False).items():
        np.save(folder / f"polars-{split[0]}.npy", part.to_numpy(order="c"))
    return {"ids": sum(len(values) for values in known.values()) + len(FIELDS)}


def duckdb(folder: Path) -> dict[str, Any]:
    """One table in memory, then per field a type that enumerates its frequent values, and one query of all codes."""
    import duckdb

    con = duckdb.connect()
    kinds = {"label": "TINYINT", **dict.fromkeys(INTEGERS, "BIGINT"), **dict.fromkeys(CATEGORIES, "VARCHAR")}
    bins = ", ".join(
        f"CAST(CASE WHEN {n} > 2 THEN CAST(floor(pow(ln({n}), 2)) AS BIGINT) ELSE {n} - 2 END AS VARCHAR) AS {n}"
        for n in INTEGERS
    )
    raw = f"read_csv('{folder / 'rows.txt'}', columns={kinds}, auto_detect=false, header=false, delim='\t', quote='')"
    number = "hash(row_number() OVER ()) % 10"
    con.execute(
        f"CREATE TEMP TABLE rows AS SELECT *, CASE WHEN h < 8 THEN 0 WHEN h = 8 THEN 1 ELSE 2 END AS split FROM "
        f"(SELECT {number} AS h, {bins}, {', '.join(CATEGORIES)} FROM {raw})"
    )
    count = 0
    for name in FIELDS:
        found = con.execute(
            f"SELECT {name} FROM rows WHERE split = 0 AND {name} IS NOT NULL GROUP BY {name} "
            f"HAVING count(*) >= {MIN_COUNT} ORDER BY count(*) DESC, {name}"
        ).fetchall()
        count += len(found) + 1
        texts = ", ".join(f"'{value}'" for (value,) in found)
        con.execute(f"CREATE TYPE e_{name} AS ENUM ({texts})")
    codes = ", ".join(f"coalesce(enum_code(TRY_CAST({n} AS e_{n})) + 1, 0)::INTEGER AS {n}" for n in FIELDS)
    for split in range(3):
        found = con.execute(f"SELECT {codes} FROM rows WHERE split = {split}").fetchnumpy()
        np.save(folder / f"duckdb-{split}.npy", np.stack([found[name] for name in FIELDS], axis=1))
    return {"ids": count}
