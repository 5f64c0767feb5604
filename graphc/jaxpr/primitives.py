"""The rule of all other primitives: a node that holds the primitive itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.ir.node import Tensor
from graphc.jaxpr.calls import differentiated
from graphc.jaxpr.equation import Equation, Results
from graphc.jaxpr.keys import is_key
from graphc.jaxpr.opaque import opaque
from graphc.ops.core.declared import declare
from graphc.ops.core.emit import emit_node
from graphc.ops.structure.primitive import PRIMITIVE, is_scatter
from graphc.ops.structure.primitive_params import NotPlain, encode


def primitive(eqn: Equation, *operands: Tensor) -> Results:
    """A `Primitive` node; a `Lowered` one if the primitive has a parameter that cannot be written,
    such as a function.

    Raises:
        JaxImportError: JAX cannot lower it.
    """
    name = eqn.eqn.primitive.name
    if any(is_key(v.aval.dtype) for v in eqn.eqn.outvars):
        eqn.refuse("of random keys is not imported")
    try:
        params = encode(_plain_params(eqn, name), eqn.symbols.dim)
    except NotPlain:
        return differentiated(eqn, operands, opaque(eqn, *operands))
    keys = [i for i, v in enumerate(eqn.eqn.invars) if is_key(v.aval.dtype)]
    node = emit_node(
        PRIMITIVE, operands, name=name, primitive=name, params=params, keys=tuple(keys),
        **declare(eqn.types),
    )  # fmt: skip
    return node.outputs


def _plain_params(eqn: Equation, name: str) -> Mapping[str, Any]:
    params = dict(eqn.params)
    if is_scatter(name):
        del params["update_jaxpr"], params["update_consts"]
    return params
