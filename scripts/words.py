"""Count expressions that the project's prose avoids, per expression and per folder.

    python scripts/words.py                 # the working tree
    python scripts/words.py --commit NAME   # the tree of a commit

The prose is everything a reader sees: docstrings, comments, strings, settings files and documents. A few expressions
are correct in rare places ("leave it alone"), so a test bounds the count instead of requiring 0.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("src", "docs", "settings", "README.md", "CONTRIBUTING.md", "benchmarks", "evidence", "tests")
SUFFIXES: Final = (".py", ".md", ".toml")
EXPRESSIONS: Final[dict[str, str]] = {
    "so many": r"\bso (many|long|often|few)\b(?! (that|as))",
    "goes on": r"\b(go|goes|gone|going|went) on\b",
    "alone (only)": r"(?<!leave )(?<!left )(?<!let )\balone\b",
    "by lot": r"\bby lot\b",
    "anew": r"\banew\b",
    "mend": r"\bmend(s|ed|ing)?\b",
    "whole number": r"\bwhole numbers?\b",
    "broken number": r"\bbroken numbers?\b",
    "nobody's": r"\bnobody's\b|\bof no one\b",
    "share (fraction)": r"\b(a|as a|the) shares? of (the|a|an|all|it|one|full|rows|columns)\b",
    "by a freak": r"\bby a freak\b",
    "is worth": r"\b(are|is) worth\b",
    "its going": r"\b(whose|its|their) going\b",
    "in its place": r"\b(says|say) no\b",
    "British spelling": r"\b\w*(optimis|normalis|quantis|initialis|summaris|memoris|regularis|colour|behaviour|"
    r"neighbour|serialis|recognis|utilis|analys(e|es|ed|ing)\b|centre)\w*",
}
"""A name for each expression, and the pattern that finds it, case ignored."""


def texts(commit: str | None) -> dict[str, str]:
    """The text of every tracked file of prose, by its path."""
    if commit is None:
        listed = _git("ls-files", "--", *FOLDERS).splitlines()
        paths = [path for path in listed if path.endswith(SUFFIXES) and (ROOT / path).is_file()]
        return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    listed = _git("ls-tree", "-r", "--name-only", commit, "--", *FOLDERS).splitlines()
    return {path: _git("show", f"{commit}:{path}") for path in listed if path.endswith(SUFFIXES)}


def count(found: dict[str, str]) -> dict[str, Counter[str]]:
    """How often each expression occurs in each top folder; this list and pages that quote it are excluded."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in EXPRESSIONS}
    for path, text in found.items():
        if path in ("scripts/words.py", "docs/code.md", "docs/names.md"):
            continue
        for name, pattern in EXPRESSIONS.items():
            hits = len(re.findall(pattern, text, re.IGNORECASE))
            if hits:
                counts[name][path.split("/")[0]] += hits
    return counts


def main() -> None:
    """Print one line per expression."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commit", help="count the tree of this commit")
    parser.add_argument("--where", action="store_true", help="print every place instead of counts")
    given = parser.parse_args()
    found = texts(given.commit)
    if given.where:
        for path, text in found.items():
            for number, line in enumerate(text.splitlines(), start=1):
                for name, pattern in EXPRESSIONS.items():
                    if re.search(pattern, line, re.IGNORECASE):
                        sys.stdout.write(f"{path}:{number}: [{name}] {line.strip()}\n")
        return
    counts = count(found)
    folders = sorted({folder for counter in counts.values() for folder in counter})
    sys.stdout.write("| expression | all | " + " | ".join(folders) + " |\n|---|---|" + "---|" * len(folders) + "\n")
    for name, counter in counts.items():
        cells = " | ".join(str(counter[folder]) for folder in folders)
        sys.stdout.write(f"| {name} | {counter.total()} | {cells} |\n")
    sys.stdout.write(f"| **all** | {sum(counter.total() for counter in counts.values())} |\n")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
