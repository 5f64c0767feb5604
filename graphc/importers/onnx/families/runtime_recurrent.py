"""Recurrent layers of ONNX Runtime, whose kernels are integers."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Rule
from graphc.importers.onnx.families.quantized import in_steps
from graphc.importers.onnx.families.recurrent import Layer, lstm_step, recurrent
from graphc.importers.onnx.limits import limited
from graphc.ir.node import Tensor


def _product(x: Tensor, kernel: Any, scale: Any) -> Any:
    """The product of `x`, quantized by its extremes, with integers of a scale.

    It is computed in float32. The integers are exact there, and the rounding of their sums is as
    that of the scale.
    """
    steps, own, zero = in_steps(x)
    return ops.matmul(steps - zero, ops.cast(kernel, "float32")) * (own * scale)


class _QuantizedLayer(Layer):
    """Kernels [directions, inputs, 4 units] of 8 bits. What is multiplied with them, the inputs of
    all steps, and the state of each step, is quantized in the run, with one scale for all rows of
    the batch."""

    rows_are_apart = False

    def _read_kernels(self) -> Any:
        self.w, self._w_scale = self._kernel(1, 8)
        self.r, self._r_scale = self._kernel(2, 10)
        return self.r.shape[0]

    def _kernel(self, i: int, scale: int) -> tuple[Any, Any]:
        """The kernel without its zero points, and its scales: one, or one for each column."""
        at = self.direction
        zero = ops.cast(self.call.x(scale + 1)[at], "int32")
        return ops.cast(self.call.x(i)[at], "int32") - zero, self.call.x(scale)[at]

    def projected(self, x: Tensor) -> Any:
        return _product(x, self.w, self._w_scale) + self.wb

    def of_state(self, h: Any) -> Any:
        return _product(h, self.r, self._r_scale)


_ATTRS: Final = (
    "activation_alpha activation_beta activations clip direction hidden_size input_forget"
)

RULES: Final[dict[str, Rule]] = {
    "DynamicQuantizeLSTM": limited(
        recurrent(4, ("Sigmoid", "Tanh", "Tanh"), lstm_step, 2, _QuantizedLayer), 12, _ATTRS, 3
    )
}
