"""Training of the TensorFlow 1 graph continues, and its artifact makes equal predictions."""

import sys

import pytest
import tf1_graph


@pytest.mark.slow
def test_the_old_graph_learns_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tf1_graph.py", "--epochs", "4"])
    results = tf1_graph.main()
    assert results["before"] > 0.3
    assert results["after"] > max(0.9, results["before"])
    assert results["artifact"] == results["after"]


def test_the_model_has_the_variables_of_the_old_graph() -> None:
    model = tf1_graph.load()
    assert list(model.inputs) == ["input/batch:0", "input/batch:1", "training"]
    assert "conv1/weights" in model.weights and "softmax/biases" in model.weights
    graph = model.to_graph()
    assert all(variable.trainable for variable in graph.variables.values())
