"""Rules of primitives that move elements: shapes, windows, joins, counting."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Rule
from graphc.ops.arrays.creation import iota, zeros
from graphc.ops.arrays.joining import concatenate, split
from graphc.ops.arrays.repeating import tile
from graphc.ops.arrays.shape import broadcast_to, reshaped, transpose
from graphc.ops.arrays.slicing import flip, pad_with, slice_
from graphc.ops.arrays.stacking import stack, unstack
from graphc.ops.core.emit import dim_value


def _reshape(eqn: Equation, x: Tensor) -> Tensor:
    if eqn.params.get("dimensions") is not None:
        x = transposed(x, eqn.ints("dimensions"))
    return reshaped(x, eqn.type.shape)


def _broadcast_in_dim(eqn: Equation, x: Tensor) -> Tensor:
    shape, places = eqn.type.shape, eqn.ints("broadcast_dimensions")
    spread: list[Any] = [1] * len(shape)
    for place, dim in zip(places, x.type.shape, strict=True):
        spread[place] = dim
    first = places[0] if places else len(shape)
    if places != tuple(range(first, len(shape))):
        x = reshaped(x, tuple(spread))
    elif tuple(spread) == shape:
        return reshaped(x, shape)  # only axes of size 1 are new
    return x if x.type.shape == shape else broadcast_to(x, shape)


def transposed(x: Tensor, perm: tuple[int, ...]) -> Tensor:
    """`x` with its axes in the order `perm`; itself if they are already in this order."""
    if perm == tuple(range(len(perm))):
        return x
    return transpose(x, perm)


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _concatenate(eqn: Equation, *operands: Tensor) -> Tensor:
    if len(operands) == 1:
        return operands[0]
    return concatenate(operands, int(eqn.params["dimension"]))


def _split(eqn: Equation, x: Tensor) -> tuple[Tensor, ...]:
    axis = int(eqn.params["axis"])
    sizes = [type.shape[axis] for type in eqn.types]
    return split(x, sizes, axis)


def _pad(eqn: Equation, x: Tensor, value: Tensor) -> Tensor:
    pads = [
        (eqn.symbols.dim(low), eqn.symbols.dim(high), int(interior))
        for low, high, interior in eqn.params["padding_config"]
    ]
    return pad_with(x, value, pads)


def _slice(eqn: Equation, x: Tensor) -> Tensor:
    params, dims = eqn.params, eqn.symbols.dims
    strides = None if params["strides"] is None else eqn.ints("strides")
    return slice_(x, dims(params["start_indices"]), dims(params["limit_indices"]), strides)


def _empty(eqn: Equation) -> Tensor:
    """JAX's memory without values, which no result may depend on."""
    return zeros(eqn.type.shape, eqn.type.dtype)


RULES: dict[str, Rule] = {
    "empty": _empty,
    "empty2": _empty,
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _concatenate,
    "dim_as_value": lambda eqn: dim_value(eqn.symbols.dim(eqn.params["dim"]), eqn.type.dtype),
    "expand_dims": lambda eqn, x: reshaped(x, eqn.type.shape),
    "iota": lambda eqn: iota(eqn.type.shape, int(eqn.params["dimension"]), eqn.type.dtype),
    "pad": _pad,
    "reshape": _reshape,
    "rev": lambda eqn, x: flip(x, eqn.ints("dimensions")),
    "slice": _slice,
    "split": _split,
    "squeeze": lambda eqn, x: reshaped(x, eqn.type.shape),
    "stack": lambda eqn, *xs: stack(xs, int(eqn.params["axis"])),
    "tile": lambda eqn, x: tile(x, eqn.ints("reps")),
    "transpose": lambda eqn, x: transposed(x, eqn.ints("permutation")),
    "unstack": lambda eqn, x: unstack(x, int(eqn.params["axis"])),
}
