"""`gc.save`: entry points of a graph, lowered to StableHLO, with the weights they use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from graphc import _version
from graphc.artifacts import container
from graphc.artifacts.manifest import Entry, Manifest, Output, Value, VariableRow
from graphc.artifacts.signature import Signature
from graphc.artifacts.weights import WEIGHTS, pack
from graphc.config import CompileOptions
from graphc.errors import (
    ArtifactError,
    AttributeValueError,
    FeedError,
    FetchError,
    GraphcError,
    UnknownNameError,
    nearest,
)
from graphc.ir.dims import as_symbol, symbol, symbols_of
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.runtime.compiler import checked_options
from graphc.runtime.executors import PortOrder, with_token
from graphc.runtime.fetches import FetchNest, resolve_feed, resolve_fetch
from graphc.runtime.initial import state_types
from graphc.runtime.prepare import bind, prepare
from graphc.runtime.session import Session

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclass(frozen=True)
class _Exported:
    """One entry point, lowered, and the variables it has to do with."""

    data: bytes
    entry: Entry

    @property
    def state(self) -> set[str]:
        return {*self.entry.written, *self.entry.read, *self.entry.assigned}


def save(
    session: Session,
    path: str | os.PathLike[str],
    *,
    signatures: Mapping[str, Signature],
    platforms: Sequence[str] = ("cpu", "cuda"),
    options: CompileOptions | None = None,
) -> None:
    """Writes an artifact: one file that `gc.load` runs without the code that built the graph.

    It holds, for each signature, StableHLO for all `platforms` (by `jax.export`), and the
    current values of the variables the signatures use. Programs are for one device: devices and
    strategies are not saved. Named sizes stay open unless the signature fixes them. The file is
    written aside and renamed, so that an earlier one at `path` stays whole.

    Args:
        signatures: name -> entry point.
        platforms: among "cpu", "cuda", "rocm" and "tpu"; none of them need be here.
        options: of the passes; those of the session otherwise.

    Raises:
        AttributeValueError: signatures or platforms that are none.
        ArtifactError: an entry point cannot be lowered with open sizes or for a platform, or
            the file cannot be written.
        FeedError, FetchError, UnknownNameError: a signature that does not fit the graph.
        StateError: the session is closed or broken.
    """
    if not isinstance(session, Session):
        raise AttributeValueError(
            f"save: the first argument must be a session, got {type(session).__name__}",
            mend="gc.save(gc.Session(graph), path, signatures=...) saves the initial values",
        )
    _check_signatures(signatures)
    platforms = _checked_platforms(platforms)
    options = session.options if options is None else checked_options(options)
    exported = {
        name: _export(session, name, signature, platforms, options)
        for name, signature in signatures.items()
    }
    names = set().union(*(e.state for e in exported.values()))
    types = {name: type for name, type in state_types(session.graph).items() if name in names}
    variables = tuple(VariableRow(Value(n, t), f"v{i}") for i, (n, t) in enumerate(types.items()))
    manifest = Manifest(
        graphc=_version.__version__,
        jax=jax.__version__,
        graph=session.graph.name,
        platforms=platforms,
        variables=variables,
        signatures={name: e.entry for name, e in exported.items()},
    )
    weights = pack(variables, lambda name: np.asarray(session.get(name)))
    programs = {e.entry.program: [e.data] for e in exported.values()}
    container.write(path, manifest.to_json(), {WEIGHTS: weights, **programs})


def _check_signatures(signatures: Any) -> None:
    if not isinstance(signatures, Mapping) or not signatures:
        raise AttributeValueError(
            f"save: signatures must name one entry point at least, got {signatures!r}",
            mend='signatures={"predict": gc.Signature(inputs, outputs)}',
        )
    for name, signature in signatures.items():
        named = isinstance(name, str) and name.isidentifier()
        if not isinstance(signature, Signature) or not named:
            raise AttributeValueError(
                f"save: signatures must map names to gc.Signature, got {name!r}: {signature!r}"
            )


def _checked_platforms(platforms: Any) -> tuple[str, ...]:
    if isinstance(platforms, str) or not platforms:
        raise AttributeValueError(
            f"save: platforms must be a list of names, got {platforms!r}",
            mend='platforms=("cpu", "cuda")',
        )
    for platform in platforms:
        if platform not in PLATFORMS:
            raise AttributeValueError(
                f"save: {platform!r} is not a platform",
                mend=f"choose among {', '.join(PLATFORMS)}",
            )
    return tuple(dict.fromkeys(platforms))


def _export(
    session: Session,
    name: str,
    signature: Signature,
    platforms: Sequence[str],
    options: CompileOptions,
) -> _Exported:
    graph = session.graph
    feeds = {argument: resolve_feed(graph, t) for argument, t in signature.inputs.items()}
    if len(set(feeds.values())) != len(feeds):
        raise FeedError(f"signature {name!r}: two inputs are the same tensor")
    for output, fetch in signature.outputs.items():
        if isinstance(resolve_fetch(graph, fetch), Node):
            raise FetchError(
                f"signature {name!r}: output {output!r} is a step without a value",
                mend="list it in updates",
            )
    nest = FetchNest(graph, [*signature.outputs.values(), list(signature.updates)])
    prepared = prepare(graph, nest.distinct, list(feeds.values()), options)
    sizes = _sizes(graph, name, signature, feeds.values())
    program = _renamed(bind(prepared, sizes, options)[0], list(feeds))
    if program.equalities:
        a, b = program.equalities[0]
        raise ArtifactError(
            f"signature {name!r} needs {a} == {b}, which an open size cannot promise",
            mend="fix the sizes: gc.Signature(..., sizes={...})",
        )
    order = PortOrder.of(program)
    program = order.reorder(program)
    places = nest.rebuild(range(len(order.fetches)))
    entry = Entry(
        program=f"programs/{name}.stablehlo",
        inputs=tuple(_value(port) for port in order.feeds),
        outputs=tuple(
            Output(Value(output, order.fetches[i].tensor.type), i)
            for output, i in zip(signature.outputs, places, strict=False)
        ),
        written=tuple(port.name for port in order.written),
        read=tuple(port.name for port in order.read),
        assigned=tuple(port.name for port in order.assigned),
        fetches=len(order.fetches),
        wide=needs_x64(program),
    )
    return _Exported(_lower(program, name, len(order.written), platforms), entry)


def _sizes(
    graph: Graph, name: str, signature: Signature, inputs: Iterable[Tensor]
) -> dict[str, int]:
    """The sizes that the signature fixes, under the names that stand for their classes."""
    known = {s: None for t in inputs for dim in t.type.shape for s in sorted(symbols_of(dim))}
    sizes: dict[str, int] = {}
    for given, size in signature.sizes.items():
        dim = graph.constraints.find(symbol(given)) if given in known else None
        if dim is None:
            raise UnknownNameError(
                f"signature {name!r}: no input has a size {given!r}",
                mend=nearest(given, known) or "its inputs have no open sizes",
            )
        stands = as_symbol(dim)
        fixed = dim if stands is None else sizes.setdefault(stands, size)
        if fixed != size:
            raise FeedError(f"signature {name!r}: {given} is {fixed} in the graph, not {size}")
    return sizes


def _renamed(program: Program, arguments: Sequence[str]) -> Program:
    """The program with its feeds under the signature's argument names."""
    names = iter(arguments)
    inputs = [p._replace(name=next(names)) if p.kind == "feed" else p for p in program.inputs]
    return program.replace(inputs=tuple(inputs), batch_axes={})


def _value(port: Port) -> Value:
    return Value(port.name, port.tensor.type)


def _lower(program: Program, name: str, donated: int, platforms: Sequence[str]) -> bytes:
    """The program as serialised StableHLO; its named sizes become JAX's symbolic dims."""
    symbols = program.symbols()
    scope = jax.export.SymbolicScope()
    sizes = {s: jax.export.symbolic_shape(f"d{i}", scope=scope)[0] for i, s in enumerate(symbols)}
    function = with_token(program, to_function(program, sizes=sizes))
    try:
        with jax.enable_x64(needs_x64(program)), _without_paths():
            arguments = [
                jax.ShapeDtypeStruct(t.type.bind(sizes).shape, t.type.dtype)
                for t in program.input_tensors()
            ]
            jitted = jax.jit(function, donate_argnums=tuple(range(donated)), keep_unused=True)
            exported = jax.export.export(jitted, platforms=tuple(platforms))(*arguments)
            return bytes(exported.serialize())
    except Exception as error:  # JAX refuses what it cannot lower in many ways
        where = f" with open sizes {', '.join(symbols)}" if symbols else ""
        raise ArtifactError(
            f"signature {name!r} cannot be lowered for {', '.join(platforms)}{where}",
            details=[line for line in str(error).splitlines()[:5] if line.strip()],
            source=error.source if isinstance(error, GraphcError) else None,
            mend="fix the sizes: gc.Signature(..., sizes={...})" if symbols else None,
        ) from error


@contextmanager
def _without_paths() -> Iterator[None]:
    """Keeps the paths of Python files, which JAX notes for each operation, out of the program.

    The names of the nodes stay. A file that leaves should not tell of the machine it was made
    on, nor differ by it.
    """
    name = "jax_traceback_in_locations_limit"
    before = jax.config.values[name]
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)
