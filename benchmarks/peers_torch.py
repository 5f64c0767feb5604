"""The networks of networks.py in PyTorch eager, NCHW, as its users write them.

Modules have the names of the layers in JAX, so that `load` finds their initial values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.networks import CONVS, EPSILON, MOMENTUM, STAGES, Network, Stages, start

Model = Callable[[Network], nn.Module]


class Unit(nn.Module):
    """A convolution and its batch norm."""

    def __init__(self, channels: int, filters: int, size: int, stride: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, size, stride, size // 2, bias=False)
        # PyTorch's momentum is the weight of the new value.
        self.norm = nn.BatchNorm2d(filters, EPSILON, 1 - MOMENTUM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    """A block of ResNet-50. It has the convolution `d` if the shortcut changes its shape."""

    def __init__(self, channels: int, filters: int, stride: int, changes: bool):
        super().__init__()
        self.a = Unit(channels, filters, 1, 1)
        self.b = Unit(filters, filters, 3, stride)
        self.c = Unit(filters, 4 * filters, 1, 1)
        self.d = Unit(channels, 4 * filters, 1, stride) if changes else None
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.a(x))
        y = self.relu(self.b(y))
        y = self.c(y)
        y += x if self.d is None else self.d(x)
        return self.relu(y)


def resnet50(network: Network, stages: Stages = STAGES) -> nn.Module:
    model = nn.Sequential()
    model.add_module("stem", Unit(3, 64, 7, 2))
    model.append(nn.ReLU(inplace=True)).append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for stage, (filters, blocks) in enumerate(stages):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            made = Bottleneck(channels, filters, stride, changes=not block)
            model.add_module(f"stage{stage}_block{block}", made)
            channels = 4 * filters
    model.append(nn.AdaptiveAvgPool2d(1)).append(nn.Flatten())
    model.add_module("out", nn.Linear(channels, network.classes))
    return model


def alexnet(network: Network) -> nn.Module:
    model = nn.Sequential()
    channels = 3
    for i, (filters, window, stride, padding, pooled) in enumerate(CONVS):
        model.add_module(f"conv{i}", nn.Conv2d(channels, filters, window, stride, padding))
        model.append(nn.ReLU(inplace=True))
        if pooled:
            model.append(nn.MaxPool2d(3, 2))
        channels = filters
    model.append(nn.Flatten())
    width = model(torch.zeros(1, 3, *network.image[:2])).shape[1]
    for i in range(2):
        model.add_module(f"dense{i}", nn.Linear(width, 4096))
        model.append(nn.ReLU(inplace=True))
        width = 4096
    model.add_module("out", nn.Linear(width, network.classes))
    return model


def mlp(network: Network) -> nn.Module:
    model = nn.Sequential()
    model.add_module("hidden", nn.Linear(*network.image, 500))
    model.append(nn.ReLU(inplace=True))
    model.add_module("out", nn.Linear(500, network.classes))
    return model


MODELS: dict[str, Model] = {"resnet50": resnet50, "alexnet": alexnet, "mlp": mlp}


def load(model: nn.Module, network: Network) -> None:
    """Gives each module the initial values of the JAX layer of the same name."""
    values = {name: np.array(value) for name, value in start(network)[0].items()}
    # The channels of the last convolution: when flattened, they are last in NHWC and first in NCHW.
    channels = None
    for path, module in model.named_modules():
        name = path.replace(".", "/")
        if isinstance(module, nn.Conv2d):
            channels = module.out_channels
            _fill(module.weight, values.pop(f"{name}/kernel").transpose(3, 2, 0, 1))
        elif isinstance(module, nn.Linear):
            kernel = values.pop(f"{name}/kernel")
            if name == "dense0":
                places = kernel.reshape(-1, channels, kernel.shape[1])
                kernel = places.swapaxes(0, 1).reshape(kernel.shape)
            _fill(module.weight, kernel.T)
        elif isinstance(module, nn.BatchNorm2d):
            _fill(module.weight, values.pop(f"{name}/scale"))
            _fill(module.bias, values.pop(f"{name}/offset"))
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            _fill(module.bias, values.pop(f"{name}/bias"))
    if values:
        raise ValueError(f"PyTorch's network has no place for {sorted(values)}")


def _fill(parameter: nn.Parameter, value: np.ndarray) -> None:
    if parameter.shape != value.shape:
        raise ValueError(f"PyTorch has {tuple(parameter.shape)} where JAX has {value.shape}")
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))


def optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that networks.py uses for this network."""
    if name == "mlp":
        return torch.optim.Adam(model.parameters(), 1e-3)
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def step(
    model: Model, network: Network, x: Any, y: Any, steps: int, layout: torch.memory_format
) -> Callable[[], float]:
    """`steps` training steps in eager mode. The function returns the loss of the first step."""
    made = model(network)
    load(made, network)
    made = made.train().to(memory_format=layout)
    images = torch.tensor(x)
    if images.ndim == 4:
        images = images.permute(0, 3, 1, 2).contiguous(memory_format=layout)
    labels = torch.tensor(y, dtype=torch.int64)
    update = optimizer(network.graph.name, made)
    loss_of = nn.CrossEntropyLoss()

    def run() -> float:
        first = None
        for _ in range(steps):
            update.zero_grad()
            loss = loss_of(made(images), labels)
            loss.backward()
            update.step()
            first = loss if first is None else first
        return first.item()

    return run


def forms(name: str, network: Network, x: Any, y: Any, steps: int) -> dict[str, Any]:
    """The step in each memory format that may be faster."""
    layouts = {"contiguous": torch.contiguous_format}
    if len(network.image) == 3:
        layouts["channels_last"] = torch.channels_last
    return {
        what: step(MODELS[name], network, x, y, steps, layout) for what, layout in layouts.items()
    }
