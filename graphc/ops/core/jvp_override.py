"""Lowerings whose value and derivative come from different expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

Lowering = Callable[..., Any]


def with_slope_of(expression: Lowering, routine: Lowering) -> Lowering:
    """`routine`, which JAX cannot differentiate, with the derivative of `expression`.

    Both have the same value. Only the derivative of `expression` is used, not its value.
    """

    @jax.custom_jvp
    def computed(*operands: Any) -> Any:
        return routine(*operands)

    @computed.defjvp
    def _(operands: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        return computed(*operands), jax.jvp(expression, operands, tangents)[1]

    lowering: Lowering = computed
    return lowering
