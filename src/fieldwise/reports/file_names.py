"""Names of report files, which say which data they are about."""

import re


def report_name(source: str) -> str:
    """Returns a report's file name without its ending, such as report-clicks for the rows of clicks.csv.gz."""
    return "-".join(["report", *filter(None, [data_name(source)])])


def data_name(source: str) -> str:
    """Returns the name of some rows as part of a file name: no folder, no ending, only plain characters."""
    stem = re.sub(r"\.(csv|tsv|txt|parquet|jsonl|ndjson|json)$", "", re.sub(r"\.(gz|zip|bz2|zst)$", "", source))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-")[:60]
