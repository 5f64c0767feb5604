"""`from_jax`: a JAX function as a function of tensors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

from graphc.build.specs import SpecTree, TensorSpec
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.dims import symbol
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor, describe_tensors
from graphc.ir.opdef import Effects
from graphc.ir.operand import Operand
from graphc.ir.program import effects_of
from graphc.ir.scopes import AMBIENT, building, control_inputs, name_scope
from graphc.ir.types import TensorType
from graphc.jaxpr.table import has_foreign
from graphc.jaxpr.tracing import trace
from graphc.jaxpr.whole import differentiated
from graphc.ops.core.emit import convert, graph_of
from graphc.ops.structure.state import identity


def from_jax(
    fn: Callable[..., Any],
    *specs: SpecTree,
    name: str | None = None,
    max_trip_count: int | None = None,
) -> Callable[..., Any]:
    """`fn`, a function of JAX arrays, as a function of tensors that adds its nodes to the graph.

    Tensors and variables among the arguments, alone or in nests (tuples, lists, dicts, any pytree),
    are traced; everything else (numbers, strings, arrays) is passed to `fn` unchanged. The result
    is the nest that `fn` returns, with tensors for its arrays. Named sizes stay named.

    The nodes are ordinary nodes: passes optimise them, and `gc.gradients` differentiates them,
    including custom derivatives (`jax.custom_jvp`, `jax.custom_vjp`). `jax.grad` inside `fn`
    becomes nodes too, so `fn` may be a whole training step. Each node carries the user's line in
    `fn` if it can be found. Loops and branches become `gc.scan`, `gc.while_loop` and `gc.switch`; a
    primitive without an equivalent operator becomes a `Primitive` node, or a `Lowered` node, which
    holds it as StableHLO. `jax.checkpoint` is preserved: values are computed again for the
    gradient. The `precision=` of matrix products is not preserved.

    Random numbers are those that JAX draws from the same key. A key is passed as its words,
    uint32[2], such as the result of `jax.random.PRNGKey` or of `gc.random.random_key()`, which is
    new in every run. A key among the results is returned in the same form.

    Args:
        fn: pure except for callbacks to Python (`jax.debug.print`, `io_callback`), and without
            collectives. Callbacks are made in program order, in each run that needs one of the
            results.
        specs: one for each positional argument, if given: `gc.TensorSpec`s or anything with a shape
            and dtype, in nests. `fn` is then traced immediately, so that import errors are raised
            here, and calls are checked against the specs.
        name: the name scope of the nodes; by default that of `fn`.
        max_trip_count: each `lax.while_loop` in `fn` ends after at most this many iterations. Its
            results have gradients only if this is given: see `gc.while_loop`.

    Returns:
        A function of the same arguments as `fn`. It traces `fn` at each call.

    Raises:
        JaxImportError: `fn` contains something that cannot be turned into nodes. The error names
            the primitive and the line, and those of all others.
        ShapeError, DTypeError: a call does not match the specs. Errors that `fn` raises while it is
            traced are passed on.

    Examples:
        >>> import jax
        >>> x = gc.placeholder((None, 2), name="x")
        >>> y = gc.from_jax(jax.nn.softmax)(x)
        >>> y.shape, run(y, {x: [[3.0, 3.0]]})
        ((x_0, 2), Array([[0.5, 0.5]], dtype=float32))
    """
    if not callable(fn):
        raise AttributeValueError.here(
            f"from_jax: {fn!r} is not a function",
            hint="pass the function itself: gc.from_jax(jax.nn.silu)",
        )
    label = name or re.sub(r"\W+", "_", getattr(fn, "__name__", type(fn).__name__).strip("<>"))
    wanted, wanted_tree = jax.tree.flatten(specs)
    checks = [TensorSpec.of(spec) for spec in wanted]
    if checks:
        _try_import(lambda *values: fn(*jax.tree.unflatten(wanted_tree, values)), checks)

    def call(*args: Any, **kwargs: Any) -> Any:
        if checks:
            _check_call(label, checks, wanted_tree, args)
        return _import(fn, label, args, kwargs, max_trip_count)

    functools.update_wrapper(call, fn)
    return call


def _import(
    fn: Callable[..., Any], label: str, args: Any, kwargs: Any, max_trip_count: int | None
) -> Any:
    leaves, tree = jax.tree.flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Operand)]
    graph = graph_of([leaves[i] for i in places])

    def of_tensors(*values: Any) -> Any:
        filled = list(leaves)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        own_args, own_kwargs = jax.tree.unflatten(tree, filled)
        return fn(*own_args, **own_kwargs)

    of_tensors.__wrapped__ = fn  # type: ignore[attr-defined]  # errors of JAX name it
    inside: AbstractContextManager[Any] = nullcontext() if AMBIENT.graphs else building(graph)
    with inside:
        operands = [graph.adopt(convert(leaves[i])) for i in places]
        find = graph.constraints.find
        types = [t.type.map_dims(find) for t in operands]
        traced = trace(of_tensors, types, names=[t.name.removesuffix(":0") for t in operands])
        with name_scope(label):
            before = len(graph.nodes)
            whole = has_foreign(traced.jaxpr)
            results = traced.replay(operands, max_trips=max_trip_count, whole=whole)
            if whole:
                results = differentiated(of_tensors, operands, results)
            calls = [node.name for node in graph.nodes[before:] if effects_of(node) & Effects.HOST]
            if calls:  # callbacks are made whenever a result is needed
                with control_inputs(tuple(calls)):
                    results = [identity(result) for result in results]
    return jax.tree.unflatten(traced.out_tree, results)


def _try_import(fn: Callable[..., Any], specs: Sequence[TensorSpec]) -> None:
    """Imports `fn` into a temporary graph."""
    types = [_type_of(spec, i) for i, spec in enumerate(specs)]
    scratch = Graph()
    with building(scratch):
        operands = [scratch.add_input(type, f"argument_{i}") for i, type in enumerate(types)]
        trace(fn, types, names=[t.name.removesuffix(":0") for t in operands]).replay(operands)


def _type_of(spec: TensorSpec, position: int) -> TensorType:
    """The type of a spec; each None is a separate size."""
    dims = enumerate(spec.shape)
    return TensorType(
        spec.dtype, tuple([symbol(f"spec_{position}_{i}") if d is None else d for i, d in dims])
    )


def _check_call(label: str, specs: Sequence[TensorSpec], tree: Any, args: tuple[Any, ...]) -> None:
    """Raises an error unless the arguments match the specs of `from_jax`."""
    leaves, got_tree = jax.tree.flatten(args)
    if got_tree != tree:
        raise AttributeValueError.here(
            f"{label}: called with {got_tree}, its specs are {tree}",
            hint="pass one argument for each spec, in the same nest",
        )
    for i, (leaf, spec) in enumerate(zip(leaves, specs, strict=True)):
        given = TensorSpec.of(leaf)
        different = any(
            isinstance(d, int) and isinstance(s, int) and d != s
            for d, s in zip(given.shape, spec.shape, strict=False)
        )
        if given.dtype == spec.dtype and len(given.shape) == len(spec.shape) and not different:
            continue
        error = DTypeError if given.dtype != spec.dtype else ShapeError
        raise error.here(
            f"{label}: argument {i} must be {_text(spec)}, got {_text(given)}",
            details=describe_tensors({"argument": leaf}) if isinstance(leaf, Tensor) else (),
        )


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype.name}[{', '.join(map(str, spec.shape))}]"
