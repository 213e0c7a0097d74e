"""A compact module predicts what the masked module predicts, whatever its forward does."""

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fieldwise.core.errors import FieldwiseError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Schema
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.pruning.example import Example, evaluating
from fieldwise.pruning.folding import exported, fold
from fieldwise.pruning.narrow import NarrowTable, NoTable
from fieldwise.pruning.narrow_layers import NarrowLinear, NarrowNorm
from fieldwise.pruning.rebuilding import describe, rebuild
from fieldwise.searches.magnitude import Magnitude
from fieldwise.searches.pruner import Pruner
from fieldwise.searches.random import Random
from tests.pruning import modules
from tests.pruning.modules import CASES, WIDTH, Case, Concat, Cross, Normed, ids, shaken


def outputs(model: nn.Module, args: tuple[Any, ...]) -> list[Tensor]:
    with torch.no_grad():
        return Example(args).run(model)


def masked(pruner: Pruner, mask: Mask, args: tuple[Any, ...]) -> list[Tensor]:
    """Return the outputs of the masked model by definition: dropped columns are 0 in the output of each table."""
    values = torch.from_numpy(mask.vector).float()
    gating = pruner._gating
    with evaluating(pruner.model), gating.changed(gating.by(values)):
        return [out.clone() for out in outputs(pruner.model, args)]


def holed(pruner: Pruner, seed: int = 0) -> Mask:
    """Return a mask with a third of the columns and none in the last field."""
    full = pruner.tables.layout
    vector = np.random.default_rng(seed).random(full.columns) < 0.4
    if len(full.schema) > 1:
        vector[full.starts[-2] :] = False
    vector[0] = True
    return Mask.of(full, vector)


@pytest.mark.parametrize("name", CASES)
def test_compact_predicts_what_the_masked_model_predicts(name: str) -> None:
    model, args = CASES[name]()
    pruner = Pruner(shaken(model).eval(), args, Random(), "50%")
    mask = holed(pruner)
    expected = masked(pruner, mask, args)
    small: Any = pruner.compact(mask)
    half = name == "bfloat16"
    for got, wanted in zip(outputs(small, args), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=(0.05 if half else 2e-6) * float(wanted.abs().max()))
    assert pruner.report is not None
    assert pruner.report.difference <= (0.1 if half else 1e-6)
    kept = sum(
        weight.numel()
        for weight in {id(w): w for m in small.modules() if isinstance(m, NarrowTable) for w in m.parameters()}.values()
    )
    assert kept == mask.params == pruner.report.tables[1]


def test_dense_layers_have_exactly_the_live_columns() -> None:
    model = shaken(Cross()).eval()
    pruner = Pruner(model, (ids(),), Random(), "50%")
    mask = holed(pruner)
    small: Any = pruner.compact(mask)
    live = [int(k) for k in mask.indices]
    for layer in small.cross:
        assert isinstance(layer, NarrowLinear)
        assert layer.gather.live == layer.scatter.live == live
    assert small.out.weight.shape == (1, len(live))
    assert isinstance(small.tables[2], NoTable)
    n = len(live)
    assert pruner.report is not None
    assert pruner.report.dense == (2 * (18 * 18 + 18) + 19, 2 * (n * n + n) + n + 1)


def test_what_a_batch_norm_makes_of_dead_columns_goes_into_the_next_bias() -> None:
    pruner = Pruner(shaken(Normed()).eval(), (ids(),), Random(), "50%")
    mask = holed(pruner)
    small: Any = pruner.compact(mask)
    assert isinstance(small.norm, NarrowNorm)
    assert small.norm.layer.num_features == mask.columns
    assert small.deep.weight.shape == (1, mask.columns)
    assert small.deep.bias is not None  # the full layer has none


def test_a_padded_place_in_every_row_of_the_example_drops_nothing() -> None:
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 4, padding_idx=0)
            self.deep = nn.Linear(12, 1)

        def forward(self, x: Tensor) -> Tensor:
            found = self.table(x) * (x != 0).unsqueeze(2)
            out: Tensor = self.deep(found.flatten(1)).squeeze(1)
            return out

    x = torch.randint(1, 9, (8, 3))
    padded = x.clone()
    padded[:, 2] = 0
    pruner = Pruner(shaken(Sequence()).eval(), (padded,), Random(), "50%")
    mask = Mask(pruner.tables.layout, ((0, 3),))
    expected = masked(pruner, mask, (x,))
    torch.testing.assert_close(outputs(pruner.compact(mask), (x,)), expected)


def spoil_first_layer(monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor], others: bool = True) -> None:
    """Change a weight of the first layer that is narrowed; without `others`, it is the only one."""
    from fieldwise.pruning import compacting, layers

    found = layers.dense_plans

    def wrong(*args: Any) -> Any:
        plans, whole = found(*args)

        def build() -> nn.Module:
            bad = plans[0].build()
            with torch.no_grad():
                change(next(bad.parameters()))
            return bad

        return [layers.Plan(plans[0].name, plans[0].layer, "worse", build), *(plans[1:] if others else ())], whole

    monkeypatch.setattr(compacting, "dense_plans", wrong)


def test_a_layer_that_would_change_predictions_is_put_back_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_first_layer(monkeypatch, lambda weight: weight.add_(1))
    for inplace in (False, True):
        model = shaken(Cross()).eval()
        pruner = Pruner(model, (ids(),), Random(), "50%")
        expected = masked(pruner, pruner.mask, (x := ids(),))
        small: Any = pruner.compact(inplace=inplace)
        torch.testing.assert_close(outputs(small, (x,)), expected)
        assert pruner.report is not None
        assert [(w.name, w.why) for w in pruner.report.whole] == [("cross.0", "narrowing it would change predictions")]
        assert set(pruner.report.shrunk) == {"cross.1", "out"}
        assert "cross.0 keeps its full width" in str(pruner.report)


class Logarithms(modules.Base):
    """Dropped columns output large constants, which keep hidden units on one side of the ReLU for every row."""

    def __init__(self, end: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3 * WIDTH, 64), nn.Linear(64, 1)
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        v = torch.cat(self.vectors(x), 1)
        out: Tensor = self.outer(torch.relu(100 * self.inner(v.abs().clamp(min=1e-30).log()))).squeeze(1)
        return torch.sigmoid(out) if self.end else out


def test_large_numbers_are_not_taken_for_dead_ones() -> None:
    pruner = Pruner(shaken(Logarithms()).eval(), (ids(),), Random(), "50%")
    small: Any = pruner.compact(holed(pruner))
    assert pruner.report is not None
    assert pruner.report.whole == []
    assert isinstance(small.outer, nn.Linear)  # all of its inputs depend on live columns


def test_a_flat_sigmoid_at_the_end_hides_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_first_layer(monkeypatch, lambda weight: weight.mul_(1.1), others=False)
    model = shaken(Logarithms(end=True)).eval()
    with torch.no_grad():
        model.outer.weight.fill_(-10.0)  # every probability rounds to 0 in single precision
    pruner = Pruner(model, (x := ids(),), Random(), "50%")
    assert not outputs(model, (x,))[0].any()
    pruner.compact(holed(pruner))
    assert pruner.report is not None
    assert [whole.name for whole in pruner.report.whole] == ["inner"]


def test_a_model_that_cannot_be_copied_is_changed_in_place() -> None:
    pruner = Pruner(shaken(modules.Locked()).eval(), (x := ids(),), Random(), "50%")
    with pytest.raises(FieldwiseError, match=r"Locked cannot be deep-copied \(TypeError.*compact\(inplace=True\)"):
        pruner.compact()
    mask = pruner.mask
    expected = masked(pruner, mask, (x,))
    small: Any = pruner.compact(inplace=True)
    assert id(small) == id(pruner.model)
    torch.testing.assert_close(outputs(small, (x,)), expected)
    assert small.deep[0].weight.shape[1] == mask.columns


def test_layers_held_in_a_list_are_narrow_there_too() -> None:
    for inplace in (False, True):
        pruner = Pruner(shaken(modules.Held()).eval(), (ids(),), Random(), "50%")
        small: Any = pruner.compact(inplace=inplace)
        assert small.order[0] is small.deep[0]
        assert isinstance(small.deep[0], NarrowLinear)


def test_tied_tables_stay_tied_and_are_counted_once() -> None:
    model, args = CASES["read twice, tied"]()
    pruner = Pruner(shaken(model).eval(), args, Random(), "50%")
    assert pruner.tables.layout.schema.cardinalities == (13, 9)
    small: Any = pruner.compact(Mask(pruner.tables.layout, ((0, 1), (2, 5))))
    assert small.query.table.weight is small.key.table.weight
    assert small.query.table.weight.shape == (9, 2)


def test_weights_that_the_model_also_reads_directly_are_left_alone() -> None:
    model, args = CASES["tied to a linear layer"]()
    pruner = Pruner(model, args, Random(), "50%")
    assert pruner.tables.layout.schema.names == ("user",)
    assert [(left.name, left.why) for left in pruner.tables.left] == [("item", "weights are also read directly")]


def test_max_norm_scales_by_the_full_row() -> None:
    model = shaken(Concat(max_norm=0.7)).eval()
    before = model.tables[0].weight.detach().clone()
    pruner = Pruner(model, (torch.ones(2, 3, dtype=torch.long),), Random(), "50%")
    mask = Mask(pruner.tables.layout, ((0, 1), (0,), (0,)))
    small: Any = pruner.compact(mask)
    assert float(before.norm(dim=1).min()) > 0.7
    torch.testing.assert_close(small.tables[0].table.weight[5], (before[5] / before[5].norm() * 0.7)[:2])
    assert small.tables[0].table.max_norm == 0.7


@pytest.mark.parametrize(
    "case", ["batch norm", "convolution", "bag, mean, padding", "read twice, tied", "one table, offsets"]
)
def test_small_trains_copies_moves_and_comes_back_from_disk(case: str) -> None:
    model, args = CASES[case]()
    pruner = Pruner(shaken(model), args, Random(), "40%")
    small: Any = pruner.compact(holed(pruner))
    assert small.training
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
    before = modules.loss_of(small.eval(), args)
    small.train()
    for _ in range(20):
        optimizer.zero_grad()
        modules.loss_of(small, args).backward()
        optimizer.step()
    assert modules.loss_of(small.eval(), args) < before
    expected = outputs(small, args)
    torch.testing.assert_close(outputs(copy.deepcopy(small).double().float(), args), expected)
    text, state = json.dumps(describe(small)), small.state_dict()
    for device in ("meta", "cpu"):
        with torch.device(device):
            full = CASES[case]()[0] if device == "cpu" else _on_meta(case)
            again = rebuild(
                full, text, {name: value.clone(memory_format=torch.preserve_format) for name, value in state.items()}
            )
        again.eval()
        torch.testing.assert_close(outputs(again, args), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "case", ["batch norm", "cross", "convolution", "bag, mean, padding", "read twice, tied", "our own"]
)
def test_a_compact_model_is_pruned_again_as_the_full_one_would_be(case: str) -> None:
    model, args = _own() if case == "our own" else CASES[case]()
    first = Pruner(shaken(model).eval(), args, Random(), "60%")
    mask = holed(first)
    small = first.compact(mask)
    first.remove()
    second = Pruner(small, args, Random(), "50%")
    inner = Mask.of(second.tables.layout, np.arange(second.tables.layout.columns) % 2)
    twice: Any = second.compact(inner)
    places = iter(inner.kept)  # a table without columns is no field of the second search; in ours it is one of width 0
    total = [tuple(columns[k] for k in next(places)) if columns or case == "our own" else () for columns in mask.kept]
    once: Any = Pruner(model, args, Random(), "60%").compact(Mask(mask.full, tuple(total)))
    torch.testing.assert_close(outputs(twice, args), outputs(once, args), rtol=0, atol=1e-5)
    assert sum(p.numel() for p in twice.parameters()) == sum(p.numel() for p in once.parameters())
    assert describe(twice) == describe(once)
    again = rebuild(_own()[0] if case == "our own" else CASES[case]()[0], describe(twice), twice.state_dict()).eval()
    torch.testing.assert_close(outputs(again, args), outputs(twice, args), rtol=0, atol=0)
    assert second.mask.columns  # the pruner goes on


def _own() -> tuple[nn.Module, tuple[Any, ...]]:
    schema = Schema.of(user=11, gender=5, item=9)
    return DCNv2(width=4).new(schema), (ids(),)


def _on_meta(case: str) -> nn.Module:
    if case == "one table, offsets":  # its offsets are a stored buffer
        return modules.Stacked()
    kinds = {"batch norm": Normed, "convolution": modules.Convolved, "read twice, tied": modules.Twice}
    return kinds[case]() if case in kinds else modules.Bags("mean", padding_idx=3)


def test_rebuilding_refuses_another_model_and_other_weights() -> None:
    pruner = Pruner(shaken(Cross()).eval(), (ids(),), Random(), "50%")
    small: Any = pruner.compact()
    with pytest.raises(FieldwiseError, match=r"Concat has no 'cross\.0'"):
        rebuild(Concat(), describe(small), small.state_dict())
    with pytest.raises(FieldwiseError, match="Not a compact model"):
        rebuild(Cross(), {}, small.state_dict())
    with pytest.raises(FieldwiseError, match="weights do not fit Cross"):
        rebuild(Cross(), describe(small), {})


def test_the_full_model_is_as_it_was() -> None:
    model = shaken(Normed())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    pruner = Pruner(model, (ids(),), Random(), "50%")
    torch.set_rng_state(random)
    pruner.compact()
    assert torch.equal(torch.get_rng_state(), random)
    pruner.remove()
    assert model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(weight.grad is not None for weight in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    "case",
    [
        "sparse gradients",
        "layer norm",
        "cross",
        "factorization machine",
        "one table, offsets",
        "convolution",
        "bag, sum, weights",
    ],
)
def test_a_folded_graph_predicts_the_same_at_any_batch_size(case: str) -> None:
    model, args = CASES[case]()
    pruner = Pruner(shaken(model).eval(), args, Random(), "50%")
    small: Any = pruner.compact(holed(pruner))
    folded = fold(small, args)
    torch.testing.assert_close(outputs(folded, args), outputs(small, args))
    if all(arg is not None and len(arg) == len(args[0]) for arg in args):
        fewer = tuple(arg[:3] for arg in args)
        torch.testing.assert_close(outputs(folded, fewer), outputs(small, fewer))
    assert exported(folded, Example(args)) is not None


class InPlace(Concat):
    """Changes its own result in place."""

    def forward(self, x: Tensor) -> Tensor:
        v = torch.cat(self.vectors(x), 1)
        v.relu_()
        v.add_(v)
        out: Tensor = self.deep(v).squeeze(1)
        return out


def test_folding_leaves_no_scatter_between_tables_and_layers() -> None:
    for model in (Concat(), Cross(), Normed(), InPlace()):
        pruner = Pruner(shaken(model).eval(), (x := ids(),), Random(), "50%")
        small: Any = pruner.compact()
        folded: Any = fold(small, (x,))
        torch.testing.assert_close(outputs(folded, (x,)), outputs(small, (x,)))
        assert not [
            node for node in folded.graph.nodes if "pad" in str(node.target) or "index_select" in str(node.target)
        ]
        assert not folded.training
        weights = dict(folded.named_parameters())
        assert not [name for name in weights if "." in name]  # a path would take as long as computing a row
        assert sum(map(Tensor.numel, weights.values())) == sum(w.numel() for w in small.parameters())


def test_a_forward_without_a_graph_is_refused_in_one_line() -> None:
    model, args = CASES["dict of tasks"]()
    pruner = Pruner(shaken(model).eval(), args, Random(), "50%")
    with pytest.raises(FieldwiseError, match=r"TwoTasks has no graph: torch\.export raised") as said:
        fold(pruner.compact(), args)
    assert "\n" not in str(said.value)


def test_an_own_optimizer_of_the_model_restarts_over_the_narrow_weights() -> None:
    model = shaken(Concat())
    model.optimizer = torch.optim.Adam(model.parameters())
    modules.loss_of(model, (x := ids(),)).backward()
    model.optimizer.step()
    small: Any = Pruner(model, (x,), Magnitude(), "50%").compact()
    assert small.optimizer is not model.optimizer
    assert list(map(id, small.optimizer.param_groups[0]["params"])) == list(map(id, small.parameters()))
    modules.loss_of(small, (x,)).backward()
    small.optimizer.step()


def test_width_is_kept_for_code_that_asks() -> None:
    small: Any = Pruner(shaken(Concat()), (ids(),), Random(), "50%").compact()
    assert [table.embedding_dim for table in small.tables] == [WIDTH] * 3
    assert [table.num_embeddings for table in small.tables] == list(modules.ROWS)


def test_cases_are_cases() -> None:
    case: Case = CASES["cross"]
    assert isinstance(case()[0], Cross)


@pytest.mark.parametrize("last", [False, True])
def test_an_empty_bag_table_has_the_shape_of_its_bags(last: bool) -> None:
    bag = nn.EmbeddingBag(9, 4, include_last_offset=last)
    values, offsets = torch.randint(0, 9, (10,)), torch.tensor([0, 3, 3, 10])
    empty = NoTable(bag)
    assert torch.equal(empty(values, offsets), torch.zeros_like(bag(values, offsets)))
    if not last:
        matrix = torch.randint(0, 9, (5, 2))
        assert torch.equal(empty(matrix), torch.zeros_like(bag(matrix)))
    assert not list(empty.parameters())
    assert empty.half()(values, offsets).dtype == torch.float16
