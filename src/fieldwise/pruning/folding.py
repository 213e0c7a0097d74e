"""Fold a compact model into a serving graph without scatters and gathers between narrow tables and layers."""

import operator
import warnings
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from fieldwise.core.errors import SettingsError
from fieldwise.pruning.example import Example, evaluating
from fieldwise.pruning.graph import Folder


def fold(model: nn.Module, example: Any, kwargs: dict[str, Any] | None = None) -> nn.Module:
    """Return the model as a serving graph in evaluation mode; the first axis of every input may have any size."""
    call = Example.of(example, kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns about its own pytree copy
        program = exported(model, call).run_decompositions({})  # removes in-place operations
    graph = program.module(check_guards=False)
    assert isinstance(graph, fx.GraphModule)
    Folder(graph).run()
    _lift_weights(graph)
    for module in graph.modules():
        module.training = False  # eval() is not defined for exported graphs
    return graph


def _lift_weights(graph: fx.GraphModule) -> None:
    """Move weights from submodules to the graph itself: for one row, following paths takes as long as computing."""
    names: dict[str, str] = {}
    for node in graph.graph.nodes:
        path = str(node.target)
        if node.op != "get_attr" or "." not in path:
            continue
        value = operator.attrgetter(path)(graph)
        if isinstance(value, Tensor):
            if path not in names:
                names[path] = f"weight_{len(names)}"
                if isinstance(value, nn.Parameter):
                    graph.register_parameter(names[path], value)
                else:
                    graph.register_buffer(names[path], value)
            node.target = names[path]
    graph.delete_all_unused_submodules()
    graph.recompile()


def exported(model: nn.Module, call: Example) -> torch.export.ExportedProgram:
    """Export the model with `torch.export` and a free batch size; a failure becomes a one-line error."""
    given = (*call.args, *call.kwargs.values())
    shapes = None if any(map(_is_foreign, given)) else tuple(map(_free, given))
    try:
        with torch.no_grad(), evaluating(model):
            return torch.export.export(model, call.args, dict(call.kwargs), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise SettingsError(
            f"{type(model).__name__} has no graph: torch.export raised {type(error).__name__} ({line[:200]}). "
            "Use the compact module itself; its predictions are the same."
        ) from error


def _is_foreign(given: Any) -> bool:
    """Return whether a library's own class holds the argument's tensors; their sizes stay fixed."""
    if isinstance(given, dict | tuple | list):
        return any(map(_is_foreign, given.values() if isinstance(given, dict) else given))
    return not pytree.tree_structure(given).is_leaf()


def _free(given: Any) -> Any:
    """Return the free sizes of the first axis, in the structure of an argument."""
    if isinstance(given, Tensor):
        return {0: torch.export.Dim.AUTO} if given.dim() else None
    if isinstance(given, dict):
        return {name: _free(entry) for name, entry in given.items()}
    return type(given)(map(_free, given)) if type(given) in (tuple, list) else None
