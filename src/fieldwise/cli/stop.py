"""Handles Ctrl-C and SIGTERM: prints one line about running the command again, and exits with the signal's code.

A signal becomes an exception, so that partial files are removed. During an import it does not, since compiled code may
not survive one: the process then exits immediately or, if it must remove files first, after the import. A second
signal exits immediately.
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
    "predict": "The output file is unchanged. Run the same command again to start over.",
    "export": "The export may be incomplete. Run the same command again to start over.",
    "watch": "The run itself continues.",
}
"""The second sentence of the line, per command."""
_LATER: Final = 0.05


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end."""


class Stop:
    """Handles the signals that stop a command."""

    def __init__(self, command: str) -> None:
        self._line = " ".join(["fieldwise: stopped.", *filter(None, [LINES.get(command)])]) + "\n"
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._due = False
        self.by: int | None = None
        """The signal that was received."""

    def listen(self) -> None:
        """Installs the handlers; a signal that is ignored, as under nohup, stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            return
        sys.unraisablehook = self._unraisable
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)

    def silence(self) -> None:
        """Leaves the line to another process of the same command."""
        self._line = ""

    def forget(self) -> None:
        """Restores the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        sys.unraisablehook = self._hook

    def end(self) -> NoReturn:
        """Prints the line, and exits."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader is gone
                stream.flush()
        self._print()
        sys.exit(128 + (self.by or signal.SIGINT))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self._due = self._due, False
        if self.by is not None and not again:
            self._end_now()
        self.by = number
        if _importing(frame):
            if not unfinished:
                self._end_now()
            self._repeat()
            return
        raise Stopped

    def _repeat(self) -> None:
        """Sends the same signal again after a short delay."""
        later = threading.Timer(_LATER, self._send)
        later.daemon = True
        later.start()

    def _send(self) -> None:
        assert self.by is not None
        self._due = True
        main = threading.main_thread().ident
        if main is not None and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, self.by)  # only a signal to the main thread interrupts its wait
        else:
            signal.raise_signal(self.by)

    def _unraisable(self, lost: Any) -> None:
        """Repeats the signal if Python dropped its exception, for example in a destructor."""
        if isinstance(lost.exc_value, Stopped):
            self._repeat()
        else:
            self._hook(lost)

    def _end_now(self) -> NoReturn:
        """Prints the line, unless it was printed, and exits without cleanup; files survive being killed."""
        self._print("\x1b[?25h" if sys.stderr.isatty() else "")  # shows the cursor, which a progress bar hides
        os._exit(128 + (self.by or signal.SIGINT))

    def _print(self, before: str = "") -> None:
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
