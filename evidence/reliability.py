"""Writes the tables of `docs/reliability.md` from fuzzer and kill results: `python -m evidence.reliability`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from evidence.page import OPEN, with_tables
from fieldwise.core.files import write_text

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reliability.md"
RESULTS: Final = ROOT / "benchmarks" / "results"


def fuzz(found: dict[str, Any]) -> list[str]:
    """Tabulates cases by target: refused, accepted and failed."""
    largest, limits = found["largest_bytes"] / 2**20, found["limits"]
    lines = [
        f"{found['cases']:,} cases, seed {found['seed']}, commit {found['commit']}; the longest took "
        f"{found['longest_s']:.1f} s of {limits['seconds']:.0f}, the largest {largest:,.0f} MiB of "
        f"{limits['bytes'] / 2**20:,.0f}.",
        "",
        "| what is mutated | mutations | cases | refused | accepted | failed |",
        "|---|---|---|---|---|---|",
    ]
    total = [0, 0, 0, 0]
    for target, kinds in found["counts"].items():
        states = [sum(kind[state] for kind in kinds.values()) for state in ("refused", "accepted", "failed")]
        numbers = [sum(states), *states]
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        lines.append(_row(target, len(kinds), *numbers))
    return [*lines, _row("all", sum(map(len, found["counts"].values())), *total)]


def mutations(found: dict[str, Any]) -> list[str]:
    """Tabulates cases by mutation, over all targets."""
    by_kind: dict[str, list[int]] = {}
    for kinds in found["counts"].values():
        for kind, states in kinds.items():
            entry = by_kind.setdefault(kind, [0, 0, 0])
            for place, state in enumerate(("refused", "accepted", "failed")):
                entry[place] += states[state]
    heads = ["| mutation | cases | refused | accepted | failed |", "|---|---|---|---|---|"]
    return [*heads, *(_row(kind, sum(entry), *entry) for kind, entry in sorted(by_kind.items()))]


def before(found: dict[str, Any]) -> list[str]:
    """Tabulates one case for each listed fault that the fuzzer finds on the commit before the fixes."""
    heads = [
        f"Commit {found['commit']}, seed {found['seed']}; {len(found['faults'])} faults, from {found['cases']:,} cases "
        f"whose mutations were chosen for them. Each case was run again, within {found['limits']['seconds']:.0f} s "
        f"and {found['limits']['bytes'] / 2**20:,.0f} MiB, and failed again.",
        "",
        "| item | fault | case | what is mutated | how it failed |",
        "|---|---|---|---|---|",
    ]
    rows = [
        _row(f["item"], f["fault"], str(f["case"]), f"{f['target']}, {f['mutation']}", f["wrong"])
        for f in found["faults"]
    ]
    return [*heads, *rows]


def kills(found: dict[str, Any]) -> list[str]:
    """Tabulates kills by command."""
    machine = found["machine"]
    heads = [
        f"{found['kills']} kills in {found['minutes']} minutes, seed {found['seed']}, commit {machine['commit']}, "
        f"{machine['cores']} cores.",
        "",
        "| command | folders | kills | begun again over what a kill left | folders with equal numbers | problems |",
        "|---|---|---|---|---|---|",
    ]
    keys = ("command", "folders", "kills", "resumed", "equal", "problems")
    return [*heads, *(_row(*(row[key] for key in keys)) for row in found["rows"])]


TABLES: Final[dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]]] = {
    "fuzz": ("fuzz", fuzz),
    "mutations": ("fuzz", mutations),
    "factory": ("fuzz-factory", fuzz),
    "before": ("fuzz-before", before),
    "kills": ("kills", kills),
}
"""The results file of each table, and the function that makes the table."""


def filled(text: str, results: Path = RESULTS) -> str:
    """Returns the page with all tables regenerated; tables without results are marked as such."""

    def lines(name: str) -> list[str]:
        file, make = TABLES[name]
        path = results / f"{file}.json"
        return make(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else [OPEN]

    return with_tables(text, lines)


def _row(*cells: object) -> str:
    shown = (f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8")))
