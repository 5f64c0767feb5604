"""k-means and EM compared with NumPy and scikit-learn, from equal initial values."""

import clustering
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture

from tests.near import assert_near


def lloyd(x: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, int]:
    """k-means in NumPy: the final centers, and the number of iterations until convergence."""
    for turn in range(1, 300):
        nearest = np.argmin(((x[:, None] - centers) ** 2).sum(-1), axis=1)
        new = centers.copy()
        for cluster in np.unique(nearest):
            new[cluster] = x[nearest == cluster].mean(axis=0)
        if np.array_equal(new, centers):
            return centers, turn
        centers = new
    raise AssertionError("it did not end")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return load_digits().data[:600]  # float64


def test_kmeans_is_that_of_numpy_and_scikit_learn(images: np.ndarray) -> None:
    first = clustering.start_centers(images, 10, seed=0)
    found = clustering.run_kmeans(images, first)
    centers, _ = lloyd(images, first)
    assert_near(found.centers, centers, rtol=1e-7, atol=1e-9)
    other = KMeans(10, init=first, n_init=1, tol=0, algorithm="lloyd").fit(images)
    np.testing.assert_array_equal(found.nearest, other.labels_)
    assert found.inertia == pytest.approx(other.inertia_, rel=1e-9)


def test_the_loop_ends_when_nothing_moves() -> None:
    x = np.array([[0.0], [1.0], [10.0], [11.0]])
    found = clustering.run_kmeans(x, np.array([[0.0], [1.0]]))
    assert found.turns == lloyd(x, np.array([[0.0], [1.0]]))[1]
    np.testing.assert_array_equal(found.centers, [[0.5], [10.5]])


def test_a_centre_without_rows_stays() -> None:
    x = np.array([[0.0], [2.0]])
    found = clustering.run_kmeans(x, np.array([[1.0], [50.0]]))
    np.testing.assert_array_equal(found.centers, [[1.0], [50.0]])


def em(x: np.ndarray, mixture: clustering.Mixture, turns: int) -> clustering.Mixture:
    """The given number of EM iterations in NumPy, step by step."""
    for _ in range(turns):
        shares = []
        for weight, mean, covariance in zip(*mixture, strict=True):
            off = x - mean
            squares = np.einsum("ni,ij,nj->n", off, np.linalg.inv(covariance), off)
            volume = np.sqrt(np.linalg.det(2 * np.pi * covariance))
            shares.append(weight * np.exp(-squares / 2) / volume)
        shares = np.array(shares) / np.sum(shares, axis=0)
        means = [s @ x / s.sum() for s in shares]
        covariances = [
            (s[:, None] * (x - m)).T @ (x - m) / s.sum() + 1e-6 * np.eye(x.shape[1])
            for s, m in zip(shares, means, strict=True)
        ]
        weights = shares.sum(1) / len(x)
        mixture = clustering.Mixture(weights, np.array(means), np.array(covariances))
    return mixture


def test_the_mixture_is_that_of_numpy_and_scikit_learn() -> None:
    x = clustering.draw_points(400)
    first = clustering.start_mixture(x, clustering.start_centers(x, 3, seed=0))
    found, likelihood, turns = clustering.run_mixture(x, first)
    for mine, his in zip(found, em(x, first, turns), strict=True):
        assert_near(mine, his, rtol=1e-7, atol=1e-9)
    other = GaussianMixture(
        3,
        tol=1e-7,
        max_iter=300,
        weights_init=first.weights,
        means_init=first.means,
        precisions_init=np.linalg.inv(first.covariances),
    ).fit(x)
    assert likelihood == pytest.approx(other.score(x), abs=1e-5)
    assert_near(found.means, other.means_, rtol=1e-7, atol=5e-3)


def test_the_mixture_finds_what_the_points_were_drawn_from() -> None:
    x = clustering.draw_points(3000)
    first = clustering.start_mixture(x, clustering.start_centers(x, 3, seed=0))
    found, _, _ = clustering.run_mixture(x, first)
    order = [np.argmin(np.sum((found.means - m) ** 2, axis=1)) for m in clustering.TRUTH.means]
    for mine, truth in zip(found, clustering.TRUTH, strict=True):
        assert_near(mine[order], truth, rtol=1e-7, atol=0.15)


def test_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    clustering.main(["--points", "500"])
    output = capsys.readouterr().out
    assert float(output.split("purity ")[1].split()[0]) > 0.7
    assert "mean log-likelihood -3." in output
