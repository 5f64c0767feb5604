"""What runs on the host in the middle of a program: Python functions, and prints."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.experimental import io_callback

from graphc.errors import AttributeValueError, DTypeError, GradientError, ShapeError
from graphc.ir.dtypes import as_dtype
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, Effects, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ops.core.declared import ATTRS, declare, declared, structs
from graphc.ops.core.emit import convert, emit_node
from graphc.ops.structure.host_words import through_words

__all__ = ["print", "py_callback"]

Array = np.ndarray[Any, Any]


def _infer_callback(
    ctx: InferContext, *types: TensorType, function: Any, shapes: Any, dtypes: str
) -> tuple[TensorType, ...]:
    return declared(ctx, shapes, dtypes)


def _lower_callback(
    ctx: LowerContext, *operands: Any, function: Any, shapes: Any, dtypes: str
) -> tuple[Any, ...]:
    return _call_once(ctx, function, structs(ctx, shapes, dtypes), operands)


def _call_once(
    ctx: LowerContext,
    function: Callable[..., Any],
    results: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[Any],
) -> tuple[Any, ...]:
    """One call in a run: in program order on one device; from the first of several replicas."""
    if ctx.axis_name is None:
        return through_words(partial(io_callback, ordered=True), function, results, operands)

    def call(*values: Any) -> tuple[Any, ...]:
        return through_words(io_callback, function, results, values)

    def leave(*values: Any) -> tuple[Any, ...]:
        return tuple([jnp.zeros(s.shape, s.dtype) for s in results])

    given = lax.cond(lax.axis_index(ctx.axis_name) == 0, call, leave, *operands)
    return tuple([lax.psum(y, ctx.axis_name).astype(y.dtype) for y in given])


def _lower_pure_callback(
    ctx: LowerContext, *operands: Any, function: Any, shapes: Any, dtypes: str
) -> tuple[Any, ...]:
    call = partial(jax.pure_callback, vmap_method="sequential")
    return through_words(call, function, structs(ctx, shapes, dtypes), operands)


def _refuse_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    raise GradientError(
        f"{node.op.name} {node.name!r}: Python cannot be differentiated",
        source=node.source,
        hint="put gc.stop_gradient around the operands, where their gradient does not matter",
    )


_CALLED = {"function": Attr("function", doc="(arrays) -> list of arrays"), **ATTRS}

PY_CALLBACK = OpDef(
    name="PyCallback",
    signature="*operands -> *results",
    precision="wide",
    attrs=_CALLED,
    infer=_infer_callback,
    lower=_lower_callback,
    gradient=_refuse_gradient,
    effects=Effects.HOST,
    doc="A call of the Python `function` in each run that chooses it, in program order. Results "
    "have the declared types. On several replicas the first one calls, with whole operands. All "
    "dtypes.",
)

PURE_CALLBACK = OpDef(
    name="PureCallback",
    signature="*operands -> *results",
    precision="wide",
    attrs=_CALLED,
    infer=_infer_callback,
    lower=_lower_pure_callback,
    gradient=_refuse_gradient,
    doc="Calls of a Python `function` that only calculates: as often as results are needed, in "
    "any order. All dtypes.",
)


def _lower_print(ctx: LowerContext, *operands: Any, template: str) -> tuple[Any, ...]:
    def show(*values: Any) -> list[Any]:
        builtins.print(template.format(*values), flush=True)
        return []

    return _call_once(ctx, show, [], operands)


PRINT = OpDef(
    name="Print",
    signature="*xs ->",
    precision="wide",
    attrs={"template": Attr("str", doc="of str.format")},
    infer=lambda ctx, *xs, template: (),
    lower=_lower_print,
    differentiable=False,
    effects=Effects.HOST,
    doc="Prints `template`, with the values of `xs` for its braces, in each run that chooses it. "
    "All dtypes.",
)


def py_callback(
    fn: Callable[..., Any],
    result_specs: Any,
    *args: Any,
    pure: bool = False,
    name: str | None = None,
) -> Any:
    """The results of a Python function, which is called with NumPy arrays while the program runs.

    A program that calls back waits for Python in each run, is kept in no cache and cannot be
    saved; nor does it donate its state, which would be lost if `fn` raised.

    Args:
        fn: `(*arrays) -> results`: arrays, or Python numbers, in the nest of `result_specs`.
        result_specs: what it returns: a nest (tuples, lists, dicts) of `gc.TensorSpec`s, tensors,
            arrays or anything with a shape and a dtype. Sizes are ints, or named sizes of the
            graph. None where only the call matters.
        args: tensors, variables, arrays or numbers.
        pure: whether `fn` does nothing but calculate. It is then called as often as its results
            are needed, perhaps never; otherwise once in each run that chooses it, in program
            order (under a strategy: on the first replica).
        name: of the node.

    Returns:
        The nest of `result_specs`, with tensors. Without results: the node, to fetch, or for
        `gc.control_dependencies`. In a loop's body it is called in each iteration.

    Raises:
        AttributeValueError: `fn` is no function, or pure and without results.
        ShapeError: a size that is not known. What `fn` raises, or returns of another type than
            declared, fails the run: `ExecutionError`.

    Source: `jax.experimental.io_callback`, `jax.pure_callback`.
    """
    source = current_source()
    leaves, tree = jax.tree.flatten(result_specs)
    if not callable(fn):
        raise AttributeValueError(f"py_callback: {fn!r} is not a function", source=source)
    if pure and not leaves:
        raise AttributeValueError(
            "py_callback: a pure function without results does nothing",
            source=source,
            hint="leave out pure=True, or declare its results",
        )
    types = [_declared_type(leaf) for leaf in leaves]
    node = emit_node(
        PURE_CALLBACK if pure else PY_CALLBACK,
        [convert(arg) for arg in args],
        name=name,
        function=_on_arrays(fn, tree, types, source),
        **declare(types),
    )
    return jax.tree.unflatten(tree, node.outputs) if leaves else node


def _declared_type(spec: Any) -> TensorType:
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise AttributeValueError(
            f"py_callback: {spec!r} does not say a shape and a dtype",
            source=current_source(),
            hint='declare results as gc.TensorSpec((2, 3), "float32")',
        )
    if any(dim is None for dim in spec.shape):
        raise ShapeError(
            f"py_callback: the sizes of a result must be known, got {spec!r}",
            source=current_source(),
            hint='write ints or named sizes of the operands: gc.TensorSpec(("batch", 3))',
        )
    return TensorType(as_dtype(spec.dtype), tuple(spec.shape))


def _on_arrays(
    fn: Callable[..., Any], tree: Any, types: Sequence[TensorType], source: Any
) -> Callable[..., list[Array]]:
    """`fn` as a function that gives the list of its results, checked."""

    def call(*values: Array) -> list[Array]:
        returned = fn(*values)
        leaves, got = jax.tree.flatten(returned)
        if got != tree:
            raise AttributeValueError(
                f"py_callback: the function returned {got}, declared is {tree}", source=source
            )
        return [_result(*row, source) for row in zip(leaves, types, strict=True)]

    update_wrapper(call, fn)
    return call


def _result(value: Any, type: TensorType, source: Any) -> Array:
    """One result as an array of the declared type."""
    array = np.asarray(value, None if hasattr(value, "dtype") else type.dtype)
    if array.dtype != type.dtype:
        raise DTypeError(
            f"py_callback: the function returned {array.dtype}, declared is {type}", source=source
        )
    same = len(array.shape) == type.rank and all(
        size == dim
        for size, dim in zip(array.shape, type.shape, strict=True)
        if isinstance(dim, int)
    )
    if not same:
        raise ShapeError(
            f"py_callback: the function returned shape {array.shape}, declared is {type}",
            source=source,
        )
    return array


def print(template: Any, *args: Any, name: str | None = None) -> Node:
    """A node that prints while the program runs.

    It prints in each run that chooses it: fetch it, or put what is fetched under
    `with gc.control_dependencies([...])` with it. In a loop's body it prints in each iteration.
    Several print in program order (under a strategy: the first replica, in any order).

    Args:
        template: as for `str.format`, with `{}`, `{0}` or `{:.3f}` for the values; or a value
            to print alone.
        args: tensors, variables, arrays or numbers, whose values are NumPy arrays.
        name: of the node.

    Raises:
        AttributeValueError: the template and the values do not fit.

    Source: `jax.debug.print`.
    """
    if not isinstance(template, str):
        template, args = " ".join(["{}"] * (1 + len(args))), (template, *args)
    try:
        template.format(*[_AnyFormat()] * len(args))
    except (IndexError, KeyError, ValueError) as error:
        raise AttributeValueError(
            f"print: {template!r} does not fit {len(args)} values: {error}",
            source=current_source(),
            hint="write one {} for each value, and {{ and }} for braces",
        ) from error
    return emit_node(PRINT, [convert(arg) for arg in args], name=name, template=template)


class _AnyFormat:
    """Stands for a value in a template that is tried: any format does."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getattr__(self, name: str) -> _AnyFormat:
        return self

    def __getitem__(self, key: Any) -> _AnyFormat:
        return self


OPS: tuple[OpDef, ...] = (PY_CALLBACK, PURE_CALLBACK, PRINT)
