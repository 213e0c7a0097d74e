"""An error of a library that talks to other processes is told apart from a lost connection."""

from fieldwise.core.errors import RunError
from fieldwise.processes.ranks import current
from tests.processes.many import on_ranks


def told_of_errors() -> list[str]:
    """What is said of errors inside a library that also talks to other processes."""
    lost = "[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3"
    found = []
    for error in (RuntimeError("shape '[2]' is invalid. And more"), RuntimeError(lost), ConnectionResetError("reset")):
        try:
            with current().talking("TorchRec"):
                raise error
        except RunError as told:
            found.append(str(told))
    return found


def test_an_error_of_a_library_is_no_lost_connection() -> None:
    for own, lost, reset in on_ranks(2, told_of_errors):
        assert own.startswith("TorchRec failed, and no connection: RuntimeError, shape '[2]' is invalid. Install")
        assert lost.startswith("A process of this run ended, or does not answer (Connection closed by peer")
        assert reset.startswith("A process of this run ended, or does not answer (reset)")
