"""Operations that arrange elements, and products of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend.mlir.dialects import stablehlo

from graphc.importers.stablehlo.operation import NotKnownError, Operation, constant

Rule = Callable[..., Any]


def _iota(op: Operation) -> Any:
    return lax.broadcasted_iota(op.dtype, op.shape, op.number("iota_dimension"))


def _broadcast_in_dim(op: Operation, x: Any) -> Any:
    if isinstance(x, np.ndarray) and op.shape == ():
        return x  # a constant, which reductions look at
    return lax.broadcast_in_dim(x, op.shape, op.ints("broadcast_dimensions"))


def _slice(op: Operation, x: Any) -> Any:
    return lax.slice(
        x, op.ints("start_indices"), op.ints("limit_indices"), op.ints("strides") or None
    )


def _pad(op: Operation, x: Any, value: Any) -> Any:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return lax.pad(x, value, list(zip(*map(op.ints, names), strict=True)))


def _dynamic_slice(op: Operation, x: Any, *starts: Any) -> Any:
    return lax.dynamic_slice(x, starts, op.ints("slice_sizes"))


def _dynamic_update_slice(op: Operation, x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, starts)


def _dot(op: Operation, x: Any, y: Any) -> Any:
    form = stablehlo.DotDimensionNumbers(op.attribute("dot_dimension_numbers"))
    contracting = tuple(form.lhs_contracting_dimensions), tuple(form.rhs_contracting_dimensions)
    batch = tuple(form.lhs_batching_dimensions), tuple(form.rhs_batching_dimensions)
    return lax.dot_general(x, y, (contracting, batch), preferred_element_type=op.dtype)


def _convolution(op: Operation, x: Any, kernel: Any) -> Any:
    form = stablehlo.ConvDimensionNumbers(op.attribute("dimension_numbers"))
    spatial = len(form.input_spatial_dimensions)
    turned = op.array("window_reversal") if op.has("window_reversal") else np.zeros(spatial)
    axes = [
        a for a, is_turned in zip(form.kernel_spatial_dimensions, turned, strict=True) if is_turned
    ]
    if axes:
        kernel = lax.rev(kernel, axes)
    ones = (1,) * spatial
    padding = (
        op.array("padding").reshape(spatial, 2) if op.has("padding") else np.zeros((spatial, 2))
    )
    return lax.conv_general_dilated(
        x,
        kernel,
        op.ints("window_strides", ones),
        [(int(low), int(high)) for low, high in padding],
        lhs_dilation=op.ints("lhs_dilation", ones),
        rhs_dilation=op.ints("rhs_dilation", ones),
        dimension_numbers=lax.ConvDimensionNumbers(
            (
                form.input_batch_dimension,
                form.input_feature_dimension,
                *form.input_spatial_dimensions,
            ),
            (
                form.kernel_output_feature_dimension,
                form.kernel_input_feature_dimension,
                *form.kernel_spatial_dimensions,
            ),
            (
                form.output_batch_dimension,
                form.output_feature_dimension,
                *form.output_spatial_dimensions,
            ),
        ),
        feature_group_count=op.number("feature_group_count", 1),
        batch_group_count=op.number("batch_group_count", 1),
        preferred_element_type=op.dtype,
    )


def _index_last(indices: Any, axis: int) -> Any:
    """The indices with the axis of their components last."""
    if axis == indices.ndim:
        return jnp.expand_dims(indices, -1)
    return jnp.moveaxis(indices, axis, -1)


def _gather(op: Operation, x: Any, indices: Any) -> Any:
    form = stablehlo.GatherDimensionNumbers(op.attribute("dimension_numbers"))
    return lax.gather(
        x,
        _index_last(indices, form.index_vector_dim),
        lax.GatherDimensionNumbers(
            offset_dims=tuple(form.offset_dims),
            collapsed_slice_dims=tuple(form.collapsed_slice_dims),
            start_index_map=tuple(form.start_index_map),
            operand_batching_dims=tuple(form.operand_batching_dims),
            start_indices_batching_dims=tuple(form.start_indices_batching_dims),
        ),
        op.ints("slice_sizes"),
        mode=lax.GatherScatterMode.CLIP,
        indices_are_sorted=bool(op.number("indices_are_sorted")),
    )


_SCATTERS = {
    "stablehlo.add": lax.scatter_add,
    "stablehlo.maximum": lax.scatter_max,
    "stablehlo.minimum": lax.scatter_min,
    "stablehlo.multiply": lax.scatter_mul,
    "": lax.scatter,
}


def _scatter(op: Operation, *operands: Any) -> Any:
    if len(operands) != 3:
        raise NotKnownError("stablehlo.scatter of several arrays")
    x, indices, updates = operands
    function = _SCATTERS.get(_update_of(op))
    if function is None:
        raise NotKnownError("stablehlo.scatter with another function than a usual one")
    form = stablehlo.ScatterDimensionNumbers(op.attribute("scatter_dimension_numbers"))
    return function(
        x,
        _index_last(indices, form.index_vector_dim),
        updates,
        lax.ScatterDimensionNumbers(
            update_window_dims=tuple(form.update_window_dims),
            inserted_window_dims=tuple(form.inserted_window_dims),
            scatter_dims_to_operand_dims=tuple(form.scattered_dims_to_operand_dims),
            operand_batching_dims=tuple(form.input_batching_dims),
            scatter_indices_batching_dims=tuple(form.scatter_indices_batching_dims),
        ),
        indices_are_sorted=bool(op.number("indices_are_sorted")),
        unique_indices=bool(op.number("unique_indices")),
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )


def _update_of(op: Operation) -> str:
    """The operation that a scatter applies: "" if the update replaces the element; "?" if none is
    known."""
    block = op.block()
    old, new = block.arguments
    *inner, last = [each.operation for each in block.operations]
    (result,) = last.operands
    if not inner:
        return "" if result == new else "?"
    if len(inner) == 1 and {*inner[0].operands} == {old, new} and result == inner[0].results[0]:
        return str(inner[0].name)
    return "?"


def _cholesky(op: Operation, a: Any) -> Any:
    if op.number("lower") == 0:
        raise NotKnownError("an upper stablehlo.cholesky")
    return lax.linalg.cholesky(a, symmetrize_input=False)


def _triangular_solve(op: Operation, a: Any, b: Any) -> Any:
    transposed = op.word("transpose_a")
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=bool(op.number("left_side")),
        lower=bool(op.number("lower")),
        unit_diagonal=bool(op.number("unit_diagonal")),
        transpose_a=transposed in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=transposed == "ADJOINT",
    )


def _fft(op: Operation, x: Any) -> Any:
    return lax.fft(x, jax.lax.FftType[op.word("fft_type")], op.ints("fft_length"))


def _norm(op: Operation, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    axis = op.number("feature_index")
    epsilon = np.asarray(float(op.attribute("epsilon").value), variance.dtype)

    def spread(value: Any) -> Any:
        return lax.broadcast_in_dim(value, x.shape, (axis,))

    factor = scale * lax.rsqrt(variance + epsilon)
    return (x - spread(mean)) * spread(factor) + spread(offset)


RULES: Mapping[str, Rule] = {
    "stablehlo.batch_norm_inference": _norm,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.concatenate": lambda op, *xs: lax.concatenate(xs, op.number("dimension")),
    "stablehlo.constant": lambda op: constant(op.raw),
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.fft": _fft,
    "stablehlo.gather": _gather,
    "stablehlo.get_dimension_size": lambda op, x: np.int32(x.shape[op.number("dimension")]),
    "stablehlo.iota": _iota,
    "stablehlo.optimization_barrier": lambda op, *values: list(values),
    "stablehlo.pad": _pad,
    "stablehlo.reshape": lambda op, x: lax.reshape(x, op.shape),
    "stablehlo.reverse": lambda op, x: lax.rev(x, op.ints("dimensions")),
    "stablehlo.scatter": _scatter,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": lambda op, x: lax.transpose(x, op.ints("permutation")),
    "stablehlo.triangular_solve": _triangular_solve,
}
