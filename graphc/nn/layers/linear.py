"""`Dense`, which multiplies by a matrix, and `Embedding`, which looks up rows."""

from __future__ import annotations

from graphc.build.initializer_names import AnyInitializer, as_initializer
from graphc.build.initializers import Uniform, Zeros
from graphc.build.scaled_initializers import GlorotUniform
from graphc.ir.dtypes import is_integer
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.nn.layers.activations import Activation
from graphc.nn.layers.affine import Affine
from graphc.nn.layers.layer import Layer, features_of, positive
from graphc.nn.layers.regularizers import AnyRegularizer, as_regularizer
from graphc.ops.arrays.indexing import take_for
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import as_array, convert
from graphc.ops.core.operands import as_integers
from graphc.ops.matrices.matrix_product import matmul
from graphc.typing import DTypeLike, TensorLike

__all__ = ["Dense", "Embedding", "embedding_lookup"]


class Dense(Affine):
    """A linear map of the last axis: `activation(x @ kernel + bias)`.

    Variables: `kernel` [features, units] and `bias` [units].

    Args:
        units: the size of the last axis of the result.
        activation: a function of a tensor such as `gc.nn.relu`, or its name; or None.
        use_bias: whether a bias is added.
        kernel_initializer, bias_initializer: a function `(rng, shape, dtype) -> array`, the name of
            one of `gc.nn.initializers` such as "glorot_uniform", or a number.
        name, dtype: see `Layer`.
        kernel_regularizer, bias_regularizer: the penalty that `gc.nn.penalty` adds up: a function
            from a tensor to a scalar such as `gc.nn.L2(1e-4)`, "l1", "l2" or None. It does not
            change the loss by itself.

    Calling it takes `x` [..., features] and gives [..., units].

    Raises:
        AttributeValueError: `units` is not positive, or an activation, an initializer or a
            regularizer is not known.
        ShapeError: `x` has no axes, or a number of features that is not known or has changed.

    Examples:
        >>> dense = gc.nn.Dense(2, kernel_initializer="ones", bias_initializer=0.5)
        >>> run(dense([[1.0, 2.0, 3.0]]))
        Array([[6.5, 6.5]], dtype=float32)
    """

    def __init__(
        self,
        units: int,
        activation: Activation | str | None = None,
        use_bias: bool = True,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        bias_initializer: AnyInitializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        kernel_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        initializers = (kernel_initializer, bias_initializer)
        regularizers = (kernel_regularizer, bias_regularizer)
        super().__init__(activation, use_bias, *initializers, name, dtype, *regularizers)
        self.units = positive("Dense", "units", units)

    def __call__(self, x: TensorLike) -> Tensor:
        with self.scope(x):
            x = convert(x)
            if x.type.rank == 0:
                refuse(
                    f"{self}: the input must have a last axis of features",
                    hint="x[None] makes one feature of a scalar",
                    x=x,
                )
            shape = (features_of(self, x), self.units)
            kernel = self.variable(
                "kernel", self.kernel_initializer, shape, regularizer=self.kernel_regularizer
            )
            return self._finished(matmul(x, kernel), self.units)


class Embedding(Layer):
    """Rows of a trainable table, looked up by their numbers.

    Variables: `table` [count, features].

    Args:
        count: the number of rows; indices run from 0 to count - 1. Negative indices count from the
            end. An index out of range is replaced by the nearest one in range, and is an error in
            runs with `CompileOptions(check_numerics=True)`.
        features: the size of a row.
        initializer: of the table, as for `Dense`.
        name, dtype: see `Layer`.
        regularizer: of the table, as for `Dense`. The gradient of the penalty covers every row, not
            only those that were looked up.

    Calling it takes integers `indices` [...] and gives [..., features].

    Raises:
        AttributeValueError: `count` or `features` is not positive, or an initializer or a
            regularizer is not known.
        DTypeError: `indices` are not integers.
        ShapeError: an index that is a constant is out of range.

    Examples:
        >>> table = np.array([[0, 1], [2, 3], [4, 5]], "float32")
        >>> run(gc.nn.Embedding(3, 2, initializer=table)([2, 0]))
        Array([[4., 5.],
               [0., 1.]], dtype=float32)
    """

    def __init__(
        self,
        count: int,
        features: int,
        initializer: AnyInitializer = Uniform(),  # noqa: B008  (frozen)
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype)
        self.count = positive("Embedding", "count", count)
        self.features = positive("Embedding", "features", features)
        self.initializer = as_initializer(initializer, "Embedding")
        self.regularizer = as_regularizer(regularizer, "Embedding")

    def __call__(self, indices: TensorLike) -> Tensor:
        with self.scope(indices):
            # The values of an array are known here, so that an index out of range is an error.
            known = not isinstance(indices, Operand) and is_integer(as_array(indices).dtype)
            rows = indices if known else as_integers(self, "indices", indices)
            shape = (self.count, self.features)
            table = self.variable("table", self.initializer, shape, regularizer=self.regularizer)
            return take_for("Embedding", table, rows)


def embedding_lookup(table: TensorLike, indices: TensorLike, *, name: str | None = None) -> Tensor:
    """The rows of `table` at `indices`.

    Args:
        table: [count, ...].
        indices: [...], integers. Negative indices count from the end. An index out of range is
            replaced by the nearest one in range.
        name: of the node.

    Returns:
        The shape of `indices`, followed by that of a row; the dtype of `table`.

    Raises:
        DTypeError: `indices` are not integers.
        ShapeError: an index that is a constant is out of range.

    Examples:
        >>> run(gc.nn.embedding_lookup([[1, 2], [3, 4], [5, 6]], [2, 0]))
        Array([[5, 6],
               [1, 2]], dtype=int32)
    """
    return take_for("embedding_lookup", table, indices, name=name)
