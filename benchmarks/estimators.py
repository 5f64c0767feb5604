"""`gc.sklearn.Classifier` compared with scikit-learn's `MLPClassifier` on digits.

Both have one hidden layer of 100 units, batches of 200 rows, 200 epochs, Adam at 0.001 and equal
feature dtypes; neither stops early. One process fits once with an empty cache of compiled programs.
Another one with that cache fits all seeds: both get the same split for each seed, in turn.

scikit-learn gets the number of BLAS threads with which it is faster: more than one thread slows it
down a lot if other processes use the cores.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import graphc as gc
from benchmarks.children import answer_of

Row = tuple[str, str, str]
Fit = dict[str, float]
Times = tuple[float, float]
SEEDS = 20
EPOCHS, BATCH, HIDDEN = 200, 200, 100


def rows() -> Iterator[Row]:
    """First fits, later fits and accuracy, with features of float64 and of float32."""
    for dtype in ("float64", "float32"):
        with tempfile.TemporaryDirectory() as cache:
            (cold,) = _fits_in_a_process(dtype, cache, 1)
            fits = _fits_in_a_process(dtype, cache, SEEDS)
        first, *later = fits
        theirs = statistics.median(fit["theirs"] for fit in fits)
        yield _row(f"{dtype}: first fit, nothing compiled before", cold["ours"], theirs)
        yield _row(f"{dtype}: first fit of a process", first["ours"], theirs)
        for what, key, target in (
            ("later fit", "", "at most 0.50"),
            ("later fit, CPU time of all threads", "_cpu", ""),
        ):
            ours = statistics.median(fit[f"ours{key}"] for fit in later)
            ratio = statistics.median(fit[f"ours{key}"] / fit[f"theirs{key}"] for fit in later)
            yield _row(f"{dtype}: {what}", ours, ours / ratio, target)
        yield _accuracy(dtype, fits)


def _accuracy(dtype: str, fits: list[Fit]) -> Row:
    ours, theirs = [np.array([fit[key] for fit in fits]) for key in ("accuracy", "their_accuracy")]
    difference = ours - theirs
    error = difference.std(ddof=1) / np.sqrt(len(fits))
    return (
        f"{dtype}: accuracy on 360 images, mean of {len(fits)} splits",
        f"{ours.mean():.4f}, scikit-learn {theirs.mean():.4f}: {difference.mean():+.4f} with a "
        f"standard error of {error:.4f}",
        "no worse",
    )


def _row(what: str, ours: float, theirs: float, target: str = "") -> Row:
    return what, f"{ours / theirs:.2f} ({ours:.2f} / {theirs:.2f} s)", target


def _fits_in_a_process(dtype: str, cache: str, seeds: int) -> list[Fit]:
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    found: list[Fit] = answer_of(
        "benchmarks.estimators", dtype, str(seeds), environment=environment
    )
    return found


def fits(dtype: str, seeds: int) -> list[Fit]:
    """Times and accuracies for each seed, in the order of the runs."""
    features, labels = load_digits(return_X_y=True)
    features = (features / 16).astype(dtype)
    threads = min((1, None), key=lambda count: _fit(_theirs(0, 20), features, labels, count))
    found = []
    for seed in range(seeds):
        x, x_test, y, y_test = train_test_split(
            features, labels, test_size=0.2, stratify=labels, random_state=seed
        )
        ours, theirs = _ours(seed), _theirs(seed)
        (our_time, our_cpu), (time, cpu) = _fit(ours, x, y), _fit(theirs, x, y, threads)
        found.append(
            {
                "ours": our_time,
                "ours_cpu": our_cpu,
                "theirs": time,
                "theirs_cpu": cpu,
                "accuracy": ours.score(x_test, y_test),
                "their_accuracy": theirs.score(x_test, y_test),
            }
        )
    return found


def _ours(seed: int) -> gc.sklearn.Classifier:
    return gc.sklearn.Classifier(
        parameters={"hidden": HIDDEN}, epochs=EPOCHS, batch_size=BATCH, random_state=seed
    )


def _theirs(seed: int, epochs: int = EPOCHS) -> MLPClassifier:
    return MLPClassifier(
        (HIDDEN,), batch_size=BATCH, max_iter=epochs, n_iter_no_change=epochs, random_state=seed
    )


def _fit(model: Any, x: np.ndarray, y: np.ndarray, threads: int | None = None) -> Times:
    """The time of a fit and its CPU time, with a number of BLAS threads or the default number."""
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it runs all epochs, as intended
        begin, cpu = perf_counter(), process_time()
        model.fit(x, y)
        return perf_counter() - begin, process_time() - cpu


if __name__ == "__main__":
    print(json.dumps(fits(sys.argv[1], int(sys.argv[2]))))
