"""Searches: from a task and a budget to a mask and the compact model it selects."""

from typing import TYPE_CHECKING, Final

from fieldwise.core.registry import by_class

if TYPE_CHECKING:
    from fieldwise.searches.autodim import AutoDim as AutoDim
    from fieldwise.searches.gated import HAM as HAM
    from fieldwise.searches.gated import SAM as SAM
    from fieldwise.searches.gated import HamP as HamP
    from fieldwise.searches.gated import SamGS as SamGS
    from fieldwise.searches.gated import SamSigmoid as SamSigmoid
    from fieldwise.searches.magnitude import Magnitude as Magnitude
    from fieldwise.searches.mde import MDE as MDE
    from fieldwise.searches.optembed import OptEmbed as OptEmbed
    from fieldwise.searches.pep import PEP as PEP
    from fieldwise.searches.race import Race as Race
    from fieldwise.searches.random import Random as Random
    from fieldwise.searches.rounds import Rounds as Rounds
    from fieldwise.searches.sseds import SSEDS as SSEDS
    from fieldwise.searches.uniform import Uniform as Uniform

SEARCHES: Final = {
    "autodim": "fieldwise.searches.autodim:AutoDim",
    "ham": "fieldwise.searches.gated:HAM",
    "ham-p": "fieldwise.searches.gated:HamP",
    "magnitude": "fieldwise.searches.magnitude:Magnitude",
    "mde": "fieldwise.searches.mde:MDE",
    "optembed": "fieldwise.searches.optembed:OptEmbed",
    "pep": "fieldwise.searches.pep:PEP",
    "race": "fieldwise.searches.race:Race",
    "random": "fieldwise.searches.random:Random",
    "rounds": "fieldwise.searches.rounds:Rounds",
    "sam": "fieldwise.searches.gated:SAM",
    "sam-gs": "fieldwise.searches.gated:SamGS",
    "sam-sigmoid": "fieldwise.searches.gated:SamSigmoid",
    "sseds": "fieldwise.searches.sseds:SSEDS",
    "uniform": "fieldwise.searches.uniform:Uniform",
}


def __getattr__(name: str) -> type:
    """Search settings by class name."""
    return by_class(SEARCHES, __name__, name)
