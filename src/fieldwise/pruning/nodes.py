"""Nodes of a traced graph: values, shapes and constants, and new nodes with their value in the trace."""

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn


class Nodes:
    """Adds nodes and constants to a graph."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module, self._graph = module, module.graph
        self._made = 0

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a call at the insertion point, with its value in the trace."""
        node = self._graph.call_function(target, args, kwargs)
        values, named = fx.map_arg(args, _value), fx.map_arg(kwargs, _value)
        node.meta["val"] = target(*values, **named)
        return node

    def places(self, places: list[int]) -> fx.Node:
        """Add a constant of integers."""
        return self.store(torch.tensor(places))

    def store(self, value: Tensor) -> fx.Node:
        """Add a constant or weight of the module."""
        name = f"folded_{self._made}"
        self._made += 1
        home = next((p.device for p in self._module.parameters()), torch.device("cpu"))
        if isinstance(value, nn.Parameter):
            self._module.register_parameter(name, value)
        else:
            self._module.register_buffer(name, value.to(home))
        node = self._graph.get_attr(name)
        mode = next(n.meta["val"].fake_mode for n in self._graph.nodes if hasattr(n.meta.get("val"), "fake_mode"))
        node.meta["val"] = mode.from_tensor(self.weight(node), static_shapes=True)
        return node

    def weight(self, node: Any) -> Tensor | None:
        """Return the tensor of a constant or weight; None for any other node."""
        if not isinstance(node, fx.Node) or node.op != "get_attr":
            return None
        found = operator.attrgetter(str(node.target))(self._module)
        return found if isinstance(found, Tensor) else None

    def constant(self, node: Any) -> Tensor | None:
        """Return the tensor of a constant of integers; None for any other node."""
        found = self.weight(node)
        return None if found is None or found.is_floating_point() else found


def shape_of(node: fx.Node) -> tuple[Any, ...]:
    """Return the sizes of a node's value; free sizes are symbols."""
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _value(node: fx.Node) -> Any:
    """Return the value of a node in a trace."""
    return node.meta["val"]
