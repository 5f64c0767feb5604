"""k-means and a Gaussian mixture (EM), as graphs whose loops end when they converge.

k-means groups handwritten digits without labels. The mixture finds the three normal distributions
from which points in the plane were drawn.

python examples/clustering.py --clusters 10
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import NamedTuple

import digits
import numpy as np

import graphc as gc


class Clusters(NamedTuple):
    """The result of k-means: tensors, or arrays after it has run."""

    centers: gc.Tensor  # [clusters, features]
    nearest: gc.Tensor  # [rows], the nearest center
    inertia: gc.Tensor  # the sum of the squared distances to these
    turns: gc.Tensor


class Mixture(NamedTuple):
    """Normal distributions and their weights."""

    weights: gc.Tensor  # [parts]
    means: gc.Tensor  # [parts, features]
    covariances: gc.Tensor  # [parts, features, features]


# -- k-means -------------------------------------------------------------------------------------


def kmeans(x: gc.Tensor, first: gc.Tensor, max_turns: int = 300) -> Clusters:
    """Lloyd's algorithm on `x` [rows, features], starting with the centers `first`.

    A center without nearest rows does not move.
    """
    count = first.shape[0]

    def turn(state: tuple) -> tuple:
        centers, _, turns = state
        nearest = gc.argmin(squared_distances(x, centers), axis=1)
        sizes = gc.segment_sum(gc.ones_like(nearest, x.dtype), nearest, count)[:, None]
        means = gc.segment_sum(x, nearest, count) / gc.maximum(sizes, 1)
        new = gc.where(sizes > 0, means, centers)
        return new, gc.reduce_any(gc.not_equal(new, centers)), turns + 1

    centers, _, turns = gc.while_loop(
        lambda state: gc.logical_and(state[1], state[2] < max_turns),
        turn,
        (first, gc.constant(True), gc.constant(np.int32(0))),
        name="kmeans",
    )
    distances = squared_distances(x, centers)
    inertia = gc.reduce_sum(gc.reduce_min(distances, axis=1))
    return Clusters(centers, gc.argmin(distances, axis=1), inertia, turns)


def squared_distances(x: gc.Tensor, centers: gc.Tensor) -> gc.Tensor:
    """`[rows, clusters]`: the distance of each row of `x` to each center."""
    products = gc.matmul(x, centers, transpose_b=True)
    own, others = (gc.reduce_sum(gc.square(t), axis=1) for t in (x, centers))
    return own[:, None] - 2.0 * products + others


# -- a Gaussian mixture --------------------------------------------------------------------------


def log_densities(x: gc.Tensor, mixture: Mixture) -> gc.Tensor:
    """`[rows, parts]`: the logarithm of each part's share of the density at each row."""
    features = x.shape[1]
    off = gc.swapaxes(x - mixture.means[:, None, :], 1, 2)  # [parts, features, rows]
    factor = gc.linalg.cholesky(mixture.covariances)
    squares = gc.reduce_sum(gc.square(gc.linalg.triangular_solve(factor, off)), axis=1)
    _, volumes = gc.linalg.slogdet(mixture.covariances)
    logs = -0.5 * (squares + volumes[:, None] + features * math.log(2 * math.pi))
    return gc.transpose(logs + gc.log(mixture.weights)[:, None])


def refit(x: gc.Tensor, shares: gc.Tensor, floor: float) -> Mixture:
    """The mixture that maximizes the likelihood for the `shares` [rows, parts] of each row."""
    sizes = gc.reduce_sum(shares, axis=0)
    means = gc.matmul(shares, x, transpose_a=True) / sizes[:, None]
    off = x - means[:, None, :]  # [parts, rows, features]
    weighted = off * gc.transpose(shares)[:, :, None]
    covariances = gc.matmul(weighted, off, transpose_a=True) / sizes[:, None, None]
    # No part may shrink to a point, since its density would be unbounded.
    smallest = floor * np.eye(x.shape[1], dtype=x.dtype)
    return Mixture(sizes / gc.reduce_sum(sizes), means, covariances + smallest)


def expectation_maximization(
    x: gc.Tensor,
    first: Mixture,
    *,
    tolerance: float = 1e-7,
    max_turns: int = 300,
    floor: float = 1e-6,
) -> tuple[Mixture, gc.Tensor, gc.Tensor]:
    """The mixture that EM finds, its mean log-likelihood, and the number of iterations.

    It ends when an iteration increases the likelihood by less than `tolerance`.
    """

    def turn(state: tuple) -> tuple:
        mixture, likelihood, _, turns = state
        logs = log_densities(x, mixture)
        total = gc.logsumexp(logs, axis=1, keepdims=True)
        new = gc.reduce_mean(total)
        return refit(x, gc.exp(logs - total), floor), new, new - likelihood, turns + 1

    low, far = (gc.constant(np.array(v, x.dtype)) for v in (-np.inf, np.inf))
    mixture, _, _, turns = gc.while_loop(
        lambda state: gc.logical_and(state[2] > tolerance, state[3] < max_turns),
        turn,
        (first, low, far, gc.constant(np.int32(0))),
        name="em",
    )
    likelihood = gc.reduce_mean(gc.logsumexp(log_densities(x, mixture), axis=1))
    return mixture, likelihood, turns


# -- runs ----------------------------------------------------------------------------------------


def start_centers(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`count` distant rows: each is drawn with its squared distance as the weight (k-means++)."""
    rng = np.random.default_rng(seed)
    chosen = [x[rng.integers(len(x))]]
    while len(chosen) < count:
        gaps = np.min([np.sum((x - c) ** 2, axis=1) for c in chosen], axis=0)
        chosen.append(x[rng.choice(len(x), p=gaps / gaps.sum())])
    return np.array(chosen)


def run_kmeans(x: np.ndarray, first: np.ndarray) -> Clusters:
    """k-means on arrays; the result contains arrays too."""
    graph = gc.Graph(name="kmeans")
    with graph:
        rows = gc.placeholder(("rows", x.shape[1]), x.dtype, name="x")
        centers = gc.placeholder(first.shape, x.dtype, name="first")
        clusters = kmeans(rows, centers)
    return Clusters(*map(np.asarray, gc.Session(graph).run(clusters, {rows: x, centers: first})))


TRUTH = Mixture(
    np.array([0.5, 0.3, 0.2]),
    np.array([[0.0, 0.0], [3.0, 1.0], [-1.0, 4.0]]),
    np.array([[[1.0, 0.8], [0.8, 1.0]], [[0.2, 0.0], [0.0, 1.5]], [[1.0, -0.5], [-0.5, 0.4]]]),
)


def draw_points(count: int, seed: int = 0) -> np.ndarray:
    """float64 [count, 2], from the mixture `TRUTH`."""
    rng = np.random.default_rng(seed)
    parts = rng.choice(len(TRUTH.weights), count, p=TRUTH.weights)
    factors = np.linalg.cholesky(TRUTH.covariances)
    normal = rng.standard_normal((count, 2, 1))
    return TRUTH.means[parts] + (factors[parts] @ normal)[..., 0]


def start_mixture(x: np.ndarray, means: np.ndarray) -> Mixture:
    """Parts with equal weights and these `means`, each with the covariance of the whole `x`."""
    count = len(means)
    return Mixture(np.full(count, 1 / count), means, np.stack([np.cov(x.T)] * count))


def run_mixture(x: np.ndarray, first: Mixture) -> tuple[Mixture, float, int]:
    """EM on arrays: the mixture as arrays, the mean log-likelihood and the number of iterations."""
    graph = gc.Graph(name="mixture")
    with graph:
        rows = gc.placeholder(("rows", x.shape[1]), x.dtype, name="x")
        found = expectation_maximization(rows, Mixture(*map(gc.constant, first)))
    mixture, likelihood, turns = gc.Session(graph).run(found, {rows: x})
    return Mixture(*map(np.asarray, mixture)), float(likelihood), int(turns)


def purity(nearest: np.ndarray, labels: np.ndarray, count: int) -> float:
    """The share of the rows whose label is the most frequent one of their cluster."""
    members = [labels[nearest == cluster] for cluster in range(count)]
    return sum(np.bincount(m).max() for m in members if len(m)) / len(labels)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=10, help="of the digits")
    parser.add_argument("--points", type=int, default=2000, help="drawn from the mixture")
    parser.add_argument("--seed", type=int, default=0, help="of the start")
    options = parser.parse_args(argv)

    data = digits.load()
    x = data["x_train"].reshape(-1, 64)
    found = run_kmeans(x, start_centers(x, options.clusters, options.seed))
    right = purity(found.nearest, data["y_train"], options.clusters)
    print(f"k-means: {found.turns} turns, inertia {found.inertia:.1f}, purity {right:.3f}")

    points = draw_points(options.points)
    means = start_centers(points, len(TRUTH.weights), options.seed)
    mixture, likelihood, turns = run_mixture(points, start_mixture(points, means))
    print(f"mixture: {turns} turns, mean log-likelihood {likelihood:.4f}")
    for weight, (x0, x1) in zip(mixture.weights, mixture.means, strict=True):
        near = np.argmin(np.sum((TRUTH.means - (x0, x1)) ** 2, axis=1))
        true, (t0, t1) = TRUTH.weights[near], TRUTH.means[near]
        print(f"  {weight:.3f} at ({x0:+.2f}, {x1:+.2f}), in truth {true} at ({t0:+}, {t1:+})")


if __name__ == "__main__":
    main()
