"""Parameters and buffers that a module changes in its forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optax
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import graphc as gc  # noqa: E402
from tests.near import assert_near  # noqa: E402


class Clamped(nn.Module):
    """A parameter that is clamped before or after its use."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first = first
        self.w = nn.Parameter(torch.tensor([[2.0, -3.0], [0.5, 0.25]]))

    def forward(self, x: Any) -> Any:
        y = None if self.first else x @ self.w
        with torch.no_grad():
            self.w.clamp_(-1, 1)
        return x @ self.w if y is None else y


class Teacher(nn.Module):
    """A moving average of another layer's parameters, and a counter that is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(2, 2), nn.Linear(2, 2)
        self.count = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.count.add_(1)
            for old, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
        return self.student(x) - self.teacher(x).detach()


class Last(nn.Module):
    """A buffer that is written and never read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 2))

    def forward(self, x: Any) -> Any:
        self.last.copy_(x)
        return x + 1


class Normed(nn.Module):
    """A norm of the weights whose vectors are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))

    def forward(self, x: Any) -> Any:
        return self.layer(x)


X = torch.tensor([[1.0, 2.0], [-0.5, 3.0]])
MODULES = {
    "clamped first": lambda: Clamped(True),
    "clamped last": lambda: Clamped(False),
    "teacher": Teacher,
    "last": Last,
    "spectral norm": Normed,
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("form", ["module", "file"])
def test_later_calls_see_the_new_values(name: str, form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = MODULES[name]().train()
    given: tuple[Any, ...] = module, (X,)
    if form == "file":
        given = (tmp_path / "module.pt2",)
        torch.export.save(torch.export.export(module, (X,)).run_decompositions({}), given[0])
    alone = gc.from_torch(*given, training=form == "module").to_graph()
    session = gc.Session(alone.graph)
    for _ in range(3):
        (got,) = session.run(list(alone.outputs.values()), {"x": X.numpy()})
        assert_near(got, module.train()(X).detach().numpy(), rtol=1e-5, atol=1e-6)
    want = module.state_dict()
    for key, value in session.values().items():
        assert_near(value, want[key].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("first", [True, False])
def test_training_steps_are_those_of_pytorch(first: bool) -> None:
    """Gradients do not go through the change, which PyTorch allows only without gradients."""
    module = Clamped(first)
    with gc.Graph() as graph:
        x = gc.placeholder((2, 2), name="x")
        y = gc.from_torch(torch.export.export(module, (X,)))(x)
        loss = gc.reduce_sum(y * y)
        train = gc.minimize(loss, optax.sgd(0.05))
    session, optimizer = gc.Session(graph), torch.optim.SGD(module.parameters(), 0.05)
    for _ in range(3):
        found = session.run([loss, train], {x: X.numpy()})[0]
        optimizer.zero_grad()
        want = (module(X) ** 2).sum()
        want.backward()
        optimizer.step()
        assert_near(found, want.detach().numpy(), rtol=1e-5)
        assert_near(session.get("w"), module.w.detach().numpy(), rtol=1e-5)
