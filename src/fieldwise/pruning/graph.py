"""A graph pass that keeps values narrow from a table to the layer that reads them, if all other places are 0.

The pass tracks a value while its nonzero places are known: through concatenations, stacks, views, products, sums and
functions with f(0) = 0, into the next layer. A value that cannot be tracked is scattered to the full width.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Final, cast

import numpy as np
import torch
from torch import fx, nn

from fieldwise.pruning.nodes import Nodes, shape_of

aten = torch.ops.aten
_VIEWS: Final = {aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten._unsafe_view.default,
                 aten.unsqueeze.default, aten.squeeze.dim, aten.unflatten.int}  # fmt: skip
_ZERO_STAYS: Final = {aten.relu.default, aten.relu_.default, aten.tanh.default, aten.neg.default, aten.dropout.default,
                      aten.clone.default, aten.contiguous.default, aten.detach.default, aten.alias.default,
                      aten.silu.default, aten.gelu.default, aten.leaky_relu.default, aten.abs.default, aten.sin.default,
                      aten.square.default, aten.to.dtype, aten._to_copy.default}  # fmt: skip
_TIMES: Final = {aten.mul.Tensor, aten.mul_.Tensor}
_PLUS: Final = {aten.add.Tensor, aten.sub.Tensor, aten.add_.Tensor}
_ZEROS: Final = {aten.new_zeros.default, aten.zeros.default}


@dataclass(frozen=True)
class Spread:
    """A value that is 0 except at some places of its last axes."""

    narrow: fx.Node | None
    """Node of shape (.., live); None if nothing is live."""
    live: tuple[int, ...]
    """The flat index of each live value in the last axes."""
    tail: tuple[int, ...]
    """The sizes of the last axes."""


class Folder:
    """One pass over a graph."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module, self._graph = module, module.graph
        self._spreads: dict[fx.Node, Spread] = {}
        self._full: dict[fx.Node, fx.Node] = {}
        self._nodes = Nodes(module)

    def run(self) -> None:
        """Fold the graph in place."""
        for node in list(self._graph.nodes):
            if node.op == "call_function":
                with self._graph.inserting_before(node):
                    if self._folded(node):
                        continue
            if node.op != "placeholder":
                self._scatter_arguments(node)
        self._graph.eliminate_dead_code(lambda node: node.is_impure() and node.target is not aten.dropout.default)
        self._graph.lint()
        self._module.recompile()

    def _folded(self, node: fx.Node) -> bool:
        """Return whether a node's value is a known spread, or was computed from one."""
        found = self._source(node)
        if found is None and any(arg in self._spreads for arg in node.all_input_nodes):
            for rule in (self._joined, self._viewed, self._mapped, self._taken, self._multiplied):
                done = rule(node)
                if done is True:
                    return True
                if isinstance(done, Spread):
                    found = done
                    break
        if found is None:
            return False
        self._spreads[node] = found
        return True

    def _source(self, node: fx.Node) -> Spread | None:
        """Track zeros, and narrow values scattered along the last axis."""
        shape = shape_of(node)
        if node.target in _ZEROS and shape and isinstance(shape[-1], int):
            return Spread(None, (), (shape[-1],))
        if node.target is not aten.index_select.default or not shape:
            return None
        padded, axis, places = node.args[0], node.args[1], self._nodes.constant(node.args[2])
        if places is None or not isinstance(padded, fx.Node) or padded.target is not aten.pad.default:
            return None
        inner, pads = padded.args[0], padded.args[1]
        if not isinstance(inner, fx.Node) or str(pads) != "[0, 1]" or axis not in (-1, len(shape) - 1):
            return None
        size = shape_of(inner)[-1]
        order = {place: at for at, place in enumerate(places.tolist()) if place < size}
        if inner in self._spreads or sorted(order) != list(range(size)):
            return None
        return Spread(inner, tuple(order[k] for k in range(size)), (len(places),))

    def _joined(self, node: fx.Node) -> Spread | None:
        """Track concatenations and stacks."""
        if node.target not in (aten.cat.default, aten.stack.default):
            return None
        parts: list[fx.Node] = cast(Any, node.args[0])
        stack, out = node.target is aten.stack.default, shape_of(node)
        axis: int = cast(Any, node.args[1]) if len(node.args) > 1 else 0
        axis += len(out) if axis < 0 else 0
        leads = {len(shape_of(p)) - len(self._spreads[p].tail) for p in parts if p in self._spreads}
        lead = leads.pop()
        if leads or axis < lead or not all(isinstance(n, int) for n in out[lead:]):
            return None
        tail = tuple(out[lead:])
        places = np.arange(prod(tail)).reshape(tail)
        at, live, narrow = 0, list[int](), list[fx.Node]()
        for part in parts:
            size = 1 if stack else shape_of(part)[axis]
            block = np.take(places, range(at, at + size), axis - lead).flatten()
            at += size
            spread = self._spreads.get(part)
            live += [int(block[k]) for k in (spread.live if spread else range(len(block)))]
            if spread is None:
                flat = len(shape_of(part)) - lead > 1 or len(shape_of(part)) == lead
                narrow.append(self._nodes.call(aten.flatten.using_ints, part, lead) if flat else part)
            elif spread.narrow is not None:
                narrow.append(spread.narrow)
        if not narrow:
            return Spread(None, (), tail)
        joined = narrow[0] if len(narrow) == 1 else self._nodes.call(aten.cat.default, narrow, lead)
        return Spread(joined, tuple(live), tail)

    def _viewed(self, node: fx.Node) -> Spread | None:
        """Track changes of shape in the last axes."""
        if node.target not in _VIEWS:
            return None
        given = node.all_input_nodes[0]
        spread, before, after = self._spreads[given], shape_of(given), shape_of(node)
        lead = len(before) - len(spread.tail)
        same = len(after) > lead and all(str(a) == str(b) for a, b in zip(before[:lead], after[:lead], strict=True))
        if not same or not all(isinstance(n, int) for n in after[lead:]) or prod(after[lead:]) != prod(spread.tail):
            return None
        return Spread(spread.narrow, spread.live, tuple(after[lead:]))

    def _mapped(self, node: fx.Node) -> Spread | None:
        """Track elementwise functions with f(0) = 0."""
        first, others = node.args[0] if node.args else None, node.args[1:]
        if not isinstance(first, fx.Node) or first not in self._spreads or any(isinstance(o, fx.Node) for o in others):
            return None
        if node.target not in _ZERO_STAYS and not (node.target in {*_TIMES, aten.div.Tensor} and others):
            return None
        spread = self._spreads[first]
        if spread.narrow is None:
            return spread
        return Spread(self._nodes.call(node.target, spread.narrow, *others, **node.kwargs), spread.live, spread.tail)

    def _multiplied(self, node: fx.Node) -> Spread | bool | None:
        """Track products and sums of two values, and products with weights."""
        if node.target in {aten.linear.default, aten.matmul.default, aten.mm.default}:
            return self._weighed(node)
        if node.target not in _TIMES | _PLUS or node.kwargs or len(node.args) != 2:
            return None
        a, b = node.args
        if not isinstance(a, fx.Node) or not isinstance(b, fx.Node) or str(shape_of(a)) != str(shape_of(b)):
            return None
        one, two = self._spreads.get(a), self._spreads.get(b)
        if one and two and one.live == two.live:
            if one.narrow is None or two.narrow is None:
                return one
            return Spread(self._nodes.call(node.target, one.narrow, two.narrow), one.live, one.tail)
        if node.target in _TIMES:
            if one is None or (two is not None and len(two.live) < len(one.live)):
                one, two, a, b = two, one, b, a
            assert one is not None
            if one.narrow is None:
                return one
            return Spread(self._nodes.call(node.target, one.narrow, self._at(b, one)), one.live, one.tail)
        return None

    def _at(self, node: fx.Node, like: Spread) -> fx.Node:
        """Gather a value of the full width at the live places of another."""
        full = self._scattered(node)
        if len(like.tail) > 1:
            full = self._nodes.call(aten.flatten.using_ints, full, len(shape_of(node)) - len(like.tail))
        return self._nodes.call(aten.index_select.default, full, -1, self._nodes.places(list(like.live)))

    def _weighed(self, node: fx.Node) -> bool | None:
        """Reduce a matrix product with a weight to the live rows or columns."""
        given, weight = node.args[0], node.args[1]
        if not isinstance(given, fx.Node) or given not in self._spreads or len(self._spreads[given].tail) != 1:
            return None
        spread, values = self._spreads[given], self._nodes.weight(weight)
        if spread.narrow is None or values is None or values.dim() != 2:
            return None
        axis = 1 if node.target is aten.linear.default else 0
        kept = values.detach().index_select(axis, torch.tensor(spread.live, device=values.device))
        new = self._nodes.call(
            node.target, spread.narrow, self._nodes.store(nn.Parameter(kept)), *node.args[2:], **node.kwargs
        )
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        return True

    def _taken(self, node: fx.Node) -> bool | None:
        """Track a gather that reads only live places."""
        given = node.args[0]
        if node.target is not aten.index_select.default or not isinstance(given, fx.Node):
            return None
        spread, wanted = self._spreads.get(given), self._nodes.constant(node.args[2])
        if spread is None or wanted is None or spread.narrow is None or len(spread.tail) != 1:
            return None
        at = {place: k for k, place in enumerate(spread.live)}
        if node.args[1] not in (-1, len(shape_of(given)) - 1) or not all(place in at for place in wanted.tolist()):
            return None
        order = [at[place] for place in wanted.tolist()]
        new = spread.narrow
        if order != list(range(len(spread.live))):
            new = self._nodes.call(aten.index_select.default, new, -1, self._nodes.places(order))
        new.meta.setdefault("val", node.meta["val"])
        node.replace_all_uses_with(new)
        return True

    def _scatter_arguments(self, node: fx.Node) -> None:
        """Give full-width values to a consumer that the pass cannot track."""
        for given in node.all_input_nodes:
            if given in self._spreads:
                with self._graph.inserting_before(node):
                    node.replace_input_with(given, self._scattered(given))

    def _scattered(self, node: fx.Node) -> fx.Node:
        """Return a spread as a value of the full width; it is created once, at its first use."""
        spread = self._spreads.get(node)
        if spread is None or spread.narrow is None or self._source(node) is not None:
            return node
        if node not in self._full:
            place = spread.narrow.next if spread.narrow.op == "placeholder" else node
            with self._graph.inserting_after(place):
                places = torch.full((prod(spread.tail),), len(spread.live))
                places[list(spread.live)] = torch.arange(len(spread.live))
                index = self._nodes.store(places)
            with self._graph.inserting_after(index):
                padded = self._graph.call_function(aten.pad.default, (spread.narrow, [0, 1]))
            with self._graph.inserting_after(padded):
                full = self._graph.call_function(aten.index_select.default, (padded, -1, index))
            if len(spread.tail) > 1:
                with self._graph.inserting_after(full):
                    full = self._graph.call_function(aten.unflatten.int, (full, -1, list(spread.tail)))
            full.meta = dict(node.meta)
            self._full[node] = full
        return self._full[node]
