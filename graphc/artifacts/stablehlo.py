"""Programs as JAX exports them: StableHLO for several platforms, with open sizes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import zip_longest
from typing import Any

import jax
from jax.extend import mlir
from jax.extend.mlir import ir

from graphc.artifacts.lowering import Function
from graphc.artifacts.manifest import Entry, Value, corrupt
from graphc.errors import ArtifactError, ExecutionError, GraphcError
from graphc.interrupts import uninterrupted
from graphc.ir.dtypes import short_name
from graphc.ir.types import TensorType
from graphc.jax_internals import LOCATIONS, SHARDY, all_settings, changed_setting
from graphc.runtime.targets.jax_program import x64
from graphc.untrusted.findings import findings
from graphc.untrusted.kernel_contracts import CHANGING
from graphc.untrusted.rules import NotAllowedError, check_rules, check_targets, mlir_name
from graphc.untrusted.safe_reading import UnreadableError

_ALLOWED = [jax.export.DisabledSafetyCheck.custom_call(target) for target in CHANGING]


def export(name: str, function: Function, platforms: Sequence[str], open_sizes: bool) -> Any:
    """The `jax.export.Exported` of a function.

    Raises:
        ArtifactError: JAX cannot lower it with open sizes, or for one of the platforms.
    """
    return uninterrupted(_export, name, function, platforms, open_sizes)


def _export(name: str, function: Function, platforms: Sequence[str], open_sizes: bool) -> Any:
    try:
        with x64(function.wide), _without_paths():
            exported = _exported(function, platforms)
        with ir.Context():
            module = mlir.deserialize_portable_artifact(exported.mlir_module_serialized)
            check_targets(findings(module))
        return exported
    except Exception as error:  # JAX raises errors of many kinds here
        where = " with open sizes" if open_sizes else ""
        raise ArtifactError(
            f"signature {name!r} cannot be lowered for {', '.join(platforms)}{where}",
            details=[line for line in str(error).splitlines()[:5] if line.strip()],
            source=error.source if isinstance(error, GraphcError) else None,
            hint="fix the sizes: gc.Signature(..., sizes={...}), or --size name=8 of graphc import"
            if open_sizes
            else None,
        ) from error


def serialized(function: Function) -> bytes:
    """A function for one CPU device as JAX exports it.

    Raises:
        ExecutionError: JAX cannot export it.
    """
    return uninterrupted(_serialized, function)


def _serialized(function: Function) -> bytes:
    try:
        with x64(function.wide):
            return bytes(_exported(function, ("cpu",)).serialize())
    except Exception as error:  # JAX raises errors of many kinds here
        raise ExecutionError(f"the graph cannot be exported: {error}") from error


def _exported(function: Function, platforms: Sequence[str]) -> Any:
    making = jax.export.export(
        function.jitted, platforms=tuple(platforms), disabled_checks=_ALLOWED
    )
    return making(*function.arguments)


def _without_paths() -> AbstractContextManager[None]:
    """Removes the paths of Python files from the program. JAX records them for each operation.

    The names of the nodes stay. A distributed file should not reveal the machine on which it was
    made, or depend on it.
    """
    return changed_setting(LOCATIONS, 0)


def check_convention(convention: int | None) -> None:
    """Rejects a calling convention that this JAX does not support or no longer supports.

    Raises:
        UnreadableError: it is not supported.
    """
    least = jax.export.minimum_supported_calling_convention_version
    most = jax.export.maximum_supported_calling_convention_version
    if convention is not None and not least <= convention <= most:
        raise UnreadableError(
            f"its calling convention is {convention}, but jax {jax.__version__} supports {least} "
            f"to {most}"
        )


def deserialize(data: bytes | memoryview) -> Any:
    """The `jax.export.Exported` from bytes that `safe_reading` has accepted.

    Raises:
        UnreadableError: this JAX cannot read it.
    """
    try:
        return jax.export.deserialize(bytearray(data))
    except Exception as error:  # the parser of another version may raise any error
        raise UnreadableError(f"{type(error).__name__}: {error}") from error


def check_types(
    name: str,
    exported: Any,
    entry: Entry,
    variables: Mapping[str, TensorType],
    main: Sequence[Sequence[str]],
) -> None:
    """Checks that a program's inputs and results match the manifest.

    Args:
        main: the types of the program's arguments and results, as MLIR prints them.

    Raises:
        ArtifactCorruptError: they do not match.
    """
    where = f"program {name!r}"
    state = [Value(n, variables[n]) for n in (*entry.written, *entry.read)]
    _match(where, "take", [*state, *entry.inputs], exported.in_avals)
    results = exported.out_avals
    count = len(entry.assigned)
    if len(results) != count + (entry.fetches or 1):  # see `runtime.lowered.with_token`
        raise corrupt(where, f"give {count + entry.fetches} values")
    assigned = [Value(n, variables[n]) for n in entry.assigned]
    fetched = [results[count + output.index] for output in entry.outputs]
    values = [*assigned, *(output.value for output in entry.outputs)]
    _match(where, "give", values, [*results[:count], *fetched])
    _check_convention_of_call(where, exported, entry, main)


def _check_convention_of_call(
    where: str, exported: Any, entry: Entry, main: Sequence[Sequence[str]]
) -> None:
    """Checks the other fields of JAX's record of a program. graphc writes only one form of them."""
    arguments, results = len(exported.in_avals), len(exported.out_avals)
    if exported.in_tree != jax.tree.structure(((0,) * arguments, {})):
        raise corrupt(where, f"take {arguments} separate arrays")
    trees = [jax.tree.structure(kind([0] * results)) for kind in (list, tuple)]
    if exported.out_tree not in trees:
        raise corrupt(where, f"give a list of {results} arrays")
    if exported.nr_devices != entry.devices:
        raise corrupt(where, f"be for {entry.devices} devices, not {exported.nr_devices}")
    if exported.ordered_effects or exported.unordered_effects:
        raise corrupt(where, "have no side effects")
    if tuple(exported.module_kept_var_idx) != tuple(range(arguments)):
        raise corrupt(where, "use each of its arguments once")
    if entry.devices == 1 and any((*exported.in_shardings_hlo, *exported.out_shardings_hlo)):
        raise corrupt(where, "be for one device, without shardings")
    index = main[0][:1] if len(exported.platforms) > 1 else []  # the type of the platform's number
    if index and index[0] not in ("tensor<i32>", "tensor<i64>"):
        raise corrupt(where, "take the number of the platform first")
    expected = [[*index, *_printed(exported.in_avals)], _printed(exported.out_avals)]
    for said, coded in zip(expected, main, strict=True):
        if said != coded:
            other = next(p for p in zip_longest(said, coded) if p[0] != p[1])
            raise corrupt(
                where, f"have code of the types that it states: {other[0]}, not {other[1]}"
            )


def _printed(avals: Sequence[Any]) -> list[str]:
    """The types as MLIR prints them."""
    return [
        f"tensor<{''.join(f'{d}x' if isinstance(d, int) else '?x' for d in aval.shape)}"
        f"{mlir_name(short_name(aval.dtype))}>"
        for aval in avals
    ]


def check_program(found: Mapping[str, Any], devices: int) -> bool:
    """Checks what a program contains; returns whether `check_refined` must check it again.

    Args:
        found: see `untrusted.findings`.

    Raises:
        UnreadableError: a rule does not allow it.
    """
    try:
        return check_rules(found, devices, refined=False)
    except NotAllowedError as error:
        raise UnreadableError(str(error)) from error


def check_refined(lowered: Any, devices: int) -> None:
    """Checks a program as XLA will see it: lowered for given sizes that replace the open ones.

    Raises:
        ExecutionError: a rule does not allow it, or JAX cannot fill in the sizes.
    """
    module = lowered.compiler_ir("stablehlo")
    try:
        check_rules(findings(refined_module(module)), devices, refined=True)
    except Exception as error:  # from a rule or from MLIR, which raises errors of many kinds
        why = f"{type(error).__name__}: {error}"[:500]
        raise ExecutionError(f"the program is not run with these sizes: {why}") from error


def refined_module(module: Any) -> Any:
    """A module of MLIR with all sizes that follow from those of the main function's arguments.

    MLIR raises errors of many kinds if they do not fit.
    """
    code = io.BytesIO()
    module.operation.write_bytecode(code)
    refined = mlir.refine_polymorphic_shapes(
        code.getvalue(),
        enable_shape_assertions=True,
        validate_static_shapes=True,
        enable_shardy=bool(all_settings().get(SHARDY, True)),
    )
    return ir.Module.parse(refined, context=module.context)


def _match(where: str, verb: str, values: Sequence[Value], avals: Sequence[Any]) -> None:
    if len(values) != len(avals):
        raise corrupt(where, f"{verb} {len(values)} values, not {len(avals)}")
    for value, aval in zip(values, avals, strict=True):
        if not _fits(value.type, aval):
            raise corrupt(where, f"{verb} {value}, not {aval.str_short()}")


def _fits(type: TensorType, aval: Any) -> bool:
    """Whether the dtypes, the ranks, and the sizes that both specify agree."""
    return (
        aval.dtype == type.dtype
        and len(aval.shape) == len(type.shape)
        and all(
            a == b
            for a, b in zip(aval.shape, type.shape, strict=True)
            if isinstance(a, int) and isinstance(b, int)
        )
    )
