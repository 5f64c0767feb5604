"""Rules of control flow: loops of a fixed length, and branches chosen while tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Results, Rule, known_int
from graphc.ops import bodies, control


def _counts(eqn: Equation) -> tuple[int, int]:
    """How many operands of a scan are the same in each iteration, and how many are carried."""
    params = eqn.params
    if "num_consts" in params:
        return int(params["num_consts"]), int(params["num_carry"])
    # From jax 0.12 on as nests: (constants, carries, xs) in, (carries, ys) out.
    consts, carries, _ = map(len, params["ft_in"].unpack())
    if len(params["ft_out"].unpack()[0]) != carries:
        eqn.refuse("takes and gives other numbers of carries", "please report this")
    return consts, carries


def _scan(eqn: Equation, *operands: Tensor) -> Results:
    params = eqn.params
    consts, count = _counts(eqn)
    given = bodies.split(operands, consts, count)
    every = [True] * len(eqn.types)

    def body(carry: Sequence[Tensor], xs: Sequence[Tensor]) -> Any:
        # What is the same in each iteration is captured, where it is a tensor from outside.
        results = eqn.inline(params["jaxpr"], [*given.consts, *carry, *xs], every)
        return list(results[:count]), list(results[count:])

    carry, ys = control.scan(
        body,
        list(given.carries),
        list(given.xs),
        length=eqn.symbols.dims((params["length"],))[0],
        reverse=bool(params["reverse"]),
        name="scan",
    )
    return [*carry, *ys]


def _cond(eqn: Equation, index: Tensor, *operands: Tensor) -> Results:
    which = known_int(index)
    if which is None:
        eqn.refuse(
            "branches that are chosen by a value are not imported yet",
            "calculate both and choose with jnp.where, or choose in Python",
        )
    branches = eqn.params["branches"]
    return eqn.inline(branches[min(max(which, 0), len(branches) - 1)], operands, eqn.used)


RULES: dict[str, Rule] = {"cond": _cond, "scan": _scan}
