"""Gates: learnable vectors over columns, each with its own update."""

from typing import TYPE_CHECKING, Final

from fieldwise.core.registry import by_class

if TYPE_CHECKING:
    from fieldwise.gates.ham import HAM as HAM
    from fieldwise.gates.ham_p import HamP as HamP
    from fieldwise.gates.sam import SAM as SAM
    from fieldwise.gates.sam_gs import SamGS as SamGS
    from fieldwise.gates.sam_sigmoid import SamSigmoid as SamSigmoid

GATES: Final = {
    "ham": "fieldwise.gates.ham:HAM",
    "ham-p": "fieldwise.gates.ham_p:HamP",
    "sam": "fieldwise.gates.sam:SAM",
    "sam-gs": "fieldwise.gates.sam_gs:SamGS",
    "sam-sigmoid": "fieldwise.gates.sam_sigmoid:SamSigmoid",
}


def __getattr__(name: str) -> type:
    """Gate settings by class name."""
    return by_class(GATES, __name__, name)
