"""Rules of control flow: loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Results, Rule, known_int
from graphc.ops.arrays.shape import reshape
from graphc.ops.control import bodies, branching, scan, while_loops
from graphc.ops.control.platforms import OTHERS, platform_index
from graphc.ops.elementwise.comparison import where
from graphc.ops.reductions.reduction import reduce_any


def _counts(eqn: Equation) -> tuple[int, int]:
    """The numbers of constant and of carried operands of a scan."""
    params = eqn.params
    if "num_consts" in params:
        return int(params["num_consts"]), int(params["num_carry"])
    # From jax 0.12 on, the numbers are in nests: (constants, carries, xs) in, (carries, ys) out.
    consts, carries, _ = map(len, params["ft_in"].unpack())
    if len(params["ft_out"].unpack()[0]) != carries:
        eqn.refuse("takes and returns different numbers of carries", "please report this")
    return consts, carries


def _scan(eqn: Equation, *operands: Tensor) -> Results:
    params = eqn.params
    consts, count = _counts(eqn)
    given = bodies.split(operands, consts, count)
    every = [True] * len(eqn.types)

    def body(carry: Sequence[Tensor], xs: Sequence[Tensor]) -> Any:
        # Operands that are constant over iterations are captured, if they are tensors from outside.
        results = eqn.inline(params["jaxpr"], [*given.consts, *carry, *xs], every)
        return list(results[:count]), list(results[count:])

    carry, ys = scan.scan(
        body,
        list(given.carries),
        list(given.xs),
        length=eqn.symbols.dims((params["length"],))[0],
        reverse=bool(params["reverse"]),
        name="scan",
    )
    return [*carry, *ys]


def _while(eqn: Equation, *operands: Tensor) -> Results:
    params = eqn.params
    start = int(params["cond_nconsts"])
    of_cond = operands[:start]
    of_body = operands[start : start + int(params["body_nconsts"])]
    init = list(operands[start + len(of_body) :])
    every = [True] * len(init)

    def condition(carry: Sequence[Tensor]) -> Tensor:
        result = eqn.inline(params["cond_jaxpr"], [*of_cond, *carry], [True])[0]
        assert result is not None
        return result

    def body(carry: Sequence[Tensor]) -> Any:
        new = eqn.inline(params["body_jaxpr"], [*of_body, *carry], every)
        holds = condition(carry) if is_mapped else None
        return (
            new if holds is None else [_where(holds, a, b) for a, b in zip(new, carry, strict=True)]
        )

    def cond(carry: Sequence[Tensor]) -> Any:
        return reduce_any(condition(carry))

    # Under `jax.vmap` each example has a condition. The loop runs while any of them holds, and the
    # examples that have ended keep their values.
    is_mapped = bool(params["cond_jaxpr"].out_avals[0].shape)
    results: list[Tensor | None] = while_loops.while_loop(
        cond, body, init, max_trip_count=eqn.max_trips, name="while"
    )
    return results


def _where(holds: Tensor, new: Tensor | None, old: Tensor) -> Tensor:
    """`new` for the examples whose condition holds, and `old` for the others."""
    assert new is not None
    return where(reshape(holds, [*holds.shape, *[1] * (new.ndim - holds.ndim)]), new, old)


def _cond(eqn: Equation, index: Tensor, *operands: Tensor) -> Results:
    branches, which = eqn.params["branches"], known_int(index)
    if which is not None:
        return eqn.inline(branches[min(max(which, 0), len(branches) - 1)], operands, eqn.used)

    def function(jaxpr: Any) -> Callable[..., list[Tensor]]:
        return lambda *xs: [y for y in eqn.inline(jaxpr, xs, eqn.used) if y is not None]

    named = {f"branch{i}": function(branch) for i, branch in enumerate(branches)}
    groups = eqn.params.get("branches_platforms")  # if `lax.platform_dependent` made it
    platforms = None if groups is None else _listed(groups)
    found = iter(branching.add_switch("cond", index, named, operands, "cond", platforms))
    return [next(found) if used else None for used in eqn.used]


def _platform_index(eqn: Equation) -> Results:
    return [platform_index(_listed(eqn.params["platforms"]))]


def _listed(groups: Sequence[Sequence[str] | None]) -> str:
    """The platforms of branches, as an attribute of operators."""
    return ";".join([OTHERS if group is None else ",".join(group) for group in groups])


RULES: dict[str, Rule] = {
    "cond": _cond,
    "platform_index": _platform_index,
    "scan": _scan,
    "while": _while,
}
