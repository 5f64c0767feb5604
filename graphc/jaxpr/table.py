"""The table of primitives: a rule for each, or the reason why there is none.

A primitive that is in no table becomes a `Primitive` node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from jax.extend.core import ClosedJaxpr, Jaxpr

from graphc.jaxpr import (
    callbacks,
    calls,
    elementwise,
    gathers,
    keys,
    loops,
    objective,
    pooling,
    primitives,
    products,
    reductions,
    shapes,
    windows,
)
from graphc.jaxpr.equation import COLLECTIVES, Rule, refuse
from graphc.ops.structure.primitive import is_known

_FAMILIES: tuple[ModuleType, ...] = (
    *(elementwise, shapes, reductions, pooling, products, windows, gathers, calls, callbacks),
    *(loops, objective, keys),
)

RULES: Final[Mapping[str, Rule]] = {
    name: keys.for_keys(name, rule) for family in _FAMILIES for name, rule in family.RULES.items()
}

_GROUPS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "these random numbers are not imported",
        "draw with jax.random.uniform, normal, bernoulli, randint and the like, or with "
        "gc.random.* outside, and pass the numbers as an argument",
        ("rng_uniform",),
    ),
    (
        *COLLECTIVES,
        ("all_gather", "all_gather_invariant", "all_to_all", "axis_index", "pbroadcast",
         "pcast", "ppermute", "psum2", "psum_invariant", "psum_scatter",
         "pvary", "ragged_all_to_all", "reduce_scatter", "shard_map", "xla_pmap"),
    ),
    (
        "placement in a JAX function is not imported",
        "place with gc.device, or run under a strategy",
        ("mesh_cast", "reshard", "sharding_constraint"),
    ),
    (
        "mutable arrays are not imported",
        "return new arrays instead of writing to references, or keep the value in a gc.variable",
        ("new_ref", "get", "swap", "addupdate", "freeze", "free_ref", "accum_grad_in_ref",
         "empty_ref"),
    ),
)  # fmt: skip

_REASONS: Final[Mapping[str, tuple[str, str]]] = {
    name: (why, hint) for why, hint, names in _GROUPS for name in names
}


def rule_of(eqn: Any) -> Rule:
    """The rule of the primitive of `eqn`.

    Raises:
        JaxImportError: there is none.
    """
    name = eqn.primitive.name
    if name in RULES:
        return RULES[name]
    if name in _REASONS:
        refuse(eqn, *_REASONS[name])
    return primitives.primitive if is_known(name) else calls.foreign


def has_foreign(jaxpr: Any) -> bool:
    """Whether a jaxpr, or one inside it, contains a primitive of another package."""
    return any(
        name not in RULES and name not in _REASONS and not is_known(name)
        for name in _primitives(jaxpr)
    )


def _primitives(jaxpr: Any) -> Iterator[str]:
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn.primitive.name
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if isinstance(inner, ClosedJaxpr | Jaxpr):
                    yield from _primitives(inner)
