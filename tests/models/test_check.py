"""A user's own base model, correct and with faults."""

import pytest
import torch
from torch import Tensor, nn

import fieldwise as fw
from fieldwise.core.errors import MaskError, SettingsError
from fieldwise.core.registry import resolve
from fieldwise.data.store import Split
from fieldwise.models import MODELS
from fieldwise.models.check import check_model
from fieldwise.models.model import Head, OwnModel, Slices

SCHEMA = fw.Schema((fw.Field("user", 500), fw.Field("gender", 3), fw.Field("genres", 9, length=3)))


class Mine(OwnModel):
    """One linear layer over all columns, with an optional fault."""

    fault: str = ""

    def has_first_order(self) -> bool:
        """No first-order weights, which could broadcast a logit of the wrong shape."""
        return False

    def head(self, layout: fw.Layout) -> Head:
        """A new head for these columns."""
        return MyHead(layout.columns, self.fault)


class MyHead(Head):
    """Correct except for its fault."""

    def __init__(self, columns: int, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.shift = nn.Parameter(torch.zeros(columns))
        self.out = nn.Linear(columns, 1)

    def forward(self, v: Tensor) -> Tensor:
        """Logits."""
        v = v + self.shift if self.fault == "bias" else v * self.shift
        logits: Tensor = self.out(v)
        return logits if self.fault == "shape" else logits.squeeze(1)

    def slices(self, mask: fw.Mask) -> Slices:
        """Slices of both weights."""
        kept = torch.from_numpy(mask.indices)
        if self.fault == "forgotten":
            return {"out.weight": {1: kept}}
        if self.fault == "misspelled":
            return {"out.wieght": {1: kept}, "shift": {0: kept}}
        return {"out.weight": {1: kept.flip(0) if self.fault == "order" else kept}, "shift": {0: kept}}


@pytest.mark.parametrize("name", MODELS)
def test_our_own_models_pass(name: str) -> None:
    check_model(resolve("model", MODELS, name)(), SCHEMA)


def test_a_right_model_passes_and_borrows_no_randomness() -> None:
    before = torch.get_rng_state()
    check_model(Mine(), SCHEMA)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("forgotten", r"MyHead.slices leaves 'shift' with the shape \(28,\), where the narrow head has \(14,\)"),
        ("misspelled", "MyHead.slices names 'out.wieght'.*Did you mean 'out.weight'"),
        ("bias", "Mine cannot be pruned: with half of the columns kept.*A column that is 0 must add nothing"),
        ("order", "Mine cannot be pruned"),
        ("shape", r"Mine gives logits of shape \(32, 1\) for 32 rows"),
    ],
)
def test_a_wrong_model_is_told_what_is_wrong(fault: str, says: str) -> None:
    with pytest.raises(MaskError, match=says):
        check_model(Mine(fault=fault), SCHEMA)


def test_a_module_that_is_no_base_model_is_refused() -> None:
    rows = Split(torch.zeros(4, 5).int().numpy(), torch.zeros(4).numpy())
    with pytest.raises(SettingsError, match=r"or a function build\(schema\)"):
        fw.Task(SCHEMA, rows, rows, nn.Linear(3, 1))  # type: ignore[arg-type]
