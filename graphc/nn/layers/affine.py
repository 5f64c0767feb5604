"""What layers with a kernel, a bias and an activation share."""

from __future__ import annotations

from graphc.build.initializer_names import AnyInitializer, as_initializer
from graphc.ir.node import Tensor
from graphc.nn.layers.activations import Activation, as_activation
from graphc.nn.layers.layer import Layer
from graphc.nn.layers.regularizers import AnyRegularizer, as_regularizer
from graphc.typing import DTypeLike


class Affine(Layer):
    """Base of the layers `activation(map(x, kernel) + bias)`: it has all but the map."""

    def __init__(
        self,
        activation: Activation | str | None,
        use_bias: bool,
        kernel_initializer: AnyInitializer,
        bias_initializer: AnyInitializer,
        name: str | None,
        dtype: DTypeLike,
        kernel_regularizer: AnyRegularizer,
        bias_regularizer: AnyRegularizer,
    ) -> None:
        super().__init__(name, dtype)
        kind = type(self).__name__
        self.activation = as_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = as_initializer(kernel_initializer, kind)
        self.bias_initializer = as_initializer(bias_initializer, kind)
        self.kernel_regularizer = as_regularizer(kernel_regularizer, kind)
        self.bias_regularizer = as_regularizer(bias_regularizer, kind)

    def _finished(self, y: Tensor, size: int) -> Tensor:
        """`y` [..., size] with the bias and the activation."""
        if self.use_bias:
            y = y + self.variable(
                "bias", self.bias_initializer, (size,), regularizer=self.bias_regularizer
            )
        return y if self.activation is None else self.activation(y)
