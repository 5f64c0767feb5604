"""Modules compared with PyTorch node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import graphc as gc  # noqa: E402
from graphc.importers.torch import importer  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        h = torch.relu(self.norm(self.conv(x)))
        h = torch.nn.functional.gelu(h)
        h = nn.functional.dropout(h, 0.5, self.training)
        return torch.softmax(self.head(h.mean((2, 3))), -1)


X = np.random.default_rng(0).normal(size=(2, 1, 6, 6)).astype(np.float32)


def net() -> nn.Module:
    torch.manual_seed(0)
    module = Net().eval()
    module.norm.running_mean.uniform_(-1, 1)
    return module


def test_a_module_agrees_with_pytorch() -> None:
    module = net()
    made = gc.from_torch(module, (torch.as_tensor(X),)).to_graph()
    values = gc.original_values(module, made, {"x": X})
    assert len(values) >= 6
    found = gc.compare(made, values, {"x": X})
    assert found.ok, found.text()
    # The convolution, batch norm, ReLU, GELU, the mean, the linear layer, softmax.
    assert len(found.rows) == 7
    lines = [row.source for row in found.rows]
    assert all(str(line).startswith("test_recording.py:") for line in lines), lines


def test_an_exported_program_agrees_with_pytorch() -> None:
    program = torch.export.export(net(), (torch.as_tensor(X),))
    made = gc.from_torch(program).to_graph()
    values = gc.original_values(program, made, {"x": X})
    assert gc.compare(made, values, {"x": X}).ok


def test_a_wrong_rule_is_named_with_the_line_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(call: Any, x: Any, *, approximate: str = "none") -> Any:
        return gc.nn.gelu(x, approximate=True)

    monkeypatch.setitem(importer.RULES, "aten.gelu.default", wrong)
    module = net()
    made = gc.from_torch(module, (torch.as_tensor(X),)).to_graph()
    found = gc.compare(made, gc.original_values(module, made, {"x": X}), {"x": X})
    assert found.first is not None
    line = int(found.first.source.rpartition(":")[2])
    with open(__file__) as file:
        assert "gelu" in file.readlines()[line - 1]
