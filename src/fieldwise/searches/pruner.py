"""Prune a user's own model in the user's own training loop: find tables, train a gate, return a compact model."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.budget import Budget, BudgetInput
from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.settings import differing
from fieldwise.models.stored import StoredModel
from fieldwise.pruning import sites
from fieldwise.pruning.compacting import Report, compact
from fieldwise.pruning.example import Example, Randomness, evaluating
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.narrow_layers import NARROW
from fieldwise.pruning.use import check_use
from fieldwise.pruning.widening import compact_again
from fieldwise.searches import HAM
from fieldwise.searches.in_loop import method_of
from fieldwise.searches.loop_methods import Loss
from fieldwise.searches.search import Search
from fieldwise.searches.trained import TrainedSearch

FORMAT: Final = "fieldwise-pruner/1"


class Pruner:
    """Searches the widths of a model's tables while you train it.

    ```python
    pruner = fw.Pruner(model, example=(batch,), search=fw.searches.HAM(), budget="25%")
    for train_batch, valid_batch in zip(train, cycle(valid)):
        pruner.step(lambda: loss_of(model, valid_batch))
        loss_of(model, train_batch).backward(); optimizer.step(); optimizer.zero_grad()
    small = pruner.compact()
    ```

    Until `remove()`, forward hooks multiply the outputs of the tables by the gate: by a random draw in training mode,
    by its mean in evaluation mode.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Any,
        search: Search | None = None,
        budget: BudgetInput = "25%",
        *,
        fields: Mapping[str, str | Sequence[str]] | None = None,
        exclude: Sequence[str] = (),
        width_one: bool = False,
        steps: int | None = None,
        kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        """Find the tables of a model.

        `example` is a tuple of forward's positional arguments, or its single argument; `kwargs` are keyword arguments.
        `fields` maps names to module paths or patterns; all tables of one entry share a gate. Tables of width 1 are
        skipped unless `width_one` is true. `steps` is the number of times `step` will be called; `Rounds` requires it.
        """
        if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
            raise SettingsError(f"A pruner cannot wrap {type(model).__name__}. Allowed: an nn.Module, not TorchScript.")
        if hasattr(model, "_orig_mod"):
            raise SettingsError("The model is compiled, and compiled code ignores new hooks. Create the pruner first.")
        if isinstance(model, StoredModel):
            raise SettingsError(
                f"The model's tables are stored as {model.store}, which cannot be trained. Prune the float32 model, "
                "then export it with a store."
            )
        self.model, self.budget = model, Budget.parse(budget)
        self.search: Search = HAM() if search is None else search
        self._example = Example.of(example, kwargs)
        self._example.check_device(model)
        exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        found = sites.find(model, fields, exclude, width_one)
        self.tables = check_use(model, found, self._example)
        device = next(self.tables.sites[0].module.parameters()).device
        self._random = Randomness(seed, device)
        with self._random():
            self._method = method_of(self.search, self.tables, self.budget, steps, device)
        self._gating = Gating(self.tables)
        self._gating.set(*self._draw())
        self.steps = 0
        """Number of calls of `step` so far."""
        self.report: Report | None = None
        """The report of the last `compact`."""

    def step(self, loss_fn: Callable[[], Tensor], scale: float = 1.0) -> Tensor:
        """Update the gate with one validation batch, and return the loss.

        `loss_fn` runs the model and returns a scalar loss, the mean over rows. The model runs in evaluation mode.
        Weights get no gradients; batch statistics and the global random state do not change. Under float16 autocast,
        `scale` (such as 1024) multiplies the loss while gradients are computed, as a GradScaler does.
        """
        with self._random(), evaluating(self.model):
            loss = self._method.step(self._gating, Loss(loss_fn, scale))
            self.steps += 1
        self._gating.set(*self._draw())
        return loss

    def _draw(self) -> tuple[Tensor | None, Tensor | None]:
        with self._random():
            return self._method.values()

    @property
    def _learned_nothing(self) -> bool:
        return self._method.learns and not self.steps

    @property
    def mask(self) -> Mask:
        """Return the best columns within the budget, by the current state of the search."""
        with self._random():
            return self._method.mask()

    def compact(self, mask: Mask | None = None, *, inplace: bool = False) -> nn.Module:
        """Return a model with only the mask's columns and the predictions of the masked model.

        `pruner.report` lists what became smaller and what did not. With `inplace` the model itself is changed, for
        models that cannot be copied; the pruner then removes its hooks.
        """
        if mask is None and self._learned_nothing:
            raise RunError(
                f"{type(self.search).__name__} has learned nothing: step was not called. Call pruner.step(...) in your "
                "training loop before compact(), or pass a mask."
            )
        mask = self.mask if mask is None else mask
        if inplace or not any(isinstance(module, NARROW) for module in self.model.modules()):
            small, self.report = compact(self.model, self._gating, mask, self._example, inplace)
            return small
        self._gating.remove()
        try:
            small, self.report = compact_again(self.model, self.tables, mask, self._example)
        finally:
            self._gating = Gating(self.tables)
            self._gating.set(*self._method.still())
        return small

    def remove(self) -> None:
        """Remove the hooks from the model."""
        self._gating.remove()

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a search needs to resume, in addition to the model's and the optimizer's."""
        return {
            "format": FORMAT,
            "made": self._made(),
            "steps": self.steps,
            "method": {name: tensor.detach().cpu().clone() for name, tensor in self._method.tensors().items()},
            "random": self._random.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a stored state of the same search over the same tables."""
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            raise RunError(f"Not a pruner's state. Allowed: the result of Pruner.state_dict, format {FORMAT!r}.")
        if state["made"] != self._made():
            lines = "; ".join(differing(state["made"], self._made()))
            raise RunError(f"The state belongs to another search: {lines}. Create the pruner with the same arguments.")
        self.steps = int(state["steps"])
        self._method.restore(dict(state["method"]))
        self._random.restore(list(state["random"]))
        self._gating.set(*self._method.still())

    def _made(self) -> dict[str, Any]:
        layout, settings = self.tables.layout, self.search.values()
        if isinstance(self.search, TrainedSearch):
            del settings["start"]  # the model keeps the weights that your loop trained
        return {
            "search": type(self.search).__name__,
            "settings": settings,
            "budget": str(self.budget),
            "fields": [
                {**field, "width": width} for field, width in zip(layout.schema.to_json(), layout.widths, strict=True)
            ],
        }

    def __repr__(self) -> str:
        """List the tables, and the columns that the search would keep now, if it has learned."""
        layout, limit = self.tables.layout, self.budget.limit(self.tables.layout)
        kept = None if self._learned_nothing else self.mask
        head = (
            f"Pruner of {type(self.model).__name__}: {type(self.search).__name__}, {self.budget} ({limit:,} "
            f"{self.budget.unit}), step {self.steps}; {layout.columns} columns and {layout.params:,} parameters in "
            f"{len(layout.schema)} fields"
        )
        if kept is not None:
            head += f", of which it keeps {kept.columns} columns and {kept.params:,} parameters"
        return "\n".join([head, *self.tables.lines(kept)])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<pre>{escape(repr(self))}</pre>"
