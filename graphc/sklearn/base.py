"""What the three estimators share: parameters, checks of data, training and pickling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

import numpy as np
import optax
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.errors import AttributeValueError
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ops.elementwise.powers import square
from graphc.ops.reductions.reduction import reduce_mean
from graphc.sklearn.apart import with_devices
from graphc.sklearn.blueprint import Blueprint
from graphc.sklearn.carried import carry, uncarry
from graphc.sklearn.learning import LEAST_ROWS, Course, Fitted, Placement, Rows, apply, train
from graphc.sklearn.networks import networks
from graphc.sklearn.perceptrons import mlp
from graphc.sklearn.settings import accepted_dtypes, check_settings, transformation

Build = Callable[..., Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
Optimizer: TypeAlias = (
    str | optax.GradientTransformation | Callable[..., optax.GradientTransformation]
)
RandomState = int | np.random.RandomState | None

_NESTED = "parameters__"
_LARGEST_AUTO = 200  # rows of a batch, as scikit-learn's own networks have it


class GraphEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of the estimators. The subclasses describe the parameters."""

    _fitted: Fitted
    _dtype: np.dtype[Any]  # that of the features

    def __init__(
        self,
        build: Build = mlp,
        *,
        parameters: Mapping[str, object] | None = None,
        optimizer: Optimizer = "adam",
        learning_rate: float = 0.001,
        epochs: int = 200,
        batch_size: int | str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        tolerance: float = 1e-4,
        loss: Loss | None = None,
        dtype: str | None = None,
        random_state: RandomState = None,
        strategy: Strategy | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        self.build = build
        self.parameters = parameters
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.tolerance = tolerance
        self.loss = loss
        self.dtype = dtype
        self.random_state = random_state
        self.strategy = strategy
        self.options = options

    # -- what subclasses say ------------------------------------------------------------------

    def _blueprint(self) -> Blueprint:
        raise NotImplementedError

    def _planned(
        self,
        loss: Loss,
        outputs: int,
        target: tuple[str, int | None] | None,
        decode: Build | None = None,
    ) -> Blueprint:
        """The blueprint with what all estimators say in the same way.

        Args:
            loss: the default one.
        """
        return Blueprint(
            estimator=type(self).__name__,
            build=self.build,
            decode=decode,
            loss=loss if self.loss is None else self.loss,
            parameters=self.parameters or {},
            optimizer=transformation(self.optimizer, self.learning_rate),
            dtype=self._dtype.name,
            features=self.n_features_in_,
            outputs=outputs,
            target=target,
        )

    def _strata(self, y: Array | None) -> Array | None:
        """The classes by which the validation rows are drawn."""
        return None

    # -- parameters ---------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Args:
            deep: whether to list each argument of the build function too, as
                `parameters__<name>`.

        Examples:
            >>> model = gc.sklearn.Classifier(parameters={"hidden": (64,)})
            >>> model.get_params()["parameters__hidden"]
            (64,)
        """
        found: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.parameters, Mapping):
            found |= {f"{_NESTED}{name}": value for name, value in self.parameters.items()}
        return found

    def set_params(self, **params: object) -> Self:
        """Sets parameters, which the next `fit` uses.

        Args:
            params: by name. `parameters__<name>` sets one argument of the build function, which is
                what a grid search needs.

        Examples:
            >>> model = gc.sklearn.Regressor().set_params(epochs=5, parameters__hidden=32)
            >>> model.epochs, model.parameters
            (5, {'hidden': 32})
        """
        own = {name: value for name, value in params.items() if not name.startswith(_NESTED)}
        super().set_params(**own)
        nested = {name.removeprefix(_NESTED): params[name] for name in params.keys() - own.keys()}
        if nested:
            self.parameters = {**(self.parameters or {}), **nested}
        return self

    # -- training -----------------------------------------------------------------------------

    def _weights(self, sample_weight: ArrayLike | None, x: Array) -> Array:
        weights: Array = _check_sample_weight(sample_weight, x, dtype=x.dtype)
        if (weights < 0).any():
            raise AttributeValueError.here(
                f"{type(self).__name__}: sample_weight contains negative weights",
                hint="a weight of 0 leaves a row out",
            )
        if not weights.any():
            raise AttributeValueError.here(
                f"{type(self).__name__}: all weights in sample_weight are zero",
                hint="give at least one row a positive weight",
            )
        return weights

    def _learn(self, x: Array, y: Array | None, weights: Array, *, anew: bool) -> Self:
        """Trains on checked data: from the beginning, or one more epoch."""
        before = None if anew else getattr(self, "_fitted", None)
        check_settings(self, continues=before is not None)
        used = weights > 0  # a row of weight 0 is as if it were absent, in the batches too
        if not used.all():
            x, y, weights = x[used], None if y is None else y[used], weights[used]
        rows, held_out = Rows(x, y, weights), None
        seed: int | None = None
        if before is None:
            random = check_random_state(self.random_state)
            seed = int(random.randint(2**31 - 1))
            if anew and self.early_stopping:
                rows, held_out = self._split(rows, seed)
        course = Course(
            self._batch(len(rows.x)), self.epochs if anew else 1, self.patience, self.tolerance
        )
        blueprint = self._blueprint() if before is None else None
        self._fitted = with_devices(
            _trained, blueprint, seed, before, rows, held_out, course, self._placement()
        )
        self._tell(held_out is not None)
        return self

    def _batch(self, rows: int) -> int:
        """The rows of a batch. All batches have about the same number of rows, so that few rows
        are added to fill the last one.

        The number is rounded up, so that data of other sizes often need no other program: to a
        power of two if there is one batch, and otherwise to a multiple of `LEAST_ROWS`.
        """
        most = _LARGEST_AUTO if self.batch_size == "auto" else int(self.batch_size)
        if rows <= most:
            return min(most, max(LEAST_ROWS, 1 << (rows - 1).bit_length()))
        even = -(-rows // -(-rows // most))
        return min(most, -(-even // LEAST_ROWS) * LEAST_ROWS)

    def _split(self, rows: Rows, seed: int) -> tuple[Rows, Rows]:
        """(the rows to train on, the validation rows)"""
        count = len(rows.x)
        order = np.random.default_rng(seed).permutation(count)
        strata = self._strata(rows.y)
        groups = [order] if strata is None else [order[strata[order] == s] for s in set(strata)]
        held = [group[: round(len(group) * self.validation_fraction)] for group in groups]
        taken = np.zeros(count, bool)
        taken[np.concatenate(held)] = True
        if not taken.any():  # few rows, in classes of few rows
            taken[order[0]] = True
        if taken.all():
            raise AttributeValueError.here(
                f"{type(self).__name__}: early_stopping takes all {count} rows for validation, and "
                "none is left to train on",
                hint="pass more rows, or early_stopping=False",
            )
        training, validation = [
            Rows(rows.x[part], None if rows.y is None else rows.y[part], rows.weights[part])
            for part in (~taken, taken)
        ]
        return training, validation

    def _tell(self, validated: bool) -> None:
        fitted = self._fitted
        self.loss_curve_ = list(fitted.losses)
        self.loss_ = fitted.losses[-1]
        self.n_iter_ = len(fitted.losses)
        if validated:
            self.validation_curve_ = list(fitted.validation)
            self.best_epoch_ = fitted.best_epoch

    def _placement(self) -> Placement:
        return Placement(self.strategy, self.options)

    def _applied(self, x: Array, fed: str, wanted: str) -> Array:
        return with_devices(apply, self._fitted, x, fed, wanted, self._placement())

    def _read(self, x: ArrayLike, *, reset: bool = False) -> Array:
        """Features, checked against those of `fit`, in the dtype of the network."""
        if not reset:
            check_is_fitted(self)
        found: Array = validate_data(
            self, x, reset=reset, dtype=self._dtypes(reset=reset), order="C"
        )
        self._keep_dtype(found, reset=reset)
        return found

    def _dtypes(self, *, reset: bool) -> Any:
        """The dtypes that features may have; the first is that to which others are converted."""
        return accepted_dtypes(self, self.dtype) if reset else self._dtype

    def _keep_dtype(self, x: Array, *, reset: bool) -> None:
        if reset:
            self._dtype = x.dtype

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    # -- pickling -----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in self._get_param_names():
            if name in state:
                state[name] = carry(name, state[name])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        names = set(self._get_param_names())
        super().__setstate__(
            {name: uncarry(name, v) if name in names else v for name, v in state.items()}
        )


def squared_error(outputs: Tensor, wanted: Tensor) -> Tensor:
    """The mean of the squared errors of each row."""
    return reduce_mean(square(outputs - wanted), axis=1)


def _trained(
    blueprint: Blueprint | None,
    seed: int | None,
    before: Fitted | None,
    rows: Rows,
    held_out: Rows | None,
    course: Course,
    placement: Placement,
) -> Fitted:
    if blueprint is not None and seed is not None:
        both, values = networks(blueprint, seed)
        generator = dict(np.random.default_rng(seed).bit_generator.state)
        before = Fitted(both, values, generator)
    if before is None:
        raise ValueError("neither a blueprint nor a fitted estimator")
    return train(before, rows, held_out, course, placement)
