"""How users use estimators: unusual data, threads, interrupts, several devices, pickles."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import optax
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.utils import estimator_checks

import graphc as gc
from graphc.errors import AttributeValueError
from graphc.sklearn import Classifier, Regressor, Transformer, learning
from tests.near import assert_near
from tests.sklearn.builds import small

X, Y = load_iris(return_X_y=True)


def classifier(**options):
    return Classifier(
        **{"build": small, "epochs": 5, "learning_rate": 0.02, "random_state": 0, **options}
    )


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, Y)


@pytest.mark.parametrize("kind", [Classifier, Regressor, Transformer])
def test_cheap_checks_of_scikit_learn(kind):
    """The other checks are in test_checks.py."""
    name = kind.__name__
    estimator_checks.check_parameters_default_constructible(name, kind())
    estimator_checks.check_no_attributes_set_in_init(name, kind())
    estimator_checks.check_get_params_invariance(name, kind())
    estimator_checks.check_set_params(name, kind())
    estimator_checks.check_estimators_unfitted(name, kind())
    estimator_checks.check_valid_tag_types(name, kind())
    assert clone(kind(epochs=3)).get_params() == kind(epochs=3).get_params()


@pytest.mark.parametrize(
    ("features", "error", "text"),
    [
        (np.where(X[3, 1] == X, np.nan, X), ValueError, "contains NaN"),
        (scipy.sparse.csr_matrix(X), TypeError, "Sparse data was passed for X"),
        (X * 1j, ValueError, "Complex data not supported"),
        (X[:, 0], ValueError, "Expected 2D array"),
        (X[:0], ValueError, "0 sample"),
        (np.where(X > 4, "x", X.astype(object)), ValueError, "string to float: 'x'"),
    ],
    ids=["nan", "sparse", "complex", "1d", "empty", "text"],
)
def test_features_that_do_not_fit(fitted, features, error, text):
    with pytest.raises(error, match=text):
        classifier().fit(features, Y[: features.shape[0]])
    with pytest.raises(error, match=text):
        fitted.predict(features)


@pytest.mark.parametrize(
    "labels",
    [Y > 0, np.array(["a", "b", "ccc"])[Y], pd.Series(Y).astype("category"), Y.astype(float)],
    ids=["bool", "text", "category", "float"],
)
def test_labels_of_several_types(fitted, labels):
    found = classifier(epochs=1).fit(X, labels)
    assert list(found.classes_) == sorted(set(labels))
    assert set(found.predict(X)) <= set(labels)


def test_one_class():
    model = classifier(epochs=1).fit(X, ["only"] * len(X))
    assert set(model.predict(X)) == {"only"}
    assert (model.predict_proba(X) == 1).all()


def test_rows_of_weight_zero_do_not_count(fitted):
    weights = (np.arange(len(X)) < 100).astype(float)
    some = classifier().fit(X, Y, sample_weight=weights)
    assert list(some.classes_) == [0, 1, 2]
    other = X + (weights == 0)[:, None] * 1e6
    same = classifier().fit(other, Y, sample_weight=weights)
    np.testing.assert_array_equal(some.predict_proba(X), same.predict_proba(X))


def test_early_stopping_with_few_rows():
    assert classifier(early_stopping=True).fit(X[::75], Y[::75]).n_iter_ == 5
    with pytest.raises(AttributeValueError, match="takes all 1 rows for validation"):
        classifier(early_stopping=True).fit(X[:1], Y[:1])


def test_set_params_takes_effect_at_the_next_fit(fitted):
    model = pickle.loads(pickle.dumps(fitted))
    model.set_params(parameters__width=3, dtype="float32", epochs=1)
    np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
    assert model.partial_fit(X, Y).predict_proba(X).dtype == np.float64
    assert model.fit(X, Y).predict_proba(X).dtype == np.float32


def test_the_name_of_something_else_of_optax_is_no_optimizer():
    with pytest.raises(AttributeValueError, match="decay_steps"):
        classifier(optimizer="cosine_decay_schedule").fit(X, Y)
    with pytest.raises(AttributeValueError, match="required positional argument"):
        classifier(optimizer=optax.masked).fit(X, Y)


def test_threads_share_an_estimator(fitted):
    model, want = pickle.loads(pickle.dumps(fitted)), fitted.predict_proba(X)
    wrong = []

    def work(count):
        for _ in range(10):
            if not np.array_equal(model.predict_proba(X[:count]), want[:count]):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 20, 60, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_interrupted_fit_leaves_the_estimator_as_it_was(fitted, monkeypatch):
    model = pickle.loads(pickle.dumps(fitted))
    monkeypatch.setattr(learning, "_joined", interrupt)
    for fit in (model.fit, model.partial_fit):
        with pytest.raises(KeyboardInterrupt):
            fit(X, Y)
    monkeypatch.undo()
    assert model.n_iter_ == 5
    np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
    again = model.fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def interrupt(*args):
    raise KeyboardInterrupt


@pytest.mark.slow  # compiles two programs for each
@pytest.mark.parametrize("kind", [Regressor, Transformer])
def test_four_devices_give_the_predictions_of_one(kind):
    def predicted(**options):
        model = kind(epochs=2, batch_size=64, random_state=0, **options).fit(X, X[:, 0])
        return model.predict(X) if kind is Regressor else model.transform(X)

    assert_near(predicted(strategy=gc.devices.DataParallel(4)), predicted(), rtol=1e-9)


@pytest.mark.slow  # runs a separate process
def test_a_fresh_process_predicts_the_same_bits(tmp_path):
    build = lambda x, outputs: gc.nn.Dense(outputs, dtype=x.dtype, name="d")(x)  # noqa: E731
    models = [
        classifier(build=build).fit(X, Y),
        Regressor(build, epochs=5, random_state=0).fit(X, X[:, 0]),
        Transformer(dtype="float32", epochs=5, random_state=0).fit(X),
    ]
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "models.pickle").write_bytes(pickle.dumps(models))
    script = (
        "import pickle, sys, numpy as np\n"
        "X = np.load('x.npy')\n"
        "models = pickle.loads(open('models.pickle', 'rb').read())\n"
        "for number, model in enumerate(models):\n"
        "    use = model.transform if number == 2 else model.predict\n"
        "    np.save(f'{number}.npy', use(X))\n"
        "models[0].fit(X, np.arange(len(X)) % 3)\n"  # pickled with the lambda
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    for number, model in enumerate(models):
        want = model.transform(X) if number == 2 else model.predict(X)
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), want)
