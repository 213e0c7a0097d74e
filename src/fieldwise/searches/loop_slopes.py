"""Each row's derivatives by the columns' masks, in a user's training loop."""

from torch import Tensor

from fieldwise.core.schema import Layout
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.sites import Site
from fieldwise.searches.loop_methods import Loss


def row_slopes(
    gating: Gating, loss: Loss, layout: Layout, values: Tensor
) -> tuple[Tensor, dict[tuple[int, int], Tensor]]:
    """Return the loss, and its derivatives (rows, width) by the mask of each field, by field and number of rows.

    Rows are the first axis of a table's outputs. Derivatives are summed over all places that read the table, and are
    those of the mean loss. `values` (S,) multiply the columns.
    """
    leaves: list[tuple[Site, Tensor]] = []
    factors = values.split(layout.widths)

    def change(site: Site, output: Tensor) -> Tensor:
        leaf = (output.detach() * site.cut(factors).to(output.device, output.dtype)).requires_grad_()
        leaves.append((site, leaf))
        return leaf

    with gating.changed(change):
        value, grads = loss.gradients(lambda: [leaf for _, leaf in leaves])
    felt: dict[tuple[int, int], Tensor] = {}
    for (site, leaf), grad in zip(leaves, grads, strict=True):
        if grad is None or not leaf.numel():
            continue
        rows = grad.double() * leaf.detach().double()
        rows = rows.flatten(1, -2).sum(1) if leaf.dim() > 2 else rows
        for field, part in zip(site.fields, rows.split([layout.widths[j] for j in site.fields], 1), strict=True):
            key = (field, len(part))
            felt[key] = felt[key] + part if key in felt else part
    return value, felt
