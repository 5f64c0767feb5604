"""scikit-learn's bundled handwritten digits: 1,797 images of 8x8 pixels, in ten classes."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

SPLIT_SEED = 0
TEST_EXAMPLES = 360


def load(dtype: str = "float32") -> dict[str, np.ndarray]:
    """`x_train [1437, 8, 8, 1]`, `y_train [1437]`, `x_test [360, ...]`, `y_test`.

    Pixels are between 0 and 1. The split is a permutation by `SPLIT_SEED`.
    """
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    x = (images[order] / 16.0).astype(dtype).reshape(-1, 8, 8, 1)
    y = labels[order].astype("int32")
    return {
        "x_train": x[TEST_EXAMPLES:],
        "y_train": y[TEST_EXAMPLES:],
        "x_test": x[:TEST_EXAMPLES],
        "y_test": y[:TEST_EXAMPLES],
    }
