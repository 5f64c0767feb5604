"""Rules of matrix products, convolutions and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.jaxpr.conv_gradients import as_input_gradient, as_kernel_gradient
from graphc.jaxpr.equation import Equation, Results, Rule
from graphc.jaxpr.primitives import primitive
from graphc.jaxpr.shapes import inverse, transposed
from graphc.ops.arrays.shape import reshaped
from graphc.ops.arrays.slicing import pad_with
from graphc.ops.core.emit import constant, emit_one, to_dtype
from graphc.ops.matrices.contraction import dot_general
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.matrices.ragged import RAGGED_OUTER, ragged_dot
from graphc.ops.nn.conv_rules import CONV
from graphc.ops.scipy_api.fourier import FFT

Axes = tuple[int, ...]


def _ints(axes: Sequence[Any]) -> Axes:
    return tuple([int(axis) for axis in axes])


def _dot_general(eqn: Equation, a: Tensor, b: Tensor) -> Tensor:
    # A wider preferred_element_type requests sums in that dtype, which products of wider operands
    # provide. Where XLA gains from narrow operands, they are lowered with these: see
    # `ops.matrices.narrow_operands`. `precision`, which concerns the matrix units of GPUs and TPUs,
    # is left to the compile options.
    a, b = to_dtype(a, eqn.type.dtype), to_dtype(b, eqn.type.dtype)
    contract, batch = [(_ints(of_a), _ints(of_b)) for of_a, of_b in eqn.params["dimension_numbers"]]
    if _is_matmul(a, contract[0], batch[0]) and _is_matmul(b, contract[1], batch[1]):
        transpose_a = contract[0][0] == a.ndim - 2
        transpose_b = contract[1][0] == b.ndim - 1
        return emit_one(MATMUL, (a, b), transpose_a=transpose_a, transpose_b=transpose_b)
    if not batch[0] and a.ndim > 2 and b.ndim == 2 and contract == ((a.ndim - 1,), (0,)):
        return emit_one(MATMUL, (a, b))  # rows of several matrices multiplied by one matrix
    return dot_general(a, b, contract, batch)


def _is_matmul(x: Tensor, contract: Axes, batch: Axes) -> bool:
    """Whether `x` is a matrix, or a batch of them, contracted along one axis."""
    lead = x.ndim - 2
    return len(contract) == 1 and contract[0] >= lead >= 0 and batch == tuple(range(lead))


def _ragged_dot(eqn: Equation, a: Tensor, b: Tensor, *others: Tensor) -> Results:
    """Groups of rows, each with its own matrix, and the gradient of these matrices."""
    params = eqn.params
    dims = params["ragged_dot_dimension_numbers"]
    (of_a, of_b), batch = dims.dot_dimension_numbers
    rows = _ints(dims.lhs_ragged_dimensions) == (0,) and not any(map(tuple, batch))
    if rows and a.ndim == 2 and params["group_offset"] is None and others[0].ndim == 1:
        a, b = to_dtype(a, eqn.type.dtype), to_dtype(b, eqn.type.dtype)
        form = (b.ndim, _ints(dims.rhs_group_dimensions), _ints(of_a), _ints(of_b))
        if form == (3, (0,), (1,), (1,)):
            return ragged_dot(a, b, others[0])
        if form == (3, (0,), (1,), (2,)):
            return ragged_dot(a, transposed(b, (0, 2, 1)), others[0])
        if form == (2, (), (0,), (0,)):
            return emit_one(RAGGED_OUTER, (a, b, others[0]))
    return primitive(eqn, a, b, *others)


def _conv(eqn: Equation, x: Tensor, w: Tensor) -> Results:
    params = eqn.params
    spec = params["dimension_numbers"]
    lhs, rhs, out = (_ints(axes) for axes in (spec.lhs_spec, spec.rhs_spec, spec.out_spec))
    if len(lhs) == 2 or not is_floating(eqn.type.dtype):  # without spatial axes, or of integers
        return primitive(eqn, x, w)
    x, w = to_dtype(x, eqn.type.dtype), to_dtype(w, eqn.type.dtype)
    for recognised in (as_input_gradient, as_kernel_gradient):
        gradient = recognised(eqn, x, w, (lhs, rhs, out))
        if gradient is not None:
            return gradient
    # To [batch, space, channels] and [space, channels, filters].
    x = transposed(x, (lhs[0], *lhs[2:], lhs[1]))
    w = transposed(w, (*rhs[2:], rhs[1], rhs[0]))
    pads = [(int(low), int(high)) for low, high in params["padding"]]
    more = _more_positions(eqn, w, pads)
    pads = [(low, high + n) for (low, high), n in zip(pads, more, strict=True)]
    x, pads = _spread(eqn, x, pads)
    batch_groups = int(params["batch_group_count"])
    if batch_groups > 1:  # the gradient of a grouped convolution's kernel
        x = _as_channels(x, batch_groups)
    result = emit_one(
        CONV,
        (x, w),
        strides=eqn.ints("window_strides"),
        padding=tuple(pads),
        dilation=eqn.ints("rhs_dilation"),
        groups=int(params["feature_group_count"]) * batch_groups,
    )
    if any(more):
        sides = [(0, 0, 0), *((0, -n, 0) for n in more), (0, 0, 0)]
        result = pad_with(result, constant(0, result.dtype), sides)
    return transposed(result, inverse((out[0], *out[2:], out[1])))


def _more_positions(eqn: Equation, w: Tensor, pads: list[tuple[int, int]]) -> list[int]:
    """For each spatial axis, 1 if another position must be computed, which is cut off: XLA:CPU
    (jaxlib 0.10 and 0.12) ends the process for some convolutions with two taps over values with a
    gap of one, without padding. So does `jax.jit`."""
    rows = zip(
        w.shape[:-2],
        eqn.ints("lhs_dilation"),
        eqn.ints("rhs_dilation"),
        eqn.ints("window_strides"),
        pads,
        strict=True,
    )
    return [int(row == (2, 2, 1, 1, (0, 0))) for row in rows]


def _spread(
    eqn: Equation, x: Tensor, pads: list[tuple[int, int]]
) -> tuple[Tensor, list[tuple[int, int]]]:
    """Inserts zeros between the rows (for a transposed convolution), and removes rows for negative
    padding. Returns the padding that is left for the convolution.

    Rows with zeros between them are padded here as well: a convolution that pads takes XLA:CPU 2 to
    3.5 times as long then.
    """
    dilation = eqn.ints("lhs_dilation")
    is_spread = any(d > 1 for d in dilation)
    if not is_spread and all(p >= 0 for pair in pads for p in pair):
        return x, pads
    now = pads if is_spread else [(min(low, 0), min(high, 0)) for low, high in pads]
    triples = [(low, high, d - 1) for (low, high), d in zip(now, dilation, strict=True)]
    x = pad_with(x, constant(0, x.dtype), [(0, 0, 0), *triples, (0, 0, 0)])
    left = zip(pads, now, strict=True)
    return x, [(low - begin, high - end) for (low, high), (begin, end) in left]


def _as_channels(x: Tensor, groups: int) -> Tensor:
    """Turns groups of a batch into groups of channels."""
    batch, *space, channels = x.shape
    split = reshaped(x, (groups, batch // groups, *space, channels))
    last = split.ndim - 1
    moved = transposed(split, (*range(1, last), 0, last))
    return reshaped(moved, (batch // groups, *space, groups * channels))


def _fft(eqn: Equation, x: Tensor) -> Tensor:
    lengths = eqn.symbols.dims(eqn.params["fft_lengths"])
    return emit_one(FFT, (x,), kind=eqn.params["fft_type"].name, lengths=lengths)


RULES: dict[str, Rule] = {
    "conv_general_dilated": _conv,
    "dot_general": _dot_general,
    "fft": _fft,
    "ragged_dot_general": _ragged_dot,
}
