"""Lowerings by one routine whose derivative is that of another expression of the same value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

Lowering = Callable[..., Any]


def with_slope_of(expression: Lowering, routine: Lowering) -> Lowering:
    """`routine` of JAX values, for which JAX has no derivative; it gets that of `expression`.

    The value of `expression` itself is not computed where only its derivative is asked for.
    """

    @jax.custom_jvp
    def computed(*operands: Any) -> Any:
        return routine(*operands)

    @computed.defjvp
    def _(operands: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        return computed(*operands), jax.jvp(expression, operands, tangents)[1]

    lowering: Lowering = computed
    return lowering
