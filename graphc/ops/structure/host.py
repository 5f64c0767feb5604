"""Operators that run on the host during a run: calls of Python functions, and prints."""

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

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.dtypes import Array, as_dtype
from graphc.ir.node import Node
from graphc.ir.opdef import PURE, Attr, Effects, InferContext, LowerContext, OpDef
from graphc.ir.source import Source, current_source
from graphc.ir.types import TensorType
from graphc.ops.core.checks import no_gradient
from graphc.ops.core.declared import ATTRS, declare, declared, structs
from graphc.ops.core.defining import define, without_gradient
from graphc.ops.core.emit import convert, emit_node
from graphc.ops.structure.host_words import through_words
from graphc.typing import TensorLike, TensorTree

__all__ = ["print", "py_callback"]


def _infer_callback(
    ctx: InferContext, *types: TensorType, function: Any, shapes: Any, dtypes: str
) -> tuple[TensorType, ...]:
    return declared(ctx, shapes, dtypes)


def _call_once(
    ctx: LowerContext,
    function: Callable[..., Any],
    results: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[Any],
) -> tuple[Any, ...]:
    """One call in each run: in program order on one device, or from the first replica."""
    if ctx.axis_name is None:
        return through_words(partial(io_callback, ordered=True), function, results, operands)

    def call(*values: Any) -> tuple[Any, ...]:
        return through_words(io_callback, function, results, values)

    def leave(*values: Any) -> tuple[Any, ...]:
        return tuple([jnp.zeros(s.shape, s.dtype) for s in results])

    given = lax.cond(lax.axis_index(ctx.axis_name) == 0, call, leave, *operands)
    return tuple([lax.psum(y, ctx.axis_name).astype(y.dtype) for y in given])


def _callback(
    schema: str, call: Callable[..., tuple[Any, ...]], doc: str, effects: Effects = PURE
) -> OpDef:
    """The record of an operator that calls a Python function: `call` gets the function, the types
    of the results, and the operands."""
    return define(
        schema,
        precision="wide",
        attrs={"function": Attr("function", doc="(arrays) -> list of arrays"), **ATTRS},
        infer=_infer_callback,
        lower=lambda ctx, *operands, function, shapes, dtypes: call(
            ctx, function, structs(ctx, shapes, dtypes), operands
        ),
        gradient=no_gradient(
            lambda node: (
                f"{node.op.name} {node.name!r}: a Python function cannot be differentiated"
            ),
            hint="wrap the operands in gc.stop_gradient if their gradient does not matter",
        ),
        effects=effects,
        doc=doc,
    )


PY_CALLBACK = _callback(
    "PyCallback(*operands) -> *results",
    _call_once,
    effects=Effects.HOST,
    doc="A call of the Python `function` in each run that selects the node, in program order. The "
    "results have the declared types. With several replicas, the first one calls, with whole "
    "operands. All dtypes.",
)

PURE_CALLBACK = _callback(
    "PureCallback(*operands) -> *results",
    lambda ctx, *call: through_words(partial(jax.pure_callback, vmap_method="sequential"), *call),
    doc="Calls of a Python `function` without side effects: as often as its results are needed, "
    "in any order. All dtypes.",
)


def _lower_print(ctx: LowerContext, *operands: Any, template: str) -> tuple[Any, ...]:
    def show(*values: Any) -> list[Any]:
        builtins.print(template.format(*values), flush=True)
        return []

    return _call_once(ctx, show, [], operands)


PRINT = without_gradient(
    "Print(*xs) -> ",
    attrs={"template": Attr("str", doc="of str.format")},
    infer=lambda ctx, *xs, template: (),
    lower=_lower_print,
    effects=Effects.HOST,
    doc="Prints `template`, with the values of `xs` in its braces, in each run that selects the "
    "node. All dtypes.",
)


def py_callback(
    fn: Callable[..., Any],
    result_specs: TensorTree,
    *args: TensorTree,
    pure: bool = False,
    name: str | None = None,
) -> TensorTree:
    """Calls a Python function with NumPy arrays while the program runs.

    Each run of such a program waits for Python. The program is not cached and cannot be saved. It
    does not donate its state, which would be lost if `fn` raised.

    Args:
        fn: `(*arrays) -> results`. The results are arrays or Python numbers, nested like
            `result_specs`.
        result_specs: the types of the results: a nest (tuples, lists, dicts) of `gc.TensorSpec`s,
            tensors, arrays or other objects with a shape and a dtype. Sizes are ints or named
            sizes of the graph. None means that there are no results.
        args: tensors, variables, arrays or numbers.
        pure: whether `fn` has no side effects. If so, it is called as often as its results are
            needed, perhaps never. Otherwise it is called once in each run that selects the node,
            in program order (under a strategy: on the first replica).
        name: the name of the node.

    Returns:
        Tensors, nested like `result_specs`. Without results: the node, to fetch or for
        `gc.control_dependencies`. In the body of a loop, `fn` is called in each iteration.

    Raises:
        AttributeValueError: `fn` is not callable, or it is pure and has no results.
        ShapeError: the size of a result is unknown.

    If `fn` raises or returns another type than declared, the run raises `ExecutionError`.

    Source: `jax.experimental.io_callback`, `jax.pure_callback`.

    Examples:
        >>> run(gc.py_callback(np.sort, gc.TensorSpec((3,), "int32"), [3, 1, 2]))
        Array([1, 2, 3], dtype=int32)
    """
    source = current_source()
    leaves, tree = jax.tree.flatten(result_specs)
    _check_function(fn, pure, leaves, source)
    types = [_declared_type(leaf) for leaf in leaves]
    on_arrays = _on_arrays(fn, tree, types, source)
    op, operands = PURE_CALLBACK if pure else PY_CALLBACK, [convert(arg) for arg in args]
    node = emit_node(op, operands, name=name, function=on_arrays, **declare(types))
    return jax.tree.unflatten(tree, node.outputs) if leaves else node


def _check_function(fn: Any, pure: bool, results: Sequence[Any], source: Source | None) -> None:
    if not callable(fn):
        raise AttributeValueError(
            f"py_callback: {fn!r} is not a function",
            source=source,
            hint="the function comes first: gc.py_callback(f, results, x)",
        )
    if pure and not results:
        raise AttributeValueError(
            "py_callback: a pure function without results does nothing",
            source=source,
            hint="leave out pure=True, or declare its results",
        )


def _declared_type(spec: Any) -> TensorType:
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise AttributeValueError.here(
            f"py_callback: {spec!r} has no shape and dtype",
            hint='declare results as gc.TensorSpec((2, 3), "float32")',
        )
    if any(dim is None for dim in spec.shape):
        raise ShapeError.here(
            f"py_callback: the sizes of a result must be known, got {spec!r}",
            hint='write ints or named sizes of the operands: gc.TensorSpec(("batch", 3))',
        )
    return TensorType(as_dtype(spec.dtype), tuple(spec.shape))


def _on_arrays(
    fn: Callable[..., Any], tree: Any, types: Sequence[TensorType], source: Any
) -> Callable[..., list[Array]]:
    """`fn` as a function that returns the list of its checked results."""

    def call(*values: Array) -> list[Array]:
        returned = fn(*values)
        leaves, got = jax.tree.flatten(returned)
        if got != tree:
            raise AttributeValueError(
                f"py_callback: the function returned {got}, declared is {tree}",
                source=source,
                hint="return the results in the form of the declaration, or change the declaration",
            )
        return [_result(*row, source) for row in zip(leaves, types, strict=True)]

    update_wrapper(call, fn)
    return call


def _result(value: Any, type: TensorType, source: Any) -> Array:
    """One result as an array of the declared type."""
    array = np.asarray(value, None if hasattr(value, "dtype") else type.dtype)
    if array.dtype != type.dtype:
        raise DTypeError(
            f"py_callback: the function returned {array.dtype}, declared is {type}",
            source=source,
            hint=f'return value.astype("{type.dtype.name}"), or declare "{array.dtype.name}"',
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
            hint="declare the shape that the function returns",
        )
    return array


def print(template: str | TensorLike, *args: TensorTree, name: str | None = None) -> Node:
    """A node that prints while the program runs.

    It prints in each run that selects it: fetch the node, or build the fetched tensors under
    `with gc.control_dependencies([node])`. In the body of a loop it prints in each iteration.
    Several nodes print in program order (under a strategy: the first replica prints, in any order).

    Args:
        template: a template of `str.format`, with `{}`, `{0}` or `{:.3f}` for the values; or a
            single value to print.
        args: tensors, variables, arrays or numbers. They are formatted as NumPy arrays.
        name: the name of the node.

    Raises:
        AttributeValueError: the template does not fit the number of values.

    Source: `jax.debug.print`.

    Examples:
        >>> shown = gc.print("x is {}", gc.constant([1, 2]))
        >>> run(shown)
        x is [1 2]
    """
    if not isinstance(template, str):
        template, args = " ".join(["{}"] * (1 + len(args))), (template, *args)
    try:
        template.format(*[_AnyFormat()] * len(args))
    except (IndexError, KeyError, ValueError) as error:
        raise AttributeValueError.here(
            f"print: {template!r} does not fit {len(args)} values: {error}",
            hint="write one {} for each value, and {{ and }} for braces",
        ) from error
    return emit_node(PRINT, [convert(arg) for arg in args], name=name, template=template)


class _AnyFormat:
    """A value for checking a template. It accepts every format."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getattr__(self, name: str) -> _AnyFormat:
        return self

    def __getitem__(self, key: Any) -> _AnyFormat:
        return self


OPS: tuple[OpDef, ...] = (PY_CALLBACK, PURE_CALLBACK, PRINT)
