"""Measure how a code base is built, from its source only.

    python scripts/code_metrics.py fieldwise=src/fieldwise:tests httpx=HTTPX/httpx:HTTPX/tests

Each argument is NAME=PACKAGE:TESTS. Folders named test or tests inside PACKAGE are not part of it. Nothing is
imported. A function's length counts its lines from `def` to its last line, docstring included. A public name is a
module-level class or function, or a method of such a class, whose name does not start with an underscore.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
_TESTS: Final = {"test", "tests"}


@dataclass(frozen=True)
class Metrics:
    """Counts of one code base."""

    files: int
    lines: int
    largest: int
    """Lines of the largest file."""
    functions: int
    p95: int
    """95th percentile of function lengths, in lines."""
    annotated: float
    """Fraction of functions with an annotated return."""
    documented: float
    """Fraction of public names with a docstring."""
    tests: int
    """Test functions."""
    tests_per_thousand: float
    """Test functions per 1,000 lines of the package."""


def measure(package: Path, tests: Path) -> Metrics:
    """Read every Python file below both folders."""
    paths = [path for path in sorted(package.rglob("*.py")) if not _TESTS & set(path.relative_to(package).parts)]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    sizes = [len(path.read_text(encoding="utf-8").splitlines()) for path in trees]
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, Function)]
    lengths = sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions)
    public = [node for tree in trees.values() for node in _public(tree)]
    count = sum(
        isinstance(node, Function) and node.name.startswith("test")
        for path in tests.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    return Metrics(
        files=len(trees),
        lines=sum(sizes),
        largest=max(sizes),
        functions=len(functions),
        p95=lengths[int(0.95 * (len(lengths) - 1))],
        annotated=sum(node.returns is not None for node in functions) / len(functions),
        documented=sum(ast.get_docstring(node) is not None for node in public) / len(public),
        tests=count,
        tests_per_thousand=1000 * count / sum(sizes),
    )


def _public(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (n for n in node.body if isinstance(n, Function) and not n.name.startswith("_"))


def main() -> None:
    """Print one column per code base."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bases", nargs="+", metavar="NAME=PACKAGE:TESTS")
    found = {}
    for text in parser.parse_args().bases:
        name, _, folders = text.partition("=")
        package, _, tests = folders.partition(":")
        found[name] = measure(Path(package), Path(tests))
    rows = {
        "files": lambda m: f"{m.files}",
        "lines": lambda m: f"{m.lines:,}",
        "largest file, lines": lambda m: f"{m.largest:,}",
        "functions": lambda m: f"{m.functions:,}",
        "95th percentile of function lengths": lambda m: f"{m.p95}",
        "functions with annotated returns": lambda m: f"{m.annotated:.0%}",
        "public names with a docstring": lambda m: f"{m.documented:.0%}",
        "test functions": lambda m: f"{m.tests:,}",
        "test functions per 1,000 lines": lambda m: f"{m.tests_per_thousand:.0f}",
    }
    sys.stdout.write("| | " + " | ".join(found) + " |\n|---|" + "---|" * len(found) + "\n")
    for title, show in rows.items():
        sys.stdout.write(f"| {title} | " + " | ".join(show(metrics) for metrics in found.values()) + " |\n")


if __name__ == "__main__":
    main()
