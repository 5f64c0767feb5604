"""`Regressor`: a graph that gives one number, or several, for each row."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import Array
from graphc.sklearn.base import GraphEstimator, squared_error
from graphc.sklearn.blueprint import Blueprint
from graphc.sklearn.networks import FEATURES, OUTPUTS


class Regressor(RegressorMixin, GraphEstimator):  # type: ignore[misc]
    """A regressor of scikit-learn whose network is any function that builds a graph.

    Args:
        build: `build(x, outputs, **parameters)` gets a tensor of features [rows, features] and the
            number of columns of the targets, and returns the predictions [rows, outputs]. If it has
            a parameter `training`, it is called with True for the graph that trains and with False
            for the one that predicts. The default is a multilayer perceptron, `gc.sklearn.mlp`.
        loss: `loss(outputs, targets)` gives one loss for each row; both are [rows, outputs]. The
            default is the mean of the squared errors of a row.
        parameters, optimizer, learning_rate, epochs, batch_size, early_stopping: see `Classifier`.
        validation_fraction, patience, tolerance, dtype, random_state: see `Classifier`.
        strategy, options: see `Classifier`.

    The attributes are those of `Classifier`, without `classes_`.

    The targets are used as they are. Targets far from zero train slowly: scale them with
    `sklearn.compose.TransformedTargetRegressor`.

    Examples:
        >>> X = np.linspace(-1, 1, 100).reshape(-1, 1)
        >>> model = gc.sklearn.Regressor(learning_rate=0.01, random_state=0).fit(X, X[:, 0] ** 2)
        >>> model.score(X, X[:, 0] ** 2) > 0.9
        True
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains from new initial values.

        Args:
            X: [rows, features]: an array, or a data frame of pandas.
            y: [rows] or [rows, outputs]: the targets.
            sample_weight: [rows]: the weight of the loss of each row.

        Raises:
            AttributeValueError, ShapeError, DTypeError, GradientError, NumericsError: as for
                `Classifier.fit`, of predictions in place of logits.

        Examples:
            >>> model = gc.sklearn.Regressor(epochs=2).fit([[0.0], [1.0]], [1.0, 2.0])
            >>> model.n_iter_, model.predict([[0.5]]).shape
            (2, (1,))
        """
        return self._fit(X, y, sample_weight, anew=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Trains one more epoch, on these rows.

        Args:
            X, y, sample_weight: as for `fit`.

        Raises:
            AttributeValueError: the targets have another number of columns than those before; or as
                for `fit`.

        Examples:
            >>> model = gc.sklearn.Regressor().partial_fit([[0.0], [1.0]], [1.0, 2.0])
            >>> model.partial_fit([[2.0]], [3.0]).n_iter_
            2
        """
        return self._fit(X, y, sample_weight, anew=False)

    def predict(self, X: ArrayLike) -> Array:
        """The predictions: [rows], or [rows, outputs] if the targets of `fit` were.

        Examples:
            >>> model = gc.sklearn.Regressor(epochs=1).fit([[0.0], [1.0]], [[1, 2], [3, 4]])
            >>> model.predict([[0.5]]).shape
            (1, 2)
        """
        check_is_fitted(self)
        found = self._applied(self._read(X), FEATURES, OUTPUTS).astype(self._y_dtype)
        return found[:, 0] if self._y_columns is None else found

    def _fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, anew: bool
    ) -> Self:
        is_first = anew or not hasattr(self, "_fitted")
        x, targets = validate_data(
            self, X, y, reset=is_first, dtype=self._dtypes(reset=is_first), order="C",
            multi_output=True, y_numeric=True,
        )  # fmt: skip
        self._keep_dtype(x, reset=is_first)
        weights = self._weights(sample_weight, x)
        columns = None if targets.ndim == 1 else targets.shape[1]
        if is_first:
            self._y_columns = columns
            self._y_dtype = np.dtype(np.float32 if targets.dtype == np.float32 else np.float64)
        elif columns != self._y_columns:
            raise AttributeValueError.here(
                f"Regressor: y has {columns or 'no'} columns, before it had "
                f"{self._y_columns or 'none'}",
                hint="pass targets of the same form in each call of partial_fit",
            )
        with np.errstate(over="ignore"):  # the error below says more than the warning
            narrow = targets.astype(self._dtype).reshape(len(targets), -1)
        if not np.isfinite(narrow).all():
            raise AttributeValueError.here(
                f"Regressor: y contains a value too large for {self._dtype}",
                hint="scale the targets: sklearn.compose.TransformedTargetRegressor",
            )
        return self._learn(x, narrow, weights, anew=anew)

    def _blueprint(self) -> Blueprint:
        outputs = self._y_columns or 1
        return self._planned(squared_error, outputs, (self._dtype.name, outputs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
