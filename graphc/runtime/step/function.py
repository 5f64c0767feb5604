"""`to_jax`: a fetch set as a pure function of JAX values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.config import CompileOptions
from graphc.errors import DTypeError, ExecutionError, FeedError
from graphc.ir.capture import Fetch, choose, port_name
from graphc.ir.dtypes import SCALAR_DEFAULTS, kind_of
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Port, Program
from graphc.ir.source import current_source
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.passes.core.target import Target
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.feeds import FeedSpec, bind_feeds
from graphc.runtime.feeds.fetches import FetchNest, resolve_feed, resolve_feeds
from graphc.runtime.state.initial import initial_values
from graphc.runtime.step.compiler import check_graph, checked_options
from graphc.runtime.targets.prepare import Prepared, bind, prepare
from graphc.typing import Feeds, Fetched, Fetches

Step = Callable[[Mapping[str, jax.Array], Feeds], tuple[Fetched, dict[str, jax.Array]]]


def to_jax(
    graph: Graph,
    fetches: Fetches,
    feeds: Iterable[Tensor | str] | None = None,
    *,
    options: CompileOptions | None = None,
) -> tuple[Step, dict[str, jax.Array]]:
    """Returns a run as a pure function of JAX arrays, and its initial state.

    The function may be called directly, jitted, differentiated (`jax.grad`), mapped (`jax.vmap`)
    or exported. The graph's passes run once for each set of sizes.

    Args:
        fetches: a nest (lists, tuples, dicts) of tensors, variables, nodes and names.
        feeds: the tensors, or their names, that the function takes. The default is all
            placeholders that the fetches need.
        options: only the options for passes have an effect.

    Returns:
        `(function, state)`, with `function(state, feeds) -> (fetched, new_state)`. `state` maps
        the names of the variables that the run reads or assigns to their initial values. It also
        contains the random state if the run draws. `new_state` has the same keys. `feeds` maps
        names of tensors (or the tensors, outside of `jax.jit`) to arrays. Arrays are cast within
        a kind.

    Raises:
        FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph.
        FeedError, DTypeError: raised by a call whose arrays do not fit the placeholders.
        ExecutionError: raised by a call with 64-bit values outside of `jax.enable_x64(True)`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> x = gc.placeholder((None,), name="x")
        >>> function, state = gc.to_jax(graph, gc.reduce_sum(x * x))
        >>> jax.grad(lambda a: function(state, {"x": a})[0])(jnp.arange(3.0))
        Array([0., 2., 4.], dtype=float32)
    """
    FORKING.use_devices()
    check_graph(graph, "gc.to_jax(graph, fetches)")
    options = checked_options(options)
    nest = FetchNest(graph, fetches)
    if feeds is None:
        taken = _placeholders(graph, nest.distinct)
    else:
        taken = list(dict.fromkeys([resolve_feed(graph, key) for key in feeds]))
    prepared = prepare(graph, nest.distinct, taken, options)
    function = _step(graph, nest, taken, prepared, options)
    return function, _initial_state(graph, prepared.functional)


def _step(
    graph: Graph, nest: FetchNest, taken: list[Tensor], prepared: Prepared, options: CompileOptions
) -> Step:
    ports = prepared.functional.ports("feed")
    wide = needs_x64(prepared.functional)
    bound: dict[tuple[Any, ...], Program] = {}

    def program_for(shapes: tuple[Any, ...]) -> Program:
        if shapes not in bound:
            bindings = bind_feeds(prepared.functional, shapes, prepared.sources)
            bound[shapes] = bind(prepared, bindings, options, Target())[0]
        return bound[shapes]

    def function(state: Mapping[str, Any], feeds: Mapping[Any, Any]) -> tuple[Any, dict[str, Any]]:
        FORKING.check()
        if wide:
            _check_widths(graph)
        given = resolve_feeds(graph, feeds)
        _check_complete(given, taken)
        values = [_as_fed(given[t], port) for t, port in zip(taken, ports, strict=True)]
        program = program_for(tuple([value.shape for value in values]))
        fed = dict(zip([port.name for port in ports], values, strict=True))
        arguments = [(fed if p.kind == "feed" else state)[p.name] for p in program.inputs]
        results = to_function(program)(*arguments)
        pairs = list(zip(program.outputs, results, strict=True))
        new_state = {port.name: value for port, value in pairs if port.kind == "state"}
        fetched = [value for port, value in pairs if port.kind == "fetch"]
        return nest.rebuild(fetched), {**state, **new_state}

    function.__name__ = graph.name
    return function


def _placeholders(graph: Graph, fetches: list[Fetch]) -> list[Tensor]:
    """The placeholders that the fetches need, in creation order."""
    chosen = choose(graph, fetches, set())
    return [n.outputs[0] for n in graph.nodes if n in chosen and n.op.effects & Effects.FEED]


def _initial_state(graph: Graph, program: Program) -> dict[str, jax.Array]:
    names = {port.name for port in (*program.ports("state"), *program.new_state())}
    with jax.enable_x64(True):
        values = initial_values(graph) if names else {}
        return {name: jnp.asarray(value) for name, value in values.items() if name in names}


def _check_complete(given: Mapping[Tensor, Any], taken: list[Tensor]) -> None:
    if given.keys() == set(taken):
        return
    raise FeedError.here(
        "the feeds are not those that the function takes",
        details=[
            f"takes  {', '.join(map(port_name, taken)) or 'none'}",
            f"given  {', '.join(map(port_name, given)) or 'none'}",
        ],
    )


def _as_fed(value: Any, port: Port) -> Any:
    """`value` as a JAX array of the feed's dtype."""
    dtype = port.tensor.type.dtype
    weak = type(value) in SCALAR_DEFAULTS or isinstance(value, (list, tuple))
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
        return jnp.asarray(_converted(value, port))
    array = jnp.asarray(value)
    if not weak and kind_of(array.dtype) != kind_of(dtype):
        raise DTypeError.here(
            f"feed {port.name!r} must be {port.tensor.type}, got {array.dtype.name}",
            hint="convert it: only casts within a kind are automatic",
        )
    return array.astype(dtype)


def _converted(value: Any, port: Port) -> Any:
    """Converts a value that is not traced, by the rules for feeds."""
    try:
        return FeedSpec(port, current_source(), copy=True).convert(value)
    except FeedError as error:
        type = port.tensor.type
        what = error.what.replace(f"must be {type.dtype.name}", f"must be {type}")
        raise DTypeError(
            what, details=error.details, source=error.source, hint=error.hint
        ) from error.__cause__


def _check_widths(graph: Graph) -> None:
    """Raises `ExecutionError` outside of JAX's 64-bit mode."""
    dtype = np.dtype(np.float64)
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ExecutionError.here(
            f"{graph.name}: there are 64-bit values, which JAX would cut to 32 bits here",
            hint="call the function inside `with jax.enable_x64(True):`",
        )
