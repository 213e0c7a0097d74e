"""Any module of a user's factory: how it is called, gated, narrowed, and what is refused."""

import copy
import pickle
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fieldwise as fw
from fieldwise.core.errors import FieldwiseError, MaskError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.models.check import check_model
from fieldwise.models.compact import compact
from fieldwise.models.factory import Factory, factory_of
from fieldwise.pruning.inside import draws
from tests.models.factories import FACTORIES, Deep, Named, bare, deep, named, tied
from tests.models.factory_models import LISTS, PLAIN, mask_for, model_of

CASES = [(name, schema) for name in FACTORIES for schema in (PLAIN, LISTS) if name != "stacked" or schema is PLAIN]


@pytest.mark.parametrize(("name", "schema"), CASES)
def test_a_compact_model_predicts_what_the_masked_model_predicts(name: str, schema: fw.Schema) -> None:
    model, ids = model_of(FACTORIES[name], schema), next(draws(schema, 40))
    mask = mask_for(model)
    small = compact(model, mask)
    masked = model(ids, torch.from_numpy(mask.vector).float())
    assert small.layout == mask.layout
    assert torch.allclose(small(ids), masked, atol=1e-5)
    assert small.size().embedding == mask.params
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
    inner = Mask.of(small.layout, np.arange(small.layout.columns) % 2)
    twice, once = compact(small, inner), compact(model, mask.then(inner))
    assert torch.allclose(twice(ids), once(ids), atol=1e-5)
    assert twice.size() == once.size()
    assert torch.equal(copy.deepcopy(twice)(ids), twice(ids))


def test_tables_have_the_names_of_their_fields_and_tables_of_width_one_are_first_order() -> None:
    assert model_of(deep, LISTS).layout.schema == LISTS
    model = model_of(named, LISTS)
    assert model.layout.schema.names == LISTS.names
    assert model.layout.schema.cardinalities == (30, 2, 10)
    assert (model.inside.by_name, model.inside.probabilities) == (True, True)
    assert model.size().first_order == 32
    assert model_of(bare).layout.schema.names == ("table",)
    assert model_of(tied).layout.schema.cardinalities == PLAIN.cardinalities
    assert (model_of(deep).inside.by_name, model_of(deep).inside.probabilities) == (False, False)


def test_probabilities_become_logits() -> None:
    model, ids = model_of(named), next(draws(PLAIN))
    given = model.module({name: ids[:, j] for j, name in enumerate(PLAIN.names)}).squeeze(1)
    assert torch.allclose(torch.sigmoid(model(ids)), given, atol=1e-6)


def test_a_field_without_columns_is_not_needed_unless_it_has_first_order_weights() -> None:
    for build, needs in ((deep, ("gender", "item")), (named, PLAIN.names)):
        small = compact(model_of(build), mask_for(model_of(build)))
        assert small.needs == needs
    assert model_of(deep).needs == PLAIN.names


def test_only_the_gate_has_a_gradient_in_its_step() -> None:
    model, ids = model_of(deep), next(draws(PLAIN))
    gate = torch.rand(model.layout.columns, requires_grad=True)
    weight, _ = model.embedding.span(0)
    assert torch.equal(model.gated(ids, gate), model(ids, gate))
    for out, has in ((model.gated(ids, gate), False), (model(ids, gate), True)):
        found = torch.autograd.grad(out.sum(), [gate, weight], allow_unused=True)
        assert [grad is not None for grad in found] == [True, has]
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("build", [deep, named, bare])
def test_slopes_are_each_rows_derivative_by_the_mask(build: Any) -> None:
    model, ids = model_of(build), next(draws(PLAIN, 5))

    def loss(logits: Tensor) -> Tensor:
        return logits.square().sum()

    masks = torch.linspace(0, 1.5, model.layout.columns)
    found = model.slopes(ids, loss, masks)
    for row in range(len(ids)):
        gate = masks.clone().requires_grad_()
        (grad,) = torch.autograd.grad(loss(model(ids[row : row + 1], gate)), gate)
        assert torch.allclose(found[row], grad, atol=1e-4)


def test_the_keywords_of_a_factory_are_its_settings() -> None:
    cls: Any = factory_of(deep)
    assert id(cls) == id(factory_of(deep))
    assert cls(width=2).values() == {"width": 2, "hidden": 8}
    assert cls(width=2).layout(PLAIN).widths == (2, 2, 2)
    again = pickle.loads(pickle.dumps(cls(hidden=5)))
    assert again == cls(hidden=5)
    with pytest.raises(ValueError, match="hidden"):
        cls(hidden="wide")
    assert factory_of(Deep)().layout(PLAIN).widths == (4, 4, 4)  # a class is a factory too
    assert factory_of(lambda schema, act=nn.ReLU, hidden=3: Deep(schema, 2, hidden))().values() == {"hidden": 3}


class Answer(nn.Module):
    """Returns what it is told to."""

    def __init__(self, answer: Callable[[Tensor, Tensor], Any], rows: int = 30) -> None:
        super().__init__()
        self.table, self.answer = nn.Embedding(rows, 4), answer

    def forward(self, ids: Tensor) -> Any:
        return self.answer(self.table(ids[:, 0]).sum(1), ids)


def raising(schema: fw.Schema) -> nn.Module:
    raise KeyError("no such\nfield")


def leaving(schema: fw.Schema) -> nn.Module:
    raise SystemExit(3)


def two(schema: fw.Schema, hidden: int) -> nn.Module:
    return Deep(schema, 4, hidden)


def none() -> nn.Module:
    return nn.Linear(1, 1)


def taken(schema: fw.Schema, layout: int = 3) -> nn.Module:
    return Deep(schema, layout)


def only_by_key(*, schema: fw.Schema) -> nn.Module:
    return Deep(schema)


BAD: dict[str, tuple[Any, str]] = {
    "two arguments": (two, r"'two' takes \(schema.*hidden.*Allowed: build\(schema\).*Give hidden a default"),
    "no argument": (none, r"'none' takes \(\).*Give it the schema"),
    "by keyword only": (only_by_key, "Allowed: build"),
    "a name of ours": (taken, "keyword 'layout', which is a name of fieldwise"),
    "raises": (raising, r"raising\(schema\) raised KeyError: 'no such"),
    "exits": (leaving, r"leaving\(schema\) raised SystemExit: 3"),
    "a module": (nn.Linear(3, 1), "Pass the function; for a module in your own loop, use fw.Pruner"),
    "a number": (3, "got 3. Allowed: settings of a base model"),
    "returns no module": (lambda schema: [schema], "returned a list. Allowed: an nn.Module"),
    "no tables": (lambda schema: nn.Sequential(ToFloat(), nn.Linear(3, 1)), "Sequential contains no tables"),
    "a tuple": (lambda schema: Answer(lambda out, ids: (out, out)), "returned a tuple of 2. Allowed: one tensor"),
    "a dict of tasks": (lambda schema: Answer(lambda out, ids: {"click": out}), "returned a dict of 1.*one task"),
    "two columns": (lambda schema: Answer(lambda out, ids: torch.stack([out, out], 1)), r"shape \(16, 2\) for 16 rows"),
    "a scalar": (lambda schema: Answer(lambda out, ids: out.mean()), r"returned shape \(\) for 16 rows"),
    "a scalar for one row": (lambda schema: Answer(lambda out, ids: out.squeeze()), r"returned shape \(\) for 1 rows"),
    "integers": (lambda schema: Answer(lambda out, ids: ids[:, 0]), "returned torch.int64"),
    "other ids": (lambda schema: Answer(lambda out, ids: out, rows=2), "took neither ids.*IndexError.*nor a mapping"),
}  # fmt: skip


class ToFloat(nn.Module):
    """Ids as numbers."""

    def forward(self, ids: Tensor) -> Tensor:
        return ids.float()


@pytest.mark.parametrize("name", BAD)
def test_a_factory_that_cannot_be_used_is_one_line(name: str) -> None:
    build, says = BAD[name]
    with pytest.raises(FieldwiseError, match=says) as caught:
        factory_of(build)().layout(PLAIN)
    assert "\n" not in str(caught.value)


def test_a_tensor_that_does_not_move_with_its_module_is_explained() -> None:
    for build in (deep, named, tied):
        model_of(build).to("meta").check_device()
    with pytest.raises(
        SettingsError, match=r"works on the CPU, but on meta it raised .* use register_buffer"
    ) as caught:
        model_of(bare).to("meta").check_device()
    assert "\n" not in str(caught.value)


def test_lists_that_a_module_does_not_expect_are_explained() -> None:
    def build(schema: fw.Schema) -> nn.Module:
        return Answer(lambda out, ids: out + nn.functional.embedding(ids[:, 3], torch.ones(9, 4)).sum(1))

    with pytest.raises(SettingsError, match="shorter than their length end in -1"):
        factory_of(build)().layout(LISTS)


def test_the_check_before_a_run_finds_what_compacting_would() -> None:
    for build in (deep, named, tied):
        check_model(factory_of(build)(), LISTS)
    before = torch.get_rng_state()
    check_model(factory_of(Named)(), PLAIN)
    assert torch.equal(torch.get_rng_state(), before)

    calls = count()

    def noisy(schema: fw.Schema) -> nn.Module:
        return Answer(lambda out, ids: out + next(calls))

    with pytest.raises(MaskError, match="random in evaluation mode"):
        check_model(factory_of(noisy)(), PLAIN)


def test_a_task_takes_the_function_itself(planted: fw.Dataset) -> None:
    task = fw.Task.of(planted, deep, seed=3, device="cpu")
    assert isinstance(task.model, Factory)
    assert task.layout.schema.names == planted.schema.names
    one, two = task.new_model(), task.new_model()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
