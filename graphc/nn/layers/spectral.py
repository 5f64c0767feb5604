"""`SpectralNorm`: a layer whose kernel is divided by its largest singular value."""

from __future__ import annotations

from typing import Any

from graphc.build.initializers import Normal
from graphc.errors import AttributeValueError, GraphError
from graphc.ir.node import Tensor
from graphc.ir.scopes import current_graph
from graphc.ir.variable import Variable
from graphc.nn.functional.norms import l2_normalize
from graphc.nn.layers.layer import Layer, check_training, positive
from graphc.nn.layers.normalization import UPDATES
from graphc.nn.layers.structure import parameters_of
from graphc.ops.arrays.shape import reshape
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.elementwise.comparison import where
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.reductions.reduction import reduce_sum
from graphc.ops.structure.state import stop_gradient
from graphc.typing import TensorLike

__all__ = ["SpectralNorm"]


class SpectralNorm(Layer):
    """A layer whose kernel is divided by the kernel's largest singular value.

    Miyato et al., "Spectral normalization for generative adversarial networks", 2018. The last axis
    of the kernel gives the columns of the matrix, and all other axes together give its rows. Power
    iteration estimates the largest singular value: each call in training takes `iterations` steps
    and stores the vector for the next call. The assignments of the vector are in the collection
    "updates", as in `BatchNorm`. The variable of the layer is trained; it is not itself divided.

    Variables: the layer's, and `vector` [filters], which is not trainable.

    Args:
        layer: one with a variable `kernel`, such as `Dense` or `Conv2D`, not called yet.
        iterations: the number of iterations in each call in training.
        name: see `Layer`.

    Calling it takes `x` and `training`, a bool or a scalar tensor of bool, and gives the result of
    the layer.

    Raises:
        AttributeValueError: `layer` is not a layer or has no kernel, `iterations` is not positive,
            or `training` is not a bool.
        GraphError: the layer has been called without the wrapper.

    Examples:
        >>> kernel = np.array([[4.0, 0.0], [0.0, 1.0]], "float32")
        >>> dense = gc.nn.SpectralNorm(gc.nn.Dense(2, kernel_initializer=kernel), iterations=20)
        >>> run(dense([[1.0, 1.0]], training=True))
        Array([[1.  , 0.25]], dtype=float32)
    """

    def __init__(self, layer: Layer, iterations: int = 1, name: str | None = None) -> None:
        if not isinstance(layer, Layer):
            refuse(f"SpectralNorm: takes a layer, got {layer!r}", error=AttributeValueError)
        super().__init__(name, layer.dtype)
        if layer.built or layer._views:
            raise GraphError.here(
                f"SpectralNorm: {layer} "
                + ("has been called" if layer.built else "has a wrapper already"),
                hint="wrap a layer where it is made: gc.nn.SpectralNorm(gc.nn.Dense(4))",
            )
        self.iterations = positive("SpectralNorm", "iterations", iterations)
        self.layer: Any = layer
        self._training: bool | Tensor | None = None
        layer._views["kernel"] = self._normalized

    def __call__(self, x: TensorLike, training: bool | Tensor | None = None) -> Tensor:
        with self.scope(x):
            self._training = check_training(self, training)
            options = {"training": training} if "training" in parameters_of(self.layer) else {}
            try:
                y = self.layer(x, **options)
            finally:
                self._training = None
            if "vector" not in self._own:
                refuse(
                    f"{self}: {self.layer} has no kernel of its own",
                    error=AttributeValueError,
                    hint="wrap the layers in it that have one",
                )
            return convert(y)

    def _normalized(self, kernel: Variable) -> Tensor:
        """The kernel over its largest singular value."""
        if self._training is None:
            raise GraphError.here(
                f"{self.layer} belongs to {self}", hint="call the SpectralNorm, not the layer in it"
            )
        with self.scope(kernel):
            whole = convert(kernel)
            columns = whole.type.sizes[-1]
            matrix = reshape(whole, (-1, columns))
            fixed = stop_gradient(matrix)  # the vectors count as constants
            state: Any = self.variable("vector", Normal(stddev=1.0), (columns,), trainable=False)
            before = state.read()
            right: Tensor = l2_normalize(before)
            if self._training is not False:
                trained = right
                for _ in range(self.iterations):
                    trained = l2_normalize(matmul(l2_normalize(matmul(fixed, trained)), fixed))
                after = to_dtype(trained, state.type.dtype)
                if self._training is not True:
                    trained = where(self._training, trained, right)
                    after = where(self._training, after, before)
                right = trained
                assigned = state.assign(after)
                graph = current_graph()
                if graph.parent is None:  # an assignment in a body runs whenever the body runs
                    graph.add_to_collection(UPDATES, assigned)
            left = l2_normalize(matmul(fixed, right))
            return whole / reduce_sum(left * matmul(matrix, right))
