"""The arithmetic of attention and of its adjoints, for all queries at once or in blocks.

At once, memory holds the weights of all queries: time * source elements for each head. In blocks,
it holds only the weights of one block of queries, so memory grows with the lengths, not with their
product. The adjoints recompute the weights. The weights of a query depend on all keys but on no
other query. So no running maximum is needed, and the results equal those of the plain form.

Source: Rabe & Staats, Self-attention does not need O(n^2) memory, 2021, arXiv:2112.05682; Dao et
al., FlashAttention, 2022, arXiv:2205.14135.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import BOOL, INT32
from graphc.ops.core.broadcasting import broadcast_axes
from graphc.ops.core.precision import shifted, wide
from graphc.ops.nn.attention_cudnn import by_cudnn, through_cudnn
from graphc.ops.nn.attention_operands import How, Operands, biases

_PIECES = 4  # of causal attention: the queries of a piece see no keys after its last query


class Adjoints(NamedTuple):
    """The adjoints of the `Operands` of these names. The biases are the floating masks, in their
    order."""

    query: Any
    key: Any
    value: Any
    biases: tuple[Any, ...]


def attend(of: Operands, how: How) -> Any:
    """[batch, time, heads, depth of value]: softmax(scale * query @ key^T + masks) @ value."""
    return _attend(of._replace(masks=tuple(map(_four_axes, of.masks))), how)


def adjoints(of: Operands, how: How) -> tuple[Any, ...]:
    """The adjoints of query, key, value and the biases, from `of.dy`."""
    four = of._replace(masks=tuple(map(_four_axes, of.masks)))
    found = Adjoints(*by_cudnn(four, how)[1](of.dy)) if how.flash else _adjoints(four, how)
    like = (of.query, of.key, of.value, *biases(of))
    flat = (found.query, found.key, found.value, *found.biases)
    return tuple(
        lax.convert_element_type(x, y.dtype).reshape(y.shape)
        for x, y in zip(flat, like, strict=True)
    )


def _attend(of: Operands, how: How) -> Any:
    if how.flash and how.alone:
        return through_cudnn(of, how, *of[:3], biases(of))
    if how.flash:
        return by_cudnn(of, how)[0]
    if how.each_entry and of.query.shape[0] > 1:
        entries, entry_of = _entries(of)
        return lax.map(lambda parts: _attend(entry_of(parts), how)[0], entries)
    if not 0 < how.rows < of.query.shape[1]:
        return _attend_at_once(of, how, 0)
    y = jnp.zeros((*of.query.shape[:3], of.value.shape[3]), of.value.dtype)
    for piece in _pieces(of, how):

        def turn(start: Any, y: Any, piece: _Piece = piece) -> Any:
            part = _attend_at_once(_rows(of, start, piece), how, start)
            return lax.dynamic_update_slice_in_dim(y, part, start, 1)

        y = piece.run(turn, y)
    return y


def _adjoints(of: Operands, how: How) -> Adjoints:
    """The adjoints, in the dtype of the sums."""
    if how.each_entry and of.query.shape[0] > 1:
        return _adjoints_over_entries(of, how)
    if not 0 < how.rows < of.query.shape[1]:
        return _adjoints_at_once(of, how, 0)
    query, key, value = map(_zeros, (of.query, of.key, of.value))
    total = Adjoints(query, key, value, tuple(map(_zeros, biases(of))))
    for piece in _pieces(of, how):

        def turn(start: Any, sums: Adjoints, piece: _Piece = piece) -> Adjoints:
            part = _adjoints_at_once(_rows(of, start, piece), how, start)
            biases = zip(sums.biases, part.biases, strict=True)
            return Adjoints(
                lax.dynamic_update_slice_in_dim(sums.query, part.query, start, 1),
                sums.key + part.key,
                sums.value + part.value,
                tuple(_added(whole, bias, start) for whole, bias in biases),
            )

        key, value = total.key[:, : piece.keys], total.value[:, : piece.keys]
        sums = piece.run(turn, total._replace(key=key, value=value))
        total = sums._replace(
            key=lax.dynamic_update_slice_in_dim(total.key, sums.key, 0, 1),
            value=lax.dynamic_update_slice_in_dim(total.value, sums.value, 0, 1),
        )
    return total


def _four_axes(mask: Any) -> Any:
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def _zeros(x: Any) -> Any:
    return jnp.zeros(x.shape, wide(x.dtype))


# -- some of the queries at a time ----------------------------------------------------------


class _Piece(NamedTuple):
    """Blocks of `rows` queries each, from `start` on, with the first `keys` keys."""

    start: int
    turns: int
    rows: int
    keys: int

    def run(self, turn: Callable[[Any, Any], Any], carried: Any) -> Any:
        """Applies `turn(first query, carried) -> carried` to each block."""
        if self.turns == 1:
            return turn(self.start, carried)

        def step(i: Any, carried: Any) -> Any:
            return turn(self.start + i * self.rows, carried)

        return lax.fori_loop(0, self.turns, step, carried)


def _pieces(of: Operands, how: How) -> Iterator[_Piece]:
    time, source, rows = of.query.shape[1], of.key.shape[1], how.rows
    turns = time // rows
    # A query that sees no key gives the mean of the values of all keys.
    spread = how.mean_if_blind and _may_be_blind(of)
    cut = how.causal and not spread
    pieces = _PIECES if cut else 1
    for first, last in pairwise(turns * i // pieces for i in range(pieces + 1)):
        if first < last:
            keys = min(last * rows, source) if cut else source
            yield _Piece(first * rows, last - first, rows, keys)
    if time % rows:
        yield _Piece(turns * rows, 1, time % rows, source)


def _rows(of: Operands, start: Any, piece: _Piece) -> Operands:
    """The operands of one block of queries."""

    def queries(x: Any, axis: int) -> Any:
        return lax.dynamic_slice_in_dim(x, start, piece.rows, axis)

    def pairs(x: Any) -> Any:
        x = x if x.shape[2] == 1 else queries(x, 2)
        return x if x.shape[3] == 1 else x[..., : piece.keys]

    return Operands(
        queries(of.query, 1),
        of.key[:, : piece.keys],
        of.value[:, : piece.keys],
        tuple(map(pairs, of.masks)),
        None if of.kept is None else pairs(of.kept),
        None if of.dy is None else queries(of.dy, 1),
    )


def _added(whole: Any, part: Any, start: Any) -> Any:
    """The adjoint of a bias plus the part for some queries and possibly only the first keys."""
    if whole.shape[2] != 1:
        return lax.dynamic_update_slice(whole, part, (0, 0, start, 0))
    part = whole[..., : part.shape[3]] + part
    return lax.dynamic_update_slice(whole, part, (0, 0, 0, 0))


# -- one entry of the batch at a time -------------------------------------------------------


def _entries(of: Operands) -> tuple[list[Any], Callable[[Sequence[Any]], Operands]]:
    """The arrays for `lax.map` to iterate over, and a function that builds operands of batch size 1
    from their slices."""
    leaves, tree = jax.tree.flatten(of)
    own = [x.shape[0] == of.query.shape[0] for x in leaves]  # others are shared masks

    def entry_of(parts: Sequence[Any]) -> Operands:
        given = iter(parts)
        pairs = zip(leaves, own, strict=True)
        entry = [next(given)[None] if mine else x for x, mine in pairs]
        made: Operands = jax.tree.unflatten(tree, entry)
        return made

    return [x for x, mine in zip(leaves, own, strict=True) if mine], entry_of


def _adjoints_over_entries(of: Operands, how: How) -> Adjoints:
    entries, entry_of = _entries(of)
    shared = [bias.shape[0] == 1 for bias in biases(of)]

    def turn(sums: list[Any], parts: list[Any]) -> tuple[list[Any], Any]:
        found = _adjoints(entry_of(parts), how)
        terms = [b for b, all_ in zip(found.biases, shared, strict=True) if all_]
        own = [b[0] for b, all_ in zip(found.biases, shared, strict=True) if not all_]
        sums = [a + b for a, b in zip(sums, terms, strict=True)]
        return sums, (*(x[0] for x in found[:3]), own)

    zeros = [_zeros(b) for b, all_ in zip(biases(of), shared, strict=True) if all_]
    sums, (query, key, value, own) = lax.scan(turn, zeros, entries)
    each = {True: iter(sums), False: iter(own)}
    return Adjoints(query, key, value, tuple(next(each[all_]) for all_ in shared))


# -- all of the queries given ---------------------------------------------------------------


def _grouped(x: Any, shared: int) -> Any:
    """[batch, time, heads, depth] with the heads split into [key heads, query heads of each]."""
    batch, time, heads, depth = x.shape
    return x.reshape(batch, time, shared, heads // shared, depth)


def _grouped_pairs(x: Any, shared: int) -> Any:
    """[batch, heads, time, source] with the heads split in the same way."""
    batch, heads, time, source = x.shape
    return x.reshape(batch, shared, heads // shared, time, source)


def _product(subscripts: str, a: Any, b: Any) -> Any:
    """A product of narrow operands, summed in float32."""
    total = wide(a.dtype)
    plain = functools.partial(jnp.einsum, subscripts, preferred_element_type=total)
    if a.dtype == total:
        return plain(a, b)

    def widened(a: Any, b: Any) -> Any:
        return plain(a.astype(total), b.astype(total))

    # XLA's products on CPU: bf16 x bf16 = f32 is "unsupported" if an operand was transposed.
    return lax.platform_dependent(a, b, cpu=widened, default=plain)


def _weights(of: Operands, how: How, first: Any) -> Any:
    """[batch, heads, time, source]: rows that sum to 1, or to 0 if the query sees no key.

    `first` is the index of the first query among all queries.
    """
    query, key = of.query, of.key
    pairs = _product("btkgd,bskd->bkgts", _grouped(query, key.shape[2]), key)
    batch, time, heads, _ = query.shape
    logits = pairs.reshape(batch, heads, time, key.shape[1]) * how.scale
    for bias in biases(of):
        logits = logits + lax.convert_element_type(bias, logits.dtype)
    seen = _seen(of, how, first)
    may_be_zero = _may_be_blind(of) and not how.mean_if_blind
    for mask in seen:
        logits = jnp.where(mask, logits, np.finfo(logits.dtype).min)
    if key.shape[1] == 0:  # there is no maximum
        return logits
    exponentials = lax.exp(shifted(logits, -1))
    weights = exponentials / jnp.sum(exponentials, axis=-1, keepdims=True)
    for mask in seen if may_be_zero else ():
        weights = jnp.where(mask, weights, 0)
    return weights


def _seen(of: Operands, how: How, first: Any) -> list[Any]:
    """Masks of the keys that each query sees. A key is seen if all masks are true."""
    seen = [mask for mask in of.masks if mask.dtype == BOOL]
    if how.causal:
        shape = (1, 1, of.query.shape[1], of.key.shape[1])
        rows, columns = (lax.broadcasted_iota(INT32, shape, axis) for axis in (2, 3))
        seen.append(rows + lax.convert_element_type(first, INT32) >= columns)
    return seen


def _may_be_blind(of: Operands) -> bool:
    """Whether a query may see no key. A causal query always sees the first key."""
    return any(mask.dtype == BOOL for mask in of.masks)


def _dropped(weights: Any, kept: Any, dropout: float) -> Any:
    return weights if kept is None else jnp.where(kept, weights / (1 - dropout), 0)


def _attend_at_once(of: Operands, how: How, first: Any) -> Any:
    value = of.value
    weights = _dropped(_weights(of, how, first), of.kept, how.dropout)
    weights = _grouped_pairs(lax.convert_element_type(weights, value.dtype), of.key.shape[2])
    mixed = _product("bkgts,bskd->btkgd", weights, value)
    y = lax.convert_element_type(mixed, value.dtype)
    return y.reshape(*of.query.shape[:3], value.shape[3])


def _adjoints_at_once(of: Operands, how: How, first: Any) -> Adjoints:
    query, key, value = of.query, of.key, of.value
    shared, dtype = key.shape[2], query.dtype
    # The same expressions as in the forward pass: XLA computes them once.
    weights = _weights(of, how, first)
    adjoint = _grouped(of.dy, shared)
    of_mixing = _product("btkgd,bskd->bkgts", adjoint, value).reshape(weights.shape)
    of_weights = _dropped(of_mixing, of.kept, how.dropout)
    mean = jnp.sum(of_weights * weights, axis=-1, keepdims=True)
    of_logits = weights * (of_weights - mean)
    if how.mean_if_blind and _may_be_blind(of):  # unseen keys have weights, but no adjoints
        for mask in _seen(of, how, first):
            of_logits = jnp.where(mask, of_logits, 0)
    pairs = _grouped_pairs(lax.convert_element_type(of_logits, dtype), shared)
    mixing = lax.convert_element_type(_dropped(weights, of.kept, how.dropout), dtype)
    of_biases = [  # summed over the axes along which the bias was broadcast
        jnp.sum(of_logits, axis=broadcast_axes(bias.shape, of_logits.shape)).reshape(bias.shape)
        for bias in biases(of)
    ]
    return Adjoints(
        _product("bkgts,bskd->btkgd", pairs, key).reshape(query.shape) * how.scale,
        _product("bkgts,btkgd->bskd", pairs, _grouped(query, shared)) * how.scale,
        _product("bkgts,btkgd->bskd", _grouped_pairs(mixing, shared), adjoint),
        tuple(of_biases),
    )
