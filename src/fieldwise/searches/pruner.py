"""A pruner for a user's own model and training loop: finds the tables, moves a gate, hands back the smaller model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.budget import Budget
from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.settings import differing
from fieldwise.pruning import sites
from fieldwise.pruning.compacting import Report, compact
from fieldwise.pruning.example import Example, Randomness, evaluating
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.use import check_use
from fieldwise.searches import HAM
from fieldwise.searches.in_loop import method_of
from fieldwise.searches.loop_methods import Loss
from fieldwise.searches.search import Search

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

    Until `remove()`, forward hooks multiply what the tables give by the gate: by a draw of it in modules that train, by
    its mean in modules that are evaluated.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Any,
        search: Search | None = None,
        budget: Budget | str | int = "25%",
        *,
        fields: Mapping[str, str | Sequence[str]] | None = None,
        exclude: Sequence[str] = (),
        width_one: bool = False,
        steps: int | None = None,
        kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        """Finds the tables of a model.

        `example` is a tuple of forward's positional arguments, or the only one; `kwargs` are its keyword arguments.
        `fields` names tables by their paths or patterns, and puts those of one entry under one gate. Tables of width 1
        are left alone unless `width_one`. `steps` is how many times `step` will be called; `Rounds`
        needs it.
        """
        if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
            raise SettingsError(f"A pruner of {type(model).__name__}. Allowed: an nn.Module in Python, not a script.")
        if hasattr(model, "_orig_mod"):
            raise SettingsError("The model is compiled, and compiled code ignores new hooks. Make the pruner first.")
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
        """Calls of `step` so far."""
        self.report: Report | None = None
        """What the last `compact` did."""

    def step(self, loss_fn: Callable[[], Tensor], scale: float = 1.0) -> Tensor:
        """Moves the gate by one validation batch, and gives its loss.

        `loss_fn` runs the model and returns a scalar loss, the mean over rows. The model is seen as an evaluation sees
        it; no weight gets a gradient, no statistics and no global randomness change. Under float16 autocast a `scale`
        such as 1024 multiplies the loss while gradients are computed, as a GradScaler does.
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
    def mask(self) -> Mask:
        """The best columns within the budget, as the search sees it now."""
        with self._random():
            return self._method.mask()

    def compact(self, mask: Mask | None = None, *, inplace: bool = False) -> nn.Module:
        """The model with the mask's columns only, and the same predictions as the masked model.

        `pruner.report` says what became smaller and what did not. With `inplace` the model itself is changed, for
        models that cannot be copied; the pruner then lets go of it.
        """
        small, self.report = compact(self.model, self._gating, mask or self.mask, self._example, inplace)
        return small

    def remove(self) -> None:
        """Takes the hooks off the model."""
        self._gating.remove()

    def state_dict(self) -> dict[str, Any]:
        """All that a search needs to resume, beside the model's and optimizer's own state."""
        return {
            "format": FORMAT,
            "made": self._made(),
            "steps": self.steps,
            "method": {name: tensor.detach().cpu().clone() for name, tensor in self._method.tensors().items()},
            "random": self._random.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes from a stored state of the same search over the same tables."""
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            raise RunError(f"Not a pruner's state. Allowed: what Pruner.state_dict gave, format {FORMAT!r}.")
        if state["made"] != self._made():
            lines = "; ".join(differing(state["made"], self._made()))
            raise RunError(f"The state is of another search: {lines}. Make the pruner as it was made then.")
        self.steps = int(state["steps"])
        self._method.restore(dict(state["method"]))
        self._random.restore(list(state["random"]))
        self._gating.set(*self._method.still())

    def _made(self) -> dict[str, Any]:
        layout = self.tables.layout
        return {
            "search": type(self.search).__name__,
            "settings": self.search.values(),
            "budget": str(self.budget),
            "fields": [
                {**field, "width": width} for field, width in zip(layout.schema.to_json(), layout.widths, strict=True)
            ],
        }

    def __repr__(self) -> str:
        """The tables, and what the search would keep of them now."""
        layout, limit = self.tables.layout, self.budget.limit(self.tables.layout)
        kept = self.mask
        head = (
            f"Pruner of {type(self.model).__name__}: {type(self.search).__name__}, {self.budget} ({limit:,} "
            f"{self.budget.unit}), step {self.steps}; {layout.columns} columns and {layout.params:,} parameters in "
            f"{len(layout.schema)} fields, of which it keeps {kept.columns} and {kept.params:,}"
        )
        return "\n".join([head, *self.tables.lines(kept)])
