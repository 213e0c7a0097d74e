"""Each kernel against the same computation in float64."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout, Schema
from fieldwise.gates.ham import HAMGate
from fieldwise.kernels.available import VARIABLE, can_run
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.searches.trace import Trace
from fieldwise.tables.fused_adam import FusedAdam, ReadRows, WholeTables
from fieldwise.tables.rate import Rate
from tests.trainings import same

GPU = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not can_run(GPU), reason="needs a CUDA device and Triton")]
BATCH, FIELDS, ROWS = 500, 7, 3000


def close(found: Tensor, expected: Tensor, bound: float = 1e-6) -> None:
    assert torch.linalg.vector_norm(found.double() - expected) <= bound * torch.linalg.vector_norm(expected)


def places() -> Tensor:
    """Row numbers with every frequency, from one in all places of a field to none."""
    found = (ROWS ** torch.rand(BATCH, FIELDS, device=GPU)).int() - 1
    found[:, 0] = 3
    return found


@pytest.fixture
def numbers() -> Tensor:
    torch.manual_seed(0)
    return places()


@pytest.mark.parametrize(
    ("kind", "steps", "bound"),
    [(WholeTables, None, 1e-5), (WholeTables, 200, 1e-5), (ReadRows, None, 5e-3), (ReadRows, 200, 0.05)],
)
def test_tables_follow_dense_adam(
    kind: type[FusedAdam], steps: int | None, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "tables")
    torch.manual_seed(0)
    rate, tables = Rate(0.01, steps), [nn.Parameter(torch.randn(ROWS, width, device=GPU)) for width in (16, 1, 5, 40)]
    exact = [table.detach().double().requires_grad_() for table in tables]
    before = [table.detach().clone() for table in exact]
    mine, adam = kind(tables, rate), torch.optim.Adam(exact)
    for step in range(100):
        numbers = places()
        mine.at(step)
        mine.read(numbers.flip(0)[:9], False)
        adam.param_groups[0]["lr"] = rate.at(step)
        for place, table in enumerate(exact):
            grads = torch.randn(*numbers.shape, table.shape[1], device=GPU)
            (mine.read(numbers, True, place).at_places() * grads).sum().backward()
            table.grad = torch.zeros_like(table).index_add_(0, numbers.flatten(), grads.flatten(0, 1).double())
        mine.step()
        adam.step()
    mine.settle()
    for table, other, start in zip(tables, exact, before, strict=True):
        close(table.detach() - start, other.detach() - start, bound)


@pytest.mark.parametrize(("width", "mapped", "common"), [(16, 16, 16), (5, 16, 16), (1, 3, 2), (16, 40, 16)])
def test_sums_of_maps(numbers: Tensor, width: int, mapped: int, common: int) -> None:
    from fieldwise.kernels import sums

    weights = torch.randn(ROWS, width, device=GPU)
    maps = torch.randn(FIELDS, width, mapped, device=GPU)
    found = sums.forward(weights, numbers, maps, common)
    exact = maps.double().requires_grad_()
    v = weights.double()[numbers.long()].requires_grad_()
    x = torch.einsum("bfw,fwk->bfk", v, exact)
    expected = torch.cat([x.sum(1), -0.5 * x[..., :common].square().sum((1, 2)).unsqueeze(1)], 1)
    close(found, expected.detach())
    grads = torch.randn_like(found)
    of_v, of_maps = torch.autograd.grad(expected, (v, exact), grads.double())
    places, own = sums.backward(weights, numbers, maps, common, grads, True, True)
    assert places is not None
    assert own is not None
    close(places, of_v)
    close(own, of_maps)


@pytest.mark.parametrize("width", [1, 5, 16, 40])
def test_rows_at_places(numbers: Tensor, width: int) -> None:
    from fieldwise.kernels import tables

    weights = torch.randn(ROWS, width, device=GPU)
    assert torch.equal(tables.gather(weights, numbers), weights[numbers.long()])


@pytest.mark.parametrize(("batch", "width"), [(1, 1), (300, 67), (513, 64), (5000, 130)])
def test_products_of_columns(batch: int, width: int) -> None:
    from fieldwise.kernels import columns

    torch.manual_seed(0)
    a, b = torch.randn(2, batch, width, device=GPU)
    close(columns.dots(a, b), (a.double() * b.double()).sum(0), 1e-5)
    parts = torch.randn(3, batch, width, device=GPU)
    close(columns.totals(parts), parts.double().sum(1), 1e-5)


@pytest.mark.parametrize("more", [0, 2])
def test_steps_of_a_hard_gate_and_their_trace(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layout = Layout(Schema.of(a=3000, b=60), (1100, 20))
    costs, grads = torch.randint(1, 900, (1120 + more,), device=GPU), torch.randn(30, 1120 + more, device=GPU)
    found = []
    for kernels in ("tables", "none"):
        monkeypatch.setenv(VARIABLE, kernels)
        gate = HAMGate(eta=0.01).build(costs, int(costs.sum()) // 4)
        trace = Trace.over(Mask.all(layout), gate.limit, 4, len(grads), GPU)
        for grad in grads:
            before = gate.live()
            gate.step(grad)
            trace.record(gate, before, gate.live())
        found.append({**trace.tensors(), "alpha": gate.alpha})
    assert same(*found)
    assert found[0]["reactivated"].sum() > 0


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("low", [False, True])
def test_the_head_of_dcnv2(low: bool, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "all")
    torch.manual_seed(0)
    head = DCNv2(cross_layers=layers, hidden=(6, 5)).head(Layout(Schema.of(a=50, b=60, c=9), (40, 20, 7))).to(GPU)
    v, grads = torch.randn(300, 67, device=GPU, requires_grad=True), torch.randn(300, device=GPU)
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        logits = head(v)
    found = torch.autograd.grad(logits, (v, *head.parameters()), grads)
    exact, twin = v.detach().double().requires_grad_(), deepcopy(head).double()
    monkeypatch.setenv(VARIABLE, "none")
    expected = twin(exact)
    bound = 0.2 if low else 1e-5  # ReLU turns rounding at zero into differences
    close(logits.detach(), expected.detach(), bound)
    names = ["v", *(name for name, _ in head.named_parameters())]
    others = torch.autograd.grad(expected, (exact, *twin.parameters()), grads.double())
    for name, mine, other in zip(names, found, others, strict=True):
        if name not in ("mlp.0.bias", "mlp.3.bias"):  # batch normalization removes them
            close(mine, other, bound)
