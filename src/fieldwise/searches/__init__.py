"""Searches: from a task and a budget to a mask and the compact model it selects."""

from typing import TYPE_CHECKING, Final

from fieldwise.core.registry import by_class, class_names
from fieldwise.gates import GATES

if TYPE_CHECKING:
    from fieldwise.searches.autodim import AutoDim as AutoDim
    from fieldwise.searches.elimination import Elimination as Elimination
    from fieldwise.searches.gated import Gated, HardGated
    from fieldwise.searches.magnitude import Magnitude as Magnitude
    from fieldwise.searches.mde import MDE as MDE
    from fieldwise.searches.optembed import OptEmbed as OptEmbed
    from fieldwise.searches.pep import PEP as PEP
    from fieldwise.searches.race import Race as Race
    from fieldwise.searches.random import Random as Random
    from fieldwise.searches.rounds import Rounds as Rounds
    from fieldwise.searches.sseds import SSEDS as SSEDS
    from fieldwise.searches.uniform import Uniform as Uniform

    HAM = HardGated
    HamP = Gated
    SAM = Gated
    SamGS = Gated
    SamSigmoid = Gated

_OF_GATES: Final = {
    name: f"fieldwise.searches.gated:{path.partition(':')[2].removesuffix('Gate')}" for name, path in GATES.items()
}
"""One search per gate: `SAM` for `SAMGate`."""

SEARCHES: Final = dict(
    sorted(
        {
            **_OF_GATES,
            "autodim": "fieldwise.searches.autodim:AutoDim",
            "elimination": "fieldwise.searches.elimination:Elimination",
            "magnitude": "fieldwise.searches.magnitude:Magnitude",
            "mde": "fieldwise.searches.mde:MDE",
            "optembed": "fieldwise.searches.optembed:OptEmbed",
            "pep": "fieldwise.searches.pep:PEP",
            "race": "fieldwise.searches.race:Race",
            "random": "fieldwise.searches.random:Random",
            "rounds": "fieldwise.searches.rounds:Rounds",
            "sseds": "fieldwise.searches.sseds:SSEDS",
            "uniform": "fieldwise.searches.uniform:Uniform",
        }.items()
    )
)

DEFAULT: Final = "elimination"
"""The search of a run that names none."""


def __getattr__(name: str) -> type:
    """Search settings by class name."""
    return by_class(SEARCHES, __name__, name)


def __dir__() -> list[str]:
    """The classes, whether imported yet or not, and their table."""
    return sorted([*class_names(SEARCHES), "SEARCHES"])
