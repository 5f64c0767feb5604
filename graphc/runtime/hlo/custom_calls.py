"""The external functions that compiled code calls, and how this process gets ready for them.

XLA's text names them: they are the targets of its custom calls. JAX prepares some of them only
when it lowers such a call: it looks up the addresses of LAPACK's routines then. Code from a file
was lowered in another process, and calling a routine without an address ends the process. So code
from a file runs only if each of its targets is in the table below, and only after the preparation
that the table prescribes. Any other program is compiled again.

There is no check here that a target is registered: XLA itself refuses to load code that calls an
unregistered target (both JAX versions). But two processes may register different functions under
one name, so targets that users register are not in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from graphc.errors import CacheError
from graphc.jax_internals import (
    GPU_CHOLESKY_UPDATE,
    GPU_HYBRID,
    GPU_LIBRARIES,
    GPU_OF_XLA,
    GPU_PIVOTS,
    GPU_THREEFRY,
    LAPACK,
    TOP_K,
    TRIDIAGONAL,
)

# In XLA's text, the opcode follows the type of the result, and the target is in the same line.
_CALL = re.compile(r" custom-call(?:-start)?\(")
_TARGET = re.compile(r'custom_call_target="((?:[^"\\]|\\.)*)"')


def targets_of(compiled: jax.stages.Compiled) -> tuple[str, ...]:
    """The targets of all custom calls of a compiled program, sorted.

    Raises:
        CacheError: XLA does not show its text, or a call in it has no target.
    """
    try:
        text = compiled.as_text()
    except Exception:  # the type depends on the backend
        text = None
    if text is None:
        raise CacheError("a compiled program cannot be stored: XLA does not show what it calls")
    if "custom-call" not in text:
        return ()
    found: set[str] = set()
    for line in text.splitlines():
        targets = _TARGET.findall(line)
        if not targets and _CALL.search(line):
            raise CacheError("a compiled program cannot be stored: a call in it has no target")
        found.update(targets)
    return tuple(sorted(found))


def check_known(targets: Sequence[str], platform: str) -> None:
    """Refuses to store a program that calls a target which is not in the table.

    Args:
        platform: of its devices, see `devices.discovery.platform_of`.

    Raises:
        CacheError: the program calls such a target.
    """
    for target in targets:
        if _family(target, platform) is None:
            raise CacheError(
                f"a compiled program cannot be stored: it calls {target[:80]!r}, which another "
                "process may not have, or may have with another meaning"
            )


def make_ready(targets: Any, platform: str) -> None:
    """Makes this process ready for code from a file that calls these targets.

    Args:
        targets: as recorded with the code; a forged file may contain anything here.
        platform: as for `check_known`.

    Raises:
        CacheError: no targets were recorded, or one is not in the table.
    """
    if not isinstance(targets, (list, tuple)) or not all(type(t) is str for t in targets):
        raise CacheError("a stored program does not record what it calls")
    for target in targets:
        family = _family(target, platform)
        if family is None:
            raise CacheError(f"a stored program calls {target[:80]!r}, which is not known here")
        if family.lowered is not None:
            _lower(family.lowered, platform)


class _Family(NamedTuple):
    """Targets that are made ready in the same way.

    Attributes:
        platforms: the platforms of the devices that have them.
        names: a pattern that matches their whole names.
        lowered: a function of a matrix that JAX lowers to a call of one of them, which prepares
            all of them; None if they need no preparation.
    """

    platforms: tuple[str, ...]
    names: str
    lowered: Callable[[Any], Any] | None = None


_GPUS = ("cuda", "rocm")
_KNOWN = (
    # LAPACK: JAX takes all addresses from SciPy when it lowers a call of any routine.
    _Family(("cpu",), LAPACK, lax.linalg.cholesky),
    _Family(("cpu",), TRIDIAGONAL, lax.linalg.cholesky),
    # XLA's own targets.
    _Family(("cpu",), TOP_K),
    _Family(_GPUS, GPU_OF_XLA),
    # Libraries of GPU vendors. JAX registers their functions when it creates the devices. The calls
    # themselves create the handles.
    _Family(_GPUS, GPU_LIBRARIES),
    _Family(_GPUS, GPU_THREEFRY),
    _Family(_GPUS, GPU_PIVOTS),
    _Family(_GPUS, GPU_CHOLESKY_UPDATE),
    # LAPACK on the host for matrices on a GPU: addresses as above.
    _Family(_GPUS, GPU_HYBRID, lax.linalg.eig),
)


@cache
def _family(target: str, platform: str) -> _Family | None:
    """The row of the table that has this target, or None."""
    for family in _KNOWN:
        if platform in family.platforms and re.fullmatch(family.names, target):
            return family
    return None


@cache
def _lower(function: Callable[[Any], Any], platform: str) -> None:
    """Lowers a call of `function`, once in a process. Nothing is compiled or run.

    Raises:
        CacheError: JAX cannot lower it.
    """
    matrix = jax.ShapeDtypeStruct((1, 1), np.float32)
    try:
        jax.jit(function).trace(matrix).lower(lowering_platforms=(platform,))
    except Exception as error:  # of any type: the program is compiled again, which may fail too
        raise CacheError(f"this process cannot be made ready for {platform} code") from error
