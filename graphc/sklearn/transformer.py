"""`Transformer`: a graph that encodes each row, trained to reconstruct it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.dtypes import Array
from graphc.sklearn.apart import with_devices
from graphc.sklearn.base import Build, GraphEstimator, Loss, Optimizer, RandomState, squared_error
from graphc.sklearn.blueprint import Blueprint
from graphc.sklearn.learning import Rows, mean_loss
from graphc.sklearn.networks import ENCODING, FEATURES, OUTPUTS
from graphc.sklearn.perceptrons import mirrored, mlp
from graphc.sklearn.settings import is_count


class Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, GraphEstimator):  # type: ignore[misc]
    """A transformer of scikit-learn whose encoder and decoder are functions that build graphs.

    `fit` trains both together, so that the decoder reconstructs the features from the encoding.

    Args:
        build: `build(x, outputs, **parameters)` gets a tensor of features [rows, features] and
            `n_components`, and returns the encoding [rows, n_components]. If it has a parameter
            `training`, it is called with True for the graph that trains and with False for the one
            that transforms. The default is a multilayer perceptron, `gc.sklearn.mlp`.
        n_components: the number of columns of the encoding.
        decode: `decode(encoding, outputs, **parameters)` gets the encoding and the number of
            features, and returns the reconstruction [rows, features]. It gets those of the
            parameters that it has. The default is the perceptron with its hidden layers in reverse
            order. None if `loss` needs no reconstruction.
        loss: `loss(outputs, features)` gives one loss for each row. The outputs are the
            reconstruction, or the encoding without `decode`. The default is the mean of the squared
            errors of a row.
        parameters, optimizer, learning_rate, epochs, batch_size, early_stopping: see `Classifier`.
        validation_fraction, patience, tolerance, dtype, random_state: see `Classifier`.
        strategy, options: see `Classifier`.

    The attributes are those of `Classifier`, without `classes_`.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X = load_iris().data
        >>> model = gc.sklearn.Transformer(n_components=2, epochs=50, random_state=0).fit(X)
        >>> codes = model.transform(X)
        >>> codes.shape, model.inverse_transform(codes).shape
        ((150, 2), (150, 4))
    """

    def __init__(
        self,
        build: Build = mlp,
        *,
        n_components: int = 2,
        decode: Build | None = mirrored,
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
        super().__init__(
            build,
            parameters=parameters,
            optimizer=optimizer,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            tolerance=tolerance,
            loss=loss,
            dtype=dtype,
            random_state=random_state,
            strategy=strategy,
            options=options,
        )
        self.n_components = n_components
        self.decode = decode

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Trains from new initial values.

        Args:
            X: [rows, features]: an array, or a data frame of pandas.
            y: ignored, as pipelines pass it.
            sample_weight: [rows]: the weight of the loss of each row.

        Raises:
            AttributeValueError, ShapeError, DTypeError: a parameter has an invalid value, or a
                function returns something that does not fit.
            GradientError: the loss depends on no variable, or on none by a gradient.
            NumericsError: the loss became nan or infinite.

        Examples:
            >>> gc.sklearn.Transformer(epochs=3).fit([[0.0, 1.0], [1.0, 0.0]]).n_iter_
            3
        """
        return self._fit(X, sample_weight, anew=True)

    def partial_fit(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Trains one more epoch, on these rows.

        Args:
            X, y, sample_weight: as for `fit`.

        Examples:
            >>> model = gc.sklearn.Transformer().partial_fit([[0.0, 1.0], [1.0, 0.0]])
            >>> model.partial_fit([[0.5, 0.5]]).n_iter_
            2
        """
        return self._fit(X, sample_weight, anew=False)

    def transform(self, X: ArrayLike) -> Array:
        """The encodings: [rows, n_components].

        Examples:
            >>> model = gc.sklearn.Transformer(n_components=1, epochs=1)
            >>> model.fit_transform([[0.0, 1.0], [1.0, 0.0]]).shape
            (2, 1)
        """
        check_is_fitted(self)
        return self._applied(self._read(X), FEATURES, ENCODING)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """The reconstructions [rows, features] of encodings.

        Args:
            X: [rows, n_components].

        Raises:
            AttributeValueError: there is no `decode`.
            ShapeError: the encodings have another number of columns.

        Examples:
            >>> model = gc.sklearn.Transformer(epochs=1).fit([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0]])
            >>> model.inverse_transform([[0.5, 0.5]]).shape
            (1, 3)
        """
        check_is_fitted(self)
        if self.decode is None:
            raise AttributeValueError.here(
                "Transformer: inverse_transform needs a decoder, and decode is None",
                hint="pass decode=, a function (encoding, outputs) that gives the features",
            )
        codes: Array = check_array(X, dtype=self._dtypes(reset=False), order="C")
        if codes.shape[1] != self._n_features_out:
            raise ShapeError.here(
                f"Transformer: the encodings have {codes.shape[1]} columns, expected "
                f"{self._n_features_out}",
                hint="pass what transform returned",
            )
        return self._applied(codes, ENCODING, OUTPUTS)

    def score(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """The negative mean loss of the rows: greater is better, 0 is a perfect reconstruction.

        Examples:
            >>> model = gc.sklearn.Transformer(epochs=1).fit([[0.0, 1.0], [1.0, 0.0]])
            >>> model.score([[0.5, 0.5]]) < 0
            True
        """
        x = self._read(X)
        rows = Rows(x, None, self._weights(sample_weight, x))
        fitted = self._fitted
        return -with_devices(
            mean_loss, fitted.networks.inference, fitted.values, rows, self._placement()
        )

    def _fit(self, X: ArrayLike, sample_weight: ArrayLike | None, *, anew: bool) -> Self:
        self._check_own()
        x = self._read(X, reset=anew or not hasattr(self, "_fitted"))
        is_first = anew or not hasattr(self, "_fitted")
        self._learn(x, None, self._weights(sample_weight, x), anew=anew)
        if is_first:  # `n_components` may be set to something else before the next fit
            self._components = int(self.n_components)
        return self

    def _check_own(self) -> None:
        count: object = self.n_components
        if not is_count(count):
            raise AttributeValueError.here(
                f"Transformer: n_components must be an int of at least 1, got {count!r}"
            )
        if self.decode is None and self.loss is None:
            raise AttributeValueError.here(
                "Transformer: without decode there is nothing to compare the features with",
                hint="pass loss=, a function (encoding, features) that gives one loss for each row",
            )

    def _blueprint(self) -> Blueprint:
        return self._planned(squared_error, int(self.n_components), None, self.decode)

    @property
    def _n_features_out(self) -> int:
        return self._components

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = (
            ["float64", "float32"] if self.dtype is None else [self.dtype]
        )
        return tags
