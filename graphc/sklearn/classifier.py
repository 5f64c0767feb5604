"""`Classifier`: a graph that gives one logit for each class."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import (
    _check_partial_fit_first_call,
    check_classification_targets,
    type_of_target,
)
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.nn.functional.losses import sparse_softmax_cross_entropy
from graphc.sklearn.base import GraphEstimator
from graphc.sklearn.blueprint import Blueprint
from graphc.sklearn.networks import FEATURES, OUTPUTS


class Classifier(ClassifierMixin, GraphEstimator):  # type: ignore[misc]
    """A classifier of scikit-learn whose network is any function that builds a graph.

    Args:
        build: `build(x, outputs, **parameters)` gets a tensor of features [rows, features] and the
            number of classes, and returns logits [rows, classes]. If it has a parameter `training`,
            it is called with True for the graph that trains and with False for the one that
            predicts. The default is a multilayer perceptron, `gc.sklearn.mlp`.
        parameters: further keyword arguments of `build`. In a grid search `parameters__hidden`
            stands for the item "hidden".
        optimizer: the name of an optimizer of optax, a function that takes the learning rate, or an
            optax transformation.
        learning_rate: of an optimizer that is given by name or as a function.
        epochs: the number of passes over the data, or the largest one with `early_stopping`.
        batch_size: the largest number of rows of one step; the rows are divided evenly. "auto" is
            200.
        early_stopping: whether to set rows aside, measure the loss on them after each epoch, stop
            when it no longer falls, and keep the values of the best epoch.
        validation_fraction: the share of the rows set aside.
        patience: how many epochs in a row may bring no lower validation loss.
        tolerance: by how much a validation loss must be lower to count as such.
        loss: `loss(outputs, targets)` gives one loss for each row; the targets are class numbers.
            The default is the cross-entropy of the softmax.
        dtype: "float32" or "float64": what features and targets are converted to. None keeps
            float32 features and converts others to float64, as scikit-learn does. Pass "float32"
            for speed, above all on GPUs. Variables have the dtypes that `build` gives them: layers
            have float32 unless you pass `dtype=x.dtype`.
        random_state: the seed of initial values, shuffling and random operators.
        strategy: `gc.devices.DataParallel(...)` or `gc.devices.Mesh(...)` to train on several
            devices.
        options: see `gc.CompileOptions`.

    Attributes:
        classes_: the classes, sorted.
        n_iter_: the number of epochs trained.
        loss_curve_: the mean loss of each epoch.
        loss_: the last of them.
        validation_curve_: the loss of the rows set aside after each epoch, if any were.
        best_epoch_: the epoch whose values were kept, counted from 1.
        n_features_in_, feature_names_in_: the features seen by `fit`.

    A pickle holds the graph and its values. So an estimator predicts where the build function
    cannot be imported. Estimators of one process that have equal graphs share compiled programs.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = gc.sklearn.Classifier(epochs=50, learning_rate=0.01, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
        >>> model.predict_proba(X[:2]).shape
        (2, 3)
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains from new initial values.

        Args:
            X: [rows, features]: an array, or a data frame of pandas.
            y: [rows]: the class of each row, of any type that sorts.
            sample_weight: [rows]: the weight of the loss of each row.

        Raises:
            AttributeValueError, ShapeError, DTypeError: a parameter has an invalid value, or
                `build` returns something else than logits.
            GradientError: the logits depend on no variable, or on none by a gradient.
            NumericsError: the loss became nan or infinite.

        Examples:
            >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
            >>> model = gc.sklearn.Classifier(learning_rate=0.1, random_state=0).fit(X, y)
            >>> model.predict([[0.5], [2.5]]).tolist()
            ['low', 'high']
        """
        x, labels = self._data(X, y, reset=True)
        weights = self._weights(sample_weight, x)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        return self._learn(x, numbers.astype(np.int32), weights, anew=True)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Trains one more epoch, on these rows.

        Args:
            X, y, sample_weight: as for `fit`.
            classes: all classes that will occur; required in the first call.

        Raises:
            AttributeValueError: `y` contains a class that is not among `classes`; or as for `fit`.

        Examples:
            >>> model = gc.sklearn.Classifier(random_state=0)
            >>> model.partial_fit([[0.0], [1.0]], [0, 0], classes=[0, 1]).n_iter_
            1
            >>> model.partial_fit([[2.0], [3.0]], [1, 1]).n_iter_
            2
        """
        is_first = _check_partial_fit_first_call(self, classes)
        x, labels = self._data(X, y, reset=is_first or not hasattr(self, "_fitted"))
        weights = self._weights(sample_weight, x)
        return self._learn(x, self._numbers(labels), weights, anew=False)

    def decision_function(self, X: ArrayLike) -> Array:
        """The logits [rows, classes]. For two classes, the difference of the second to the first.

        Examples:
            >>> X = [[0.0], [1.0], [2.0]]
            >>> model = gc.sklearn.Classifier(epochs=1).fit(X, ["a", "b", "c"])
            >>> model.decision_function(X).shape
            (3, 3)
        """
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike) -> Array:
        """The softmax of the logits: [rows, classes].

        Examples:
            >>> model = gc.sklearn.Classifier(epochs=1).fit([[0.0], [1.0]], ["a", "b"])
            >>> model.predict_proba([[0.5]]).shape
            (1, 2)
        """
        logits = self._logits(X)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, X: ArrayLike) -> Array:
        """The class with the largest logit: [rows].

        Examples:
            >>> model = gc.sklearn.Classifier(epochs=1).fit([[0.0], [1.0]], ["a", "a"])
            >>> model.predict([[0.5]]).tolist()
            ['a']
        """
        numbers = self._logits(X).argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def _logits(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return self._applied(self._read(X), FEATURES, OUTPUTS)

    def _data(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        x, labels = validate_data(
            self, X, y, reset=reset, dtype=self._dtypes(reset=reset), order="C", multi_output=True
        )
        self._keep_dtype(x, reset=reset)
        check_classification_targets(labels)
        kind = type_of_target(labels)
        if kind.startswith("multilabel") or kind.endswith("multioutput"):
            raise AttributeValueError.here(
                f"Classifier: y must give one class for each row, got {kind} targets",
                hint="wrap it: sklearn.multioutput.MultiOutputClassifier(Classifier(...))",
            )
        return x, column_or_1d(labels, warn=True)

    def _numbers(self, labels: Array) -> Array:
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise AttributeValueError.here(
                f"Classifier: y contains classes that are not among `classes`: "
                f"{unknown[:5].tolist()}",
                hint="pass all classes in the first call: partial_fit(X, y, classes=...)",
            )
        return np.searchsorted(self.classes_, labels).astype(np.int32)

    def _blueprint(self) -> Blueprint:
        return self._planned(_cross_entropy, len(self.classes_), ("int32", None))

    def _strata(self, y: Array | None) -> Array | None:
        return y


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return sparse_softmax_cross_entropy(logits=outputs, labels=targets)
