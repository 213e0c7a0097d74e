"""Gates: learnable vectors over columns, each with its own update. `fieldwise.searches` has one search per gate."""

from typing import TYPE_CHECKING, Final

from fieldwise.core.registry import by_class, class_names

if TYPE_CHECKING:
    from fieldwise.gates.ham import HAMGate as HAMGate
    from fieldwise.gates.ham_p import HamPGate as HamPGate
    from fieldwise.gates.sam import SAMGate as SAMGate
    from fieldwise.gates.sam_gs import SamGSGate as SamGSGate
    from fieldwise.gates.sam_sigmoid import SamSigmoidGate as SamSigmoidGate

GATES: Final = {
    "ham": "fieldwise.gates.ham:HAMGate",
    "ham-p": "fieldwise.gates.ham_p:HamPGate",
    "sam": "fieldwise.gates.sam:SAMGate",
    "sam-gs": "fieldwise.gates.sam_gs:SamGSGate",
    "sam-sigmoid": "fieldwise.gates.sam_sigmoid:SamSigmoidGate",
}
"""Settings classes by name. A class is named `...Gate`; the search that uses it has the name without `Gate`."""


def __getattr__(name: str) -> type:
    """Gate settings by class name."""
    return by_class(GATES, __name__, name)


def __dir__() -> list[str]:
    """The classes, whether imported yet or not, and their table."""
    return sorted([*class_names(GATES), "GATES"])
