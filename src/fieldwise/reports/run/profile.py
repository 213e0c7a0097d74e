"""Where the seconds of a run went: wall time by stage, and the operations of a few training steps of each."""

import gzip
import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from fieldwise.core.files import replacing, write_text
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher

if TYPE_CHECKING:
    from torch.profiler import profile

FOLDER: Final = "profile"
PAGE: Final = "profile.md"
SKIPPED: Final = 8
"""Steps of a stage before those that are profiled: memory is allocated, and a CUDA graph is captured."""
STEPS: Final = 10
"""Steps of a stage that are profiled, at most: those of one epoch."""
MOST: Final = 40
"""Stages whose steps are profiled; of further ones only the seconds are counted."""
_SHOWN: Final = 12
"""Operations shown per stage."""


@dataclass(frozen=True)
class Operation:
    """One operation of the profiled steps: on a GPU a kernel, on a CPU a function of torch without those it calls."""

    name: str
    ms: float
    """Milliseconds per step."""
    calls: float
    """Calls per step."""


@dataclass
class Stage:
    """One stage, and where its time went."""

    title: str
    done: bool
    """Whether it was complete before, and skipped."""
    steps: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("steps", "evaluation", "other"), 0.0))
    profiled: int = 0
    """Number of profiled steps."""
    trace: str | None = None
    """File of the profiled steps, in FOLDER."""
    operations: tuple[Operation, ...] = ()
    """The operations that took most of the profiled steps."""


class Profile(Watcher):
    """A watcher that measures stages and profiles a few training steps of each.

    As a context it writes `profile.md` and a folder of traces at its end, also after an error. The results of a run do
    not depend on it: it only looks between steps. Its own time is not counted.
    """

    def __init__(self, out: Path) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler otherwise writes lines to the terminal
        self._out = out
        self._mark = 0.0
        self._profiler: profile | None = None
        self.stages: list[Stage] = []
        """The stages so far."""
        self.wrote = False
        """Whether the page was written: not if no training step was done."""

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._add("other")
        if self._profiler is not None:
            self._stop()
        self.wrote = any(stage.steps for stage in self.stages)
        if self.wrote:
            write_text(self._out / PAGE, page(self.stages))

    def begin(self, title: str, done: bool) -> None:
        """Ends the stage before, and begins one."""
        self._add("other")
        if self._profiler is not None:
            self._stop()
        self.stages.append(Stage(title, done))
        self._mark = time.perf_counter()

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Counts the time since the last step as evaluation."""
        self._add("evaluation")

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Counts a step, and begins or ends the profiled ones."""
        self._add("steps")
        if not self.stages:
            return
        current = self.stages[-1]
        current.steps += 1
        if self._profiler is not None:
            current.profiled += 1
            if current.profiled == STEPS or step == steps:
                self._stop()
        elif self._is_time(current) and (step < steps or steps == 1):
            self._start()
        self._mark = time.perf_counter()

    def _is_time(self, stage: Stage) -> bool:
        """Whether the next steps of a stage should be profiled."""
        return stage.steps >= SKIPPED and not stage.profiled and sum(one.profiled > 0 for one in self.stages) < MOST

    def _add(self, what: str) -> None:
        now = time.perf_counter()
        if self.stages:
            self.stages[-1].seconds[what] += now - self._mark
        self._mark = now

    def _start(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profiler = profile(activities=kinds)
        self._profiler.start()

    def _stop(self) -> None:
        assert self._profiler is not None
        profiler, self._profiler, stage = self._profiler, None, self.stages[-1]
        profiler.stop()
        if not stage.profiled:
            return
        stage.operations = _operations(profiler.key_averages(), stage.profiled)
        stage.trace = (
            f"{len(self.stages):02d}-{re.sub(r'[^a-z0-9]+', '-', stage.title.lower()).strip('-')[:60]}.json.gz"
        )
        with tempfile.TemporaryDirectory() as name:
            profiler.export_chrome_trace(str(Path(name) / "trace.json"))
            packed = gzip.compress((Path(name) / "trace.json").read_bytes())
        with replacing(self._out / FOLDER / stage.trace) as work:
            work.write_bytes(packed)


def _operations(events: Any, steps: int) -> tuple[Operation, ...]:
    """Returns the operations with the most time of their own, on the GPU if any ran there."""
    on_gpu = any(event.self_device_time_total for event in events)
    own = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    found = [Operation(e.key, getattr(e, own) / 1000 / steps, e.count / steps) for e in events if getattr(e, own) > 0]
    return tuple(sorted(found, key=lambda one: -one.ms)[:_SHOWN])


def page(stages: list[Stage]) -> str:
    """Returns the profile as Markdown."""
    heads = ("stage", "seconds", "training steps", "evaluation and checkpoints", "other", "steps")
    rows = [_row(stage) for stage in stages]
    parts = [
        "# Where the seconds went",
        "Wall time of this command, from the start of each stage to the start of the next; the last one includes the "
        "report. A stage that was complete before is not measured, and of one that was resumed only the rest.",
        _table(heads, rows),
        *(_details(stage) for stage in stages if stage.trace),
    ]
    return "\n\n".join(parts) + "\n"


def _row(stage: Stage) -> tuple[str, ...]:
    if stage.done:
        return (stage.title, "complete before", "", "", "", "")
    each = (f"{seconds:.2f}" for seconds in stage.seconds.values())
    return (stage.title, f"{sum(stage.seconds.values()):.2f}", *each, f"{stage.steps:,}")


def _details(stage: Stage) -> str:
    rows = [(one.name[:80], f"{one.ms:.3f}", f"{one.calls:g}") for one in stage.operations]
    return (
        f"## {stage.title}\n\n{stage.profiled} of {stage.steps:,} steps. For their timeline, open "
        f"`{FOLDER}/{stage.trace}` at https://ui.perfetto.dev (it stays on your computer) or chrome://tracing.\n\n"
        + _table(("operation", "ms per step, its own", "calls per step"), rows)
    )


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    escaped = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, tuple("---" for _ in heads), *escaped])
