"""`gc.save`: saves entry points of a graph in durable forms, with the weights that they use."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from graphc import _version
from graphc.artifacts import container
from graphc.artifacts.exporting import Exported, export
from graphc.artifacts.manifest import Manifest, Value
from graphc.artifacts.signature import Signature
from graphc.artifacts.weights import WEIGHTS, Packer
from graphc.checkpoints.checkpointer import Checkpointer
from graphc.config import CompileOptions
from graphc.devices.machine import Machine
from graphc.errors import AttributeValueError
from graphc.ir.names import check_length
from graphc.ir.stack import within_stack
from graphc.ir.types import TensorType
from graphc.runtime.core.forking import FORKING
from graphc.runtime.session import Session
from graphc.runtime.state.initial import state_types
from graphc.runtime.step.compiler import checked_machine, checked_options

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@within_stack
def save(
    session: Session,
    path: str | os.PathLike[str],
    *,
    signatures: Mapping[str, Signature] | None = None,
    platforms: Sequence[str] = ("cpu", "cuda"),
    native: bool = False,
    machine: Machine | str | None = None,
    options: CompileOptions | None = None,
) -> None:
    """Writes an artifact: one file that `gc.load` runs without the code that built the graph.
    Without signatures, writes a checkpoint.

    An artifact holds, for each signature, StableHLO for all `platforms` (by `jax.export`), the
    graph itself, which can be lowered with any later JAX, and the current values of the variables
    that the signatures use. Programs are for one device, unless `Signature(replicated=True)`. Named
    sizes stay open unless the signature fixes them. The file is written under a temporary name and
    then renamed, so that an earlier file at `path` stays intact.

    A checkpoint is a folder with the whole state of the session, for `gc.train.restore(session,
    path)`. It replaces an earlier one at `path`. `gc.train.Checkpointer` writes several.

    Args:
        signatures: name -> entry point. None writes a checkpoint; the arguments below must then be
            omitted.
        platforms: among "cpu", "cuda", "rocm" and "tpu". None of them need be present.
        native: also store machine code for exactly this environment, with the passes for this
            machine, for each signature whose sizes are all fixed. Only `gc.load(path,
            trust_native=True)` uses it.
        machine: a `gc.devices.Machine`, or its name. The native code is then compiled for its GPUs,
            which need not be present, instead of the local devices. Their memory is the memory
            limit of that code, unless the options set one.
        options: the options of the passes; by default those of the session. A `memory_limit`
            applies to signatures whose sizes are all fixed, as XLA measures memory on the local
            devices (they are compiled for this), and to the graph when it is compiled. A step may
            use more memory than in the session. The session stores variables that are looped over
            in one array, but a file stores each variable separately.

    Raises:
        AttributeValueError: signatures or platforms are invalid, `native` is set without a
            signature whose sizes are fixed, or `machine` is given without `native`.
        DeviceError: `machine` has fewer GPUs than a signature needs.
        MissingExtraError: `machine` was given, and JAX's CUDA plugin is not installed.
        ArtifactError: an entry point cannot be lowered with open sizes or for a platform, does not
            fit into the memory limit, has updates and open sizes with a memory limit, or has
            buckets for a size that cannot be padded; or the file cannot be written.
        CheckpointError: the checkpoint cannot be written, or a Checkpointer writes to the folder.
        FeedError, FetchError, UnknownNameError: a signature does not match the graph, or an example
            does not match its inputs.
        LayoutError: a replicated signature has no batch to split over the devices.
        StateError: the session is closed or broken.

    Examples:
        >>> import tempfile
        >>> x = gc.placeholder(("batch",), name="x")
        >>> triple = gc.Signature({"x": x}, {"y": gc.variable(3.0, name="w") * x})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/model.gcx"
        ...     gc.save(gc.Session(graph), path, signatures={"triple": triple}, platforms=["cpu"])
        ...     gc.load(path).signatures["triple"](x=[1.0, 2.0])
        {'y': Array([3., 6.], dtype=float32)}
    """
    if signatures is None:
        _check_session(session)
        if native or machine is not None or options is not None:
            raise AttributeValueError.here(
                "save: `native`, `machine` and `options` are for artifacts, which have signatures",
                hint="pass signatures={...}, or leave these arguments out to write a checkpoint",
            )
        with Checkpointer(path, keep=1) as saver:
            saver.save(session, 0, wait=True)
        return
    write(
        session,
        path,
        signatures,
        platforms=platforms,
        native=native,
        machine=machine,
        options=options,
    )


def write(
    session: Session,
    path: str | os.PathLike[str],
    signatures: Mapping[str, Signature],
    *,
    platforms: Sequence[str],
    native: bool,
    machine: Machine | str | None = None,
    options: CompileOptions | None = None,
    call: Mapping[str, Any] | None = None,
) -> None:
    """Like `save`, but with a description of a call for the manifest."""
    FORKING.use_devices()  # `jax.export` uses its own threads
    _check_session(session)
    _check_signatures(signatures)
    platforms = _checked_platforms(platforms)
    machine = _checked_machine(machine, native)
    options = session.options if options is None else checked_options(options)
    exported = {
        name: export(session, name, signature, platforms, native, machine, options)
        for name, signature in signatures.items()
    }
    if native:
        _check_native(exported.values())
    _write(path, session, platforms, exported, call)


def _write(
    path: str | os.PathLike[str],
    session: Session,
    platforms: tuple[str, ...],
    exported: Mapping[str, Exported],
    call: Mapping[str, Any] | None,
) -> None:
    """Writes the entry points, and the current values of the state that they use."""
    weights = _weights(session, exported.values())

    def manifest() -> Mapping[str, Any]:
        return Manifest(
            graphc=_version.__version__,
            jax=jax.__version__,
            graph=session.graph.name,
            platforms=platforms,
            variables=weights.rows,
            signatures={name: e.entry for name, e in exported.items()},
            call=call,
        ).to_json()

    programs = {name: [data] for e in exported.values() for name, data in e.members.items()}
    container.write(path, {WEIGHTS: weights.pieces(), **programs}, manifest)


def _weights(session: Session, exported: Collection[Exported]) -> Packer:
    """The values of the state that the entry points use: variables of the session, and values that
    an entry point adds itself."""
    names = set().union(*(e.state for e in exported))
    types = {name: type for name, type in state_types(session.graph).items() if name in names}
    own = {n: value for e in exported for n, value in e.values.items() if n not in types}
    types |= {name: TensorType(value.dtype, value.shape) for name, value in own.items()}
    values = [Value(name, type) for name, type in types.items()]
    current = session.values(name for name in types if name not in own)
    return Packer(values, lambda n: own[n] if n in own else current[n])


def _check_session(session: object) -> None:
    if not isinstance(session, Session):
        raise AttributeValueError(
            f"save: the first argument must be a session, got {type(session).__name__}",
            hint="gc.save(gc.Session(graph), path, signatures=...) saves the initial values",
        )


def _checked_machine(machine: Machine | str | None, native: bool) -> Machine | None:
    if machine is not None and not native:
        raise AttributeValueError(
            "save: machine is for native code, but native is False",
            hint="pass native=True with it; the other forms run on every machine",
        )
    return checked_machine(machine, "save")


def _check_native(exported: Collection[Exported]) -> None:
    if all(e.entry.native is None for e in exported):
        raise AttributeValueError(
            "save: native code needs fixed sizes, but every signature has open sizes",
            hint="fix the sizes: gc.Signature(..., sizes={...})",
        )


def _check_signatures(signatures: Any) -> None:
    if not isinstance(signatures, Mapping) or not signatures:
        raise AttributeValueError(
            f"save: signatures must name at least one entry point, got {signatures!r}",
            hint='signatures={"predict": gc.Signature(inputs, outputs)}',
        )
    for name, signature in signatures.items():
        named = isinstance(name, str) and name.isidentifier()
        if not isinstance(signature, Signature) or not named:
            raise AttributeValueError(
                f"save: signatures must map names to gc.Signature, got {name!r}: {signature!r}",
                hint='signatures={"predict": gc.Signature({"x": x}, {"y": y})}',
            )
        check_length(name, "name of a signature")


def _checked_platforms(platforms: Any) -> tuple[str, ...]:
    if isinstance(platforms, str) or not platforms:
        raise AttributeValueError(
            f"save: platforms must be a list of names, got {platforms!r}",
            hint='platforms=("cpu", "cuda")',
        )
    for platform in platforms:
        if platform not in PLATFORMS:
            raise AttributeValueError(
                f"save: {platform!r} is not a platform",
                hint=f"choose among {', '.join(PLATFORMS)}",
            )
    return tuple(dict.fromkeys(platforms))
