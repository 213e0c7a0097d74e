"""Judges a case: accepted or refused, within time and memory, with no code run and no file left behind."""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 20.0
MEMORY: Final = 2**30
"""Maximum bytes of a case, in addition to those of the imports."""
MANY: Final = 40
"""Maximum lines of a refusal, which has one per problem of the settings."""
_ALLOCATION: Final = re.compile(
    r"MemoryError|bad_alloc|can't allocate memory|Unable to allocate|(malloc|realloc) of size|Cannot allocate memory|"
    r"Out of Memory Error|failed to allocate"
)
_EXCEPTION: Final = re.compile(r"[A-Za-z_.]+(Error|Exception|Interrupt)\b")


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case."""

    state: str
    """accepted, refused or failed"""
    wrong: str = ""
    """The failure in a word or two, and the last line of the output."""


def judge(case_folder: Path, found: dict[str, Any], command: Sequence[str], must_refuse: bool) -> Verdict:
    """Returns the verdict on a case that has ended."""
    work = case_folder / "work"
    said = (case_folder / "stderr").read_text(encoding="utf-8", errors="replace")
    wrong = _run_wrong(found, said) or _left_wrong(case_folder, work, found["code"])
    if not wrong and found["code"] == 0:
        wrong = "not refused" if must_refuse else _nothing_made(work, command) or _predicted(work / "out.csv")
    if wrong:
        return Verdict("failed", f"{wrong}: {_last(said)}")
    return Verdict("accepted" if found["code"] == 0 else "refused")


def _run_wrong(found: dict[str, Any], said: str) -> str:
    code = found["code"]
    lines = said.strip().splitlines()
    usage = said.startswith("Usage:")
    checks = {
        "hang": found["hung"],
        "memory": found["memory"] > MEMORY or bool(_ALLOCATION.search(said)),
        f"signal {-code}": code < 0,
        "traceback": "Traceback (most recent call last)" in said,
        f"exit code {code}": code not in (0, 2),
        "unclear": code == 2 and not usage and not said.startswith("fieldwise: "),
        "long": code == 2 and not usage and len(lines) > MANY,
    }
    return next((name for name, is_wrong in checks.items() if is_wrong), "")


def _left_wrong(case_folder: Path, work: Path, code: int) -> str:
    if list(case_folder.rglob("EVIL")) or (case_folder.parent / "installed" / "EVIL").exists():
        (case_folder.parent / "installed" / "EVIL").unlink(missing_ok=True)
        return "ran code"
    if {path.name for path in case_folder.iterdir()} - {"work", "outside", "stderr", "stdout"}:
        return "wrote outside"
    if [path.read_text() for path in (case_folder / "outside").iterdir()] != ["untouched"]:
        return "changed outside"
    if code == 2 and [path for path in work.rglob("*") if path.name.endswith(".partial")]:
        return "left half a file"
    return ""


def _nothing_made(work: Path, command: Sequence[str]) -> str:
    """Returns a failure if a command succeeded without writing its output."""
    named = [after for word, after in pairwise(command) if word in ("--out", "-o")]
    return "" if all((work / name).exists() for name in named) else "nothing done"


def _predicted(out: Path) -> str:
    """Returns a failure if a prediction is not a probability."""
    if not out.is_file():
        return ""
    with out.open(newline="", errors="replace") as file:
        cells = [row.get("probability") for row in csv.DictReader(file)]
    if any(cell is None or not cell.strip() for cell in cells):
        return "no probability"
    numbers = [float(cell) for cell in cells if cell]
    return "" if all(math.isfinite(n) and 0 <= n <= 1 for n in numbers) else "no probability"


def _last(said: str) -> str:
    """Returns the line of the exception, or the last line if there is none."""
    lines = said.strip().splitlines()
    lines = [line for line in lines if _EXCEPTION.match(line)] or lines
    return " ".join(lines[-1].split())[:160] if lines else "nothing was said"
