"""Finds a failed case for each listed fault: `python -m tests.fuzz.faults RESULTS.json ...`.

Runs on the commit before the faults were fixed, with the results of `python -m tests.fuzz --out RESULTS.json`, in one
run or several runs of different cases; writes `benchmarks/results/fuzz-before.json`. Needed again only if the numbering
of the cases changes.
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.fuzz.oracle import MEMORY, SECONDS
from tests.fuzz.runner import ROOT, Fuzzer

COMMIT: Final = "ec8acf4"
LISTED: Final = (
    ("5", "weights that model.json does not list load unchecked", r"model: weights, unlisted: not refused"),
    ("5", "weights that are not finite predict NaN", r"model: weights, wrong-weights: no probability"),
    ("7", "model.json runs a module", r"model: model.json, own-module: ran code"),
    ("7", "settings.toml of a run folder runs a module", r"run: settings.toml, own-module: ran code"),
    ("8", "layers of gigabytes in a small model", r"model: model.json, (hidden|size): memory"),
    ("8", "more layers than numbers are stored", r"model: model.json, layers: (hang|memory)"),
    ("8", "a small vocabulary unfolds to gigabytes", r"(model|dataset): vocabularies, unfolding: memory"),
    ("8", "a link to an endless device is read", r"model: model.json, endless: (memory|hang)"),
    ("8", "a pipe is waited for", r"model: model.json, pipe: hang"),
    (
        "10",
        "vocabularies of list, struct or binary type",
        r"model: vocabularies, other-type: traceback.*from (list|struct)",
    ),
    ("10", "Infinity in encoding.json", r"encoding.json, (infinite|number): traceback"),
    ("10", "JSON nested 200,000 deep", r"model: model.json, deep: traceback: RecursionError"),
    ("10", "dates in TOML", r"settings given, date: traceback"),
    ("10", "arrays nested 3,000 deep in TOML", r"settings given, deep: traceback: RecursionError"),
    ("10", "--seed -1", r"flags, seed: traceback"),
    ("10", "brackets in --out", r"flags, out: traceback: rich.errors.MarkupError"),
    ("10", "gzip that is damaged in the middle", r"raw: clicks.csv.gz, .*: traceback: .*(zlib|EOF)"),
    (
        "10",
        "Parquet with struct columns or nested lists",
        r"raw: clicks.parquet, other-.*: traceback.*(struct|list<element: list)",
    ),
    ("10", "an own module that raises", r"flags, own: traceback: RuntimeError: not today"),
    ("10", "an own module with a syntax error", r"flags, own: traceback: SyntaxError"),
    ("10", "an own module that calls sys.exit(0)", r"flags, own: nothing done"),
    ("10", "--model ../../x:Y, or another relative name", r"flags, own: traceback: TypeError: the 'package' argument"),
    ("10", "min_count of 2**63 or more", r"flags, (prepared-)?value: traceback.*(IntegerColumn|Overflow|int64)"),
    ("10", "predict --device meta", r"flags, device: traceback.*meta tensor"),
    ("13", "settings that no machine has the memory for are accepted", r"flags, model-size: (traceback|memory|hang)"),
)
"""Item of the issue, fault, and a pattern that matches its failed cases."""


def main() -> None:
    """Runs the first case of every fault again, with the full limits, and writes those that fail again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz-before.json")
    given = parser.parse_args()
    subprocess.run(["git", "diff", "--quiet", COMMIT, "--", "src"], cwd=ROOT, check=True)
    found = [json.loads(path.read_text(encoding="utf-8")) for path in given.results]
    failures = [one for part in found for one in part["failures"]]
    first = [entry for listed in LISTED for entry in _first(failures, *listed)]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as made:
        fuzzer = Fuzzer(Path(made) / "cases", found[0]["seed"])
        again = failed_again(fuzzer, [entry["case"] for entry in first])
        fuzzer.close()
    faults = [{**entry, "wrong": again[entry["case"]]} for entry in first if entry["case"] in again]
    kept = {key: found[0][key] for key in ("seed", "versions")}
    limits = {"seconds": SECONDS, "bytes": MEMORY}
    record = {
        "commit": COMMIT,
        **kept,
        "limits": limits,
        "cases": sum(part["cases"] for part in found),
        "faults": faults,
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def failed_again(fuzzer: Fuzzer, numbers: list[int]) -> dict[int, str]:
    """Returns the failure of each failed case, by number."""
    return {one.number: one.wrong[:100] for one in fuzzer.run(numbers) if one.state == "failed"}


def _first(failures: list[dict[str, Any]], item: str, fault: str, pattern: str) -> list[dict[str, Any]]:
    for one in failures:
        if re.search(pattern, f"{one['target']}, {one['mutation']}: {one['wrong']}"):
            kept = {key: one[key] for key in ("target", "mutation", "file", "command")}
            return [{"item": item, "fault": fault, "case": one["number"], **kept}]
    return []


if __name__ == "__main__":
    main()
