"""The table of primitives: a rule for each, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from graphc.jaxpr import (
    calls,
    elementwise,
    gathers,
    keys,
    loops,
    order,
    pooling,
    products,
    reductions,
    shapes,
    windows,
)
from graphc.jaxpr.equation import OTHERWISE, Rule

_FAMILIES: tuple[ModuleType, ...] = (
    elementwise,
    shapes,
    reductions,
    pooling,
    order,
    products,
    windows,
    gathers,
    calls,
    loops,
    keys,
)

RULES: Final[Mapping[str, Rule]] = {
    name: keys.for_keys(name, rule) for family in _FAMILIES for name, rule in family.RULES.items()
}

_GROUPS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "loops of a length that values decide are not imported yet",
        "loop a fixed number of times, with lax.scan or lax.fori_loop(0, n, ...)",
        ("while",),
    ),
    (
        "what depends on the platform is not imported",
        "choose one form in Python",
        ("platform_index",),
    ),
    (
        "these random numbers are not imported",
        "draw with jax.random.uniform, normal, bernoulli, randint and the like, or with "
        "gc.random.* outside, and pass the numbers as an argument",
        ("random_gamma", "rng_bit_generator", "rng_uniform", "threefry2x32"),
    ),
    (
        "collectives are graphc's to insert",
        "write the function for the whole batch: a strategy splits it over devices",
        ("all_gather", "all_gather_invariant", "all_to_all", "axis_index", "pbroadcast",
         "pcast", "pmax", "pmin", "ppermute", "psum", "psum2", "psum_invariant", "psum_scatter",
         "pvary", "ragged_all_to_all", "reduce_scatter", "shard_map", "xla_pmap"),
    ),
    (
        "placement in a JAX function is not imported",
        "place with gc.device, or run under a strategy",
        ("mesh_cast", "reshard", "sharding_constraint"),
    ),
    (
        "calls back to Python cannot be part of a graph",
        "fetch the tensor and look at its value after the run",
        ("debug_callback", "debug_print", "io_callback", "pure_callback"),
    ),
    (
        "the second derivative of a pooling is not imported",
        "import the function itself and differentiate it with gc.gradients",
        ("select_and_gather_add",),
    ),
)  # fmt: skip

_REASONS: Final[Mapping[str, tuple[str, str]]] = {
    name: (why, mend) for why, mend, names in _GROUPS for name in names
}


def why_not(eqn: Any) -> tuple[str, str]:
    """Why the primitive of `eqn` has no rule, and what to do about it."""
    return _REASONS.get(eqn.primitive.name, ("there is no graphc operator for it yet", OTHERWISE))
