"""Rules of callbacks to Python. Each becomes a node that also calls back."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from graphc.ir.node import Tensor
from graphc.ir.opdef import OpDef
from graphc.jaxpr.equation import Equation, Rule
from graphc.ops.core.declared import declare
from graphc.ops.core.emit import emit_node
from graphc.ops.structure.host import PURE_CALLBACK, PY_CALLBACK


def _call(op: OpDef) -> Rule:
    def rule(eqn: Equation, *operands: Tensor) -> Sequence[Tensor]:
        return _called(op, eqn, operands, eqn.params["callback"])

    return rule


def _called(
    op: OpDef, eqn: Equation, operands: Sequence[Tensor], callback: Callable[..., Any]
) -> Sequence[Tensor]:
    def function(*values: Any) -> list[Any]:
        return [np.asarray(y) for y in callback(*values) or ()]

    return emit_node(op, operands, function=function, **declare(eqn.types)).outputs


def _print(eqn: Equation, *operands: Tensor) -> Sequence[Tensor]:
    params = eqn.params

    def show(*values: Any) -> None:
        leaves: list[Any] = list(values)
        for place, value in params["static_args"]:  # texts and similar values
            leaves.insert(place, value)
        args, kwargs = jax.tree.unflatten(params["in_tree"], leaves)
        builtins.print(params["fmt"].format(*args, **kwargs), flush=True)

    return _called(PY_CALLBACK, eqn, operands, show)


RULES: dict[str, Rule] = {
    "debug_callback": _call(PY_CALLBACK),
    "debug_print": _print,
    "io_callback": _call(PY_CALLBACK),
    "pure_callback": _call(PURE_CALLBACK),
}
