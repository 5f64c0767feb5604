"""Finds the width and the learning rate of a classifier of wines with scikit-learn's grid search.

python examples/grid_search.py --jobs 2

The estimator trains a graph that the function `network` builds. It follows a scaler in a pipeline.
The grid search fits the pipeline for each point of the grid on each of three folds, in two
processes. The folds of one point share their compiled programs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import graphc as gc

GRID: Mapping[str, Sequence[object]] = {
    "network__parameters__width": [4, 16, 64],
    "network__learning_rate": [0.001, 0.01],
}


def network(x: gc.Tensor, outputs: int, width: int, training: bool) -> gc.Tensor:
    """The logits of a hidden layer with dropout; both graphs have the same variables."""
    hidden = gc.nn.Dense(width, activation=gc.nn.gelu, name="hidden")(x)
    hidden = gc.nn.Dropout(0.2)(hidden, training=training)
    return gc.nn.Dense(outputs, name="logits")(hidden)


def search(grid: Mapping[str, Sequence[object]], epochs: int, jobs: int | None) -> GridSearchCV:
    """A search over the points of a grid."""
    classifier = gc.sklearn.Classifier(network, epochs=epochs, batch_size=32, random_state=0)
    pipeline = Pipeline([("scaler", StandardScaler()), ("network", classifier)])
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    return GridSearchCV(pipeline, dict(grid), cv=folds, n_jobs=jobs)


def table(found: GridSearchCV) -> str:
    """The points of the grid and their accuracies, the best first."""
    results = found.cv_results_
    lines = [f"{'accuracy':>16}   {'fit':>6}   point"]
    for i in results["rank_test_score"].argsort(kind="stable"):
        point = ", ".join(f"{k.rpartition('__')[2]} {v}" for k, v in results["params"][i].items())
        accuracy = f"{results['mean_test_score'][i]:.3f} ± {results['std_test_score'][i]:.3f}"
        lines.append(f"{accuracy:>16}   {results['mean_fit_time'][i]:4.2f} s   {point}")
    return "\n".join(lines)


def main() -> float:
    """Prints the table, and the accuracy of the best pipeline on wines that the search did not use;
    returns this accuracy."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--jobs", type=int, default=2, help="the number of processes")
    arguments.add_argument("--epochs", type=int, default=60)
    given = arguments.parse_args()
    wines = load_wine()
    x, x_test, y, y_test = train_test_split(
        wines.data, wines.target, test_size=0.25, stratify=wines.target, random_state=0
    )
    found = search(GRID, given.epochs, given.jobs).fit(x, y)
    print(table(found))
    accuracy = float(found.score(x_test, y_test))
    print(f"\n{len(y_test)} other wines: accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
