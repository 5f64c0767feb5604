"""`AdditiveAttention`: scores from a network of one hidden layer."""

from __future__ import annotations

from functools import partial
from typing import Any

from graphc.build.initializer_names import AnyInitializer
from graphc.build.scaled_initializers import GlorotUniform
from graphc.ir.dtypes import BOOL
from graphc.ir.node import Tensor
from graphc.nn.layers.layer import Layer, check_rank, positive
from graphc.nn.layers.linear import Dense
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.ops.arrays.shape import expand_dims, squeeze
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.ops.elementwise.activation import softmax
from graphc.ops.elementwise.comparison import where
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.matrices.matrix_product import matmul
from graphc.typing import DTypeLike, TensorLike

__all__ = ["AdditiveAttention"]


class AdditiveAttention(Layer):
    """Means of the steps of a sequence, weighted by `softmax(tanh(query W + step U + b) @ v)`.

    Variables: `query/kernel` [features, units], `key/kernel` [source features, units], `key/bias`
    [units] and `score/kernel` [units, 1].

    Args:
        units: the size of the hidden layer.
        kernel_initializer: as for `Dense`.
        name, dtype: see `Layer`.
        kernel_regularizer, bias_regularizer: of each of the three maps, as for `Dense`.

    Calling it takes

    - `x` [batch, steps, features], or [batch, features] for one step, such as the state of a
      decoder;
    - `source` [batch, time, source features];
    - `mask`, a bool that broadcasts to [batch, steps, time], True where a step of the source may be
      attended to. Write [batch, time] as mask[:, None, :].

    It gives [batch, steps, source features], without the axis of steps if `x` has none. A step for
    which the mask is False everywhere gives zeros.

    Raises:
        AttributeValueError: `units` is not positive.
        ShapeError: operands of other ranks.

    Source: Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
    translate", 2015.

    Examples:
        >>> attention = gc.nn.AdditiveAttention(16)
        >>> state, source = gc.ones((2, 8)), gc.ones((2, 5, 12))
        >>> attention(state, source).shape
        (2, 12)
    """

    def __init__(
        self,
        units: int,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        kernel_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype)
        self.units = positive("AdditiveAttention", "units", units)
        dense = partial(
            Dense,
            kernel_initializer=kernel_initializer,
            dtype=self.dtype,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )
        self.query = dense(units, use_bias=False, name="query")
        self.key = dense(units, name="key")
        self.score = dense(1, use_bias=False, name="score")

    def __call__(self, x: TensorLike, source: TensorLike, mask: TensorLike | None = None) -> Tensor:
        return self.with_weights(x, source, mask)[0]

    def with_weights(
        self, x: TensorLike, source: TensorLike, mask: TensorLike | None = None
    ) -> tuple[Tensor, Tensor]:
        """The result, and the weights [batch, steps, time], or [batch, time] for one step.

        Examples:
            >>> attention = gc.nn.AdditiveAttention(8)
            >>> y, weights = attention.with_weights(gc.ones((2, 3, 4)), gc.ones((2, 5, 6)))
            >>> y.shape, weights.shape
            ((2, 3, 6), (2, 3, 5))
        """
        with self.scope(x, source):
            x, source = convert(x), convert(source)
            check_rank(self, x, (2, 3), "[batch, steps, features] or [batch, features]")
            if source.ndim != 3:
                refuse(
                    f"{self}: the source must be [batch, time, features], got rank {source.ndim}",
                    source=source,
                )
            one = x.ndim == 2
            queries = expand_dims(self.query(x), 1 if one else 2)
            queries = expand_dims(queries, 1) if one else queries  # [batch, steps, 1, units]
            keys = expand_dims(self.key(source), 1)  # [batch, 1, time, units]
            scores = squeeze(self.score(tanh(queries + keys)), -1)
            if mask is None:
                weights = softmax(scores)
            else:
                seen = self._checked(mask)
                # A finite number, so that a step that may attend to nothing does not give NaN.
                least = -1e9 if scores.dtype.itemsize > 2 else -1e4
                weights = where(seen, softmax(where(seen, scores, least)), 0)
            y = matmul(weights, source)
            return (squeeze(y, 1), squeeze(weights, 1)) if one else (y, weights)

    def _checked(self, mask: Any) -> Tensor:
        seen = convert(mask)
        if seen.ndim != 3 or seen.dtype != BOOL:
            refuse(
                f"{self}: the mask must be a bool of three axes, [batch, steps, time] or sizes of "
                f"1, got {seen.type}",
                hint="write [batch, time] as mask[:, None, :]",
                mask=seen,
            )
        return seen
