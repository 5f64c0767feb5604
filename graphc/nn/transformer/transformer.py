"""`TransformerBlock`: attention and a network of two layers, both with residual connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.nn.layers.activations import Activation
from graphc.nn.layers.dropout import Dropout
from graphc.nn.layers.layer import Layer, check_rank, features_of, positive
from graphc.nn.layers.linear import Dense
from graphc.nn.layers.normalization import LayerNorm
from graphc.nn.layers.regularizers import AnyRegularizer
from graphc.nn.transformer.multi_head import AttentionCache, MultiHeadAttention
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert
from graphc.typing import DTypeLike, TensorLike

__all__ = ["TransformerBlock"]


class TransformerBlock(Layer):
    """Attention, then a network of two layers for each step, with norms and residual connections.

    With `norm_first`, attention gives `x + attention(norm(x))` (Xiong et al., 2020), otherwise
    `norm(x + attention(x))` (Vaswani et al., 2017). The same holds for the network.

    Variables: those of the layers `attention`, `attention_norm`, `expand`, `contract` and
    `network_norm`.

    Args:
        units: the number of features of input and result.
        heads, key_heads, causal, rotary: see `MultiHeadAttention`.
        hidden: the size between the network's two layers; by default `4 * units`.
        activation: between the network's two layers: a function of a tensor, or its name.
        dropout: in training, the rate of dropout on the weights of attention, and on the results
            that are added to `x`.
        norm_first: whether each norm is before its layer, or after the sum.
        norm: makes a normalization layer, such as `gc.nn.LayerNorm`, from `name` and `dtype`.
        name, dtype: see `Layer`.
        kernel_regularizer, bias_regularizer: of attention and of the network, as for `Dense`.

    Calling it takes `x` [batch, time, units], a `mask` as for `MultiHeadAttention`, and `training`,
    which is required if there is dropout; it gives the shape of `x`.

    Raises:
        AttributeValueError: an option has an invalid value, or `training` is missing.
        ShapeError: `x` is not of rank 3, or does not have `units` features.

    Source: Xiong et al., "On layer normalization in the transformer architecture", 2020; Vaswani et
    al., "Attention is all you need", 2017.

    Examples:
        >>> block = gc.nn.TransformerBlock(32, heads=4, causal=True, rotary=True)
        >>> block(gc.ones((2, 10, 32))).shape
        (2, 10, 32)
    """

    def __init__(
        self,
        units: int,
        heads: int,
        hidden: int | None = None,
        activation: Activation | str | None = "gelu",
        key_heads: int | None = None,
        causal: bool = False,
        rotary: bool = False,
        dropout: float = 0.0,
        norm_first: bool = True,
        norm: Callable[..., Any] = LayerNorm,
        name: str | None = None,
        dtype: DTypeLike = "float32",
        *,
        kernel_regularizer: AnyRegularizer = None,
        bias_regularizer: AnyRegularizer = None,
    ) -> None:
        super().__init__(name, dtype)
        self.units = positive("TransformerBlock", "units", units)
        self.norm_first = norm_first
        self.attention_norm = norm(name="attention_norm", dtype=dtype)
        self.attention = MultiHeadAttention(
            units,
            heads,
            key_heads,
            causal=causal,
            rotary=rotary,
            dropout=dropout,
            name="attention",
            dtype=dtype,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )
        dense = partial(
            Dense,
            dtype=dtype,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )
        self.expand = dense(4 * units if hidden is None else hidden, activation, name="expand")
        self.contract = dense(units, name="contract")
        self.network_norm = norm(name="network_norm", dtype=dtype)
        self.dropout = Dropout(dropout) if dropout else None

    def __call__(
        self, x: TensorLike, mask: TensorLike | None = None, training: bool | Tensor | None = None
    ) -> Tensor:
        with self.scope(x):
            x = self._checked(x)
            taken = self.attention_norm(x) if self.norm_first else x
            mixed = self.attention(taken, mask=mask, training=training)
            return self._rest(x, mixed, training)

    def with_cache(self, x: TensorLike, cache: AttentionCache) -> tuple[Tensor, AttentionCache]:
        """The results of steps that follow those in the cache, and the cache with them.

        See `MultiHeadAttention.with_cache`.

        Examples:
            >>> block = gc.nn.TransformerBlock(8, 2, causal=True)
            >>> y, cache = block.with_cache(gc.ones((4, 1, 8)), block.empty_cache(4, 16))
            >>> y.shape
            (4, 1, 8)
        """
        with self.scope(x):
            x = self._checked(x)
            taken = self.attention_norm(x) if self.norm_first else x
            mixed, cache = self.attention.with_cache(taken, cache)
            return self._rest(x, mixed, training=False), cache

    def empty_cache(self, batch: Dim, room: Dim, dtype: DTypeLike | None = None) -> AttentionCache:
        """A cache without steps: see `MultiHeadAttention.empty_cache`.

        Examples:
            >>> block = gc.nn.TransformerBlock(8, 2, causal=True)
            >>> block.empty_cache(4, 16).key.shape
            (4, 16, 2, 4)
        """
        return self.attention.empty_cache(batch, room, dtype)

    def _checked(self, x: Any) -> Tensor:
        tensor = convert(x)
        check_rank(self, tensor, (3,), "[batch, time, features] (rank 3)")
        if features_of(self, tensor) != self.units:
            refuse(f"{self}: the input must have {self.units} features, like the result", x=tensor)
        return tensor

    def _rest(self, x: Tensor, mixed: Tensor, training: bool | Tensor | None) -> Tensor:
        """The part of the block after attention: the sums, the norms and the network."""
        x = self._added(x, mixed, training)
        if not self.norm_first:
            x = self.attention_norm(x)
        taken = self.network_norm(x) if self.norm_first else x
        x = self._added(x, self.contract(self.expand(taken)), training)
        return x if self.norm_first else self.network_norm(x)

    def _added(self, x: Tensor, change: Tensor, training: bool | Tensor | None) -> Tensor:
        return x + (change if self.dropout is None else self.dropout(change, training))
