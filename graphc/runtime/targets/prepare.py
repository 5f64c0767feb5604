"""A fetch set as a program. It is captured and made pure at once, and optimised when needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from graphc.collection import without_collection
from graphc.config import CompileOptions
from graphc.devices.accumulate import Accumulate, is_accumulated
from graphc.errors import FeedError, ShapeError, VerifyError
from graphc.interrupts import uninterrupted
from graphc.ir.capture import Fetch, capture, port_name
from graphc.ir.dims import symbols_of
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program, attribute_symbols
from graphc.ir.rewrite import bind_sizes
from graphc.ir.stack import within_stack
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.ops.structure.state import ASSIGN, READ_VARIABLE
from graphc.passes.core.base import Pass
from graphc.passes.core.target import Target, suited_to
from graphc.passes.manager import PassManager, PassReport
from graphc.passes.pass_filter import without
from graphc.passes.precision.scale_loss import adding_state
from graphc.passes.simplify.drop_marks import DropGradientRules
from graphc.passes.simplify.functionalize import Functionalize
from graphc.runtime.buffers.annotated import annotated
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.core.forking import FORKING
from graphc.runtime.core.lazy import Lazy


@dataclass(eq=False, repr=False)
class Prepared:
    """One fetch set as a program. The passes run when `program` or `report` is first read. If the
    executable is found in the cache, they never run.

    Attributes:
        functional: the pure, unoptimised program. The cache key is computed from it.
        sources: feed name -> the source line of the placeholder.
        options: with which it is optimised.
        shard_sources: variable -> the source line that sets its sharding on a mesh.
        requests: variable -> the device that it requests, if any.
        whole: all nodes of the graph, for the device requests of all of them together.
    """

    functional: Program
    sources: Mapping[str, Any]
    options: CompileOptions
    shard_sources: Mapping[str, Any] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    whole: Program | None = None
    _placed: dict[str, Prepared] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        options, functional = self.options, self.functional
        self._optimised = Lazy(lambda: _run(manager(options), functional))

    def under(self, options: CompileOptions) -> Prepared:
        """The same fetch set under other options."""
        return replace(self, options=options)

    def placed(self, program: Program, base: str) -> Prepared:
        """The same fetch set with its nodes on several devices; `base` is the default device."""
        found = self._placed.get(base)
        if found is None:
            found = Prepared(program, self.sources, self.options)
            self._placed[base] = found
        return found

    @cached_property
    def trained(self) -> bool:
        """Whether the graph has assignments of variables that this program only reads."""
        if self.whole is None:
            return True
        changed = {port.name for port in self.functional.new_state()}
        read = {port.name for port in self.functional.ports("state")} - changed
        assigned = (n.attrs["variable"] for n in self.whole.walk() if n.op is ASSIGN)
        return not read.isdisjoint(assigned)

    @property
    def program(self) -> Program:
        """The program after the passes that do not depend on sizes. Named sizes are not bound."""
        return self._optimised()[0]

    @property
    def report(self) -> PassReport:
        """What each of those passes did."""
        return self._optimised()[1]


@within_stack
@without_collection()
def prepare(
    graph: Graph, fetches: Sequence[Fetch], feeds: Sequence[Tensor], options: CompileOptions
) -> Prepared:
    """Captures the program of a fetch set.

    Raises:
        FeedError, FetchError: see `ir.capture`. Also if no fetch depends on a feed.
    """
    captured = capture(graph, fetches, feeds, READ_VARIABLE)
    _check_needed(captured, feeds)
    COUNTERS.add(captures=1)
    # No gradient is computed from here on, so nodes that only define one are dropped.
    functional = Functionalize().run(DropGradientRules().run(captured).program).program
    for a_pass in adding_state(options):
        functional = a_pass.run(functional).program
    _check_sizes(functional)
    ports = functional.ports("feed")
    sources = {port.name: feed.node.source for port, feed in zip(ports, feeds, strict=True)}
    functional, lines = annotated(graph, functional)
    requests = {v.name: v.device for v in graph.variables.values() if v.device}
    whole = Program(graph.name, (), tuple(graph.nodes), ())
    return Prepared(functional, sources, options, lines, requests, whole)


class UnusedFeedError(FeedError):
    """The error for feeds that no fetch depends on.

    Args:
        feeds: these feeds. Also an attribute.
    """

    def __init__(self, feeds: Sequence[Tensor]) -> None:
        names = ", ".join(repr(port_name(feed)) for feed in feeds)
        verb, pronoun = ("is", "it") if len(feeds) == 1 else ("are", "them")
        super().__init__(
            f"{names} {verb} fed, and nothing fetched depends on {pronoun}",
            source=feeds[0].node.source,
            hint="remove the feed, or fetch a value that depends on it",
        )
        self.feeds = tuple(feeds)


def _check_needed(captured: Program, feeds: Sequence[Tensor]) -> None:
    needed = {t for node in captured.nodes for t in node.inputs}
    needed.update(captured.output_tensors())
    pairs = zip(captured.ports("feed"), feeds, strict=True)
    unused = [
        feed
        for port, feed in pairs
        if port.tensor not in needed and not _decides_size(captured, port.tensor)
    ]
    if unused:
        raise UnusedFeedError(unused)


def _decides_size(captured: Program, feed: Tensor) -> bool:
    """Whether an attribute of a node has a named size of `feed`, such as a node of `gc.size`."""
    names = {name for dim in feed.type.shape for name in symbols_of(dim)}
    return not names.isdisjoint(attribute_symbols(captured))


def _check_sizes(program: Program) -> None:
    known = program.symbols()
    for name, node in attribute_symbols(program).items():
        if name not in known:
            raise FeedError(
                f"{node.op.name} {node.name!r} needs the size {name!r}, which no feed has",
                source=node.source,
                hint=f"feed a placeholder with {name!r} in its shape too",
            )


def manager(options: CompileOptions) -> PassManager:
    """The passes and checks that `options` request."""
    from graphc.passes import pipelines  # here: a start with a warm cache runs no passes

    return _manager(pipelines.pipeline(options), options)


def _manager(passes: Sequence[Pass], options: CompileOptions, **more: Any) -> PassManager:
    return PassManager(
        without(passes, options),
        verify=options.verify,
        validate=options.validate,
        evaluator=evaluate,
        dump=options.dump,
        **more,
    )


@without_collection()
def bind(
    prepared: Prepared, bindings: Mapping[str, int], options: CompileOptions, target: Target
) -> tuple[Program, PassReport]:
    """The program with all sizes bound to ints, after the passes that need this, and their
    report.

    Raises:
        ShapeError: an operator does not take these sizes.
    """
    program = bind_sizes(prepared.program, bindings) if bindings else prepared.program
    passes = late_manager(options, target, program)
    if is_accumulated(program):
        # Accumulation is part of the program's meaning, so no option disables it.
        from graphc.passes import pipelines

        behind = without(pipelines.after_accumulation(options, target), options)
        around = [Accumulate(prepared.sources, target.replicas), *passes.passes, *behind]
        passes = replace(passes, passes=around)
    try:
        return _run(passes, program)
    except VerifyError as error:
        cause = error.__cause__
        if not bindings or not isinstance(cause, ShapeError):
            raise
        given = ", ".join(f"{name} = {size}" for name, size in bindings.items())
        raise ShapeError(
            cause.what,
            details=[*cause.details, f"the feeds give {given}"],
            source=cause.source,
            hint=cause.hint,
        ) from error


def late_manager(options: CompileOptions, target: Target, program: Program) -> PassManager:
    """The passes and checks for a program whose sizes are ints."""
    from graphc.passes import pipelines

    target = replace(suited_to(target, program), accumulates=is_accumulated(program))
    return _manager(pipelines.after_binding(options, target), options, stage="bound", rounds=1)


def _run(passes: PassManager, program: Program) -> tuple[Program, PassReport]:
    program, report = passes.run(program)
    COUNTERS.add(passes=len(report.rows))
    return program, report


@within_stack
def evaluate(program: Program, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Runs a pure, bound program with JAX, for validation and initial values."""
    FORKING.use_devices()
    COUNTERS.add(traces=1, lowerings=1, compiles=1)
    return uninterrupted(_evaluate, program, inputs)


def _evaluate(program: Program, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    with jax.enable_x64(needs_x64(program)):
        return [np.asarray(v) for v in jax.jit(to_function(program))(*inputs)]
