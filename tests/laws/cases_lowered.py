"""Cases of graphc/ops/structure/lowered.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.jaxpr import from_jax
from graphc.ops.core.declared import declare
from graphc.ops.core.emit import emit
from graphc.ops.structure.lowered import LOWERED
from tests.laws.case import Bad, Case, In

PLACES = In((3,), "int32", values=[1, 0, 1])


def _applied(x: Any, i: Any) -> Any:
    return from_jax(lambda x, i: x.at[i].apply(lambda y: y * y + 1))(x, i)


def _squared_twice(x: Any, i: Any) -> Any:
    result = np.array(x)
    for place in i:  # once for each index, as JAX does
        result[place] = result[place] ** 2 + 1
    return result


def _emitted(x: Any, program: Any) -> Any:
    return emit(LOWERED, (x,), program=program, **declare([x.type]))


CASES: tuple[Case, ...] = (
    Case(
        "Lowered",
        _applied,
        [In((4, 2), "float32"), PLACES],
        _squared_twice,
        gradient=False,
        bad=[
            Bad(
                lambda x: _emitted(x, "text"),
                [In((4, 2), "float32")],
                AttributeValueError,
                "program must be of kind array",
            )
        ],
    ),
    Case(
        "Lowered",
        lambda x, i: from_jax(lambda x, i: x.at[:, i].apply(jnp.negative))(x, i),
        [In((2, 4), "int32"), In((2,), "int32", values=[3, 0])],
        lambda x, i: np.where(np.isin(np.arange(4), i), -x, x),
        gradient=False,
        label="of integers",
    ),
)
