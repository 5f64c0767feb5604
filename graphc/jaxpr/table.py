"""The table of primitives: a rule for each, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from graphc.jaxpr import (
    calls,
    elementwise,
    gathers,
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
    products,
    windows,
    gathers,
    calls,
)

RULES: Final[Mapping[str, Rule]] = {
    name: rule for family in _FAMILIES for name, rule in family.RULES.items()
}

_GROUPS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "control flow in a JAX function is not imported yet",
        "unroll it in Python, or import the body alone and loop with gc.scan",
        ("scan", "while", "cond", "switch", "platform_index"),
    ),
    (
        "random numbers in a JAX function are not imported",
        "draw with gc.random.* and pass the numbers as an argument",
        ("random_bits", "random_clone", "random_fold_in", "random_gamma", "random_seed",
         "random_split", "random_unwrap", "random_wrap", "rng_bit_generator", "rng_uniform",
         "threefry2x32"),
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
        ("device_put", "mesh_cast", "reshard", "sharding_constraint"),
    ),
    (
        "calls back to Python cannot be part of a graph",
        "fetch the tensor and look at its value after the run",
        ("debug_callback", "debug_print", "io_callback", "pure_callback"),
    ),
    (
        "what jax.grad makes of a pooling is not imported",
        "import the function itself and differentiate it with gc.gradients",
        ("select_and_gather_add", "select_and_scatter_add"),
    ),
)  # fmt: skip

_REASONS: Final[Mapping[str, tuple[str, str]]] = {
    name: (why, mend) for why, mend, names in _GROUPS for name in names
}


def why_not(eqn: Any) -> tuple[str, str]:
    """Why the primitive of `eqn` has no rule, and what to do about it."""
    return _REASONS.get(eqn.primitive.name, ("there is no graphc operator for it yet", OTHERWISE))
