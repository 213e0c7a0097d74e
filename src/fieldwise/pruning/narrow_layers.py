"""Dense layers that store only live weights, with inputs and outputs of the full width."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from fieldwise.pruning.narrow import (
    Description,
    Gather,
    NarrowFields,
    NarrowTable,
    NoTable,
    Scatter,
    home,
    renewed,
    shallow,
)

Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d


class NarrowLinear(nn.Module):
    """A linear layer without its dead inputs and outputs."""

    def __init__(self, layer: nn.Linear, inputs: Sequence[int], outputs: Sequence[int], bias: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.gather = Gather(inputs, layer.in_features).to(home(layer))
        weight = layer.weight.detach()[list(outputs)][:, list(inputs)]
        self.weight = renewed(weight, layer.weight)
        self.bias = None
        if bias:
            start = weight.new_zeros(len(outputs)) if layer.bias is None else layer.bias.detach()[list(outputs)]
            self.bias = renewed(start, layer.weight)
        self.scatter = Scatter(outputs, layer.out_features).to(home(layer))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the full layer returns, with zeros in dead outputs."""
        found: Tensor = self.scatter(functional.linear(self.gather(x), self.weight, self.bias))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        ends = {"inputs": self.gather.live, "outputs": self.scatter.live}
        return {"kind": "linear", **ends, "bias": self.bias is not None}


class NarrowConv(nn.Module):
    """A convolution without its dead channels."""

    def __init__(self, layer: Conv, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        inner = shallow(layer)
        inner.weight = renewed(layer.weight.detach()[list(outputs)][:, list(inputs)], layer.weight)
        if layer.bias is not None:
            inner.bias = renewed(layer.bias.detach()[list(outputs)], layer.bias)
        inner.in_channels, inner.out_channels = len(inputs), len(outputs)
        axis = -layer.weight.dim() + 1
        self.gather = Gather(inputs, layer.in_channels, axis).to(home(layer))
        self.layer = inner
        self.scatter = Scatter(outputs, layer.out_channels, axis).to(home(layer))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the full layer returns, with zeros in dead outputs."""
        found: Tensor = self.scatter(self.layer(self.gather(x)))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "conv", "inputs": self.gather.live, "outputs": self.scatter.live}


class NarrowNorm(nn.Module):
    """A batch normalization of the features that a later layer reads."""

    def __init__(self, layer: Norm, live: Sequence[int]) -> None:
        super().__init__()
        inner = shallow(layer)
        for name, weight in layer.named_parameters(recurse=False):
            setattr(inner, name, renewed(weight.detach()[list(live)], weight))
        for name, buffer in layer.named_buffers(recurse=False):
            inner._buffers[name] = (buffer[list(live)] if buffer.dim() else buffer).detach().clone()
        inner.num_features = len(live)
        self.gather = Gather(live, layer.num_features, 1).to(home(layer))
        self.layer = inner
        self.scatter = Scatter(live, layer.num_features, 1).to(home(layer))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the full layer returns, with zeros in dead features."""
        found: Tensor = self.scatter(self.layer(self.gather(x)))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "norm", "live": self.scatter.live}


NARROW = (NarrowTable, NarrowFields, NoTable, NarrowLinear, NarrowConv, NarrowNorm)
