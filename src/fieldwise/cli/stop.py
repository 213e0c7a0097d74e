"""Ctrl-C and SIGTERM: one line that says what the same command does, and the signal's exit code.

A signal becomes an exception, so that nothing half-written stays. Not so while modules are imported, where compiled
code may not survive one: then this process ends at once, or, where it must clear something first, after the import.
A second signal ends it at once.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NoReturn

from fieldwise.core.files import unfinished

_RESUMES: Final = "Run the same command again to resume from the last complete epoch."
LINES: Final = {
    **dict.fromkeys(("run", "pretrain", "search", "retrain", "compare"), _RESUMES),
    "prepare": "No dataset was written. Run the same command again to start over.",
    "predict": "The output file is as it was. Run the same command again to start over.",
    "export": "The export may be incomplete. Run the same command again to start over.",
    "watch": "The run itself is not.",
}
"""What is true of each command that is stopped."""
_LATER: Final = 0.05


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end."""


class Stop:
    """Hears the signals that end a command."""

    def __init__(self, command: str) -> None:
        self._line = " ".join(["fieldwise: stopped.", *filter(None, [LINES.get(command)])]) + "\n"
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._due = False
        self.by: int | None = None
        """The signal that was heard."""

    def listen(self) -> None:
        """Begins to hear; a signal that is ignored, as under nohup, stays so."""
        if threading.current_thread() is not threading.main_thread():
            return
        sys.unraisablehook = self._unraisable
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._hear)

    def forget(self) -> None:
        """Hears no more; signals mean what they meant before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        sys.unraisablehook = self._hook

    def end(self) -> NoReturn:
        """Says the line, and exits."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()
        self._say()
        sys.exit(128 + (self.by or signal.SIGINT))

    def _hear(self, number: int, frame: FrameType | None) -> None:
        again, self._due = self._due, False
        if self.by is not None and not again:
            self._end_now()
        self.by = number
        if _importing(frame):
            if not unfinished:
                self._end_now()
            self._say_again()
            return
        raise Stopped

    def _say_again(self) -> None:
        """Sends the same signal once more, a moment later."""
        later = threading.Timer(_LATER, self._send)
        later.daemon = True
        later.start()

    def _send(self) -> None:
        assert self.by is not None
        self._due = True
        main = threading.main_thread().ident
        if main is not None and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, self.by)  # it may be waiting, from which only a signal of its own wakes it
        else:
            signal.raise_signal(self.by)

    def _unraisable(self, lost: Any) -> None:
        """Python has lost an exception; where it was the signal's, it is raised again."""
        if isinstance(lost.exc_value, Stopped):
            self._say_again()
        else:
            self._hook(lost)

    def _end_now(self) -> NoReturn:
        """Says the line, unless it was said, and ends without clearing anything: all files stand being killed."""
        self._say("\x1b[?25h" if sys.stderr.isatty() else "")  # a progress bar hides the cursor
        os._exit(128 + (self.by or signal.SIGINT))

    def _say(self, before: str = "") -> None:
        line, self._line = self._line, ""
        with suppress(OSError):
            os.write(2, (before + line).encode())


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
