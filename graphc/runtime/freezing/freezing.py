"""`freeze`: a new graph for inference, in which the variables have their current values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from graphc.collection import without_collection
from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, FeedError, FetchError
from graphc.ir.capture import Fetch
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor, is_among
from graphc.ir.program import Program
from graphc.ir.rewrite import rename_feeds
from graphc.ir.variable import Variable
from graphc.ir.verify import verify
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.base import Pass
from graphc.passes.core.building import node_of
from graphc.passes.frozen.fold_norms import FoldNorms
from graphc.passes.frozen.frozen import split_frozen
from graphc.passes.frozen.hoist_frozen import HoistFrozen
from graphc.passes.frozen.remove_dropout import RemoveDropout
from graphc.passes.frozen.straight_weights import StraightWeights
from graphc.passes.manager import PassManager
from graphc.passes.pass_filter import without
from graphc.passes.pipelines import pipeline
from graphc.passes.simplify.functionalize import RNG_COUNTER, RNG_KEY
from graphc.passes.simplify.move_transposes import MoveTransposes
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_shapes import SimplifyShapes
from graphc.passes.simplify.sink_constants import SinkConstants
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.fetches import resolve_feed, resolve_feeds, resolve_fetch
from graphc.runtime.freezing.freeze_capture import (
    by_name,
    captured,
    feed_name,
    fetch_name,
    state_of,
)
from graphc.runtime.freezing.regraph import RANDOM_STATE, as_graph
from graphc.runtime.session import Session
from graphc.runtime.targets.prepare import evaluate
from graphc.typing import Feeds

Output: TypeAlias = Tensor | Variable | str
"""An output: a tensor, a variable, or the name of one."""

LITERALS = 256  # bytes: numbers, and vectors of a few channels


def freeze(
    session: Session,
    inputs: Mapping[str, Tensor | str] | Sequence[Tensor | str],
    outputs: Mapping[str, Output] | Sequence[Output] | Output,
    *,
    given: Feeds | None = None,
    literals: int = LITERALS,
) -> Graph:
    """A new graph that computes `outputs` from `inputs` with the current values of the variables.

    Values that depend only on variables and constants are computed once, now. The new graph holds
    them as variables that are never assigned, so that programs stay small; only small values become
    constants. Dropout is removed, and so are branches that `given` decides. Batch normalization
    uses its moving averages, also where it was called with `training=True`. It is folded into the
    kernel and bias of the layer before it, if that layer is a convolution or a product whose result
    nothing else uses. Results are equal up to rounding. Gradients among the outputs keep
    the terms of the batch statistics: compute gradients in the frozen graph instead.

    The result is an ordinary graph: a session runs it, `gc.save` writes it. Its collections
    "inputs" and "outputs" contain the inputs and outputs.

    Args:
        session: its graph is frozen, with the values of its variables.
        inputs: name -> tensor that is fed, or a list of tensors or names.
        outputs: name -> tensor or variable that is fetched; or a list of them, or a single one.
            Without names they keep those of the graph. In names, characters that a node's name
            cannot have become "_", such as the colon of "serving_default_x:0".
        given: tensor or name -> its fixed value, such as `{training: False}`.
        literals: values of at most this many bytes become constants. A large number makes constants
            of all variables.

    Raises:
        FeedError, UnknownNameError: the outputs need another feed, or a value in `given` does not
            fit.
        FetchError: an output has no value, or assigns a variable.
        StateError: the session is closed, or has lost its state.

    Examples:
        >>> x = gc.placeholder((None, 2), name="x")
        >>> w = gc.variable([[1.0], [2.0]], name="w")
        >>> y = gc.matmul(x, gc.exp(w) * 2, name="y")
        >>> frozen = gc.freeze(gc.Session(graph), [x], [y], literals=0)
        >>> [node.op.name for node in frozen.nodes], list(frozen.variables)
        (['Placeholder', 'ReadVariable', 'MatMul'], ['Multiply'])
    """
    FORKING.use_devices()
    _check_arguments(session, literals)
    graph = session.graph
    feeds, fetches = _ends(graph, inputs, outputs)
    fed, given = list(feeds.values()), {} if given is None else given
    frozen = freeze_program(session, fed, fetches, given, literals=literals)
    program = rename_feeds(frozen.program, list(feeds))
    sources = {name: t.node.source for name, t in feeds.items()}
    return as_graph(program, frozen.values, name=graph.name, seed=graph.seed, sources=sources)


def _ends(graph: Graph, inputs: Any, outputs: Any) -> tuple[dict[str, Tensor], dict[str, Fetch]]:
    """The inputs and the outputs of the frozen graph, by name."""
    feeds = {n: resolve_feed(graph, t) for n, t in by_name(inputs, feed_name(graph)).items()}
    fetches = {n: resolve_fetch(graph, t) for n, t in by_name(outputs, fetch_name(graph)).items()}
    _check_distinct(feeds)
    if not fetches:
        raise FetchError.here("freeze: there are no outputs")
    return feeds, fetches


def _check_arguments(session: object, literals: object) -> None:
    if not isinstance(session, Session):
        raise AttributeValueError.here(
            f"freeze: the first argument must be a session, got {type(session).__name__}",
            hint="gc.freeze(gc.Session(graph), inputs, outputs) freezes the initial values",
        )
    if type(literals) is not int or literals < 0:
        raise AttributeValueError.here(
            f"freeze: literals must be a number of bytes, got {literals!r}"
        )


def _check_distinct(feeds: Mapping[str, Tensor]) -> None:
    named: dict[Tensor, str] = {}
    for name, tensor in feeds.items():
        if named.setdefault(tensor, name) != name:
            raise FeedError.here(
                f"freeze: inputs {named[tensor]!r} and {name!r} are one tensor, {tensor.name!r}",
                hint="give it one name",
            )


@dataclass(frozen=True)
class Frozen:
    """A pure program whose state is constant, except for the random state if it draws.

    Attributes:
        program: optimised; its fetches have the requested names.
        values: the values of the program's state by name, without the random state. A name of a
            variable has that variable's value. Other values are computed from several variables.
    """

    program: Program
    values: Mapping[str, Array]


@without_collection()
def freeze_program(
    session: Session,
    feeds: Sequence[Tensor],
    fetches: Mapping[str, Fetch],
    given: Feeds,
    *,
    options: CompileOptions | None = None,
    literals: int = LITERALS,
    scope: str = "",
) -> Frozen:
    """The program and values from which `freeze` makes a graph.

    Args:
        fetches: result name -> what is fetched; each has its own port.
        options: the options of the passes; by default those of the session.
        scope: a prefix for names of values that are not variables.

    Raises:
        FeedError, FetchError, StateError: see `freeze`.
    """
    options = session.options if options is None else options
    known = resolve_feeds(session.graph, given)
    both = [t.name for t in known if is_among(t, feeds)]
    if both:
        raise FeedError.here(f"freeze: {both[0]!r} is an input and given")
    program = captured(session.graph, feeds, fetches, known)
    plain = replace(options, pipeline="O1", precision=None, sparse_updates="off")
    program = _by(RemoveDropout(), program, options)
    program = _by(SinkConstants(), _through(program, plain), options)
    program = _without_state(_through(program, plain), session.graph)
    # The norms of models with the channels first stand behind a transpose until it has moved.
    program = _by(SimplifyShapes(), _by(MoveTransposes(), program, options), options)
    program = Prune().run(program).program
    program = Prune().run(_by(FoldNorms(RANDOM_STATE), program, options)).program
    program = _through(program, replace(options, pipeline="O1"))
    program = _by(StraightWeights(RANDOM_STATE), program, options)
    program = Prune().run(_by(HoistFrozen(RANDOM_STATE), program, options)).program
    before, program = split_frozen(program, RANDOM_STATE, literals)
    taken = dict.fromkeys(p.name for p in (*before.inputs, *program.ports("state")))
    values = session.values([name for name in taken if name in session.graph.variables])
    made = evaluate(before, [values[p.name] for p in before.inputs]) if before.outputs else []
    values.update(zip([port.name for port in before.outputs], made, strict=True))
    program, values = _with_literals(program, values, literals)
    program = _through(program, plain)
    return _scoped(Frozen(program, values), session.graph, scope)


def _by(a_pass: Pass, program: Program, options: CompileOptions) -> Program:
    """The program after a pass, unless the options exclude the pass."""
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
    """The program without the state that it no longer needs.

    Raises:
        FetchError: it assigns a variable.
    """
    taken = state_of(program)
    for port in program.new_state():
        if port.name not in RANDOM_STATE and taken.get(port.name) is not port.tensor:
            variable = graph.variables.get(port.name)
            raise FetchError(
                f"freeze: the outputs assign the variable {port.name!r}",
                source=None if variable is None else variable.source,
                hint="fetch outputs that assign nothing: call the layer with training=False, or "
                "pass given={training: False} if a branch assigns",
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
    """The program with small state as constants, and the values of the remaining state."""
    ports = program.ports("state")
    small = [p for p in ports if p.name in values and values[p.name].nbytes <= limit]
    constants = []
    for port in small:
        value = np.array(values[port.name])
        value.flags.writeable = False
        constants.append(node_of(CONSTANT, (), (port.tensor,), name=port.name, value=value))
    program = program.replace(
        inputs=tuple(port for port in program.inputs if port not in small),
        nodes=(*constants, *program.nodes),
    )
    left = [port.name for port in program.ports("state")]
    return program, {name: values[name] for name in left if name in values}


def _scoped(frozen: Frozen, graph: Graph, scope: str) -> Frozen:
    """The program and values with `scope` before the names of values that are not variables."""
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
