"""Programs as JAX exports them: StableHLO for several platforms, with open sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from graphc.artifacts.lowering import Function, x64
from graphc.artifacts.manifest import Entry, Value, corrupt
from graphc.artifacts.program_reader import findings
from graphc.artifacts.safe_reading import UnreadableError, check_findings
from graphc.errors import ArtifactError, GraphcError
from graphc.ir.types import TensorType


def export(name: str, function: Function, platforms: Sequence[str], open_sizes: bool) -> Any:
    """The `jax.export.Exported` of a function.

    Raises:
        ArtifactError: JAX cannot lower it with open sizes, or for one of the platforms.
    """
    try:
        with x64(function.wide), _without_paths():
            exported = jax.export.export(function.jitted, platforms=tuple(platforms))(
                *function.arguments
            )
        check_findings(findings(exported.mlir_module()))
        return exported
    except Exception as error:  # JAX refuses what it cannot lower in many ways
        where = " with open sizes" if open_sizes else ""
        raise ArtifactError(
            f"signature {name!r} cannot be lowered for {', '.join(platforms)}{where}",
            details=[line for line in str(error).splitlines()[:5] if line.strip()],
            source=error.source if isinstance(error, GraphcError) else None,
            mend="fix the sizes: gc.Signature(..., sizes={...})" if open_sizes else None,
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


def check_convention(convention: int | None) -> None:
    """Refuses a calling convention that this JAX does not know, or no longer.

    Raises:
        UnreadableError: it does not.
    """
    least = jax.export.minimum_supported_calling_convention_version
    most = jax.export.maximum_supported_calling_convention_version
    if convention is not None and not least <= convention <= most:
        raise UnreadableError(
            f"its calling convention is {convention}, and jax {jax.__version__} knows "
            f"{least} to {most}"
        )


def deserialize(data: bytes | memoryview) -> Any:
    """The `jax.export.Exported` of bytes that `safe_reading` has let pass.

    Raises:
        UnreadableError: this JAX cannot read it.
    """
    try:
        return jax.export.deserialize(bytearray(data))
    except Exception as error:  # whatever the parser of another version may raise
        raise UnreadableError(f"{type(error).__name__}: {error}") from error


def check_types(
    name: str, exported: Any, entry: Entry, variables: Mapping[str, TensorType]
) -> None:
    """Checks that a program takes and gives what the manifest says.

    Raises:
        ArtifactCorruptError: it does not.
    """
    state = [Value(n, variables[n]) for n in (*entry.written, *entry.read)]
    _match(f"program {name!r}", "take", [*state, *entry.inputs], exported.in_avals)
    results = exported.out_avals
    count = len(entry.assigned)
    if len(results) != count + (entry.fetches or 1):  # see `runtime.lowered.with_token`
        raise corrupt(f"program {name!r}", f"give {count + entry.fetches} values")
    assigned = [Value(n, variables[n]) for n in entry.assigned]
    fetched = [results[count + output.index] for output in entry.outputs]
    values = [*assigned, *(output.value for output in entry.outputs)]
    _match(f"program {name!r}", "give", values, [*results[:count], *fetched])


def _match(where: str, verb: str, values: Sequence[Value], avals: Sequence[Any]) -> None:
    if len(values) != len(avals):
        raise corrupt(where, f"{verb} {len(values)} values, not {len(avals)}")
    for value, aval in zip(values, avals, strict=True):
        if not _fits(value.type, aval):
            raise corrupt(where, f"{verb} {value}, not {aval.str_short()}")


def _fits(type: TensorType, aval: Any) -> bool:
    """Whether dtype, rank and the sizes that both know agree."""
    return (
        aval.dtype == type.dtype
        and len(aval.shape) == len(type.shape)
        and all(
            a == b
            for a, b in zip(aval.shape, type.shape, strict=True)
            if isinstance(a, int) and isinstance(b, int)
        )
    )
