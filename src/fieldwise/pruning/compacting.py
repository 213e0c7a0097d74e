"""Build the compact model: narrow the tables, which is always exact, then the dense layers with dead features.

The compact model is compared with the masked model on the example, and on shuffled and scaled table outputs. A layer
keeps its full width if narrowing it would change a prediction.
"""

import logging
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fieldwise.core.errors import MaskError
from fieldwise.core.mask import Mask
from fieldwise.pruning.comparing import Comparison
from fieldwise.pruning.copying import copied, replaced
from fieldwise.pruning.example import Example, evaluating
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.layers import Plan, dense_plans
from fieldwise.pruning.narrow import NarrowFields, NarrowTable, NoTable, kept_columns, renewed
from fieldwise.pruning.sites import Site
from fieldwise.tables.embedding import FieldEmbedding

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Whole:
    """A layer that keeps its full width although it reads dropped columns."""

    name: str
    why: str


@dataclass
class Report:
    """Summary of which modules became smaller, which did not, and why."""

    mask: Mask
    tables: tuple[int, int]
    """Parameters in the searched tables, before and after."""
    dense: tuple[int, int] = (0, 0)
    """All other parameters, before and after."""
    shrunk: dict[str, str] = field(default_factory=dict)
    """Shape before and after, for each narrowed dense layer."""
    whole: list[Whole] = field(default_factory=list)
    difference: float = 0.0
    """Largest difference from the masked model, relative to the scale of the outputs."""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the report as text, one line per item."""
        gone = self.mask.widths.count(0)
        lines = [
            f"tables: {self.tables[0]:,} -> {self.tables[1]:,} parameters, {self.mask.columns} of "
            f"{self.mask.full.columns} columns, {gone} tables with none",
            f"dense: {self.dense[0]:,} -> {self.dense[1]:,} parameters",
            *(f"  {name}: {how}" for name, how in self.shrunk.items()),
            *(f"  {whole.name} keeps its full width: {whole.why}" for whole in self.whole),
            *self.notes,
            f"largest difference from the masked model: {self.difference:.1e} of the scale of the outputs",
        ]
        return "\n".join(lines)


def compact(model: nn.Module, gating: Gating, mask: Mask, example: Example, inplace: bool) -> tuple[nn.Module, Report]:
    """Return a compact model that predicts what the masked model predicts, and a report."""
    counted = _numbers(model, gating)
    with evaluating(model), torch.no_grad():
        compared = Comparison(model, gating, mask, example)
        plans, whole = dense_plans(model, gating, mask, example)
    builder = _Builder(model, gating, mask)
    report = Report(mask, (mask.full.params, mask.params), whole=[Whole(name, why) for name, why in whole.items()])
    if inplace:
        flags = {id(module): module.training for module in model.modules()}
        small, kept = _changed_in_place(builder, plans, compared, report)
        for module in small.modules():
            module.training = flags.get(id(module), module.training)
    else:
        small, kept = _fitting(builder, plans, compared, report)
        small.train(model.training)
    report.shrunk = {plan.name: plan.change for plan in kept}
    tables = sum(p.numel() for p in _unique(builder.narrow_weights()))
    report.dense = (counted, sum(p.numel() for p in small.parameters()) - tables)
    log.info("%s", report)
    return small, report


def _numbers(model: nn.Module, gating: Gating) -> int:
    """Count the parameters outside the searched tables."""
    inside = {id(weight) for site in gating.tables.sites for weight in site.module.parameters()}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in inside)


def _unique(weights: list[nn.Parameter]) -> list[nn.Parameter]:
    return list({id(weight): weight for weight in weights}.values())


class _Builder:
    """Builds narrow modules, and models that contain them."""

    def __init__(self, model: nn.Module, gating: Gating, mask: Mask) -> None:
        self.model, self.gating = model, gating
        shared: dict[int, nn.Parameter] = {}
        self.swaps: dict[nn.Module, nn.Module] = {}
        self.weights: dict[Tensor, Tensor] = {}
        for site in gating.tables.sites:
            new = narrow_site(site, site.kept(mask), shared)
            self.swaps[site.module] = new
            if isinstance(new, NarrowTable):
                self.weights[site.module.get_parameter("weight")] = new.table.get_parameter("weight")

    def narrow_weights(self) -> list[nn.Parameter]:
        """Return the weights of the narrow tables."""
        return [weight for new in self.swaps.values() for weight in new.parameters()]

    @property
    def replaced(self) -> dict[Site, nn.Module]:
        """Return the narrow table of each site."""
        return {site: self.swaps[site.module] for site in self.gating.tables.sites}

    def copy(self, plans: list[Plan]) -> nn.Module:
        """Return a copy of the model with narrow tables and the given narrow layers."""
        dense = {plan.layer: plan.build() for plan in plans}
        return copied(self.model, {**self.swaps, **dense}, self.weights)


def narrow_site(site: Site, kept: list[int], shared: dict[int, nn.Parameter]) -> nn.Module:
    """Return the narrow replacement of a table; tied tables share one weight."""
    module = site.module
    if not kept:
        assert isinstance(module, nn.Embedding | nn.EmbeddingBag | FieldEmbedding)
        return NoTable(module)
    if isinstance(module, FieldEmbedding):
        return NarrowFields(module, kept)
    assert isinstance(module, nn.Embedding | nn.EmbeddingBag)
    key = id(module.weight)
    if key not in shared:
        shared[key] = renewed(kept_columns(module, kept), module.weight)
    return NarrowTable(module, kept, shared[key])


def _fitting(
    builder: _Builder, plans: list[Plan], compared: Comparison, report: Report
) -> tuple[nn.Module, list[Plan]]:
    """Return a copy in which every layer is narrow whose narrowing keeps the predictions."""
    small = builder.copy(plans)
    report.difference = compared.difference(small, builder.replaced)
    if report.difference <= compared.tolerance:
        return small, plans
    good = []
    for plan in plans:
        if compared.difference(builder.copy([plan]), builder.replaced) <= compared.tolerance:
            good.append(plan)
        else:
            report.whole.append(Whole(plan.name, "narrowing it would change predictions"))
    for attempt in (good, []):
        small = builder.copy(attempt)
        report.difference = compared.difference(small, builder.replaced)
        if report.difference <= compared.tolerance:
            if len(attempt) < len(good):
                report.notes.append(
                    "narrowing the dense layers together would change predictions: all keep their full width"
                )
            return small, attempt
    raise MaskError(_refusal(builder.model, report.difference))


def _changed_in_place(
    builder: _Builder, plans: list[Plan], compared: Comparison, report: Report
) -> tuple[nn.Module, list[Plan]]:
    """Narrow the model in place, one layer at a time, so that each layer can be restored."""
    builder.gating.remove()
    small = replaced(builder.model, builder.swaps)
    report.difference = compared.difference(small, builder.replaced)
    if report.difference > compared.tolerance:
        replaced(small, {new: old for old, new in builder.swaps.items()})
        raise MaskError(_refusal(builder.model, report.difference))
    kept = []
    for plan in plans:
        new = plan.build()
        small = replaced(small, {plan.layer: new})
        found = compared.difference(small, builder.replaced)
        if found <= compared.tolerance:
            kept.append(plan)
            report.difference = found
        else:
            small = replaced(small, {new: plan.layer})
            report.whole.append(Whole(plan.name, "narrowing it would change predictions"))
    return small, kept


def _refusal(model: nn.Module, difference: float) -> str:
    return (
        f"Narrow tables change the predictions of {type(model).__name__} by {difference:.1e} of their scale. The "
        "forward is random in evaluation mode, or reads a table's weights directly: exclude that table."
    )
