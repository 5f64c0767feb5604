"""Layers without variables of their own: `Sequential`, `TimeDistributed`, `Flatten`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dims import product
from graphc.ir.node import Tensor
from graphc.nn.layers.layer import Layer, check_rank
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.typing import TensorLike

__all__ = ["Flatten", "Sequential", "TimeDistributed"]


class Sequential(Layer):
    """Calls layers one after the other, each on the result of the layer before.

    Args:
        layers: layers, or functions of a tensor such as `gc.nn.relu`. A layer that occurs twice
            shares its variables.
        name: of the scope around the layers' own.

    Calling it takes `x`, and `training` and `lengths` for the layers that take them. It gives the
    result of the last layer. `model[i]` is a layer, `len(model)` their number.

    Raises:
        AttributeValueError: an item cannot be called, or `training` is missing.

    Examples:
        >>> model = gc.nn.Sequential([gc.nn.Flatten(), gc.nn.Dense(16), gc.nn.relu, gc.nn.Dense(2)])
        >>> model(gc.ones((32, 28, 28))).shape
        (32, 2)
    """

    def __init__(
        self, layers: Sequence[Layer | Callable[..., Tensor]], name: str | None = None
    ) -> None:
        if callable(layers) or callable(name):
            refuse(
                "Sequential: takes one list of layers",
                error=AttributeValueError,
                hint="Sequential([first, second])",
            )
        super().__init__(name)
        self.layers: list[Any] = list(layers)
        for position, layer in enumerate(self.layers):
            if not callable(layer) or isinstance(layer, type):
                refuse(
                    f"Sequential: layer {position} is {layer!r}, which is neither a layer nor a "
                    "function",
                    error=AttributeValueError,
                    hint=_instead_of(layer),
                )

    def __len__(self) -> int:
        """The number of layers."""
        return len(self.layers)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, position: int) -> Layer | Callable[..., Tensor]:
        """The layer at a position. A negative position counts from the end."""
        layer: Layer | Callable[..., Tensor] = self.layers[position]
        return layer

    def __call__(
        self,
        x: TensorLike,
        training: bool | Tensor | None = None,
        lengths: TensorLike | None = None,
    ) -> Tensor:
        options = {"training": training, "lengths": lengths}
        with self.scope(x):
            y = convert(x)
            for layer in self.layers:
                y = layer(y, **{k: v for k, v in options.items() if k in parameters_of(layer)})
            return y


def _instead_of(layer: Any) -> str:
    """A hint: what to write instead of an item that is not a layer."""
    if isinstance(layer, type):
        return f"make one: {layer.__name__}(...)"
    if isinstance(layer, str):
        return f"write the function, gc.nn.{layer}, or activation={layer!r} of the layer before"
    return "write a list of layers and functions: Sequential([gc.nn.Dense(64), gc.nn.relu])"


def parameters_of(layer: Callable[..., Any]) -> Collection[str]:
    """The names of the layer's parameters; none if it is a builtin without a signature."""
    try:
        return inspect.signature(layer).parameters
    except (TypeError, ValueError):
        return ()


class OnlyNamed(Layer):
    """Base of layers that have no variables, and so no dtype, and no options."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)


class Flatten(OnlyNamed):
    """All axes but the first as one: [batch, ...] to [batch, features].

    Args:
        name: see `Layer`.

    Raises:
        ShapeError: the input has no axes.

    Examples:
        >>> gc.nn.Flatten()(gc.ones((32, 28, 28))).shape
        (32, 784)
    """

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(1, 100), "[batch, ...] (rank 1 or more)")
            lead, *rest = x.type.shape
            return reshape(x, (lead, product(rest)))


class TimeDistributed(Layer):
    """Applies a layer to every step of sequences, as if each step were an example of a batch.

    Layers such as `Dense`, which take any number of axes before the features, do not need it.

    Variables: the layer's.

    Args:
        layer: a layer, or a function of a tensor, that gives one tensor.
        name: see `Layer`.

    Calling it takes `x` [batch, time, ...], and `training` for a layer that takes it. It gives
    [batch, time, ...].

    Raises:
        AttributeValueError: something that cannot be called; or `training` is missing.
        ShapeError: `x` has fewer than two axes, or the layer's result has no batch.

    Examples:
        >>> frames = gc.ones((2, 5, 8, 8, 3))
        >>> gc.nn.TimeDistributed(gc.nn.Conv2D(4, 3))(frames).shape
        (2, 5, 6, 6, 4)
    """

    def __init__(self, layer: Layer | Callable[..., TensorLike], name: str | None = None) -> None:
        super().__init__(name)
        if not callable(layer) or isinstance(layer, type):
            refuse(
                f"TimeDistributed: takes a layer or a function, got {layer!r}",
                error=AttributeValueError,
                hint=f"make one: {layer.__name__}(...)" if isinstance(layer, type) else None,
            )
        self.layer: Any = layer

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(2, 100), "[batch, time, ...] (rank 2 or more)")
            batch, time, *rest = x.type.shape
            options = {"training": training} if "training" in parameters_of(self.layer) else {}
            y = convert(self.layer(reshape(x, (batch * time, *rest)), **options))
            if not y.ndim:
                refuse(f"{self}: its layer gave a scalar, not a result for each step", result=y)
            return reshape(y, (batch, time, *y.type.shape[1:]))
