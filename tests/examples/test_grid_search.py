"""The grid search over a pipeline with a graphc estimator."""

import sys

import grid_search
import pytest
from sklearn.datasets import load_wine


@pytest.mark.one_jax
def test_a_search_over_one_point():
    grid = {"network__parameters__width": [4], "network__learning_rate": [0.03]}
    found = grid_search.search(grid, epochs=20, jobs=None).fit(*load_wine(return_X_y=True))
    header, best = grid_search.table(found).splitlines()
    assert header.split() == ["accuracy", "fit", "point"]
    assert best.endswith("learning_rate 0.03, width 4")
    assert float(best.split()[0]) > 0.9


@pytest.mark.slow
@pytest.mark.one_jax
def test_it_finds_a_good_network_in_two_processes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["grid_search.py"])
    assert grid_search.main() > 0.9
    assert capsys.readouterr().out.count("point") == 1
