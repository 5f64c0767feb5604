"""scikit-learn's searches and scores in two processes, with each joblib backend."""

import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow  # several processes import JAX

SCRIPT = """
import multiprocessing, sys
import joblib, numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
import graphc as gc

def build(x, outputs, width):  # in no module: it travels by value
    return gc.nn.Dense(outputs, name="o")(gc.nn.Dense(width, name="h", activation=gc.nn.relu)(x))

def main(backend, method):
    X, y = load_iris(return_X_y=True)
    model = gc.sklearn.Classifier(build, parameters={"width": 4}, epochs=20, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model)
    alone = cross_val_score(pipeline, X, y, cv=3)  # from here on this process uses devices
    grid = {"classifier__parameters__width": [2, 8], "classifier__learning_rate": [1e-6, 0.1]}
    with joblib.parallel_config(backend):
        np.testing.assert_array_equal(cross_val_score(pipeline, X, y, cv=3, n_jobs=2), alone)
        found = GridSearchCV(pipeline, grid, cv=2, n_jobs=2, error_score="raise").fit(X, y)
    assert found.best_params_["classifier__learning_rate"] == 0.1
    assert found.score(X, y) > 0.9
    if backend == "multiprocessing":  # an error comes back from the helper as it is
        wrong = gc.sklearn.Classifier(build, parameters={"widht": 4})
        try:
            with joblib.parallel_config(backend):
                cross_val_score(wrong, X, y, cv=2, n_jobs=2, error_score="raise")
        except gc.errors.ArgumentError as error:
            assert "widht" in str(error)
        else:
            raise AssertionError("no error")

if __name__ == "__main__":
    if sys.argv[2] != "default":
        multiprocessing.set_start_method(sys.argv[2])
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("backend", "method"),
    [
        ("loky", "default"),
        ("multiprocessing", "fork"),
        pytest.param("multiprocessing", "spawn", marks=pytest.mark.exhaustive),
    ],
)
def test_searches_and_scores(backend, method, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), backend, method],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert ended(process.pid), "a helper process goes on"


def ended(group: int) -> bool:
    """Whether all processes of a group end within a minute."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
