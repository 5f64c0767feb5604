"""How operator functions create nodes: they convert and promote operands, then add one node."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import DTypeError, GraphError, PromotionWarning
from graphc.ir.dims import Dim, DimExpr
from graphc.ir.dtypes import (
    COMPLEX128,
    FLOAT32,
    FLOAT64,
    INT32,
    SCALAR_DEFAULTS,
    DType,
    as_dtype,
    is_64bit,
    is_complex,
    is_floating,
    is_inexact,
    is_integer,
    promote,
    promote_scalar,
)
from graphc.ir.graph import Graph
from graphc.ir.host_values import fitted, host_array, number, python_kind
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, of_elements
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, LowerContext, OpDef
from graphc.ir.operand import Operand
from graphc.ir.operators import JaxValueError
from graphc.ir.program import Program
from graphc.ir.scopes import AMBIENT, current_graph
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.ops.core.cost_rules import free, moves_only
from graphc.ops.core.defining import define, without_gradient
from graphc.ops.core.layout_rules import SUM, elementwise, replicated
from graphc.ops.core.weak_numbers import has_default, is_weak, scalar_kind
from graphc.typing import DTypeLike, TensorLike

__all__ = ["cast", "constant"]


CONSTANT = without_gradient(
    "Constant() -> y",
    attrs={"value": Attr("array")},
    infer=lambda ctx, *, value: TensorType(as_dtype(value.dtype), value.shape),
    lower=lambda ctx, *, value: value,
    layout=replicated,
    fold=lambda *, value: value,
    cost=free,
    doc="The array `value`.",
)


def _lower_cast(ctx: LowerContext, x: Any, *, dtype: DType) -> Any:
    if is_complex(x.dtype) and not is_complex(dtype):
        x = x.real  # as NumPy does, without its warning
    return lax.convert_element_type(x, dtype)


def _cast_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> list[Tensor | None]:
    source = node.inputs[0].type.dtype
    if not (is_inexact(source) and is_inexact(node.outputs[0].type.dtype)):
        return [None]
    return [to_dtype(dy, source)]


@of_elements
def _cast_layout(ctx: LayoutContext, node: Node, x: Layout) -> LayoutPlan:
    """The terms of a partial sum may be widened separately: their sum is then more exact."""
    source, dtype = node.inputs[0].type.dtype, node.attrs["dtype"]
    if x == SUM and is_floating(source) and is_floating(dtype):
        to, of = ml_dtypes.finfo(dtype), ml_dtypes.finfo(source)  # type: ignore[no-untyped-call]
        if to.nmant > of.nmant and to.nexp >= of.nexp:
            return LayoutPlan([x], [x])
    return elementwise(ctx, node, x)


def _fold_cast(x: np.ndarray[Any, Any], *, dtype: DType) -> np.ndarray[Any, Any] | None:
    """None for floats outside the range of an integer dtype: NumPy wraps them, XLA clips them."""
    if is_complex(x.dtype) and not is_complex(dtype):
        x = x.real
    if is_integer(dtype) and is_floating(x.dtype):
        limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        whole = np.trunc(x.astype(np.float64))
        if not ((whole >= float(limits.min)) & (whole < float(limits.max) + 1)).all():
            return None
    return x.astype(dtype)


CAST = define(
    "Cast(x) -> y",
    precision="wide",
    attrs={"dtype": Attr("dtype")},
    infer=lambda ctx, x, *, dtype: TensorType(dtype, x.shape),
    lower=_lower_cast,
    gradient=_cast_gradient,
    layout=_cast_layout,
    fold=_fold_cast,
    cost=moves_only,
    doc="Conversion to `dtype`; complex to real drops the imaginary part. All dtypes.",
)


DIM_VALUE = without_gradient(
    "DimValue() -> n",
    attrs={"dim": Attr("dim"), "dtype": Attr("dtype")},
    infer=lambda ctx, *, dim, dtype: TensorType(dtype, ()),
    lower=lambda ctx, *, dim, dtype: jnp.asarray(ctx.dim(dim), dtype),
    layout=replicated,
    fold=lambda *, dim, dtype: np.asarray(dim, dtype) if isinstance(dim, int) else None,
    cost=free,
    doc="The size `dim` as a scalar; the global size in a data-parallel run.",
)


def graph_of(operands: Sequence[Any]) -> Graph:
    """The graph for new nodes: the one being built, or else the graph of the operands."""
    if AMBIENT.graphs:
        return AMBIENT.graphs[-1]
    for operand in operands:
        if isinstance(operand, (Tensor, Variable)) and operand.graph is not None:
            return operand.graph
    return current_graph()  # raises


def as_array(value: Any, dtype: DType | None = None) -> np.ndarray[Any, Any]:
    """`value` as an array of a graphc dtype. Python numbers, and NumPy scalars of float64,
    complex128 and int64, take JAX's default width.

    Raises:
        DTypeError: `value` is not numeric, or a number does not fit the dtype: see
            `graphc.ir.host_values`.
    """
    if isinstance(value, np.generic) and (is_weak(value) if dtype else has_default(value)):
        value = scalar_kind(value)(value)  # type: ignore[misc]  # then checked like a Python number
    if type(value) in SCALAR_DEFAULTS:
        found = number(value, dtype or SCALAR_DEFAULTS[type(value)])
        if found is not None:
            return found
    try:
        array = host_array(value, dtype)
        if dtype is None:
            scalar = python_kind(value, array)
            dtype = array.dtype if scalar is None else SCALAR_DEFAULTS[scalar]
        return fitted(array, dtype)
    except DTypeError as error:
        source = AMBIENT.source or current_source()
        if isinstance(value, jax.core.Tracer):
            raise JaxValueError(
                f"a function of graphc is called with a value that JAX traces ({value.aval})",
                source=source,
                hint="use jax.numpy inside a function that JAX calls; gc.from_jax(function)(x) "
                "makes nodes of it",
            ) from None
        error.source = error.source or source
        raise


def constant(
    value: TensorLike, dtype: DTypeLike | None = None, *, name: str | None = None
) -> Tensor:
    """A tensor that holds a copy of `value`: a number, nested lists, or an array.

    Python numbers get JAX's default dtypes (int32, float32, complex64). So do NumPy scalars of
    float64, complex128 and int64, such as `np.sqrt(64)`. Arrays and other NumPy scalars keep their
    dtype.

    Examples:
        >>> run(gc.constant([1, 2], "float32"))
        Array([1., 2.], dtype=float32)
    """
    if isinstance(value, Operand):
        raise GraphError.here(
            f"{value!r} is a tensor already", hint="use it as it is; gc.cast changes its dtype"
        )
    array = np.array(as_array(value, None if dtype is None else as_dtype(dtype)))
    array.flags.writeable = False
    return emit_one(CONSTANT, (), name, value=array)


def convert(value: Any, dtype: DType | None = None) -> Tensor:
    """`value` as a tensor: a variable is read, a number or array becomes a constant."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Variable):
        return value.read()
    if isinstance(value, DimExpr):
        return dim_value(value, dtype or INT32)
    return constant(value, dtype)


def dim_value(dim: Dim, dtype: Any = INT32) -> Tensor:
    """The size `dim` as a scalar; a constant if it is an int."""
    if isinstance(dim, int):
        return constant(dim, dtype)
    return emit_one(DIM_VALUE, (), dim=dim, dtype=as_dtype(dtype))


def cast(x: TensorLike, dtype: DTypeLike, *, name: str | None = None) -> Tensor:
    """`x` converted to `dtype`; complex to real drops the imaginary part.

    Examples:
        >>> run(gc.cast([1.7, -1.7], "int32"))
        Array([ 1, -1], dtype=int32)
    """
    wanted = as_dtype(dtype)
    tensor = convert(x)
    return tensor if tensor.type.dtype == wanted else emit_one(CAST, (tensor,), name, dtype=wanted)


def _promote(a: DType, b: DType) -> DType:
    try:
        return promote(a, b)
    except DTypeError as error:  # with the user's line
        source = AMBIENT.source or current_source()
        raise DTypeError(error.what, source=source, hint=error.hint) from error


def promote_types(*values: Any) -> DType:
    """The common dtype of the values, by JAX's promotion rules.

    Python numbers and NumPy scalars are weak. Without a tensor or an array among the values, NumPy
    scalars of other dtypes than float64, complex128 and int64 keep their dtype.
    """
    kinds = [scalar_kind(value) for value in values]
    if None not in kinds:
        kinds = [
            None if isinstance(v, np.generic) and not has_default(v) else k
            for v, k in zip(values, kinds, strict=True)
        ]
    result: DType | None = None
    for value, kind in zip(values, kinds, strict=True):
        if kind is None:
            own = value.dtype if isinstance(value, Operand) else as_array(value).dtype
            result = own if result is None else _promote(result, own)
    for kind in kinds:
        if kind is not None:
            result = SCALAR_DEFAULTS[kind] if result is None else promote_scalar(result, kind)
    if result is None:
        raise GraphError.here("no operands")
    return result


def promote_operands(*values: Any, cast_to: DType | None = None) -> list[Tensor]:
    """The values as tensors of one dtype: `cast_to`, or their common dtype."""
    first = values[0]
    if cast_to is None:  # the common case, without a search: tensors of one dtype
        if isinstance(first, Tensor):
            dtype = first.type.dtype
            if all(isinstance(v, Tensor) and v.type.dtype is dtype for v in values):
                return list(values)
        cast_to = promote_types(*values)
        if cast_to.itemsize >= 8:
            _warn_of_widening(cast_to, values)
    return [to_dtype(value, cast_to) for value in values]


def promote_inexact(*values: Any) -> list[Tensor]:
    """The values as tensors of one floating or complex dtype; integers and bools give float32."""
    dtype = promote_types(*values)
    if not is_inexact(dtype):
        dtype = FLOAT32
    elif dtype.itemsize >= 8:
        _warn_of_widening(dtype, values)
    return [
        v if isinstance(v, Tensor) and v.type.dtype is dtype else to_dtype(v, dtype) for v in values
    ]


_warned: dict[Any, Any] = {}  # the registry of Python's warnings: each line warns once


def _warn_of_widening(dtype: DType, values: Sequence[Any]) -> None:
    """Warns if an array or a variable widens a calculation on 32-bit tensors to 64 bits. NumPy's
    default dtype is seldom intended."""
    if dtype not in (FLOAT64, COMPLEX128):
        return
    wide = [
        v
        for v in values
        if isinstance(v, Variable) and is_64bit(v.dtype) and isinstance(v.initial, np.ndarray)
    ]
    own = [v.dtype for v in values if isinstance(v, Operand) and is_inexact(v.dtype)]
    narrow = [each for each in own if not is_64bit(each)]
    if not narrow or len(narrow) + len(wide) < len(own):
        return
    others = [
        as_array(v).dtype  # `v.dtype` may be a dtype of another library
        for v in values
        if hasattr(v, "dtype") and not isinstance(v, (Operand, np.generic))
    ]
    array = next((other for other in others if other in (FLOAT64, COMPLEX128)), None)
    if array is not None:
        what = f"an array of {array.name}"
        hint = f"give the array the tensor's dtype, as in array.astype({narrow[0].name!r})"
    elif wide:
        what = f"the variable {wide[0].name!r} of {wide[0].dtype.name}"
        hint = f"gc.variable(value, dtype={narrow[0].name!r}); NumPy's default is float64"
    else:
        return
    source = AMBIENT.source or current_source()
    text = (
        f"{what} turns a tensor of {narrow[0].name} into {dtype.name}\n"
        f"  at {source}     {source.code if source else ''}\n"
        f"  hint: {hint}, or cast the tensor if {dtype.name} is meant"
    )
    if source is None:
        warnings.warn(text, PromotionWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, PromotionWarning, source.file, source.line, registry=_warned)


def to_dtype(value: Any, dtype: DType) -> Tensor:
    """`value` as a tensor of `dtype`; a number or array is converted on the host."""
    if not isinstance(value, Operand):
        return convert(value, dtype)
    tensor = convert(value)
    if tensor.type.dtype == dtype:
        return tensor
    return emit_one(CAST, (tensor,), dtype=dtype)


def emit(op: OpDef, inputs: Sequence[Tensor], /, *, name: str | None = None, **attrs: Any) -> Any:
    """Adds a node without regions and returns its result, or a tuple of results if there is not
    exactly one."""
    outputs = emit_node(op, inputs, name=name, **attrs).outputs
    return outputs[0] if len(outputs) == 1 else outputs


def emit_one(
    op: OpDef, inputs: Sequence[Tensor], /, name: str | None = None, **attrs: Any
) -> Tensor:
    """`emit` for an operator with one result."""
    graph = AMBIENT.graphs[-1] if AMBIENT.graphs else graph_of(inputs)
    return graph.add(op, inputs, attrs, (), name).outputs[0]


def emit_node(
    op: OpDef,
    inputs: Sequence[Tensor],
    /,
    *,
    name: str | None = None,
    regions: tuple[Program, ...] = (),
    **attrs: Any,
) -> Node:
    """Adds a node to the graph being built, or to the operands' graph, and returns it."""
    graph = AMBIENT.graphs[-1] if AMBIENT.graphs else graph_of(inputs)
    return graph.add(op, inputs, attrs, regions, name)
