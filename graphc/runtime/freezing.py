"""`freeze`: what a graph gives when nothing is learnt any more, as a graph of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc.collection import without_collection
from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, FeedError, FetchError, ShapeError
from graphc.ir.capture import Fetch, capture, port_name
from graphc.ir.dims import as_symbol
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes, substitute
from graphc.ir.source import current_source
from graphc.ir.variable import Variable
from graphc.ir.verify import verify
from graphc.ops.emit import CAST, CONSTANT
from graphc.ops.state import READ_VARIABLE
from graphc.passes.base import Pass
from graphc.passes.fold_norms import FoldNorms
from graphc.passes.frozen import split_frozen
from graphc.passes.functionalize import RNG_COUNTER, RNG_KEY, Functionalize
from graphc.passes.hoist_frozen import HoistFrozen
from graphc.passes.manager import PassManager
from graphc.passes.pipelines import pipeline
from graphc.passes.prune import Prune
from graphc.passes.remove_dropout import RemoveDropout
from graphc.passes.sink_constants import SinkConstants
from graphc.passes.without import without
from graphc.runtime.averages import moving_averages
from graphc.runtime.feeds import FeedSpec
from graphc.runtime.fetches import resolve_feed, resolve_feeds, resolve_fetch
from graphc.runtime.prepare import evaluate
from graphc.runtime.regraph import RANDOM_STATE, as_graph
from graphc.runtime.session import Session

Array = np.ndarray[Any, Any]
LITERALS = 256  # bytes: numbers, and vectors of a few channels


def freeze(
    session: Session,
    inputs: Any,
    outputs: Any,
    *,
    given: Mapping[Any, Any] | None = None,
    literals: int = LITERALS,
) -> Graph:
    """A new graph that computes `outputs` from `inputs` with the variables as they are now.

    What depends on variables and constants alone is computed here, once. What is left takes it as
    variables that nothing assigns, so that programs stay small; only small values stand in the
    program. Dropout is removed; branches that `given` decides are too. Batch normalisation uses
    its moving averages, also where it was called with `training=True`, and goes into the kernel
    and bias of the layer before it, where that is a convolution or a product and nothing else
    uses what the layer gives. Results are the same but for rounding.

    The graph is one as any other: a session runs it, `gc.save` writes it. Its collections
    "inputs" and "outputs" hold its ends.

    Args:
        inputs: name -> tensor that is fed, or a list of tensors or names.
        outputs: name -> tensor or variable that is fetched; or a list of them, or a single one.
            Without names they keep those they have.
        given: tensor or name -> the value that it has from now on, such as `{training: False}`.
        literals: values of up to so many bytes stand in the program. A large number makes
            constants of all variables.

    Raises:
        FeedError, UnknownNameError: something else is needed to compute the outputs, or is no
            value for `given`.
        FetchError: an output has no value, or assigns a variable.
        StateError: the session is closed or broken.

    >>> import graphc as gc
    >>> with gc.Graph() as g:
    ...     x = gc.placeholder((None, 2), name="x")
    ...     w = gc.variable([[1.0], [2.0]], name="w")
    ...     y = gc.matmul(x, gc.exp(w) * 2, name="y")
    >>> frozen = gc.freeze(gc.Session(g), [x], [y], literals=0)
    >>> [node.op.name for node in frozen.nodes], list(frozen.variables)
    (['Placeholder', 'ReadVariable', 'MatMul'], ['Multiply'])
    """
    if not isinstance(session, Session):
        raise AttributeValueError(
            f"freeze: the first argument must be a session, got {type(session).__name__}",
            source=current_source(),
            mend="gc.freeze(gc.Session(graph), inputs, outputs) freezes the initial values",
        )
    if type(literals) is not int or literals < 0:
        raise AttributeValueError(
            f"freeze: literals must be a number of bytes, got {literals!r}",
            source=current_source(),
        )
    graph = session.graph
    feeds = {n: resolve_feed(graph, t) for n, t in _by_name(inputs, _feed_name(graph)).items()}
    fetches = {n: resolve_fetch(graph, t) for n, t in _by_name(outputs, _fetch_name(graph)).items()}
    named: dict[Tensor, str] = {}
    for name, tensor in feeds.items():
        if named.setdefault(tensor, name) != name:
            raise FeedError(
                f"freeze: inputs {named[tensor]!r} and {name!r} are one tensor, {tensor.name!r}",
                source=current_source(),
                mend="give it one name",
            )
    if not fetches:
        raise FetchError("freeze: there are no outputs", source=current_source())
    frozen = freeze_program(session, list(feeds.values()), fetches, given or {}, literals=literals)
    program = _renamed(frozen.program, list(feeds))
    sources = {name: t.node.source for name, t in feeds.items()}
    return as_graph(program, frozen.values, name=graph.name, seed=graph.seed, sources=sources)


@dataclass(frozen=True)
class Frozen:
    """A pure program whose state is constant, but for the random state of one that draws.

    Attributes:
        program: optimised; its fetches are named as asked for.
        values: of the program's state by name, but for the random state. Those under names of
            variables are these; others are made of several.
    """

    program: Program
    values: Mapping[str, Array]


@without_collection()
def freeze_program(
    session: Session,
    feeds: Sequence[Tensor],
    fetches: Mapping[str, Fetch],
    given: Mapping[Any, Any],
    *,
    options: CompileOptions | None = None,
    literals: int = LITERALS,
    scope: str = "",
) -> Frozen:
    """What `freeze` makes a graph of.

    Args:
        fetches: result name -> what is fetched; each has a port of its own.
        options: of the passes; those of the session otherwise.
        scope: put before names of values that are not those of variables.

    Raises:
        FeedError, FetchError, StateError: see `freeze`.
    """
    options = session.options if options is None else options
    known = resolve_feeds(session.graph, given)
    both = [t.name for t in known if t in feeds]
    if both:
        raise FeedError(f"freeze: {both[0]!r} is an input and given", source=current_source())
    program = _captured(session.graph, feeds, fetches, known)
    plain = replace(options, pipeline="O1", precision=None, sparse_updates="off")
    program = _by(RemoveDropout(), program, options)
    program = _by(SinkConstants(), _through(program, plain), options)
    program = _without_state(_through(program, plain), session.graph)
    program = Prune().run(_by(FoldNorms(RANDOM_STATE), program, options)).program
    program = _through(program, replace(options, pipeline="O1"))
    program = Prune().run(_by(HoistFrozen(RANDOM_STATE), program, options)).program
    before, program = split_frozen(program, RANDOM_STATE, literals)
    values = {
        port.name: np.asarray(session.get(port.name))
        for port in (*before.inputs, *program.ports("state"))
        if port.name in session.graph.variables
    }
    made = evaluate(before, [values[p.name] for p in before.inputs]) if before.outputs else []
    values.update(zip([port.name for port in before.outputs], made, strict=True))
    program, values = _with_literals(program, values, literals)
    program = _through(program, plain)
    return _scoped(Frozen(program, values), session.graph, scope)


# -- what is asked for ----------------------------------------------------------------------


def _by_name(items: Any, name_of: Any) -> dict[str, Any]:
    """The tensors by name, as they are given or by the names they have."""
    if isinstance(items, Mapping):
        for name in items:
            if not isinstance(name, str) or not name or ":" in name:
                raise AttributeValueError(
                    f"freeze: {name!r} is not a name", source=current_source()
                )
        return dict(items)
    if isinstance(items, (str, Tensor, Variable)):
        items = [items]
    if not isinstance(items, Iterable):
        raise AttributeValueError(
            f"freeze: inputs and outputs are mappings or lists, got {items!r}",
            source=current_source(),
            mend='gc.freeze(session, {"x": x}, {"logits": logits})',
        )
    return {name_of(item): item for item in items}


def _feed_name(graph: Graph) -> Any:
    return lambda key: port_name(resolve_feed(graph, key))


def _fetch_name(graph: Graph) -> Any:
    def name_of(key: Any) -> str:
        fetch = resolve_fetch(graph, key)
        return fetch.name if isinstance(fetch, (Variable, Node)) else port_name(fetch)

    return name_of


def _captured(
    graph: Graph,
    feeds: Sequence[Tensor],
    fetches: Mapping[str, Fetch],
    given: Mapping[Tensor, Any],
) -> Program:
    """The functional program: given values are constants, statistics the averages of them."""
    for name, fetch in fetches.items():
        if isinstance(fetch, Node):
            raise FetchError(
                f"freeze: output {name!r} is a step without a value",
                source=fetch.source,
                mend="a frozen graph has no steps; fetch what it computes",
            )
    fed = {*feeds, *given}
    averages = {t: v for t, v in moving_averages(graph).items() if t not in fed}
    distinct = list(dict.fromkeys(fetches.values()))
    captured = capture(graph, distinct, [*feeds, *given, *averages], READ_VARIABLE)
    program = Functionalize().run(captured).program
    by_fetch = dict(zip(distinct, program.ports("fetch"), strict=True))
    named = tuple(by_fetch[fetch]._replace(name=name) for name, fetch in fetches.items())
    program = program.replace(outputs=(*named, *program.new_state()))
    program = _with_averages(program, len(feeds) + len(given), list(averages.values()))
    return _with_given(program, len(feeds), given)


def _state(program: Program) -> dict[str, Tensor]:
    return {port.name: port.tensor for port in program.ports("state")}


def _with_averages(program: Program, start: int, variables: Sequence[Variable]) -> Program:
    """The program whose feeds from `start` on are variables."""
    ports = program.ports("feed")
    state = _state(program)
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
            attrs = CAST.complete({"dtype": port.tensor.type.dtype})
            casts.append(Node(CAST, (value,), (port.tensor,), attrs, name=port.name))
    inputs = [p for p in program.inputs if p not in ports[start:]]
    program = substitute(program.replace(inputs=(*inputs, *added)), instead)
    return program.replace(nodes=(*casts, *program.nodes))


def _with_given(program: Program, start: int, given: Mapping[Tensor, Any]) -> Program:
    """The program whose feeds from `start` on are constants."""
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
        Node(CONSTANT, (), (port.tensor,), CONSTANT.complete({"value": array}), name=port.name)
        for port, array in zip(ports, arrays, strict=True)
    ]
    inputs = tuple(port for port in program.inputs if port not in ports)
    axes = {n: axis for n, axis in program.batch_axes.items() if n not in {p.name for p in ports}}
    return program.replace(inputs=inputs, nodes=(*constants, *program.nodes), batch_axes=axes)


# -- what is done ---------------------------------------------------------------------------


def _by(a_pass: Pass, program: Program, options: CompileOptions) -> Program:
    """The program after a pass that the options do not leave out."""
    for each in without([a_pass], options):
        program = each.run(program).program
        if options.verify:
            verify(program, "functional")
    return program


def _through(program: Program, options: CompileOptions) -> Program:
    manager = PassManager(
        without(pipeline(options), options),
        verify=options.verify,
        validate=options.validate,
        evaluator=evaluate,
    )
    return manager.run(program)[0]


def _without_state(program: Program, graph: Graph) -> Program:
    """The program without the state that it does not need any more.

    Raises:
        FetchError: it assigns a variable.
    """
    taken = _state(program)
    for port in program.new_state():
        if port.name not in RANDOM_STATE and taken.get(port.name) is not port.tensor:
            variable = graph.variables.get(port.name)
            raise FetchError(
                f"freeze: the outputs assign the variable {port.name!r}",
                source=None if variable is None else variable.source,
                mend="fetch what does not: the layer called with training=False, or "
                "given={training: False} where a branch assigns",
            )
    random = tuple(port for port in program.new_state() if port.name in RANDOM_STATE)
    fetches = tuple(program.ports("fetch"))
    quiet = Prune().run(program.replace(outputs=fetches)).program
    used = {t for node in quiet.nodes for t in node.inputs} | set(quiet.output_tensors())
    draws = RNG_KEY in taken and taken[RNG_KEY] in used
    if draws:
        program = program.replace(outputs=(*fetches, *random))
        used.add(taken[RNG_COUNTER])
    else:
        program = quiet
    inputs = tuple(p for p in program.inputs if p.kind != "state" or p.tensor in used)
    return program.replace(inputs=inputs)


def _with_literals(
    program: Program, values: Mapping[str, Array], limit: int
) -> tuple[Program, dict[str, Array]]:
    """The program with small state as constants, and the values of what is state still."""
    ports = program.ports("state")
    small = [p for p in ports if p.name in values and values[p.name].nbytes <= limit]
    constants = []
    for port in small:
        value = np.array(values[port.name])
        value.flags.writeable = False
        attrs = CONSTANT.complete({"value": value})
        constants.append(Node(CONSTANT, (), (port.tensor,), attrs, name=port.name))
    program = program.replace(
        inputs=tuple(port for port in program.inputs if port not in small),
        nodes=(*constants, *program.nodes),
    )
    left = [port.name for port in program.ports("state")]
    return program, {name: values[name] for name in left if name in values}


def _scoped(frozen: Frozen, graph: Graph, scope: str) -> Frozen:
    """What is made of several variables under names with `scope` before them."""
    program, values = frozen.program, frozen.values
    used = {t for node in program.nodes for t in node.inputs} | set(program.output_tensors())

    def renamed(name: str) -> str:
        if name in graph.variables or name in RANDOM_STATE:
            return name
        new = f"{scope}{name}"
        while new in graph.variables:
            new += "_"
        return new

    inputs = tuple(
        port._replace(name=renamed(port.name)) if port.kind == "state" else port
        for port in program.inputs
        if port.kind != "state" or port.tensor in used or port.name in RANDOM_STATE
    )
    names = {port.name for port in inputs}
    kept = {renamed(n): value for n, value in values.items() if renamed(n) in names}
    return Frozen(program.replace(inputs=inputs), kept)


def _renamed(program: Program, names: Sequence[str]) -> Program:
    """The program with its feeds under the names asked for."""
    new = iter(names)
    inputs = []
    axes: dict[str, int] = {}
    for port in program.inputs:
        if port.kind == "feed":
            name = next(new)
            if port.name in program.batch_axes:
                axes[name] = program.batch_axes[port.name]
            port = port._replace(name=name)
        inputs.append(port)
    return program.replace(inputs=tuple(inputs), batch_axes=axes)
