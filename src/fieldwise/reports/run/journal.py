"""`metrics.jsonl`: the progress of a run, one JSON object per line.

    {"event": "command", "command": ..., "time": ...}                          a process starts to work on the run
    {"event": "stage", "title": ..., "done": ...}                              a stage begins, or is already complete
    {"event": "gate", "title": ..., "step": ..., "live": ..., "cost": ..., "limit": ..., "widths": {field: columns}}
    {"event": "epoch", "title": ..., "stage": ..., "epoch": ..., "loss": ..., "auc": ..., ...}

The file is append-only. A resumed run may repeat lines: the last line of each title, event and number counts.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Final

from fieldwise.core.files import writing
from fieldwise.core.lock import this_command
from fieldwise.core.plain_files import LIMIT, open_regular, parse_json
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher

FILE: Final = "metrics.jsonl"
_LINE: Final = 2**24
"""Maximum bytes per line; no line that a run writes is longer."""


class Journal(Watcher):
    """A watcher that appends to the file; it opens the file for each line, so a killed run loses nothing.

    Steps and rows are not recorded: there are too many of them.
    """

    def __init__(self, out: Path) -> None:
        self._path = out / FILE
        self._title = ""
        self._begun = False

    def begin(self, title: str, done: bool) -> None:
        """Records that a stage begins, or is skipped because it is complete."""
        self._title = title
        self._write("stage", title=title, done=done)

    def gate(self, step: int, live: int, cost: int, limit: int, widths: Mapping[str, int]) -> None:
        """Records the state of a search's gate."""
        self._write("gate", title=self._title, step=step, live=live, cost=cost, limit=limit, widths=dict(widths))

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Records a complete epoch."""
        self._write("epoch", title=self._title, stage=stage, **epoch.to_json())

    def _write(self, event: str, **values: Any) -> None:
        lines = [{"event": event, "time": round(time.time(), 3), **values}]
        if not self._begun:
            self._begun = True
            lines.insert(0, {"event": "command", "time": lines[0]["time"], "command": this_command()})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with writing(self._path.parent), self._path.open("a+b") as file:
            if file.tell() and not _ends_well(self._path):
                file.write(b"\n")  # the last line was truncated by a kill
            file.write("".join(json.dumps(line) + "\n" for line in lines).encode())


def read_metrics(out: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of a run's metrics.jsonl, oldest first; skips lines truncated by a kill."""
    path = out / FILE
    if not path.exists():
        return
    with open_regular(path) as file:
        while (line := file.readline(_LINE)) and file.tell() <= LIMIT:
            try:
                value = parse_json(line.decode("utf-8", errors="replace"))
            except ValueError:
                continue
            if isinstance(value, dict) and _is_complete(value):
                yield value


def commands(out: Path) -> list[str]:
    """Returns the distinct commands that worked on a run."""
    return list(dict.fromkeys(str(line["command"]) for line in read_metrics(out) if line.get("event") == "command"))


def finished(out: Path) -> bool:
    """Returns whether a run is complete and no other has started in its folder since."""
    record, lines = out / "record.json", out / FILE
    return record.exists() and (not lines.exists() or lines.stat().st_mtime_ns <= record.stat().st_mtime_ns)


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _is_complete(line: dict[str, Any]) -> bool:
    """Whether a line has all values of its event; a damaged line may lack some, or hold other types."""
    number = (int, float)
    events: dict[str, dict[str, tuple[type, ...]]] = {
        "command": {"command": (str,)},
        "epoch": {"title": (str,), "epoch": (int,), "loss": (*number, NoneType), "auc": number},
        "gate": {"title": (str,), "step": (int,), "live": number, "cost": number, "limit": number, "widths": (dict,)},
    }
    needed, widths = events.get(str(line.get("event")), {}), line.get("widths", {})
    typed = all(key in line and isinstance(line[key], types) for key, types in needed.items())
    return typed and isinstance(widths, dict) and all(isinstance(width, int) for width in widths.values())
