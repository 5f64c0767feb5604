"""The operators of ai.onnx.ml: linear models, trees, encoders."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.core.words import WordList, Words, looked_up
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.families.ensembles import aggregated, read_ensemble
from graphc.importers.onnx.families.normalization import divided
from graphc.importers.onnx.values import is_known, is_strings
from graphc.ir.node import Tensor


def _floats(x: Tensor) -> Any:
    return x if x.dtype.kind == "f" and x.dtype.itemsize >= 4 else ops.cast(x, "float32")


def _post(call: Call, scores: Any) -> Any:
    kind = call.attr("post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return ops.sigmoid(scores)
    if kind == "SOFTMAX":
        return ops.softmax(scores, axis=-1)
    if kind == "SOFTMAX_ZERO":
        used = ops.not_equal(scores, 0)
        shares = ops.where(
            used, ops.exp(scores - ops.reduce_max(scores, axis=-1, keepdims=True)), 0.0
        )
        return shares / ops.reduce_sum(shares, axis=-1, keepdims=True)
    return ops.sqrt(np.float32(2.0)) * ops.erfinv(2 * scores - 1)  # PROBIT


def _array_feature(call: Call) -> Any:
    places = call.x(1)
    return ops.take(call.x(0), ops.reshape(places, (-1,)), axis=-1)


def _binarizer(call: Call) -> Any:
    x = call.x()
    return ops.cast(x > call.attr("threshold", 0.0), x.dtype)


def _scaler(call: Call) -> Any:
    x = _floats(call.x())
    offset, scale = (
        np.array(call.attr(n, d), np.float32) for n, d in (("offset", [0.0]), ("scale", [1.0]))
    )
    return (x - offset) * scale


def _normalizer(call: Call) -> Any:
    x, kind = _floats(call.x()), call.attr("norm", "MAX")
    axis = -1 if x.ndim > 1 else 0
    if kind == "MAX":
        norm = ops.reduce_max(ops.abs(x), axis=axis, keepdims=True)
    elif kind == "L1":
        norm = ops.reduce_sum(ops.abs(x), axis=axis, keepdims=True)
    else:
        norm = ops.sqrt(ops.reduce_sum(ops.square(x), axis=axis, keepdims=True))
    return divided(x, norm)


def _imputer(call: Call) -> Any:
    x = call.x()
    if x.dtype.kind == "f":
        values = np.array(call.attr("imputed_value_floats"), x.dtype)
        replaced = call.attr("replaced_value_float", 0.0)
        missing = ops.isnan(x) if np.isnan(replaced) else ops.equal(x, replaced)
    else:
        values = np.array(call.attr("imputed_value_int64s"), x.dtype)
        missing = ops.equal(x, call.attr("replaced_value_int64", 0))
    return ops.where(missing, values, x)


def _label_encoder(call: Call) -> Any:
    """Of equal keys, the first one counts, as in onnxruntime."""
    keys = _first(call, "keys_int64s", "keys_floats", "keys_strings", "keys_tensor")
    values = _first(call, "values_int64s", "values_floats", "values_strings", "values_tensor")
    if keys is None or values is None:
        raise Refused("has no keys or values")
    default, words = _default(call, values), WordList(is_open=False)
    given = call.inputs[0]
    if is_known(given):
        return _looked_up(call, _table(call, keys, values), default, values.dtype)
    if is_strings(values):
        values, default = words.numbers_of(values), words.numbers_of(np.array(default, object))
    default = np.asarray(default, values.dtype).reshape(())
    if is_strings(keys):
        if not isinstance(given, Words):
            raise Refused("has keys that are strings, but takes numbers")
        # A value that is written twice stays as written last.
        found = looked_up(given, keys[::-1], values[::-1], default.item())
    else:
        found = _searched(call, keys, values, default)
    return Words(found, words) if words.numbers else found


_NAN: Final = object()  # equals itself


def _key(call: Call, key: Any) -> Any:
    """A key of a dictionary: numbers that are not a number are equal from version 4 on."""
    return _NAN if key != key and call.version >= 4 else key


def _table(call: Call, keys: Any, values: Any) -> dict[Any, Any]:
    rows = zip(keys.reshape(-1).tolist(), values.reshape(-1).tolist(), strict=True)
    return {_key(call, key): value for key, value in reversed(list(rows))}


def _looked_up(call: Call, table: dict[Any, Any], default: Any, dtype: Any) -> Any:
    """The values of a table for keys that are known at import."""
    x = call.inputs[0]
    default = np.asarray(default, dtype).item()
    found = [table.get(_key(call, key), default) for key in x.reshape(-1).tolist()]
    return np.array(found, dtype).reshape(x.shape)


def _default(call: Call, values: Any) -> Any:
    """The value for all other keys."""
    default = call.attr("default_tensor")
    if default is not None:
        return default
    if is_strings(values):
        return call.attr("default_string", "_Unused")
    return (
        call.attr("default_int64", -1)
        if values.dtype.kind == "i"
        else call.attr("default_float", -0.0)
    )


def _searched(call: Call, keys: Any, values: Any, default: Any) -> Any:
    x = call.x()
    keys = keys.astype(x.dtype)
    alike = ops.equal(ops.expand_dims(x, -1), keys)
    if keys.dtype.kind == "f" and call.version >= 4:
        alike = ops.logical_or(
            alike, ops.logical_and(ops.isnan(ops.expand_dims(x, -1)), np.isnan(keys))
        )
    found = ops.take(values, ops.argmax(alike, axis=-1))
    return ops.where(ops.reduce_any(alike, axis=-1), found, default)


def _first(call: Call, *names: str) -> Any:
    for name in names:
        if name in call.attrs:
            value = call.attrs[name]
            kind: Any = np.int64 if "int64" in name else np.float32
            kind = object if "strings" in name else kind
            return value if isinstance(value, np.ndarray) else np.array(value, kind)
    return None


def _one_hot(call: Call) -> Any:
    """Of equal classes, the last one counts, as in onnxruntime."""
    classes = call.attr("cats_int64s")
    if classes is None:
        x = call.inputs[0]
        if not isinstance(x, Words):
            raise Refused("of strings takes numbers")
        numbers = x.words.numbers_of(np.array(call.attr("cats_strings", []), object))
        alike = ops.equal(ops.expand_dims(x.ids, -1), numbers)
    else:
        x = ops.expand_dims(call.x(), -1)
        numbers = np.array(classes, x.dtype)
        alike = ops.equal(x, numbers)
    last = {number: i for i, number in enumerate(numbers.tolist())}
    if len(last) < len(numbers):
        alike = ops.logical_and(alike, np.isin(np.arange(len(numbers)), list(last.values())))
    return ops.cast(alike, "float32")


def _vectorizer(call: Call) -> Any:
    return ops.concatenate(
        [ops.cast(x if x.ndim > 1 else ops.expand_dims(x, -1), "float32") for x in call.xs()],
        axis=-1,
    )


def _linear_regressor(call: Call) -> Any:
    targets = call.attr("targets", 1)
    weights = np.array(call.attr("coefficients"), np.float32).reshape(targets, -1)
    y = ops.matmul(_floats(call.x()), weights.T)
    if call.attr("intercepts"):
        y = y + np.array(call.attr("intercepts"), np.float32)
    return _post(call, y)


def labels_of(call: Call, scores: Any) -> Any:
    """The class with the greatest score."""
    ints = call.attr("classlabels_ints") or call.attr("classlabels_int64s")
    if not ints:
        words = WordList(is_open=False)
        numbers = words.numbers_of(np.array(call.attr("classlabels_strings", []), object))
        return Words(ops.take(numbers, ops.argmax(scores, axis=-1)), words)
    return ops.take(np.array(ints, np.int64), ops.argmax(scores, axis=-1))


def _linear_classifier(call: Call) -> Any:
    names = call.attr("classlabels_ints") or call.attr("classlabels_strings")
    rows = len(call.attr("intercepts") or names)
    weights = np.array(call.attr("coefficients"), np.float32).reshape(rows, -1)
    scores = ops.matmul(_floats(call.x()), weights.T)
    if call.attr("intercepts"):
        scores = scores + np.array(call.attr("intercepts"), np.float32)
    if rows == 1 and len(names) == 2:
        scores = ops.concatenate([-scores, scores], axis=-1)
    return labels_of(call, scores), _post(call, scores)


def _tree_regressor(call: Call) -> Any:
    x = _floats(call.x())
    scores = aggregated(read_ensemble(call, "target"), x, call.attr("aggregate_function", "SUM"))
    if call.attr("base_values"):
        scores = scores + np.array(call.attr("base_values"), np.float32)
    return _post(call, ops.cast(scores, x.dtype))


def _tree_classifier(call: Call) -> Any:
    x = _floats(call.x())
    ensemble = read_ensemble(call, "class")
    names = call.attr("classlabels_int64s") or call.attr("classlabels_strings")
    scores = aggregated(ensemble, x, "SUM", len(names))
    if call.attr("base_values"):
        scores = scores + np.array(call.attr("base_values"), np.float32)
    single = len(set(ensemble.ids)) == 1 and len(names) == 2
    if single:
        one = scores[:, :1] if ensemble.ids[0] == 0 else scores[:, 1:2]
        positive = call.attr("post_transform", "NONE") == "NONE" and min(ensemble.weights) >= 0
        scores = ops.concatenate([1 - one if positive else -one, one], axis=-1)
    return labels_of(call, scores), _post(call, scores)


RULES: Final[dict[str, Rule]] = {
    "ArrayFeatureExtractor": _array_feature,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
}
