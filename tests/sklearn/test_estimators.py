"""What the estimators compute: training, weights, validation, and functions of users."""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import optax
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError

import graphc as gc
from graphc.errors import (
    ArgumentError,
    AttributeValueError,
    CopyError,
    DTypeError,
    GradientError,
    GraphError,
    NumericsError,
    ShapeError,
    StateError,
)
from graphc.sklearn import Classifier, Regressor, Transformer
from graphc.sklearn.learning import _blocks, _sizes
from graphc.sklearn.programs import _PROGRAMS
from tests.near import assert_near

X, Y = load_iris(return_X_y=True)


def small(x, outputs, width=8):
    hidden = gc.nn.Dense(width, activation=gc.nn.relu, name="hidden")(x)
    return gc.nn.Dense(outputs, name="out")(hidden)


def linear(x, outputs):
    zeros = gc.nn.initializers.Zeros()
    return gc.nn.Dense(outputs, kernel_initializer=zeros, name="d", dtype=x.dtype)(x)


def classifier(build=small, **options):
    return Classifier(build, **{"epochs": 30, "learning_rate": 0.02, "random_state": 0, **options})


# -- what is computed -------------------------------------------------------------------------


def test_a_step_is_the_one_that_optax_takes():
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(6, 3)), rng.normal(size=6), np.array([1.0, 2, 0, 1, 3, 1])
    model = Regressor(linear, optimizer="sgd", learning_rate=0.1, epochs=2, random_state=0)
    model.fit(x, y, sample_weight=w)
    kernel, bias = np.zeros((3, 1)), np.zeros(1)
    for _ in range(2):
        error = x @ kernel + bias - y[:, None]
        share = w[:, None] / w.sum()
        kernel, bias = (
            kernel - 0.1 * 2 * x.T @ (error * share),
            bias - 0.1 * 2 * (error * share).sum(0),
        )
    assert_near(model.predict(x), (x @ kernel + bias)[:, 0], rtol=1e-12)


def test_batches_cover_each_row_once_an_epoch():
    """The gradient does not depend on the variable, so an epoch adds the mean of each batch."""
    x = np.arange(10.0)[:, None]
    model = Transformer(
        lambda x, outputs: gc.nn.Dense(
            outputs, kernel_initializer=gc.nn.initializers.Zeros(), name="d"
        )(x),
        n_components=1,
        decode=None,
        loss=lambda outputs, x: -outputs[:, 0],
        optimizer="sgd", learning_rate=1.0, epochs=1, batch_size=4, random_state=0,
    ).fit(x)  # fmt: skip
    bias = model.transform([[0.0]])[0, 0]
    slope = model.transform([[1.0]])[0, 0] - bias
    assert bias == pytest.approx(3.0)  # three batches, each of mean 1
    means = 3 * slope / 3
    # two batches of four rows and one of two: their means have weights in this proportion
    assert 4.5 < means < 22.5


@pytest.mark.slow  # compiles everything twice
def test_results_do_not_depend_on_the_process_wide_cache():
    first = classifier().fit(X, Y).predict_proba(X)
    _PROGRAMS.forked()
    np.testing.assert_array_equal(classifier().fit(X, Y).predict_proba(X), first)


def test_equal_graphs_are_compiled_once(monkeypatch):
    _PROGRAMS.forked()
    compiled = []
    from graphc.sklearn import programs

    real = programs.compile
    monkeypatch.setattr(programs, "compile", lambda *a, **k: compiled.append(a) or real(*a, **k))
    for seed in range(3):  # other seeds, other numbers of rows, other lines of the program
        classifier(random_state=seed).fit(X[seed:], Y[seed:]).predict(X[seed:])
    classifier(random_state=5).fit(X, Y).predict(X)
    assert len(compiled) == 2  # one trains, one predicts
    classifier(parameters={"width": 9}).fit(X, Y)
    assert len(compiled) == 3


def test_training_and_prediction_build_their_own_graphs():
    calls = []

    def build(x, outputs, training):
        calls.append(training)
        dropped = gc.nn.Dropout(0.5)(x, training=training)
        normal = gc.nn.BatchNorm(name="norm")(dropped, training=training)
        return gc.nn.Dense(outputs, name="out")(normal)

    model = classifier(build, epochs=60).fit(X, Y)
    assert calls == [True, False]
    assert model.score(X, Y) > 0.8
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X))
    assert classifier(build, random_state=1).fit(X, Y).loss_ != model.loss_


def test_early_stopping_keeps_the_best_epoch():
    model = classifier(epochs=500, early_stopping=True, patience=5, learning_rate=0.1).fit(X, Y)
    assert model.n_iter_ < 500
    assert model.n_iter_ == model.best_epoch_ + 5
    assert len(model.validation_curve_) == len(model.loss_curve_) == model.n_iter_
    assert min(model.validation_curve_) >= model.validation_curve_[model.best_epoch_ - 1] - 1e-4
    again = classifier(epochs=model.best_epoch_, early_stopping=True, patience=500,
                       learning_rate=0.1).fit(X, Y)  # fmt: skip
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_partial_fit_continues_as_fit_would():
    whole = classifier(epochs=4, batch_size=16).fit(X, Y)  # all epochs in one call
    parts = classifier(epochs=1, batch_size=16)
    for _ in range(4):
        parts.partial_fit(X, Y, classes=[0, 1, 2])
    assert parts.n_iter_ == 4
    np.testing.assert_array_equal(parts.predict_proba(X), whole.predict_proba(X))
    assert parts.loss_curve_ == whole.loss_curve_


def test_a_transformer_encodes_and_decodes():
    images = load_digits().data[:600] / 16
    model = Transformer(n_components=16, epochs=60, learning_rate=0.005, random_state=0)
    codes = model.fit_transform(images)
    back = model.inverse_transform(codes)
    assert model.score(images) == pytest.approx(-np.mean((back - images) ** 2), rel=1e-6)
    assert -model.score(images) < 0.5 * np.mean((images - images.mean(0)) ** 2)
    assert list(model.get_feature_names_out()[:2]) == ["transformer0", "transformer1"]
    model.set_output(transform="pandas")
    assert list(model.transform(images[:2]).columns[:1]) == ["transformer0"]
    with pytest.raises(ShapeError, match="have 3 columns, expected 16"):
        model.inverse_transform(codes[:, :3])


def test_data_frames_and_labels_of_text():
    frame = pd.DataFrame(X, columns=list("abcd"))
    names = np.array(["setosa", "versicolor", "virginica"], object)[Y]
    model = classifier().fit(frame, names)
    assert list(model.feature_names_in_) == list("abcd")
    assert model.score(frame, names) > 0.8
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.slow
def test_a_strategy_trains_the_same():
    one = classifier(dtype="float64", epochs=3).fit(X, Y)
    four = classifier(dtype="float64", epochs=3, strategy=gc.devices.DataParallel(4)).fit(X, Y)
    assert_near(four.predict_proba(X), one.predict_proba(X), rtol=1e-9)
    assert_near(
        four.partial_fit(X, Y).predict_proba(X), one.partial_fit(X, Y).predict_proba(X), rtol=1e-9
    )


@pytest.mark.parametrize(
    "optimizer", ["adamw", optax.adamw, optax.adamw(0.02)], ids=str.__name__.__class__.__name__
)
def test_an_optimizer_by_name_by_function_and_ready(optimizer):
    assert classifier(optimizer=optimizer).fit(X, Y).score(X, Y) > 0.8


def test_dtypes_follow_the_features():
    assert classifier(epochs=1).fit(X, Y).predict_proba(X).dtype == np.float64
    narrow = X.astype("float32")
    assert classifier(epochs=1).fit(narrow, Y).predict_proba(X).dtype == np.float32
    assert classifier(epochs=1, dtype="float32").fit(X, Y).predict_proba(X).dtype == np.float32


@pytest.mark.parametrize(
    ("rows", "batch", "row_bytes"),
    [(1, 8, 4), (1437, 200, 256), (10**6, 32, 4), (5000, 10, 2**20)],
)
def test_calls_of_an_epoch(rows, batch, row_bytes):
    sizes = _sizes(rows, batch, row_bytes)
    assert len({steps for _, steps in sizes}) <= 2
    ends = [first + steps * batch for first, steps in sizes]
    assert [first for first, _ in sizes] == [0, *ends[:-1]]
    assert ends[-1] - batch < rows <= ends[-1]
    assert all(steps * batch * row_bytes <= 2**26 for _, steps in sizes)


@pytest.mark.parametrize("rows", [1, 8, 9, 1024, 1025, 5000])
def test_calls_of_a_prediction(rows):
    blocks = list(_blocks(rows, 4))
    assert sum(count for _, count, _ in blocks) == rows
    assert all(count <= size for _, count, size in blocks)


# -- parameters -------------------------------------------------------------------------------


def test_arguments_of_build_are_parameters_too():
    model = classifier(parameters={"width": 3})
    assert model.get_params()["parameters__width"] == 3
    other = clone(model).set_params(parameters__width=5, epochs=2)
    assert (other.parameters, other.epochs, model.parameters) == ({"width": 5}, 2, {"width": 3})
    assert classifier().set_params(parameters__width=5).parameters == {"width": 5}


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("epochs", 0, "epochs must be an int of at least 1, got 0"),
        ("epochs", True, "got True"),
        ("batch_size", "all", "or \"auto\", got 'all'"),
        ("learning_rate", -1.0, "a positive number"),
        ("validation_fraction", 1.0, "between 0 and 1"),
        ("tolerance", float("nan"), "at least 0"),
        ("loss", "mse", "a function or None"),
        ("dtype", "bfloat16", '"float32", "float64" or None'),
        ("parameters", ["width"], "a dict of keyword arguments"),
        ("build", None, "must be a function"),
        ("optimizer", "adamm", "optimizer must be the name"),
        ("optimizer", 3, "optimizer must be the name"),
        ("strategy", 4, "strategy"),
        ("options", "O2", "options must be"),
    ],
)
def test_an_invalid_parameter_is_named_at_fit(option, value, text):
    with pytest.raises(AttributeValueError, match=text):
        classifier().set_params(**{option: value}).fit(X, Y)


# -- user functions that do not fit --------------------------------------------------------------

OUTSIDE = gc.Graph()
with OUTSIDE:
    OTHER = gc.zeros((3, 3))
COUNT = iter(range(100))

WRONG = {
    "nothing": (lambda x, outputs: None, AttributeValueError, "returned NoneType, expected a tens"),
    "width": (lambda x, outputs: gc.nn.Dense(7)(x), ShapeError, r"expected \[rows, 3\]"),
    "rank": (lambda x, outputs: gc.reduce_sum(x, axis=1), ShapeError, r"expected \[rows, 3\]"),
    "classes": (
        lambda x, outputs: gc.cast(gc.nn.Dense(outputs)(x), "int32"), DTypeError, "floating",
    ),
    "graph": (lambda x, outputs: OTHER, AttributeValueError, "another graph"),
    "rows": (lambda x, outputs: gc.zeros((5, outputs)), ShapeError, "returned the shape"),
    "variables": (lambda x, outputs: x[:, :3] * 2.0, GradientError, "."),
    "rounded": (lambda x, outputs: gc.round(gc.stop_gradient(gc.nn.Dense(outputs)(x))),
                GradientError, "."),
    "again": (
        lambda x, outputs: gc.nn.Dense(outputs, name=f"layer_{next(COUNT)}")(x),
        GraphError, "other variables when it is called again",
    ),
    "arguments": (lambda x: x, ArgumentError, r"called as build\(x, outputs"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_build_function_that_does_not_fit(case):
    build, error, text = WRONG[case]
    with pytest.raises(error, match=text) as caught:
        classifier(build).fit(X, Y)
    assert case in ("variables", "rounded") or "test_estimators.py" in str(caught.value)


def test_an_unknown_argument_of_build_is_named():
    with pytest.raises(ArgumentError, match="widht"):
        classifier(parameters={"widht": 3}).fit(X, Y)


def test_a_loss_of_one_number_is_refused():
    loss = lambda outputs, targets: gc.reduce_mean(gc.square(outputs - targets))  # noqa: E731
    with pytest.raises(ShapeError, match="one floating value for each row"):
        Regressor(small, loss=loss).fit(X, X[:, 0])


def test_a_loss_that_is_not_finite_says_when():
    with pytest.raises(NumericsError, match=r"the loss is (nan|inf) in epoch \d+"):
        Regressor(linear, optimizer="sgd", learning_rate=1e6, epochs=200).fit(X, X[:, 0])


def test_a_fit_that_fails_leaves_the_estimator_as_it_was():
    model = classifier().fit(X, Y)
    before = model.predict_proba(X)
    model.set_params(build=WRONG["width"][0])
    with pytest.raises(ShapeError):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_weights_that_do_not_fit():
    with pytest.raises(AttributeValueError, match="negative"):
        classifier().fit(X, Y, sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match="zero"):
        classifier().fit(X, Y, sample_weight=np.zeros(len(X)))


def test_targets_that_do_not_fit():
    with pytest.raises(AttributeValueError, match="one class for each row"):
        classifier().fit(X, np.eye(3)[Y].astype(int) + 0 * Y[:, None] + np.eye(3, dtype=int)[0])
    model = classifier(epochs=1).partial_fit(X, Y, classes=[0, 1, 2])
    with pytest.raises(AttributeValueError, match=r"not among `classes`: \[7\]"):
        model.partial_fit(X[:2], [0, 7])
    with pytest.raises(AttributeValueError, match="too large for float32"):
        Regressor(dtype="float32").fit(X, np.full(len(X), 1e300))
    wide = Regressor(small, epochs=1).partial_fit(X, X)
    with pytest.raises(AttributeValueError, match="y has no columns, before it had 4"):
        wide.partial_fit(X, X[:, 0])


def test_a_transformer_needs_something_to_learn():
    with pytest.raises(AttributeValueError, match="nothing to compare"):
        Transformer(decode=None).fit(X)
    with pytest.raises(AttributeValueError, match="n_components must be"):
        Transformer(n_components=0).fit(X)
    with pytest.raises(NotFittedError):
        Transformer().inverse_transform(X)


# -- pickling -----------------------------------------------------------------------------------


def test_a_pickle_predicts_and_goes_on():
    model = classifier(optimizer=optax.sgd(0.1, momentum=0.9)).fit(X, Y)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(
        other.partial_fit(X, Y).predict_proba(X), model.partial_fit(X, Y).predict_proba(X)
    )
    copied = copy.deepcopy(model)
    np.testing.assert_array_equal(copied.predict_proba(X), model.predict_proba(X))


@pytest.mark.slow  # runs a separate process
def test_a_pickle_predicts_where_the_build_function_is_missing(tmp_path):
    (tmp_path / "lost_module.py").write_text(
        "import graphc as gc\n"
        "def build(x, outputs):\n    return gc.nn.Dense(outputs, name='d')(x)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import lost_module

        model = classifier(lost_module.build, epochs=2).fit(X, Y)
        (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("lost_module", None)
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "lost_module.py").unlink()
    script = (
        "import pickle, sys, numpy as np\n"
        "from pathlib import Path\n"
        "folder = Path(sys.argv[1]); X = np.load(folder / 'x.npy')\n"
        "model = pickle.loads((folder / 'model.pickle').read_bytes())\n"
        "np.save(folder / 'found.npy', model.predict_proba(X))\n"
        "model.partial_fit(X, np.zeros(len(X), int))\n"
        "try: model.fit(X, np.zeros(len(X), int))\n"
        "except Exception as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert_near(np.load(tmp_path / "found.npy"), model.predict_proba(X), rtol=1e-6)
    assert "the parameter 'build' of this estimator could not be restored" in ran.stdout
    assert "lost_module" in ran.stdout


def test_a_function_of_another_python_is_not_loaded():
    from graphc.sklearn.carried import Carried, carry

    carried = carry("build", lambda x, outputs: x)
    found = Carried(carried.data, (3, 5)).value("build")
    with pytest.raises(StateError, match=r"pickled by value on Python 3\.5"):
        found(1, 2)


def test_a_parameter_that_cannot_be_pickled_is_named():
    with pytest.raises(CopyError, match="'parameters'"):
        pickle.dumps(classifier(parameters={"lock": threading.Lock()}))
