"""`benchmarks/zoo_torch.py`: what it says about a model, and which models it tries again."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import zoo_torch as zoo  # noqa: E402
from benchmarks import zoo_torch_transformers as sizes  # noqa: E402


@pytest.fixture(autouse=True)
def without_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export
        yield


class Net(torch.nn.Module):
    """A layer, in float32 whatever the model's dtype, and a parameter that starts as zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.scale = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: Any) -> Any:
        hidden = self.linear(x)
        return torch.tanh(hidden.to(torch.float32)).to(hidden.dtype) * self.scale


def make() -> Any:
    return Net(), (torch.randn(2, 3),), {}


def test_a_model_that_agrees_is_ok_and_trains() -> None:
    assert zoo.forward(make, 100) == "ok"
    assert zoo.trained(make, 100) == "trained"
    assert zoo.trained(make, 10) == ""
    assert zoo.forward(make, 10).startswith("skipped: 0 million")


def test_constants_get_noise() -> None:
    model, _, _ = zoo.made(make)
    assert float(model.scale.abs().min()) > 0


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc import ops
    from graphc.importers.torch import importer

    wrong = {**importer.RULES, "aten.tanh.default": lambda call, x: ops.multiply(x, 0.9)}
    monkeypatch.setattr(importer, "RULES", wrong)
    assert re.fullmatch(r"error \S+, in float64 [1-9]\.\de-0[12]", zoo.forward(make, 100))
    said = zoo.trained(make, 100)
    assert re.match(r"trained with error [1-9]\.\de-0[1-4] of .* in the last bit: \S+e-1\d", said)


def test_what_pytorch_cannot_do_is_left_out() -> None:
    def branches() -> Any:
        class Branch(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return x if float(x.sum()) > 0 else -x

        return Branch(), (torch.ones(2),), {}

    assert zoo.forward(branches, 100).startswith("no export: ")
    assert zoo.forward(lambda: 1 / 0, 100).startswith("skipped: ZeroDivisionError")  # type: ignore


def test_distance() -> None:
    inf, nan = float("inf"), float("nan")
    assert zoo.distance(np.array([1.0, inf, nan]), np.array([2.0, inf, nan])) == 0.5
    assert zoo.distance(np.array([1.0, 0.0]), np.array([1.0, inf])) == inf
    assert zoo.distance(np.array([nan, 1.0]), np.array([1.0, 1.0])) == inf
    assert zoo.distance(np.zeros(0), np.zeros(0)) == 0


@pytest.mark.parametrize(
    ("arguments", "again"),
    [
        ((), {"not reached"}),
        (("--failed",), {"not reached", "error 1"}),
        (("--steps",), {"not reached", "ok"}),
        (("--steps", "--failed"), {"not reached", "ok", "ok, trained with error 1"}),
        (("--only", "timm"), set()),
    ],
)
def test_which_are_tried(arguments: tuple[str, ...], again: set[str]) -> None:
    options = zoo.options_of(list(arguments))
    known = [
        "not reached",
        "ok",
        "ok, trained",
        "ok, trained with error 1",
        "error 1",
        "skipped: x",
    ]
    assert {done for done in known if zoo.wanted("torchvision/a", done, options)} == again


def test_small_configurations_are_nested_and_joined() -> None:
    transformers = pytest.importorskip("transformers")
    found = sizes.small(transformers.CLIPConfig, ("patch_size",))
    assert found["text_config"]["hidden_size"] == 32 == found["vision_config"]["hidden_size"]
    assert "patch_size" not in found["vision_config"]
    own = sizes.merged(found, {"text_config": {"vocab_size": 7}})
    assert own["text_config"]["vocab_size"] == 7 and own["text_config"]["hidden_size"] == 32
