"""`gc.save`: entry points of a graph, lowered to StableHLO, with the weights they use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from graphc import _version
from graphc.artifacts import container
from graphc.artifacts.signature import Signature
from graphc.config import CompileOptions
from graphc.errors import ArtifactError, AttributeValueError, GraphcError
from graphc.ir.dtypes import short_name
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.runtime.executors import Signature as Order
from graphc.runtime.executors import with_own_outputs
from graphc.runtime.fetches import FetchNest, resolve_feed
from graphc.runtime.prepare import prepare
from graphc.runtime.session import Session

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclass(frozen=True)
class _Exported:
    """One entry point, lowered."""

    data: bytes
    entry: dict[str, Any]
    state: set[str]


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

    Raises:
        ArtifactError: an entry point cannot be lowered with open sizes or for a platform.
        FeedError, FetchError, UnknownNameError: a signature that does not fit the graph.
    """
    if not signatures:
        raise AttributeValueError(
            "save: no signatures", mend='signatures={"predict": gc.Signature(inputs, outputs)}'
        )
    unknown = [p for p in platforms if p not in PLATFORMS]
    if unknown or not platforms:
        raise AttributeValueError(
            f"save: {unknown or platforms!r} are not platforms",
            mend=f"choose among {', '.join(PLATFORMS)}",
        )
    for name, signature in signatures.items():
        if not isinstance(signature, Signature) or not name.isidentifier():
            raise AttributeValueError(
                f"save: signatures must map names to gc.Signature, got {name!r}: {signature!r}"
            )
    exported = {
        name: _export(session, name, signature, platforms, options or session.options)
        for name, signature in signatures.items()
    }
    names = set().union(*(e.state for e in exported.values()))
    weights, variables = _weights(session, names)
    manifest = {
        "graphc": _version.__version__,
        "jax": jax.__version__,
        "platforms": list(platforms),
        "graph": session.graph.name,
        "variables": variables,
        "signatures": {name: e.entry for name, e in exported.items()},
    }
    members = {e.entry["program"]: e.data for e in exported.values()}
    container.write(path, manifest, {"weights.safetensors": weights, **members})


def _export(
    session: Session,
    name: str,
    signature: Signature,
    platforms: Sequence[str],
    options: CompileOptions,
) -> _Exported:
    graph = session.graph
    feeds = {argument: resolve_feed(graph, t) for argument, t in signature.inputs.items()}
    nest = FetchNest(graph, [*signature.outputs.values(), *signature.updates])
    prepared = prepare(graph, nest.distinct, list(feeds.values()), options)
    program = _renamed(bind_sizes(prepared.program, signature.sizes), list(feeds))
    if program.equalities:
        a, b = program.equalities[0]
        raise ArtifactError(
            f"signature {name!r} needs {a} == {b}, which an open size cannot promise",
            mend="fix the sizes: gc.Signature(..., sizes={...})",
        )
    order = Order.of(program)
    program = order.reorder(program)
    data = _lower(program, name, len(order.written), platforms)
    places = _output_places(nest, len(signature.outputs))
    entry = {
        "program": f"programs/{name}.stablehlo",
        "inputs": [_describe(p) for p in order.feeds],
        "outputs": [
            {**_describe(order.fetches[i]), "name": o, "index": i}
            for o, i in zip(signature.outputs, places, strict=True)
        ],
        "written": [p.name for p in order.written],
        "read": [p.name for p in order.read],
        "assigned": [p.name for p in order.assigned],
        "fetches": len(order.fetches),
        "wide": needs_x64(program),
    }
    return _Exported(data, entry, {p.name for p in (*order.written, *order.read, *order.assigned)})


def _renamed(program: Program, arguments: Sequence[str]) -> Program:
    """The program with its feeds under the signature's argument names."""
    names = iter(arguments)
    inputs = [p._replace(name=next(names)) if p.kind == "feed" else p for p in program.inputs]
    return program.replace(inputs=tuple(inputs), batch_axes={})


def _output_places(nest: FetchNest, count: int) -> list[int]:
    places = nest.rebuild(list(range(len(nest.distinct))))[:count]
    if any(place is None for place in places):
        raise ArtifactError("an output of a signature has no value", mend="list it in updates")
    return [int(place) for place in places]


def _describe(port: Port) -> dict[str, Any]:
    type = port.tensor.type
    return {
        "name": port.name,
        "dtype": short_name(type.dtype),
        "shape": [d if isinstance(d, int) else str(d) for d in type.shape],
    }


def _lower(program: Program, name: str, donated: int, platforms: Sequence[str]) -> bytes:
    """The program as serialised StableHLO; its named sizes become JAX's symbolic dims."""
    symbols = program.symbols()
    scope = jax.export.SymbolicScope()
    sizes = {
        s: jax.export.symbolic_shape(f"d{i}", scope=scope)[0] for i, s in enumerate(symbols)
    }
    function = with_own_outputs(program, to_function(program, sizes=sizes))
    try:
        with jax.enable_x64(needs_x64(program)):
            arguments = [
                jax.ShapeDtypeStruct(t.type.bind(sizes).shape, t.type.dtype)
                for t in program.input_tensors()
            ]
            jitted = jax.jit(function, donate_argnums=tuple(range(donated)), keep_unused=True)
            exported = jax.export.export(jitted, platforms=tuple(platforms))(*arguments)
            return bytes(exported.serialize())
    except GraphcError as error:
        raise ArtifactError(
            f"signature {name!r} cannot be lowered"
            + (f" with open sizes {', '.join(symbols)}" if symbols else ""),
            details=str(error).splitlines(),
            mend="fix the sizes: gc.Signature(..., sizes={...})" if symbols else None,
        ) from error
    except (NotImplementedError, ValueError, TypeError) as error:
        raise ArtifactError(
            f"signature {name!r} cannot be lowered for {', '.join(platforms)}",
            details=[line for line in str(error).splitlines()[:3] if line],
            mend="save for fewer platforms, or fix the named sizes",
        ) from error


def _weights(session: Session, names: set[str]) -> tuple[bytes, list[dict[str, Any]]]:
    """The values as safetensors of raw bytes (its own dtypes lack the narrow ones)."""
    state = session.state()
    arrays, rows = {}, []
    for i, name in enumerate(n for n in state.layout.types if n in names):
        value = np.ascontiguousarray(np.asarray(state[name]))
        arrays[f"v{i}"] = np.frombuffer(value.tobytes(), np.uint8)
        rows.append(
            {
                "name": name,
                "key": f"v{i}",
                "dtype": short_name(state.layout.types[name].dtype),
                "shape": list(value.shape),
            }
        )
    return safetensors.numpy.save(arrays), rows
