"""Layers without variables of their own: `Sequential`, `Flatten`, pooling."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dims import product
from graphc.ir.node import Tensor
from graphc.nn.layer import Layer, check_rank
from graphc.ops.checks import refuse
from graphc.ops.emit import convert
from graphc.ops.pooling import avg_pool, max_pool
from graphc.ops.shape import reshape
from graphc.ops.windows import two_ints

_IMAGES = "[batch, height, width, features] (rank 4)"


class Sequential(Layer):
    """Layers one after the other.

    Args:
        layers: layers, or functions of a tensor such as `gc.nn.relu`. A layer that stands
            twice shares its variables.
        name: of the scope around the layers' own.

    Calling it takes `x`, and `training` for the layers that take it.

    Raises:
        AttributeValueError: something that cannot be called; or `training` is missing.
    """

    def __init__(self, layers: Sequence[Any], name: str | None = None) -> None:
        super().__init__(name)
        self.layers = list(layers)
        for position, layer in enumerate(self.layers):
            if not callable(layer) or isinstance(layer, type):
                refuse(
                    f"Sequential: layer {position} is {layer!r}, which is neither a layer nor a "
                    "function",
                    error=AttributeValueError,
                    mend=f"make one: {layer.__name__}(...)" if isinstance(layer, type) else None,
                )

    def __call__(self, x: Any, training: bool | None = None) -> Tensor:
        with self.scope(x):
            y = convert(x)
            for layer in self.layers:
                y = layer(y, training=training) if _takes_training(layer) else layer(y)
            return y


def _takes_training(layer: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(layer).parameters
    except (TypeError, ValueError):  # built in, without a signature
        return False
    return "training" in parameters


class Flatten(Layer):
    """All axes but the first as one: [batch, ...] to [batch, features].

    Raises:
        ShapeError: the input has no axes.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)

    def __call__(self, x: Any) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, range(1, 100), "[batch, ...] (rank 1 or more)")
            lead, *rest = x.type.shape
            return reshape(x, (lead, product(rest)))


class _Pool2D(Layer):
    """What both kinds of pooling share."""

    def __init__(
        self,
        window: int | tuple[int, int] = 2,
        strides: int | tuple[int, int] | None = None,
        padding: Any = "valid",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        kind = type(self).__name__
        self.window = two_ints(kind, "window", window)
        self.strides = self.window if strides is None else two_ints(kind, "strides", strides)
        self.padding = padding

    def _pool(self, function: Callable[..., Tensor], x: Any) -> Tensor:
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, (4,), _IMAGES)
            return function(x, self.window, strides=self.strides, padding=self.padding)


class MaxPool2D(_Pool2D):
    """The largest element of each window of height and width.

    Args:
        window: height and width, or one number for both.
        strides: between windows; by default the window, so that they do not overlap.
        padding: "same", "valid", one int for all sides or ((top, bottom), (left, right)).
        name: see `Layer`.

    Calling it takes `x` [batch, height, width, features] and gives
    [batch, new height, new width, features].

    Raises:
        AttributeValueError: an option has a value it cannot have.
        ShapeError: `x` is not of rank 4.
    """

    def __call__(self, x: Any) -> Tensor:
        return self._pool(max_pool, x)


class AveragePool2D(_Pool2D):
    """The mean of each window of height and width; see `MaxPool2D`."""

    def __call__(self, x: Any) -> Tensor:
        return self._pool(avg_pool, x)
