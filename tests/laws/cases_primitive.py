"""Law cases of JAX primitives that are imported unchanged."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.errors import AttributeValueError
from graphc.jaxpr import from_jax
from graphc.ops.core.declared import declare
from graphc.ops.core.emit import emit
from graphc.ops.structure.primitive import PRIMITIVE
from tests.laws.case import Bad, Case, In

POSITIVE = In((4, 3), low=0.5, batch_axis=0)
PLACES = In((3,), "int32", values=[2, 0, 2])


def _imported(fn: Any) -> Any:
    return lambda *tensors: from_jax(fn)(*tensors)


def _lower_and_upper(x: Any) -> Any:
    """One integer result and one floating result."""
    lu, _, places = lax.linalg.lu(x + 4 * jnp.eye(3, dtype=x.dtype))
    return lu, places


def _lu(x: Any) -> Any:
    lu = x + 4 * np.eye(3)  # its diagonal is the largest: no row exchanges
    for i in range(3):
        lu[i + 1 :, i] = lu[i + 1 :, i] / lu[i, i]
        lu[i + 1 :, i + 1 :] = lu[i + 1 :, i + 1 :] - np.outer(lu[i + 1 :, i], lu[i, i + 1 :])
    return lu, np.arange(3)


def _multiplied(x: Any, places: Any, y: Any) -> Any:
    result = x.copy()
    np.multiply.at(result, places, y)
    return result


def _set(x: Any, places: Any, y: Any) -> Any:
    result = x.copy()
    result[places] = y
    return result


def _emitted(x: Any, **changes: Any) -> Any:
    attrs = {"primitive": "lgamma", "params": {}, **declare([x.type])}
    return emit(PRIMITIVE, (x,), **{**attrs, **changes})


CASES: tuple[Case, ...] = (
    Case(
        "Primitive",
        _imported(lambda x: lax.linalg.cholesky(x @ x.mT + 3 * jnp.eye(3, dtype=x.dtype))),
        [In((4, 3, 3), batch_axis=0)],
        lambda x: np.linalg.cholesky(x @ x.swapaxes(1, 2) + 3 * np.eye(3)),
        bad=(
            Bad(
                lambda x: _emitted(x, dtypes="f99"),
                [POSITIVE],
                AttributeValueError,
                "dtypes must be names of dtypes",
            ),
            Bad(
                lambda x: _emitted(x, primitive=3),
                [POSITIVE],
                AttributeValueError,
                "primitive must be of kind str",
            ),
        ),
    ),
    Case("Primitive", _imported(_lower_and_upper), [In((3, 3), low=-1.0, high=1.0)], _lu,
         label="integers too"),
    Case(
        "Primitive",
        _imported(lambda x, i, y: x.at[i].multiply(y)),
        [In((4, 3)), PLACES, In((3, 3))],
        _multiplied,
        gradient=False,
        label="scatter",
    ),
    Case(
        "Primitive",
        _imported(lambda x, i, y: x.at[i].set(y, unique_indices=True)),
        [In((4, 3)), In((3,), "int32", values=[2, 0, 3]), In((3, 3))],
        _set,
        label="scatter that sets",
    ),
    Case(
        "Primitive",
        _imported(lambda key, a: jax.random.gamma(jax.random.wrap_key_data(key), a, dtype=a.dtype)),
        [In((2,), "uint32", values=[3, 4]), POSITIVE],
        None,
        gradient=False,
        label="with a key",
    ),
)  # fmt: skip
