"""`PlatformIndex`, and the choice of a branch by the platform on which a program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from jax import lax

from graphc.errors import LoweringError
from graphc.ir.dtypes import INT32
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, OpDef
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import free
from graphc.ops.core.defining import without_gradient
from graphc.ops.core.emit import emit_one
from graphc.ops.core.layout_rules import replicated
from graphc.ops.structure.lowered import KNOWN

OTHERS: Final = "others"
"""The platforms that no other branch is for."""

_DOC = "for each branch the platforms that take it, such as `tpu;cuda,rocm;others`"


def _are_groups(platforms: str) -> bool:
    """Whether a text states platforms, each for one branch."""
    names = platforms.replace(";", ",").split(",")
    refused = {"gpu", "default"} & set(names)  # JAX's function takes no such platforms
    return all(names) and len(set(names)) == len(names) and not refused


_GROUPS: Final = partial(
    Attr, "str", check=_are_groups, must="name each platform once, such as tpu;others"
)


def by_platform(platforms: str, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """The results of the branch for the platform for which JAX lowers the program. JAX does not
    lower the other branches."""
    given = {
        platform: branch
        for group, branch in zip(platforms.split(";"), branches, strict=True)
        for platform in group.split(",")
    }
    others = given.pop(OTHERS, None)
    return lax.platform_dependent(*operands, default=others, **given)


def nodes_on(program: Program, platform: str) -> Iterator[Node]:
    """Every node that JAX lowers for a platform, including those inside regions.

    Args:
        platform: as JAX's devices call it. For `gpu` the branches that only CUDA or only ROCm takes
            are left out: JAX says itself if it cannot lower them.
    """
    for node in program.nodes:
        yield node
        for body in _regions_on(node, platform):
            yield from nodes_on(body, platform)


def _regions_on(node: Node, platform: str) -> list[Program]:
    platforms = node.attrs.get("platforms")
    if not node.regions or not platforms:
        return list(node.regions)
    numbers = _numbers_on(platforms, platform)
    return [node.regions[n] for n in numbers if n is not None and len(numbers) == 1]


def check_branches(program: Program, platform: str) -> None:
    """Checks that a program has branches for the platform on which it runs.

    Raises:
        LoweringError: it has none.
    """
    if platform not in KNOWN:  # programs that are saved are for several
        return
    for node in nodes_on(program, platform):
        platforms = node.attrs.get("platforms")
        if platforms and _numbers_on(platforms, platform) == {None}:
            raise LoweringError(
                f"{node.op.name} {node.name!r}: it has no branch for {platform}",
                details=[f"its branches are for {platforms.replace(';', ', ')}"],
                source=node.source,
                hint="default= of lax.platform_dependent is the branch for all other platforms",
            )


def _numbers_on(platforms: str, platform: str) -> set[int | None]:
    names = ("cuda", "rocm") if platform == "gpu" else (platform,)
    return {number_on(platforms, name) for name in names}


def number_on(platforms: str, platform: str) -> int | None:
    """The number of the branch for a platform; None if there is none."""
    groups = [group.split(",") for group in platforms.split(";")]
    for wanted in (platform, OTHERS):
        for number, group in enumerate(groups):
            if wanted in group:
                return number
    return None


def platform_index(platforms: str) -> Tensor:
    """The number of the branch for the platform on which the program runs, an int32 scalar."""
    return emit_one(PLATFORM_INDEX, (), platforms=platforms)


def _lower(ctx: Any, *, platforms: str) -> Any:
    numbers = map(np.int32, range(platforms.count(";") + 1))
    return by_platform(platforms, [partial(lambda number: number, number) for number in numbers])


PLATFORM_INDEX = without_gradient(
    "PlatformIndex() -> index",
    attrs={"platforms": _GROUPS(doc=_DOC)},
    infer=lambda ctx, *, platforms: TensorType(INT32, ()),
    lower=_lower,
    layout=replicated,
    cost=free,
    doc="The number of the branch for the platform on which the program runs: an int32 scalar. "
    "Source: jax.lax.platform_dependent.",
)

OF_SWITCH: Final = _GROUPS(
    default=None, doc=f"{_DOC}; JAX then chooses the branch, and the index is not used"
)

OPS: tuple[OpDef, ...] = (PLATFORM_INDEX,)
