"""Draw docstrings at random and print their text at an earlier commit next to their text now.

    python scripts/docstrings.py --seed 0 --before COMMIT --count 10

The draw is over all docstrings of the package that exist in both trees: modules, classes, functions, and the strings
below attributes, which are the help of settings. A name that moved to another module is matched if it is unique in
both trees.
"""

import argparse
import ast
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "src/fieldwise"
Docstrings = dict[tuple[str, str], str]
"""Text by module and by the name in it, such as ("core.budget", "Budget.parse"); a module's own name is empty."""


def docstrings(sources: dict[str, str]) -> Docstrings:
    """Collect the docstrings of modules, by their path."""
    found: Docstrings = {}
    for path, source in sources.items():
        module = path.removeprefix(f"{PACKAGE}/").removesuffix(".py").removesuffix("__init__").strip("/")
        tree = ast.parse(source)
        text = ast.get_docstring(tree)
        if text:
            found[module.replace("/", "."), ""] = text
        found |= {(module.replace("/", "."), name): text for name, text in _inside(tree, "")}
    return found


def _inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the docstrings below a module, class or function."""
    body = getattr(node, "body", [])
    for child, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(child)
            if text:
                yield prefix + child.name, text
            yield from _inside(child, f"{prefix}{child.name}.")
        target = child.target if isinstance(child, ast.AnnAssign) else None
        value = following.value if isinstance(following, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield prefix + target.id, value.value


def pairs(before: Docstrings, after: Docstrings) -> dict[str, tuple[str, str]]:
    """Match docstrings by module and name, or by a name that is unique in both trees; old and new text by name."""
    old_names, new_names = Counter(name for _, name in before), Counter(name for _, name in after)
    moved = {name: text for (_, name), text in before.items() if name and old_names[name] == new_names[name] == 1}
    found = {}
    for (module, name), text in after.items():
        old = before.get((module, name), moved.get(name))
        if old is not None:
            found[f"{module}:{name}" if name else module or "fieldwise"] = (old, text)
    return found


def table(found: dict[str, tuple[str, str]], count: int, seed: int) -> list[str]:
    """Draw names and set their two texts side by side, as lines of Markdown."""
    drawn = sorted(random.Random(seed).sample(sorted(found), min(count, len(found))))
    lines = ["| name | before | after |", "|---|---|---|"]
    for name in drawn:
        old, new = (_cell(text) for text in found[name])
        lines.append(f"| `{name}` | {old} | {'(unchanged)' if old == new else new} |")
    return lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--before", required=True, metavar="COMMIT", help="the tree to compare with")
    parser.add_argument("--count", type=int, default=10, help="number of docstrings")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    given = parser.parse_args()
    listed = _git("ls-tree", "-r", "--name-only", given.before, "--", PACKAGE).splitlines()
    before = docstrings({path: _git("show", f"{given.before}:{path}") for path in listed if path.endswith(".py")})
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    after = docstrings({path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files})
    found = pairs(before, after)
    changed = sum(old != new for old, new in found.values())
    sys.stdout.write(f"{len(found)} docstrings are in both trees, {changed} of them changed.\n\n")
    sys.stdout.write("\n".join(table(found, given.count, given.seed)) + "\n")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
