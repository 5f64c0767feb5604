"""Parameters and buffers that a module changes in its forward pass."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import optax
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import graphc as gc  # noqa: E402
from graphc.errors import ModelImportError  # noqa: E402
from graphc.importers.torch.regions import with_marks  # noqa: E402
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


class Weights(nn.Module):
    """Two parameters and a buffer, which a function uses and changes."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.w, self.v = (nn.Parameter(torch.tensor([1.0, 2.0, 3.0])) for _ in range(2))
        self.register_buffer("b", torch.tensor([1.0, 2.0, 3.0]))
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def _clamped(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.w.clamp_(-1, 1)
    return x * m.w * m.v


def _clamped_after(m: Any, x: Any) -> Any:
    y = x * m.w
    with torch.no_grad():
        m.w.clamp_(-1, 1)
    return y


def _copied(m: Any, x: Any) -> Any:
    """What is copied keeps its own gradient."""
    y, z = x * m.v, x * m.w.detach()
    with torch.no_grad():
        m.w.copy_(y)
    return y * y + m.v + z * 0


def _only_copied(m: Any, x: Any) -> Any:
    y = x * m.v
    with torch.no_grad():
        m.w.copy_(y)
    return y * y


def _copied_and_used(m: Any, x: Any) -> Any:
    """What is copied has no gradient; the parameter has one."""
    with torch.no_grad():
        y = x * m.v
        m.w.copy_(y)
        z = y * 2
    return m.w * m.v + z


def _synchronised(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.w.copy_(m.v)
    return x * m.w * 3 + m.v * 0.1


def _of_the_input(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.w.copy_(x)
    return m.w * m.v


def _rows(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.w[0].fill_(5.0)
        m.w[1:].mul_(0.5)
    return x * m.w * m.v


def _unused_gradient(m: Any, x: Any) -> Any:
    with torch.no_grad():
        t = x * m.w
        with torch.enable_grad():
            u = m.v * m.w
        t = t * 2
    return t * m.w + u


def _averaged(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.b.mul_(0.9).add_(x * m.v, alpha=0.1)
    return x * m.w * m.b + m.v


def _repaired(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.w.nan_to_num_(0.0, 5.0, -5.0)
    return x * m.w + m.v


CHANGES = [
    *(_clamped, _clamped_after, _copied, _only_copied, _synchronised, _of_the_input, _rows),
    *(_unused_gradient, _averaged, _repaired, _copied_and_used),
]


@pytest.mark.parametrize("function", CHANGES)
@pytest.mark.parametrize("form", ["module", "program"])
def test_training_steps_are_those_of_pytorch(function: Any, form: str) -> None:
    """Nothing has a gradient through a region without gradients. What uses the new value of a
    parameter has the gradient of the parameter."""
    module, x = Weights(function), torch.tensor([1.0, 2.0, 3.0])
    if function is _repaired:
        with torch.no_grad():
            module.w.copy_(torch.tensor([1.0, float("nan"), float("inf")]))
    same = copy.deepcopy(module)
    given = (module, (x,)) if form == "module" else (torch.export.export(module, (x,)),)
    nodes = [] if form == "module" else [str(n) for n in given[0].graph.nodes]
    with gc.Graph() as graph:
        fed = gc.placeholder((3,), name="x")
        loss = gc.reduce_sum(gc.from_torch(*given)(fed))
        train = gc.minimize(loss, optax.sgd(0.01))
    if form == "program":
        assert [str(n) for n in given[0].graph.nodes] == nodes  # the user's program is the same
    session, optimizer = gc.Session(graph), torch.optim.SGD(same.parameters(), 0.01)
    for _ in range(3):
        found = session.run([loss, train], {fed: x.numpy()})[0]
        optimizer.zero_grad()
        want = same(x).sum()
        want.backward()
        optimizer.step()
        assert_near(found, want.detach().numpy(), rtol=1e-5)
    for name, value in session.values().items():
        assert_near(value, same.state_dict()[name].numpy(), rtol=1e-5)


def test_the_copy_of_a_program_shares_its_weights() -> None:
    program = torch.export.export(Weights(_clamped), (torch.ones(3),))
    marked = with_marks(program, is_own=False)
    assert marked is not program
    assert all(marked.state_dict[name] is value for name, value in program.state_dict.items())


@pytest.mark.parametrize("old", [True, False])
def test_gradients_of_spectral_norm(old: bool) -> None:
    torch.manual_seed(0)
    normed = nn.utils.spectral_norm if old else nn.utils.parametrizations.spectral_norm
    module = normed(nn.Linear(2, 3)).train()
    with gc.Graph() as graph:
        x = gc.placeholder((2, 2), name="x")
        loss = gc.reduce_sum(gc.from_torch(module, (X,), training=True)(x) ** 2)
        name = next(n for n in graph.variables if n.endswith(("original", "weight_orig")))
        (slope,) = gc.gradients(loss, [graph.variables[name]])
    found = gc.Session(graph).run(slope, {x: X.numpy()})
    (module.train()(X) ** 2).sum().backward()
    want = dict(module.named_parameters())[name].grad
    assert_near(found, want.numpy(), rtol=1e-4)


def test_a_parameter_that_changes_twice_is_refused() -> None:
    def twice(m: Any, x: Any) -> Any:
        with torch.no_grad():
            m.w.mul_(0.5)
        y = x * m.w
        with torch.no_grad():
            m.w.mul_(0.5)
        return y + x * m.w

    with pytest.raises(ModelImportError, match="changes its parameter 'w' twice"):
        gc.from_torch(Weights(twice), (torch.ones(3),))
    module = Weights(twice)
    module.w.requires_grad_(False)
    assert gc.from_torch(module, (torch.ones(3),)).to_graph().variables["w"].trainable is False
