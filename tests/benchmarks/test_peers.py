"""The benchmarks' networks are equal in PyTorch and TensorFlow, if those are installed."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import pytest

from benchmarks import peers
from benchmarks.cpu import jax_network, same_losses
from benchmarks.networks import alexnet, data, mlp, resnet50

STAGES = ((8, 1), (8, 2))
SMALL = {
    "resnet50": lambda: resnet50(32, 10, STAGES),
    "alexnet": lambda: alexnet(63, 10),
    "mlp": mlp,
}


def test_no_rows_without_peers(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(peers, "installed", list)
    assert not list(peers.rows())
    assert capsys.readouterr().err.splitlines() == [
        "PyTorch eager is not installed: no rows",
        "TensorFlow is not installed: no rows",
    ]


@pytest.mark.parametrize("module", peers.PEERS)
@pytest.mark.parametrize("name", SMALL)
def test_same_losses(name: str, module: str, monkeypatch: Any) -> None:
    if module not in peers.installed():
        pytest.skip(f"{module} is not installed")
    theirs = importlib.import_module(f"benchmarks.peers_{module}")
    monkeypatch.setitem(theirs.MODELS, "resnet50", partial(theirs.resnet50, stages=STAGES))
    network = SMALL[name]()
    x, y = data(network, 4)
    steps = {"jax": jax_network(network, x, y, 1), **theirs.forms(name, network, x, y, 1)}
    for _ in range(3):
        same_losses(steps, rtol=1e-3)
