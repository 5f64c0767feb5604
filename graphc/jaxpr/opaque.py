"""Equations as opaque nodes: the node holds the primitive, lowered when it is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, Literal, jaxpr_as_fun

from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation
from graphc.jaxpr.keys import is_key, with_keys
from graphc.ops.core.declared import declare
from graphc.ops.core.emit import emit_node
from graphc.ops.structure.lowered import LOWERED, lower_now


def variables_of(eqn: Any, operands: Sequence[Tensor]) -> dict[Any, Tensor]:
    """The operands of an equation by variable, each once. Literals stay inside the equation."""
    return {
        variable: tensor
        for variable, tensor in zip(eqn.invars, operands, strict=True)
        if not isinstance(variable, Literal)
    }


def alone(eqn: Any, variables: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., list[Any]]:
    """The function (values of `variables`) -> values of `outputs` that one equation computes."""
    names = tuple([f"x{i}" for i in range(len(variables))])
    info = DebugInfo("graphc.from_jax", eqn.primitive.name, names, ("",) * len(outputs))
    inner = Jaxpr([], variables, outputs, [eqn], debug_info=info)
    found: Callable[..., list[Any]] = jaxpr_as_fun(ClosedJaxpr(inner, ()))
    return found


def opaque(eqn: Equation, *operands: Tensor) -> list[Tensor | None]:
    """A `Lowered` node.

    Raises:
        JaxImportError: JAX cannot lower the equation for any platform.
    """
    if any(is_key(v.aval.dtype) for v in eqn.eqn.outvars):
        eqn.refuse("of random keys is not imported")
    given = variables_of(eqn.eqn, operands)
    outputs = [v for v, used in zip(eqn.eqn.outvars, eqn.used, strict=True) if used]
    function = alone(eqn.eqn, list(given), outputs)

    def graphc_lowered(*values: Any) -> list[Any]:
        return function(*with_keys(values, list(given)))

    target = eqn.params.get("target_name")  # set by jax.ffi.ffi_call
    targets = [target] if isinstance(target, str) else []
    structs = [eqn.symbols.struct(t.type) for t in given.values()]
    try:
        program = lower_now(graphc_lowered, structs, targets)
    except Exception as error:  # JAX raises errors of many kinds here
        first = str(error).partition("\n")[0]
        eqn.refuse(
            "there is no graphc operator for it, no public JAX function evaluates it, and JAX "
            f"cannot lower it alone: {type(error).__name__}: {first}"
        )
    types = [type for type, used in zip(eqn.types, eqn.used, strict=True) if used]
    node = emit_node(
        LOWERED, list(given.values()), name=eqn.eqn.primitive.name, program=program,
        **declare(types),
    )  # fmt: skip
    results = iter(node.outputs)
    return [next(results) if used else None for used in eqn.used]
