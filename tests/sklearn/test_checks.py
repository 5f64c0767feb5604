"""All of scikit-learn's own estimator checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from graphc.sklearn import Classifier, Regressor, Transformer

pytestmark = pytest.mark.slow  # most checks compile separate programs

ESTIMATORS = [
    Classifier(learning_rate=0.01, epochs=60),
    Regressor(learning_rate=0.01, epochs=100),
    Transformer(epochs=20),
]
NARROW = [
    Classifier(learning_rate=0.01, epochs=60, dtype="float32"),
    Regressor(learning_rate=0.01, epochs=100, dtype="float32"),
    Transformer(epochs=20, dtype="float32"),
]
# It compares within 1e-7, which is one step of float32.
EXACT = "check_sample_weight_equivalence_on_dense_data"


def assert_passes(estimator, check):
    """Runs a check, which asserts."""
    check(estimator)


@parametrize_with_checks(ESTIMATORS)
def test_a_check_of_scikit_learn(estimator, check):
    assert_passes(estimator, check)


@parametrize_with_checks(NARROW)
def test_a_check_of_scikit_learn_in_float32(estimator, check):
    if getattr(check, "func", check).__name__ == EXACT:
        pytest.skip("it compares more exactly than float32 can represent")
    assert_passes(estimator, check)
