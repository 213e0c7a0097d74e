"""Engines that read, split and count raw rows: in this process, in DuckDB, or in Spark."""

from typing import Final

ENGINES: Final = {
    "auto": "fieldwise.data.engines.engine:Auto",
    "arrow": "fieldwise.data.engines.arrow:Arrow",
    "duckdb": "fieldwise.data.engines.duckdb:DuckDB",
    "spark": "fieldwise.data.engines.spark:Spark",
}
