"""An entry point in its durable forms: its graph, StableHLO and native code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax

from graphc.artifacts import graphs, stablehlo
from graphc.artifacts.buckets import proved
from graphc.artifacts.examples import packed
from graphc.artifacts.lowering import Function, compiled_within, for_one, for_replicas
from graphc.artifacts.manifest import Entry, Native, Output, Value
from graphc.artifacts.native_code import compiled_for, limit_of, native_code_of, native_devices
from graphc.artifacts.open_sizes import fixed_sizes, how_to_fix, symbolic_sizes
from graphc.artifacts.signature import Signature
from graphc.artifacts.strings import packed_all
from graphc.artifacts.vocabulary import Vocabulary
from graphc.config import CompileOptions
from graphc.devices.environment import environment_of
from graphc.devices.machine import Machine
from graphc.devices.strategy import DataParallel
from graphc.errors import (
    ArtifactError,
    AttributeValueError,
    ExecutionError,
    FeedError,
    FetchError,
    MemoryLimitError,
    SerialError,
)
from graphc.ir.dims import Dim, substitute, symbol
from graphc.ir.fingerprint import calls_back
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes, map_dims, rename_feeds
from graphc.passes.core.target import Target
from graphc.runtime.feeds.fetches import FetchNest, resolve_feed, resolve_fetch
from graphc.runtime.freezing.freezing import freeze_program
from graphc.runtime.session import Session
from graphc.runtime.targets.jax_program import PortOrder
from graphc.runtime.targets.prepare import prepare

# These passes put collectives into loops, or into conditions for platform-specific code of JAX.
# When a file is read, collectives in loops and conditions are rejected.
_NOT_PORTABLE: Final = ("exchange-in-loops", "join-moments")


@dataclass(frozen=True)
class Exported:
    """One entry point: its record, the members that hold its program, and the values of state that
    belongs to it alone."""

    entry: Entry
    members: Mapping[str, bytes]
    values: Mapping[str, Any]

    @property
    def state(self) -> set[str]:
        return {*self.entry.written, *self.entry.read, *self.entry.assigned}


def export(
    session: Session,
    name: str,
    signature: Signature,
    platforms: Sequence[str],
    native: bool,
    machine: Machine | None,
    options: CompileOptions,
) -> Exported:
    """Exports the entry point `name` in the forms that a file holds.

    Args:
        platforms: the platforms of its StableHLO.
        native: whether it also has native code, for `machine` or the devices of this process.

    Raises:
        FeedError, FetchError: the signature does not fit the graph, or an example does not fit its
            inputs.
        UnknownNameError: there is no open size for which the signature gives sizes or buckets.
        ArtifactError: JAX cannot export the program, it does not fit into the memory limit, or a
            size with buckets cannot be padded.
    """
    graph = session.graph
    taken = program_of(session, name, signature, options)
    places, values, names = taken.places, taken.values, taken.names
    buckets = proved(graph, name, signature, taken.program)
    program = map_dims(taken.program, lambda dim: substitute(dim, names))
    order = PortOrder.of(program)
    program = order.reorder(program)
    outputs = tuple(
        Output(Value(output, order.fetches[i].tensor.type), i)
        for output, i in zip(signature.outputs, places, strict=False)
    )
    inputs = [_value(port) for port in order.feeds]
    strings = {n: v for n, v in signature.vocabularies.items() if n in signature.inputs}
    examples, data = packed(name, inputs, [_numbers(row, strings) for row in signature.examples])
    devices = _devices(session, name, signature, program)
    options = _limited(name, signature, program, options)
    try:
        lowered = _lowered(
            name, program, order, outputs, devices, platforms, native, machine, options
        )
    except ExecutionError as error:
        raise _not_lowered(name, error, options) from error
    rows = {str(names.get(size, size)): row for size, row in buckets.items()}
    vocabularies, words = packed_all(name, signature.vocabularies, lowered.entry)
    entry = replace(lowered.entry, buckets=rows, examples=examples, vocabularies=vocabularies)
    members = {**lowered.members, **data, **words}
    return replace(lowered, entry=entry, members=members, values=values)


def _numbers(example: Mapping[str, Any], strings: Mapping[str, Vocabulary]) -> dict[str, Any]:
    """An example with numbers in place of its strings."""
    return {
        name: strings[name].ids(value, f"the example of {name!r}") if name in strings else value
        for name, value in example.items()
    }


@dataclass(frozen=True)
class SignatureProgram:
    """What a signature computes.

    Attributes:
        program: optimised; its feeds have the names of the arguments, and named sizes are open.
        places: the index of each output among the program's fetches.
        values: the values of state that is not in a variable.
        names: sizes without names of their own -> names made of the argument and the axis.
    """

    program: Program
    places: Sequence[int]
    values: Mapping[str, Any]
    names: Mapping[str, Dim]


def program_of(
    session: Session, name: str, signature: Signature, options: CompileOptions
) -> SignatureProgram:
    """The program of a signature.

    Raises:
        FeedError, FetchError: the signature does not fit the graph.
        UnknownNameError: there is no open size for which the signature gives a size.
        ArtifactError: two open sizes would have to be equal.
    """
    feeds = _feeds(session.graph, name, signature)
    program, places, values = _program(session, name, signature, feeds, options)
    sizes = fixed_sizes(session.graph, name, signature, feeds.values())
    program = bind_sizes(program, sizes) if sizes else program
    if program.equalities:
        a, b = program.equalities[0]
        raise ArtifactError(
            f"signature {name!r} needs {a} == {b}, which an open size cannot guarantee",
            hint="fix the sizes: gc.Signature(..., sizes={...}), or build the graph with inputs of "
            'sizes that guarantee it, such as "32*height"',
        )
    program = rename_feeds(program, list(feeds))
    return SignatureProgram(program, places, values, _own_names(feeds, program))


def _feeds(graph: Graph, name: str, signature: Signature) -> dict[str, Tensor]:
    """The tensors that the arguments feed. Raises if an input or an output is invalid."""
    feeds = {argument: resolve_feed(graph, t) for argument, t in signature.inputs.items()}
    if len(set(feeds.values())) != len(feeds):
        raise FeedError(f"signature {name!r}: two inputs are the same tensor")
    for output, fetch in signature.outputs.items():
        if isinstance(resolve_fetch(graph, fetch), Node):
            raise FetchError(
                f"signature {name!r}: output {output!r} is a step without a value",
                hint="list it in updates",
            )
    return feeds


def _own_names(feeds: Mapping[str, Tensor], program: Program) -> dict[str, Dim]:
    """New names for the sizes that the user left open with None: they consist of the argument and
    the number of the axis, as they did of the placeholder."""
    used = set(program.symbols())
    found: dict[str, Dim] = {}
    for argument, tensor in feeds.items():
        base = tensor.node.name.replace("/", ".")
        bases = "|".join(map(re.escape, (base, re.sub(r"_\d+$", "", base))))
        for axis, dim in enumerate(tensor.type.shape):
            new = f"{argument}_{axis}"
            if re.fullmatch(rf"({bases})_{axis}(_\d+)?", str(dim)) and new not in used:
                found.setdefault(str(dim), symbol(new))
    return found


def _not_lowered(name: str, error: ExecutionError, options: CompileOptions) -> ArtifactError:
    details, hint = error.details, error.hint
    if isinstance(error, MemoryLimitError):
        details += ("a file stores each variable separately, while a session may stack them",)
        if options.memory_limit is not None:
            hint = f"pass options with memory_limit={error.least} or more, or fix smaller sizes"
        else:
            hint = "fix smaller sizes, or give a machine with more memory"
    return ArtifactError(f"signature {name!r}: {error.what}", details=details, hint=hint)


def _program(
    session: Session,
    name: str,
    signature: Signature,
    feeds: Mapping[str, Tensor],
    options: CompileOptions,
) -> tuple[Program, Sequence[int], Mapping[str, Any]]:
    """The optimised program of a signature, the index of each output among its fetches, and the
    values of state that is not in a variable."""
    graph = session.graph
    if signature.freeze:
        fetches = {n: resolve_fetch(graph, fetch) for n, fetch in signature.outputs.items()}
        frozen = freeze_program(
            session,
            list(feeds.values()),
            fetches,
            signature.given,
            options=options,
            scope=f"{name}/",
        )
        return frozen.program, range(len(fetches)), frozen.values
    nest = FetchNest(graph, [*signature.outputs.values(), list(signature.updates)])
    prepared = prepare(graph, nest.distinct, list(feeds.values()), options)
    program = prepared.program
    return program, nest.rebuild(range(len(program.ports("fetch")))), {}


def _lowered(
    name: str,
    program: Program,
    order: PortOrder,
    outputs: tuple[Output, ...],
    devices: Sequence[jax.Device],
    platforms: Sequence[str],
    native: bool,
    machine: Machine | None,
    options: CompileOptions,
) -> Exported:
    """The members of an entry point whose ports are in order."""
    if calls_back(program):
        raise ArtifactError(
            f"signature {name!r} prints or calls a Python function, which no file can hold",
            hint="give the signature outputs that do not depend on it",
        )
    function = _function(name, program, len(order.written), devices, options)
    exported = stablehlo.export(name, function, platforms, bool(program.symbols()))
    members = {f"programs/{name}.stablehlo": bytes(exported.serialize())}
    graph = f"programs/{name}.graph"
    try:
        members[graph] = graphs.to_data(program)
    except SerialError as error:
        raise ArtifactError(
            f"signature {name!r} cannot be written: {error.what}", source=error.source
        ) from error
    code = None
    if native and not program.symbols():
        where = native_devices(devices, machine)
        donated = len(order.written)
        native_code = native_code_of(name, program, donated, where, options, machine)
        members[f"programs/{name}.native"] = native_code.payload
        code = Native(f"programs/{name}.native", environment_of(where), native_code.targets)
    entry = Entry(
        stablehlo=f"programs/{name}.stablehlo",
        graph=graph,
        native=code,
        convention=int(exported.calling_convention_version),
        devices=len(devices) or 1,
        splits=function.splits,
        inputs=tuple(_value(port) for port in order.feeds),
        outputs=outputs,
        written=tuple(port.name for port in order.written),
        read=tuple(port.name for port in order.read),
        assigned=tuple(port.name for port in order.assigned),
        fetches=len(order.fetches),
        wide=function.wide,
        memory_limit=limit_of(options),
    )
    return Exported(entry, members, {})


def _devices(
    session: Session, name: str, signature: Signature, program: Program
) -> Sequence[jax.Device]:
    """The devices of a replicated signature; empty for a signature for one device."""
    if not signature.replicated:
        return ()
    if not isinstance(session.strategy, DataParallel):
        has = "no strategy" if session.strategy is None else f"another strategy: {session.strategy}"
        raise AttributeValueError(
            f"signature {name!r} is replicated, but the session has {has}",
            hint="gc.Session(graph, strategy=gc.devices.DataParallel(n)), or replicated=False",
        )
    if program.symbols():
        raise ArtifactError(
            f"signature {name!r} is for several devices, but its sizes "
            f"{', '.join(program.symbols())} are open, which JAX cannot export",
            hint=f"{how_to_fix(program)}, or save it for one device: replicated=False",
        )
    return session.strategy.resolve()


def _portable(options: CompileOptions) -> CompileOptions:
    """The options without those for specific devices."""
    found = {name: getattr(options, name) for name in ("verify", "validate", "dump")}
    return CompileOptions(without_passes=(*options.without_passes, *_NOT_PORTABLE), **found)


def _function(
    name: str,
    program: Program,
    donated: int,
    devices: Sequence[jax.Device],
    options: CompileOptions,
) -> Function:
    """The program as JAX sees it, for any platform; its named sizes become JAX's symbolic ones."""
    if program.symbols():
        return for_one(program, donated, symbolic_sizes(program))
    target = Target(replicas=max(1, len(devices)))
    program = graphs.bound(name, program, {}, options, target)

    def make(budget: int | None) -> Function:
        if len(devices) > 0:
            return for_replicas(program, devices, _portable(options), budget)
        return for_one(program, donated, options=_portable(options), budget=budget)

    limit = limit_of(options)
    if limit is None:
        return make(None)
    return compiled_within(limit, make, lambda function: compiled_for(function, devices))[0]


def _limited(
    name: str, signature: Signature, program: Program, options: CompileOptions
) -> CompileOptions:
    """The options of one signature. With open sizes its memory use is unknown."""
    if options.memory_limit is None or not program.symbols():
        return options
    if not signature.updates:
        return replace(options, memory_limit=None)
    raise ArtifactError(
        f"signature {name!r} must fit into memory_limit={options.memory_limit}, but its sizes "
        f"{', '.join(program.symbols())} are open, and its memory use depends on them",
        hint=f"{how_to_fix(program)}, or pass options without memory_limit",
    )


def _value(port: Port) -> Value:
    return Value(port.name, port.tensor.type)
