"""`metrics.jsonl`: what a run says of itself while it works, one JSON object a line.

    {"event": "command", "command": ..., "time": ...}                          one process began to work
    {"event": "stage", "title": ..., "done": ...}                              a stage begins, or is there already
    {"event": "gate", "title": ..., "step": ..., "live": ..., "cost": ..., "limit": ..., "widths": {field: columns}}
    {"event": "epoch", "title": ..., "stage": ..., "epoch": ..., "loss": ..., "auc": ..., ...}

Lines are only ever added. A resumed run may say a thing twice: the last line of a title, event and number counts.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from fieldwise.core.files import writing
from fieldwise.core.lock import this_command
from fieldwise.core.plain_files import open_regular, parse_json
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher

FILE: Final = "metrics.jsonl"
_LINE: Final = 2**24
"""Bytes of a line; a longer one is none of ours."""


class Journal(Watcher):
    """A watcher that writes; it opens the file for each line, so that a killed run loses nothing."""

    def __init__(self, out: Path) -> None:
        self._path = out / FILE
        self._title = ""
        self._begun = False

    def begin(self, title: str, done: bool) -> None:
        """A stage begins, or is skipped because it is done."""
        self._title = title
        self._write("stage", title=title, done=done)

    def rows(self, what: str, done: int, total: int | None) -> None:
        """Nothing: a preparation has its own progress."""

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Nothing: a line for every step would cost more than it tells."""

    def gate(self, step: int, live: int, cost: int, limit: int, widths: Mapping[str, int]) -> None:
        """What a gate lets through."""
        self._write("gate", title=self._title, step=step, live=live, cost=cost, limit=limit, widths=dict(widths))

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """An epoch is done."""
        self._write("epoch", title=self._title, stage=stage, **epoch.to_json())

    def _write(self, event: str, **values: Any) -> None:
        lines = [{"event": event, "time": round(time.time(), 3), **values}]
        if not self._begun:
            self._begun = True
            lines.insert(0, {"event": "command", "time": lines[0]["time"], "command": this_command()})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with writing(self._path.parent), self._path.open("a+b") as file:
            if file.tell() and not _ends_well(self._path):
                file.write(b"\n")  # a kill cut the last line short
            file.write("".join(json.dumps(line) + "\n" for line in lines).encode())


def read_metrics(out: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run, the oldest first; a line cut short by a kill is left out."""
    path = out / FILE
    if not path.exists():
        return
    with open_regular(path) as file:
        while line := file.readline(_LINE):
            try:
                value = parse_json(line.decode("utf-8", errors="replace"))
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def commands(out: Path) -> list[str]:
    """The commands that worked in a run folder, each once."""
    return list(dict.fromkeys(str(line["command"]) for line in read_metrics(out) if line.get("event") == "command"))


def finished(out: Path) -> bool:
    """Whether a run has come to its end, and none has begun in its folder since."""
    record, lines = out / "record.json", out / FILE
    return record.exists() and (not lines.exists() or lines.stat().st_mtime_ns <= record.stat().st_mtime_ns)


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"
