"""`Lowered`: a node for a JAX program that was lowered to StableHLO when it was imported.

It serves primitives that no public JAX function evaluates. Such a program can call native code. So
one that comes from a file runs only after `accept`, which a reader of files calls once it has
checked the program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax import numpy as jnp

from graphc.errors import LoweringError
from graphc.ir.dtypes import Array
from graphc.ir.node import Node
from graphc.ir.opdef import Attr, LowerContext, OpDef
from graphc.jax_internals import LOCATIONS, changed_setting
from graphc.ops.core.checks import no_gradient
from graphc.ops.core.declared import ATTRS, checked, declared, structs
from graphc.ops.core.defining import define

# Tried in order: a primitive may have lowering rules for some platforms only.
_PLATFORMS: Final = (
    ("cpu", "cuda", "rocm", "tpu"), ("cpu", "cuda"), ("cpu",), ("cuda",), ("rocm",), ("tpu",)
)  # fmt: skip
KNOWN: Final = ("cpu", "gpu", "cuda", "rocm", "tpu")
_accepted: set[str] = set()  # digests


def lower_now(
    fn: Callable[..., list[Any]],
    arguments: Sequence[jax.ShapeDtypeStruct],
    targets: Sequence[str] = (),
) -> Array:
    """`fn` lowered for as many platforms as JAX has rules for, as the bytes of an exported program.

    Args:
        targets: custom calls that it may contain although their form may change.

    Raises:
        Exception: the error of JAX if there is no such platform.
    """
    errors = []
    allowed = [jax.export.DisabledSafetyCheck.custom_call(target) for target in targets]
    for platforms in _PLATFORMS:
        try:
            with changed_setting(LOCATIONS, 0):  # without paths: the same bytes on any machine
                export = jax.export.export(
                    jax.jit(fn), platforms=platforms, disabled_checks=allowed
                )
                program = np.frombuffer(bytes(export(*arguments).serialize()), np.uint8)
        except Exception as error:  # JAX raises errors of many kinds here
            errors.append(error)
        else:
            accept(program)
            return program
    raise errors[0]


def digest_of(program: Array) -> str:
    """A digest of a program's bytes."""
    return hashlib.sha256(program.tobytes()).hexdigest()


def accept(program: Array) -> None:
    """Allows a program to run in this process. Its reader has checked it, or trusts its source."""
    _accepted.add(digest_of(program))


def check_platform(nodes: Iterable[Node], platform: str) -> None:
    """Checks that all nodes can run on a platform, as JAX calls it.

    Raises:
        LoweringError: JAX has no rule for one of them on the platform; or it had none when a
            `Lowered` node was imported.
    """
    if platform not in KNOWN:  # programs that are saved are for several
        return
    wanted = {"cuda", "rocm"} if platform == "gpu" else {platform}
    for node in nodes:
        if node.op.cpu_only and platform != "cpu":
            raise LoweringError(
                f"{node.op.name} {node.name!r}: JAX computes it on CPUs only, but it runs on "
                f"{platform}",
                source=node.source,
                hint='place it on the CPU: with gc.device("/cpu:0")',
            )
        if node.op is LOWERED and wanted.isdisjoint(_exported(node.attrs["program"]).platforms):
            available = ", ".join(_exported(node.attrs["program"]).platforms)
            raise LoweringError(
                f"Lowered {node.name!r}: it was lowered for {available}, but runs on {platform}",
                source=node.source,
                hint="a Pallas kernel runs on a CPU with interpret=True",
            )


def _exported(program: Array) -> Any:
    return jax.export.deserialize(bytearray(program.tobytes()))


def _lower(ctx: LowerContext, *operands: Any, program: Array, **given: Any) -> tuple[Any, ...]:
    if digest_of(program) not in _accepted:
        raise LoweringError(
            f"Lowered {ctx.node.name!r}: its program comes from a text, and was not checked",
            source=ctx.node.source,
            hint="import the JAX function again, or pass the graph on with gc.save or pickle",
        )
    results = _exported(program).call(*map(jnp.asarray, operands))
    return checked(ctx.node, results, structs(ctx, **given))


LOWERED = define(
    "Lowered(*operands) -> *results",
    precision="wide",
    attrs={"program": Attr("array", doc="the exported program of JAX, as bytes"), **ATTRS},
    infer=lambda ctx, *types, program, **given: declared(ctx, **given),
    lower=_lower,
    gradient=no_gradient(
        lambda node: f"Lowered {node.name!r}: a lowered JAX program has no derivative",
        hint="put gc.stop_gradient around it where its gradient does not matter",
    ),
    doc="A JAX program as StableHLO. `gc.from_jax` uses it for primitives of other packages that "
    "no JAX function evaluates. All dtypes.",
)

OPS: tuple[OpDef, ...] = (LOWERED,)
