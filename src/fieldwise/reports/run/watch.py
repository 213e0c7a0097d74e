"""Shows a running search on a terminal: live columns against the target, validation AUC, widths as bars."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"


def frame(lines: Iterable[dict[str, Any]], rows: int = 24, width: int = 80) -> RenderableType:
    """Renders the state of a run from its metrics; shows at most `rows` fields."""
    lines = list(lines)
    titles = [str(line["title"]) for line in lines if "title" in line]
    if not titles:
        return Text("No metrics yet: no stage of this run has begun.")
    parts: list[RenderableType] = [_stages(lines)]
    gates = [line for line in lines if line.get("event") == "gate"]
    if gates:
        parts += [Text(), *_search(_series(gates), rows, width)]
    return Group(*parts)


def abandoned(out: Path, lines: Iterable[dict[str, Any]]) -> str:
    """Returns the message for an incomplete run that no process is working on."""
    lines = list(lines)
    commands = [str(line["command"]) for line in lines if line.get("event") == "command" and "command" in line]
    times = [line["time"] for line in lines if isinstance(line.get("time"), int | float)]
    if not commands or not times:
        return f"No process is running in '{out}', and it has no metrics. Start a run: fieldwise run --out {out}"
    since = datetime.fromtimestamp(times[-1]).astimezone().isoformat(sep=" ", timespec="seconds")
    return (
        f"No process has run here since {since}, and the run is not complete. Run the same command to resume "
        f"(the last one was: {commands[-1]})."
    )


def _stages(lines: list[dict[str, Any]]) -> Table:
    """Returns one row per stage, the newest last."""
    table = Table("stage", "epoch", "loss", "validation AUC", "best", "", box=None, padding=(0, 2, 0, 0))
    for title in dict.fromkeys(str(line["title"]) for line in lines if "title" in line):
        epochs = {
            int(line["epoch"]): line for line in lines if line.get("event") == "epoch" and line.get("title") == title
        }
        if not epochs:
            done = any(line.get("done") for line in lines if line.get("title") == title)
            table.add_row(Text(title), "", "", "", "", "already complete" if done else "begun")
            continue
        aucs = [float(epochs[number]["auc"]) for number in sorted(epochs)]
        last = epochs[max(epochs)]
        loss = "" if last["loss"] is None else f"{last['loss']:.4f}"
        table.add_row(
            Text(title), str(last["epoch"]), loss, f"{last['auc']:.4f}", f"{max(aucs):.4f}", spark(aucs[-40:])
        )
    return table


def _series(gates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the steps up to the newest line; if a resumed search repeats a step, the later line counts."""
    newest = gates[-1]
    steps = {int(line["step"]): line for line in gates if line["title"] == newest["title"]}
    return [steps[step] for step in sorted(steps) if step <= int(newest["step"])]


def _search(gates: list[dict[str, Any]], rows: int, width: int) -> list[RenderableType]:
    last, full = gates[-1], gates[0]["widths"]
    counted = "columns" if last["cost"] == last["live"] else "in the budget's unit"
    head = (
        f"{last['title']}, step {last['step']:,}: {last['live']:,} columns live, "
        f"{last['cost']:,} {counted} against a target of {last['limit']:,}  "
    )
    bars = Table("field", "live", "", box=None, padding=(0, 2, 0, 0))
    widest = max([1, *full.values()])
    names = sorted(last["widths"], key=lambda name: -last["widths"][name])
    room = max(8, width - 40)
    for name in names[:rows]:
        live, whole = int(last["widths"][name]), int(full.get(name, 0))
        filled, ghost = round(room * live / widest), round(room * whole / widest)
        bar = Text("█" * filled, style="blue") + Text("░" * max(0, ghost - filled), style="bright_black")
        bars.add_row(Text(name if len(name) <= 24 else name[:23] + "…"), f"{live} of {whole}", bar)
    more = [Text(f"and {len(names) - rows} more fields")] if len(names) > rows else []
    return [Text(head + spark([float(line["cost"]) for line in gates[-40:]])), bars, *more]


def spark(values: list[float]) -> str:
    """Draws values as a line of blocks, scaled from the lowest to the highest."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BLOCKS[int((value - low) / span * (len(BLOCKS) - 1))] for value in values)
