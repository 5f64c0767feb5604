"""Checks of the parameters of estimators, which scikit-learn makes at `fit`, and the optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import optax

from graphc.errors import AttributeValueError
from graphc.runtime.step.compiler import check_strategy, checked_options, refuse_workers
from graphc.sklearn.carried import Missing

_IN_GRAPHS = ("build", "decode", "loss", "optimizer", "parameters")


def check_settings(estimator: Any, *, continues: bool = False) -> None:
    """Raises if a parameter of an estimator has an invalid value.

    Args:
        continues: whether its graphs are there already, so that what they are built from is not
            needed.

    Raises:
        AttributeValueError: it says which one.
        StateError: a parameter could not be restored from a pickle.
    """
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, Missing) and not (continues and name in _IN_GRAPHS):
            value.refuse()
    if not continues:
        loss = estimator.loss
        _require(estimator, "build", callable(estimator.build), "a function", "build(x, outputs)")
        _require(estimator, "loss", loss is None or callable(loss), "a function or None",
                 "loss(outputs, targets) gives one value for each row")  # fmt: skip
        _check_parameters(estimator)
    for name in ("epochs", "patience"):
        _require(estimator, name, is_count(getattr(estimator, name)), "an int of at least 1")
    size = estimator.batch_size
    is_auto = isinstance(size, str) and size == "auto"
    _require(estimator, "batch_size", is_auto or is_count(size), 'an int of at least 1, or "auto"')
    rate, fraction = estimator.learning_rate, estimator.validation_fraction
    _require(estimator, "learning_rate", _is_real(rate) and rate > 0, "a positive number")
    is_part = _is_real(fraction) and 0 < fraction < 1
    _require(estimator, "validation_fraction", is_part, "between 0 and 1")
    tolerance = estimator.tolerance
    _require(estimator, "tolerance", _is_real(tolerance) and tolerance >= 0, "at least 0")
    check_strategy(estimator.strategy)
    refuse_workers(estimator.strategy, type(estimator).__name__)
    checked_options(estimator.options)


def accepted_dtypes(estimator: Any, given: object) -> list[np.dtype[Any]]:
    """The dtypes that features may have; others are converted to the first.

    Raises:
        AttributeValueError: it is neither float32 nor float64 nor None.
    """
    if given is None:
        return [np.dtype(np.float64), np.dtype(np.float32)]
    is_known = isinstance(given, str) and given in ("float32", "float64")
    _require(estimator, "dtype", is_known, '"float32", "float64" or None')
    return [np.dtype(str(given))]


def _check_parameters(estimator: Any) -> None:
    given = estimator.parameters
    _require(
        estimator, "parameters",
        given is None or (isinstance(given, Mapping) and all(isinstance(k, str) for k in given)),
        "a dict of keyword arguments for build, or None", 'parameters={"hidden": (64,)}',
    )  # fmt: skip


def _require(estimator: Any, name: str, holds: bool, expected: str, example: str = "") -> None:
    if not holds:
        raise AttributeValueError.here(
            f"{type(estimator).__name__}: {name} must be {expected}, got "
            f"{getattr(estimator, name)!r}",
            hint=f"such as {example}" if example else None,
        )


def is_count(value: object) -> bool:
    """Whether a value is an int of at least 1."""
    return type(value) is not bool and isinstance(value, Integral) and int(value) >= 1


def _is_real(value: object) -> bool:
    return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)


def transformation(optimizer: object, learning_rate: float) -> optax.GradientTransformation:
    """The optax transformation that a parameter `optimizer` means.

    Raises:
        AttributeValueError: it means none.
    """
    made: object = optimizer
    if isinstance(optimizer, str):
        made = getattr(optax, optimizer, None)
    reason = None
    if callable(made) and not isinstance(made, optax.GradientTransformation):
        try:
            made = made(float(learning_rate))
        except TypeError as error:  # it takes other arguments
            made, reason = None, error
    if not isinstance(made, optax.GradientTransformation):
        raise AttributeValueError.here(
            f"optimizer must be the name of an optimizer of optax, a function of the learning "
            f"rate, or an optax transformation, got {optimizer!r}",
            details=[] if reason is None else [str(reason)],
            hint='optimizer="adam", optax.adamw, or optax.chain(...), which ignores learning_rate',
        ) from reason
    return made
