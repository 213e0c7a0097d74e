"""Every gate has a search: a class derived from `GATES` that behaves like one written by hand."""

import pickle
from multiprocessing import get_context

import pytest
from torch import Tensor

import fieldwise as fw
from fieldwise.core.registry import name_of, resolve
from fieldwise.gates import GATES
from fieldwise.gates.gate import Gate, GateSettings
from fieldwise.gates.sam import SAMGate, SoftGate
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches import SEARCHES, gated
from fieldwise.searches.gated import Gated, HardGated, search_with
from fieldwise.searches.search import Search

NAMES = {"ham": "HAM", "ham-p": "HamP", "sam": "SAM", "sam-gs": "SamGS", "sam-sigmoid": "SamSigmoid"}


@pytest.mark.parametrize("name", GATES)
def test_every_gate_has_a_search_by_its_name_in_python_and_in_settings(name: str) -> None:
    cls, gate = resolve("search", SEARCHES, name), resolve("gate", GATES, name)
    assert cls.__name__ == gate.__name__.removesuffix("Gate")
    assert cls is getattr(fw.searches, cls.__name__)
    assert cls is getattr(gated, cls.__name__)
    assert issubclass(cls, Gated)
    assert type(cls().gate) is gate
    settings = RunSettings.parse({"search": {"name": name, "epochs": 3, "gate": {"eta": 0.5}}})
    assert settings.search == cls(epochs=3, gate=gate(eta=0.5))
    assert settings.values()["search"] == {"name": name, **settings.search.values()}
    assert RunSettings.parse(settings.values()) == settings


@pytest.mark.parametrize("name", GATES)
def test_a_pickled_search_is_the_same(name: str) -> None:
    search = resolve("search", SEARCHES, name)()
    again = pickle.loads(pickle.dumps(search))
    assert again == search
    assert type(again) is type(search)


def _name(search: Search) -> str:
    return name_of(search, SEARCHES)


def test_a_spawned_process_receives_gated_searches() -> None:
    with get_context("spawn").Pool(1) as pool:
        assert pool.map(_name, [resolve("search", SEARCHES, name)() for name in GATES]) == list(GATES)


def test_the_searches_of_the_paper_keep_their_names_and_only_ham_stops_early() -> None:
    found = {name: resolve("search", SEARCHES, name) for name in NAMES}
    assert {name: cls.__name__ for name, cls in found.items()} == NAMES
    assert [name for name, cls in found.items() if {"patience", "near"} & set(cls().values())] == ["ham"]


class NewGate(GateSettings):
    """A new gate."""

    eta: float = 0.1
    """Step size on the gradient."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A soft gate."""
        return SoftGate(SAMGate(eta=self.eta), costs, limit)


def test_a_new_gate_needs_no_class_for_its_search() -> None:
    cls = search_with(NewGate)
    assert (cls.__name__, cls.__doc__) == ("New", "A new gate.")
    assert not issubclass(cls, HardGated)
    assert cls().gate == NewGate()
    assert cls.model_fields["gate"].description
    assert cls(gate={"eta": 0.3}).values()["gate"] == {"eta": 0.3}


def test_gated_itself_has_no_gate() -> None:
    with pytest.raises(TypeError, match="abstract class GateSettings"):
        Gated()
