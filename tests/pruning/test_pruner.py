"""The pruner in a user's own loop: the tables it finds, how the gate updates, and what it leaves unchanged."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import fieldwise as fw
from fieldwise.core.errors import FieldwiseError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Schema
from fieldwise.core.store import Store
from fieldwise.gates import HAMGate
from fieldwise.models.compact import compact
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.stored import stored
from fieldwise.pruning.sites import find
from fieldwise.searches import HAM, SEARCHES, SamGS
from fieldwise.searches.elimination import Elimination
from fieldwise.searches.gated import Gated
from fieldwise.searches.pruner import Pruner
from fieldwise.searches.random import Random
from fieldwise.searches.rounds import Rounds
from fieldwise.searches.search import Search
from fieldwise.searches.sseds import SSEDS
from fieldwise.searches.uniform import Uniform
from tests.pruning import modules
from tests.pruning.modules import CASES, ROWS, WIDTH, Concat, Machine, Normed, ids, loss_of, shaken

IN_LOOP = (
    "elimination",
    "ham",
    "ham-p",
    "magnitude",
    "mde",
    "random",
    "rounds",
    "sam",
    "sam-gs",
    "sam-sigmoid",
    "sseds",
    "uniform",
)


def search_of(name: str) -> Search:
    module, _, kind = SEARCHES[name].partition(":")
    made = vars(__import__(module, fromlist=[kind]))[kind]
    search = made(rounds=3) if name == "rounds" else made()
    assert isinstance(search, Search)
    return search


def run(pruner: Pruner, args: tuple[Any, ...], steps: int) -> None:
    optimizer = torch.optim.SGD(pruner.model.parameters(), lr=0.05)
    for _ in range(steps):
        pruner.step(lambda: loss_of(pruner.model, args))
        loss_of(pruner.model, args).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("name", IN_LOOP)
@pytest.mark.parametrize("budget", ["25%", "5 columns", "60 parameters", "300 bytes float16", "50% align 2"])
def test_every_search_meets_every_budget_in_the_loop(name: str, budget: str) -> None:
    model, args = shaken(Machine()), (ids(),)
    pruner = Pruner(model, args, search_of(name), budget, steps=6)
    run(pruner, args, 6)
    mask, bound = pruner.mask, fw.Budget.parse(budget)
    assert int(bound.costs(mask.layout).sum()) <= bound.limit(mask.full)
    assert mask.columns > 0
    assert mask.widths == bound.aligned(mask.full, mask.widths)
    if bound.unit == "columns":
        assert mask.columns == 5
    if budget == "25%":
        small: Any = pruner.compact()
        assert pruner.report is not None
        assert pruner.report.tables == (25 * WIDTH, mask.params)
        assert not any(hook for module in small.modules() for hook in module._forward_hooks.values())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("autodim", "AutoDim trains a supernet"),
        ("optembed", "OptEmbed trains"),
        ("pep", "PEP trains"),
        ("race", "Race retrains"),
    ],
)
def test_a_search_with_a_network_of_its_own_says_why_it_cannot(name: str, why: str) -> None:
    with pytest.raises(FieldwiseError, match=why) as said:
        Pruner(Concat(), (ids(),), search_of(name))
    assert "\n" not in str(said.value)


def test_every_search_is_one_or_the_other() -> None:
    assert set(SEARCHES) == {*IN_LOOP, "autodim", "optembed", "pep", "race"}


def gate_gradient(model: nn.Module, args: tuple[Any, ...], values: Tensor) -> Tensor:
    """Compute the same without hooks: multiply the weights of the tables by the gate."""
    values = values.clone().requires_grad_()
    parts = values.split(WIDTH)
    tables = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module.embedding_dim > 1
    }
    weights = {f"{name}.weight": t.weight.detach() * parts[j] for j, (name, t) in enumerate(tables.items())}

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self) -> Tensor:
            return loss_of(self.inner, args)

    loss = functional_call(Whole(), {f"inner.{name}": weight for name, weight in weights.items()}, ())
    return torch.autograd.grad(loss, values)[0]


def test_ham_moves_by_its_rule() -> None:
    model, args = shaken(Machine()).eval(), (ids(),)
    wanted = gate_gradient(model, args, torch.ones(3 * WIDTH))
    pruner = Pruner(model, args, HAM(), "5 columns")
    pruner.step(lambda: loss_of(model, args))
    settings = HAMGate()
    moved = settings.epsilon - settings.eta * wanted.double() - settings.mu
    torch.testing.assert_close(pruner.state_dict()["method"]["alpha"], moved, rtol=1e-6, atol=1e-9)


def test_sseds_sums_absolute_gradients() -> None:
    model = shaken(Machine()).eval()
    batches = [(ids(),), (ids(),)]
    wanted = sum(gate_gradient(model, args, torch.ones(3 * WIDTH)).abs() for args in batches)
    pruner = Pruner(model, batches[0], SSEDS(), "5 columns")
    for args in batches:
        pruner.step(lambda args=args: loss_of(model, args))  # type: ignore[misc]
    torch.testing.assert_close(
        pruner.state_dict()["method"]["sum"], torch.as_tensor(wanted).double(), rtol=1e-5, atol=1e-9
    )


def test_elimination_sums_the_products_of_each_rows_derivatives() -> None:
    model, batches = shaken(Concat()).eval(), [ids(5), ids(3)]
    pruner = Pruner(model, (batches[0],), Elimination(), "5 columns")
    for x in batches:
        pruner.step(lambda x=x: loss_of(model, (x,)))  # type: ignore[misc]
    each = [gate_gradient(model, (row[None],), torch.ones(3 * WIDTH)) for x in batches for row in x]
    rows, found = torch.stack(each).double(), pruner.state_dict()["method"]
    assert int(found["rows"]) == 8
    torch.testing.assert_close(found["gradient"], rows.sum(0), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(found["curvature.0"], rows.T @ rows, rtol=1e-5, atol=1e-8)


def test_rounds_sees_each_rows_own_derivative() -> None:
    model, x = shaken(Concat()).eval(), ids(5)
    pruner = Pruner(model, (x,), Rounds(rounds=2), "5 columns", steps=4)
    pruner.step(lambda: loss_of(model, (x,)))
    rows = torch.stack([gate_gradient(model, (x[i : i + 1],), torch.ones(3 * WIDTH)) for i in range(5)]).double()
    wanted = (rows.square() / 2 - rows).mean(0)
    torch.testing.assert_close(pruner.state_dict()["method"]["rise"], wanted, rtol=1e-5, atol=1e-8)


def test_rounds_prunes_in_rounds_and_trains_under_what_is_left() -> None:
    model, args = shaken(Concat()), (ids(),)
    pruner = Pruner(model, args, Rounds(rounds=2), "3 columns", steps=4)
    kept = []
    for _ in range(4):
        run(pruner, args, 1)
        kept.append(int(pruner.state_dict()["method"]["mask"].sum()))
    assert kept == [18, round(18 * (3 / 18) ** 0.5), round(18 * (3 / 18) ** 0.5), 3]
    with pytest.raises(FieldwiseError, match=r"rounds prunes 8 times.*got steps=None"):
        Pruner(Concat(), args, Rounds())


@pytest.mark.parametrize("name", ["ham", "ham-p", "sseds", "rounds", "elimination"])
def test_a_step_touches_nothing_but_the_gate(name: str) -> None:
    model, args = shaken(Normed()), (ids(),)
    model.norm.eval()  # a user may freeze some modules
    pruner = Pruner(model, args, search_of(name), steps=6)
    loss_of(model, args).backward()  # gradients that the user accumulates
    state = copy.deepcopy(model.state_dict())
    grads = {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}
    random = torch.get_rng_state()
    found = pruner.step(lambda: loss_of(model, args) + torch.rand(()) * 0)
    assert torch.equal(torch.get_rng_state(), random)
    assert not found.requires_grad
    assert all(torch.equal(value, state[n]) for n, value in model.state_dict().items())
    assert all(torch.equal(w.grad, grads[n]) for n, w in model.named_parameters() if w.grad is not None)
    assert [module.training for module in (model, model.norm, model.drop, model.tables[0])] == [True, False, True, True]


def test_training_sees_the_draw_and_evaluation_the_mean() -> None:
    model, x = shaken(Concat()), ids()
    pruner = Pruner(model, (x,), SamGS(), "5 columns")
    seen: list[Tensor] = []
    model.deep.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    full = torch.cat([table.weight[x[:, i]] for i, table in enumerate(model.tables)], 1).detach()
    for training in (True, True, False):
        model.train(training)
        model(x)
        seen[-1] = seen[-1] / full
    assert torch.equal(seen[0], seen[1])  # one draw until the next step
    torch.testing.assert_close(seen[2], torch.full_like(full, 0.5))
    assert not torch.allclose(seen[0], seen[2])
    pruner.step(lambda: loss_of(model, (x,)))
    model.train()
    model(x)
    assert not torch.allclose(seen[-1] / full, seen[0])
    pruner.remove()
    model(x)
    torch.testing.assert_close(seen[-1], full)


@pytest.mark.parametrize("name", ["ham", "ham-p", "sam-gs", "rounds", "random", "sseds", "elimination"])
def test_a_search_resumes_where_it_was_stored(name: str) -> None:
    args = (ids(),)
    whole = Pruner(shaken(Concat()), args, search_of(name), "5 columns", steps=6)
    start = copy.deepcopy(whole.model.state_dict())
    run(whole, args, 6)
    model = Concat()
    model.load_state_dict(start)
    first = Pruner(model, args, search_of(name), "5 columns", steps=6)
    run(first, args, 3)
    stored, weights = copy.deepcopy(first.state_dict()), copy.deepcopy(model.state_dict())
    again = Concat()
    again.load_state_dict(weights)
    second = Pruner(again, args, search_of(name), "5 columns", steps=6, seed=7)
    second.load_state_dict(stored)
    run(second, args, 3)
    assert second.steps == 6
    assert second.mask == whole.mask
    for name_, value in whole.state_dict()["method"].items():
        assert torch.equal(second.state_dict()["method"][name_], value)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), whole.model.parameters(), strict=True))


def test_a_state_of_another_search_is_refused() -> None:
    args = (ids(),)
    state = Pruner(Concat(), args, HAM(), "5 columns").state_dict()
    with pytest.raises(FieldwiseError, match=r"budget \('5 columns' -> '6 columns'\)"):
        Pruner(Concat(), args, HAM(), "6 columns").load_state_dict(state)
    Pruner(Concat(), args, HAM(start="searched"), "5 columns").load_state_dict(state)  # it keeps the loop's weights
    with pytest.raises(FieldwiseError, match="Not a pruner's state"):
        Pruner(Concat(), args).load_state_dict({})


@pytest.mark.parametrize("kind", ["autocast", "bfloat16", "half"])
def test_half_precision(kind: str) -> None:
    model, args = shaken(Concat()), (ids(),)
    if kind == "bfloat16":
        model = model.bfloat16()
    if kind == "half":
        model = model.half()
    pruner = Pruner(model, args, HAM(), "5 columns")

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            return loss_of(model, args)

    pruner.step(loss, scale=8.0)
    wanted = gate_gradient(copy.deepcopy(model).float().eval(), args, torch.ones(3 * WIDTH)).double()
    moved = 0.01 - pruner.state_dict()["method"]["alpha"] - 5e-5
    torch.testing.assert_close(moved / 1e-3, wanted, rtol=0.1, atol=0.02)
    loss().backward()
    assert pruner.compact() is not None


def test_our_own_models_are_modules_too() -> None:
    schema = Schema.of(user=50, gender=2, item=30)
    model = DeepFM(width=4).build(schema.layout(4)).eval()
    x = torch.stack([torch.randint(0, rows, (16,)) for rows in schema.cardinalities], 1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    pruner = Pruner(model, (x,), Random(), "40%")
    assert pruner.tables.layout == model.layout
    assert [left.why for left in pruner.tables.left] == ["width 1"]
    for mask in (pruner.mask, Mask(model.layout, ((1, 3), (), (0,)))):
        torch.testing.assert_close(pruner.compact(mask)(x), compact(model, mask)(x))


def test_tables_are_named_grouped_and_excluded() -> None:
    found = find(Machine(), None, [], width_one=False)
    assert found.layout.schema.names == ("tables.0", "tables.1", "tables.2")
    assert [(left.name, left.rows, left.why) for left in found.left] == [
        (f"first.{i}", n, "width 1") for i, n in enumerate(ROWS)
    ]
    found = find(Machine(), {"user": "tables.0", "rest": ["tables.1", "tables.2"]}, [], width_one=False)
    assert found.layout.schema.names == ("user", "rest")
    assert found.layout.schema.cardinalities == (11, 14)
    assert found.layout.widths == (WIDTH, WIDTH)
    assert [site.fields for site in found.sites] == [(0,), (1,), (1,)]
    found = find(Machine(), None, ["tables.1"], width_one=True)
    assert found.layout.widths == (WIDTH, WIDTH, 1, 1, 1)
    named = nn.ModuleDict({"embed": nn.ModuleDict({"user": nn.Embedding(3, 4), "item": nn.Embedding(5, 4)})})
    assert find(named, None, [], width_one=False).layout.schema.names == ("user", "item")


def test_grouped_tables_keep_the_same_columns() -> None:
    model, args = shaken(Concat()), (ids(),)
    pruner = Pruner(model, args, HAM(), "50%", fields={"all": "tables.*"})
    run(pruner, args, 2)
    small: Any = pruner.compact()
    assert {tuple(table.scatter.live) for table in small.tables} == {pruner.mask.kept[0]}
    assert pruner.mask.params == 25 * 3


def test_the_pruner_shows_what_it_found() -> None:
    said = repr(Pruner(Machine(), (ids(),), Uniform(), "25%"))
    assert said.splitlines()[0] == (
        "Pruner of Machine: Uniform, 25% parameters (37 parameters), step 0; 18 columns and 150 parameters in 3 "
        "fields, of which it keeps 4 columns and 36 parameters"
    )
    assert said.splitlines()[2].split() == ["tables.0", "11", "6", "2", "tables.0"]
    assert said.splitlines()[-1] == "skipped, width 1: 3 tables, 25 parameters"


def test_a_search_that_has_learned_nothing_keeps_nothing() -> None:
    model, args = shaken(Concat()), (ids(),)
    for search in (HAM(), SSEDS(), Rounds(rounds=2), Elimination()):
        pruner = Pruner(model, args, search, "5 columns", steps=2)
        assert "kept" not in repr(pruner)
        with pytest.raises(FieldwiseError, match="has learned nothing: step was not called"):
            pruner.compact()
        assert pruner.compact(pruner.mask) is not None
        pruner.step(lambda: loss_of(model, args))
        assert "of which it keeps" in repr(pruner)
        assert pruner.compact() is not None
        pruner.remove()


class Odd(Concat):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).round().long()


BAD: dict[str, tuple[Any, str]] = {
    "no tables": (lambda: Pruner(nn.Linear(3, 1), (torch.rand(2, 3),)), "Linear contains no tables"),
    "only width 1": (lambda: Pruner(nn.Embedding(3, 1), (torch.ones(2).long(),)), r"All 1 tables .* \(width 1\)"),
    "example that does not fit": (
        lambda: Pruner(Concat(), (torch.rand(4, 3),)),
        "example does not fit Concat: forward raised",
    ),
    "too many arguments": (lambda: Pruner(Concat(), (ids(), ids())), "forward raised TypeError"),
    "no float output": (lambda: Pruner(Odd(), (ids(),)), "without a float tensor"),
    "another device": (lambda: Pruner(Concat(), (ids().to("meta"),)), "example is on meta, the model on cpu"),
    "a model on the meta device": (
        lambda: Pruner(Concat().to("meta"), (ids().to("meta"),)),
        "meta device, which has no values",
    ),
    "below one column": (lambda: Pruner(Concat(), (ids(),), budget="1%"), "holds no column: the cheapest costs 5"),
    "no budget": (lambda: Pruner(Concat(), (ids(),), budget="much"), "Budget 'much' is not understood"),
    "unknown table": (lambda: Pruner(Concat(), (ids(),), fields={"a": "nothing"}), "Field 'a' names"),
    "unknown exclude": (lambda: Pruner(Concat(), (ids(),), exclude=["nothing"]), "exclude 'nothing' matches no table"),
    "widths in one group": (
        lambda: Pruner(Machine(), (ids(),), fields={"a": ["tables.0", "first.0"]}, width_one=True),
        r"groups tables of widths \[1, 6\]",
    ),
    "not a module": (lambda: Pruner(lambda x: x, (ids(),)), "A pruner cannot wrap function"),  # type: ignore[arg-type]
    "not a search": (lambda: Pruner(Concat(), (ids(),), "ham"), "'ham' is not a search"),  # type: ignore[arg-type]
    "tables of another precision": (
        lambda: Pruner(stored(DeepFM(width=4).new(Schema.of(user=5)), Store("int8")), (ids()[:, :1],)),
        "tables are stored as int8, which cannot be trained. Prune the float32 model",
    ),
    "stages": (lambda: Pruner(Concat(), (ids(),), HAM(stages=("50%",))), "stages are planned by the built-in loop"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name: str) -> None:
    make, said = BAD[name]
    with pytest.raises(FieldwiseError, match=said) as error:
        make()
    assert "\n" not in str(error.value)


def test_bad_losses_are_one_line() -> None:
    model, args = shaken(Concat()), (ids(),)
    pruner = Pruner(model, args)
    alpha = pruner.state_dict()["method"]["alpha"]
    bad: dict[str, Any] = {
        r"loss_fn returned shape \(16,\)": lambda: model(*args),
        "loss_fn returned dict": lambda: {"loss": loss_of(model, args)},
        "does not depend on the model's tables": lambda: torch.zeros((), requires_grad=True) * 1,
        "is not finite": lambda: loss_of(model, args) * float("nan"),
    }
    for said, loss in bad.items():
        with pytest.raises(FieldwiseError, match=said):
            pruner.step(loss)
    with pytest.raises(FieldwiseError, match="does not depend"):
        pruner.step(torch.no_grad()(lambda: loss_of(model, args)))
    assert torch.equal(pruner.state_dict()["method"]["alpha"], alpha)
    with pytest.raises(FieldwiseError, match="already has a pruner"):
        Pruner(model, args)
    pruner.remove()
    Pruner(model, args)


def test_tables_that_the_example_does_not_read_are_left_alone() -> None:
    class Unused(Concat):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Embedding(4, WIDTH)

    pruner = Pruner(Unused(), (ids(),))
    assert [(left.name, left.why) for left in pruner.tables.left] == [("extra", "not read by the example")]


def test_a_dict_of_tasks_needs_nothing_special() -> None:
    model, args = CASES["dict of tasks"]()
    pruner = Pruner(shaken(model), args, HAM(), "50%")
    run(pruner, args, 3)
    assert set(pruner.compact()(*args)) == {"click", "buy"}


def test_a_tuple_of_outputs_needs_nothing_special() -> None:
    class Two(Concat):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), x

    found = Pruner(shaken(Two()), (ids(),), Uniform(), "50%").compact()(ids())
    assert [type(part) for part in found] == [Tensor, Tensor]


def test_a_copy_of_the_model_shares_the_gate() -> None:
    model, x = shaken(Concat()), ids()
    pruner = Pruner(model, (x,), Uniform(), "5 columns")
    torch.testing.assert_close(copy.deepcopy(model)(x), model(x))
    assert isinstance(pruner.search, Search)
    assert not isinstance(pruner.search, Gated)
    assert np.count_nonzero(pruner.mask.vector) == 5
    assert len(x) == modules.BATCH


def test_gradients_of_a_sparse_table_stay_sparse_under_the_gate() -> None:
    model, x = shaken(Concat(sparse=True)), ids()
    pruner = Pruner(model, (x,), HAM(), "5 columns")
    pruner.step(lambda: loss_of(model, (x,)))
    loss_of(model, (x,)).backward()
    assert all(table.weight.grad.is_sparse for table in model.tables)
    small: Any = pruner.compact(Mask(pruner.tables.layout, ((0,), (1, 2), ())))
    loss_of(small, (x,)).backward()
    assert small.tables[1].table.weight.grad.is_sparse


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch warns about its own code
def test_a_compiled_model_is_refused() -> None:
    with pytest.raises(FieldwiseError, match="The model is compiled"):
        Pruner(torch.compile(Concat(), backend="eager"), (ids(),))  # type: ignore[arg-type]


def test_a_search_needs_no_gradients_of_frozen_tables() -> None:
    model, x = shaken(Concat()), ids()
    for table in model.tables:
        table.weight.requires_grad_(False)
    pruner = Pruner(model, (x,), HAM(), "5 columns")
    pruner.step(lambda: loss_of(model, (x,)))
    small: Any = pruner.compact()
    assert not any(weight.requires_grad for table in small.tables for weight in table.parameters())
