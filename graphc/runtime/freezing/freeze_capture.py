"""The program that `gc.freeze` starts from: the outputs, with given values in place of feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError, FetchError, ShapeError
from graphc.ir.capture import Fetch, capture, port_name
from graphc.ir.dims import as_symbol
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.names import legal_name
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes, substitute
from graphc.ir.variable import Variable
from graphc.ops.core.emit import CAST, CONSTANT
from graphc.ops.structure.state import READ_VARIABLE
from graphc.passes.core.building import node_of
from graphc.passes.simplify.functionalize import Functionalize
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.feeds.fetches import resolve_feed, resolve_fetch
from graphc.runtime.freezing.averages import by_given_statistics, moving_averages


def by_name(items: Any, name_of: Any) -> dict[str, Any]:
    """The tensors by name: by the given names, or by the tensors' own names."""
    if isinstance(items, Mapping):
        for name in items:
            if not isinstance(name, str) or not legal_name(name):
                raise AttributeValueError.here(f"freeze: {name!r} is not a name")
        return dict(items)
    if isinstance(items, (str, Tensor, Variable)):
        items = [items]
    if not isinstance(items, Iterable):
        raise AttributeValueError.here(
            f"freeze: inputs and outputs are mappings or lists, got {items!r}",
            hint='gc.freeze(session, {"x": x}, {"logits": logits})',
        )
    return {name_of(item): item for item in items}


def feed_name(graph: Graph) -> Any:
    """The default name of an input, as a function of the given tensor or name."""
    return lambda key: port_name(resolve_feed(graph, key))


def fetch_name(graph: Graph) -> Any:
    """The default name of an output, as a function of the given tensor or name."""

    def name_of(key: Any) -> str:
        fetch = resolve_fetch(graph, key)
        return fetch.name if isinstance(fetch, (Variable, Node)) else port_name(fetch)

    return name_of


def captured(
    graph: Graph, feeds: Sequence[Tensor], fetches: Mapping[str, Fetch], given: Mapping[Tensor, Any]
) -> Program:
    """The functional program. Given values are constants, and statistics are replaced by their
    moving averages."""
    for name, fetch in fetches.items():
        if isinstance(fetch, Node):
            raise FetchError(
                f"freeze: output {name!r} is a step without a value",
                source=fetch.source,
                hint="a frozen graph has no steps; fetch what it computes",
            )
    fed = {*feeds, *given}
    averages = {t: v for t, v in moving_averages(graph).items() if t not in fed}
    distinct = list(dict.fromkeys(fetches.values()))
    taken = capture(graph, distinct, [*feeds, *given, *averages], READ_VARIABLE)
    program = Functionalize().run(by_given_statistics(taken, averages)).program
    by_fetch = dict(zip(distinct, program.ports("fetch"), strict=True))
    named = tuple(by_fetch[fetch]._replace(name=name) for name, fetch in fetches.items())
    program = program.replace(outputs=(*named, *program.new_state()))
    program = _with_averages(program, len(feeds) + len(given), list(averages.values()))
    return _with_given(program, len(feeds), given)


def state_of(program: Program) -> dict[str, Tensor]:
    """The tensor of each variable that a functional program reads, by name."""
    return {port.name: port.tensor for port in program.ports("state")}


def _with_averages(program: Program, start: int, variables: Sequence[Variable]) -> Program:
    """The program in which the feeds from `start` on are variables."""
    ports = program.ports("feed")
    state = state_of(program)
    added: list[Port] = []
    casts: list[Node] = []
    instead: dict[Tensor, Tensor] = {}
    for port, variable in zip(ports[start:], variables, strict=True):
        value = state.get(variable.name)
        if value is None:
            value = state[variable.name] = Tensor(variable.type, variable.name)
            added.append(Port(variable.name, "state", value))
        if value.type == port.tensor.type:
            instead[port.tensor] = value
        else:
            dtype = port.tensor.type.dtype
            casts.append(node_of(CAST, (value,), (port.tensor,), name=port.name, dtype=dtype))
    inputs = [p for p in program.inputs if p not in ports[start:]]
    program = substitute(program.replace(inputs=(*inputs, *added)), instead)
    return program.replace(nodes=(*casts, *program.nodes))


def _with_given(program: Program, start: int, given: Mapping[Tensor, Any]) -> Program:
    """The program in which the feeds from `start` on are constants."""
    arrays: list[Array] = []
    sizes: dict[str, int] = {}
    for port, (tensor, value) in zip(program.ports("feed")[start:], given.items(), strict=True):
        type = port.tensor.type
        array = np.asarray(FeedSpec.of_type(port.name, type, tensor.node.source).convert(value))
        fits = array.ndim == type.rank
        for dim, size in zip(type.shape, array.shape, strict=False):
            symbol = as_symbol(dim)
            fits = fits and (dim if symbol is None else sizes.setdefault(symbol, size)) == size
        if not fits:
            raise ShapeError(
                f"freeze: given {port.name!r} must be {type}, got shape {array.shape}",
                source=tensor.node.source,
            )
        array.flags.writeable = False
        arrays.append(array)
    program = bind_sizes(program, sizes) if sizes else program
    ports = program.ports("feed")[start:]
    constants = [
        node_of(CONSTANT, (), (port.tensor,), name=port.name, value=array)
        for port, array in zip(ports, arrays, strict=True)
    ]
    inputs = tuple(port for port in program.inputs if port not in ports)
    axes = {n: axis for n, axis in program.batch_axes.items() if n not in {p.name for p in ports}}
    return program.replace(inputs=inputs, nodes=(*constants, *program.nodes), batch_axes=axes)
