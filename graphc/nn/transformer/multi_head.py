"""`MultiHeadAttention`, with a cache for decoding step by step."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from graphc.build.initializer_names import AnyInitializer
from graphc.build.initializers import Zeros
from graphc.build.scaled_initializers import GlorotUniform
from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dims import Dim
from graphc.ir.dtypes import BOOL
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.nn.layers.layer import Layer, check_rank, check_training, positive
from graphc.nn.layers.linear import Dense
from graphc.nn.layers.positions import rotary_encoding
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.ops.arrays.creation import iota, zeros
from graphc.ops.arrays.dynamic_slicing import dynamic_update_slice
from graphc.ops.arrays.shape import expand_dims, reshape
from graphc.ops.control.branching import cond
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.comparison import less_equal, where
from graphc.ops.nn.attention import attention
from graphc.typing import DTypeLike, TensorLike

__all__ = ["AttentionCache", "MultiHeadAttention"]

_SEQUENCES = "[batch, time, features] (rank 3)"


class AttentionCache(NamedTuple):
    """The keys and values of the steps so far, for decoding step by step.

    Attributes:
        key, value: [batch, room, key heads, head size]; the entries from `length` on are unused.
        length: int32 scalar, the number of steps so far.

    Examples:
        >>> attention = gc.nn.MultiHeadAttention(32, heads=4, causal=True)
        >>> cache = attention.empty_cache(batch=2, room=100)
        >>> cache.key.shape, run(cache.length)
        ((2, 100, 4, 8), Array(0, dtype=int32))
    """

    key: Tensor
    value: Tensor
    length: Tensor


class MultiHeadAttention(Layer):
    """Attention: each head averages the values of the steps whose keys match its query.

    Variables: `query/kernel` [features, heads * head_size], `key/kernel` and `value/kernel`
    [source features, key_heads * head_size], `out/kernel` [heads * head_size, units], and
    the `bias` of each.

    Args:
        units: the size of the last axis of the result.
        heads: the number of heads.
        key_heads: the number of heads of keys and values; by default `heads`. Each is shared by
            `heads / key_heads` consecutive heads.
        head_size: of queries, keys and values; by default `units / heads`.
        causal: each step attends only to itself and to earlier steps.
        rotary: queries and keys are rotated by their positions: see `rotary_encoding`.
        dropout: in training, the rate at which weights are set to zero.
        use_bias, kernel_initializer, bias_initializer: as for `Dense`.
        name, dtype: see `Layer`.
        kernel_regularizer, bias_regularizer: of each of the four maps, as for `Dense`.

    Calling it takes

    - `x` [batch, time, features];
    - `source` [batch, steps, source features], from which keys and values are computed; by default
      `x`;
    - `mask`, a bool that broadcasts to [batch, heads, time, steps], True where a step may be
      attended to. A mask of two axes is refused: write [batch, steps] as mask[:, None, None, :],
      and [time, steps] as mask[None, None];
    - `training`, which is required if there is dropout.

    It gives [batch, time, units].

    Raises:
        AttributeValueError: an option has an invalid value, or `training` is missing.
        ShapeError: `x` or `source` is not of rank 3, or the mask does not broadcast or has two
            axes.

    Source: Vaswani et al., "Attention is all you need", 2017; Ainslie et al., "GQA: training
    generalized multi-query transformer models", 2023.

    Examples:
        >>> attention = gc.nn.MultiHeadAttention(32, heads=4, causal=True)
        >>> attention(gc.ones((2, 10, 32))).shape
        (2, 10, 32)
        >>> y, cache = attention.with_cache(gc.ones((2, 1, 32)), attention.empty_cache(2, 100))
        >>> y.shape, run(cache.length)
        ((2, 1, 32), Array(1, dtype=int32))
    """

    def __init__(
        self,
        units: int,
        heads: int,
        key_heads: int | None = None,
        head_size: int | None = None,
        causal: bool = False,
        rotary: bool = False,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: AnyInitializer = GlorotUniform(),  # noqa: B008  (frozen)
        bias_initializer: AnyInitializer = Zeros(),  # noqa: B008
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        kernel_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype)
        kind = "MultiHeadAttention"
        self.heads = positive(kind, "heads", heads)
        self.key_heads = positive(kind, "key_heads", heads if key_heads is None else key_heads)
        if heads % self.key_heads:
            _refuse(f"key_heads must divide heads, got {key_heads} and {heads}")
        if head_size is None and positive(kind, "units", units) % heads:
            _refuse(f"heads must divide units, got {heads} and {units}", "or give head_size=")
        size = units // heads if head_size is None else head_size
        self.head_size = positive(kind, "head_size", size)
        if not 0 <= dropout < 1:
            _refuse(f"dropout must lie in [0, 1), got {dropout!r}")
        self.causal, self.rotary, self.dropout = causal, rotary, dropout
        dense = partial(
            Dense,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            dtype=self.dtype,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )
        self.query = dense(heads * self.head_size, name="query")
        self.key = dense(self.key_heads * self.head_size, name="key")
        self.value = dense(self.key_heads * self.head_size, name="value")
        self.out = dense(units, name="out")

    def __call__(
        self,
        x: TensorLike,
        source: TensorLike | None = None,
        mask: TensorLike | None = None,
        training: bool | Tensor | None = None,
    ) -> Tensor:
        with self.scope(x):
            x = convert(x)
            of = x if source is None else convert(source)
            if isinstance(mask, Operand) and mask.dtype != BOOL and mask.ndim == 3:
                refuse(
                    f"{self}: the mask must be bool, got {mask.type}",
                    error=DTypeError,
                    hint="keys and values both come from source: attention(x, source, mask=mask)",
                )
            query, key, value = self._heads_of(x, of, None)
            in_training = check_training(self, training) if self.dropout else False

            def attended(dropout: float) -> Tensor:
                return attention(query, key, value, mask=mask, causal=self.causal, dropout=dropout)

            if isinstance(in_training, Tensor):
                y = cond(in_training, lambda: attended(self.dropout), lambda: attended(0.0))
            else:
                y = attended(self.dropout if in_training else 0.0)
            return self._joined(y)

    def with_cache(self, x: TensorLike, cache: AttentionCache) -> tuple[Tensor, AttentionCache]:
        """The results of steps that follow those in the cache, and the cache with them.

        Equal to the last results of a call on all the steps at once, outside training.

        Args:
            x: [batch, time, features]: one step, or several, such as a prompt.
            cache: from `empty_cache` or from the call before.

        Returns:
            ([batch, time, units], the new cache). Steps for which the cache has no room give
            NaN, and are an error in runs with `CompileOptions(check_numerics=True)`.

        Raises:
            AttributeValueError: the layer is not causal: earlier steps would see later ones.
            ShapeError: `x` is not of rank 3, or of another batch size than the cache.

        Examples:
            >>> attention = gc.nn.MultiHeadAttention(8, 2, causal=True)
            >>> cache = attention.empty_cache(4, 16)
            >>> y, cache = attention.with_cache(gc.ones((4, 1, 8)), cache)
            >>> y.shape
            (4, 1, 8)
        """
        if not self.causal:
            refuse(
                f"{self}: only causal attention can continue from a cache",
                error=AttributeValueError,
                hint="MultiHeadAttention(..., causal=True)",
            )
        with self.scope(x):
            x = convert(x)
            check_rank(self, x, (3,), _SEQUENCES)
            steps, room_left = x.type.shape[1], cache.key.type.shape[1] - x.type.shape[1]
            kind = type(self).__name__
            length = convert(cache.length)
            before = in_range(length, 0, room_left + 1, "steps in the cache", of=kind)
            positions = iota((steps,)) + before
            query, new_key, new_value = self._heads_of(x, x, positions)
            start = (0, before, 0, 0)
            key = dynamic_update_slice(cache.key, new_key, start)
            value = dynamic_update_slice(cache.value, new_value, start)
            room = iota((key.type.shape[1],))
            seen = less_equal(room, expand_dims(positions, 1))  # [time, room]
            y = self._joined(attention(query, key, value, mask=expand_dims(seen, (0, 1))))
            length = before + steps
            y = where(length <= key.type.shape[1], y, float("nan"))
            return y, AttentionCache(key, value, length)

    def empty_cache(self, batch: Dim, room: Dim, dtype: DTypeLike | None = None) -> AttentionCache:
        """A cache without steps, by default in the dtype of the variables.

        Args:
            batch: how many sequences.
            room: how many steps it can hold.
            dtype: of keys and values.

        Examples:
            >>> attention = gc.nn.MultiHeadAttention(8, 2, causal=True)
            >>> attention.empty_cache(4, 16).key.shape
            (4, 16, 2, 4)
        """
        shape = (batch, room, self.key_heads, self.head_size)
        wanted = self.dtype if dtype is None else dtype
        return AttentionCache(zeros(shape, wanted), zeros(shape, wanted), zeros((), "int32"))

    def _heads_of(self, x: Tensor, source: Tensor, positions: Any) -> tuple[Tensor, ...]:
        """Queries, keys and values: [batch, steps, heads, head size]."""
        for tensor in (x, source):
            check_rank(self, tensor, (3,), _SEQUENCES)
        rows = (self.query, x), (self.key, source), (self.value, source)
        query, key, value = (
            reshape(layer(steps), (*steps.type.shape[:2], -1, self.head_size))
            for layer, steps in rows
        )
        if self.rotary:
            query, key = (rotary_encoding(part, positions) for part in (query, key))
        return query, key, value

    def _joined(self, y: Tensor) -> Tensor:
        return self.out(reshape(y, (*y.type.shape[:2], self.heads * self.head_size)))


def _refuse(what: str, hint: str | None = None) -> None:
    refuse(f"MultiHeadAttention: {what}", error=AttributeValueError, hint=hint)
