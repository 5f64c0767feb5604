"""Parts of tensors, taken apart and replaced, with sizes that are known only in a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import graphc as gc  # noqa: E402
from tests.near import assert_near  # noqa: E402

Function = Callable[[Any], Any]


def check(function: Function, example: Sequence[int], named: Sequence[int], folder: Path) -> None:
    """Imports the function and its file once, and compares the results and gradients with those of
    PyTorch for several sizes of the named axes."""

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    rows = torch.export.Dim("rows", min=5, max=40)
    dynamic = ({axis: rows for axis in named},) if named else None
    program = torch.export.export(Module(), (torch.zeros(*example),), dynamic_shapes=dynamic)
    torch.export.save(program, folder / "m.pt2")
    for model in (program, folder / "m.pt2"):
        alone = gc.from_torch(model).to_graph()
        (x,), found = alone.inputs.values(), list(alone.outputs.values())
        with alone.graph.extend():
            loss = sum(gc.reduce_sum(y * y) for y in found)
            (dx,) = gc.gradients(loss, [x])
        with gc.Session(alone.graph) as session:
            for size in (5, 6, 9) if named else (None,):
                shape = [size if i in named else n for i, n in enumerate(example)]
                value = torch.randn(*shape, requires_grad=True)
                want = function(value)
                want = list(want) if isinstance(want, (list, tuple)) else [want]
                sum((y * y).sum() for y in want).backward()
                got, slope = session.run([found, dx], {x: value.detach().numpy()})
                assert [y.shape for y in got] == [tuple(y.shape) for y in want]
                for y, wanted in zip(got, want, strict=True):
                    assert_near(y, wanted.detach().numpy(), rtol=1e-6)
                assert_near(slope, value.grad.numpy(), rtol=1e-6)


def changed(change: Function) -> Function:
    """A function that changes a view of its argument's copy."""

    def function(x: Any) -> Any:
        y = x * 1
        change(y)
        return y

    return function


SPLITS: dict[str, tuple[Function, Sequence[int]]] = {
    "chunk": (lambda x: torch.unsafe_chunk(x, 3, 1), [0]),
    "chunk, from the end": (lambda x: torch.unsafe_chunk(x, 3, -2), []),
    "split": (lambda x: torch.unsafe_split(x, 3, 1), [0]),
    "split with sizes": (lambda x: torch.unsafe_split_with_sizes(x, [1, 4, 2], -1), [0]),
    "split with named sizes": (
        lambda x: torch.unsafe_split_with_sizes(x, [2, x.shape[0] - 2], 0),
        [0],
    ),
}


@pytest.mark.parametrize("name", SPLITS)
def test_unsafe_splits(name: str, tmp_path: Path) -> None:
    function, named = SPLITS[name]
    check(function, (8, 7), named, tmp_path)


SCATTERS: dict[str, Function] = {
    "to the end": lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1, x.shape[0]),
    "the last ones": lambda x: torch.slice_scatter(x, x[:3], 0, x.shape[0] - 3, x.shape[0]),
    "all": lambda x: torch.slice_scatter(x, x * 2, 0),
    "from the end": lambda x: torch.slice_scatter(x, x[:3] * 2, 0, -3),
    "between": lambda x: torch.slice_scatter(x, x[2:-1] * 2, 0, 1, -2),
    "far": lambda x: torch.slice_scatter(x, x[2:] * 2, 0, 2, 1 << 62),
    "constant bounds": lambda x: torch.slice_scatter(x, x[:2] * 2, 0, 1, 3),
    "steps": lambda x: torch.slice_scatter(x, x[::2] * 2, 0, 0, x.shape[0], 2),
    "steps from 1": lambda x: torch.slice_scatter(x, x[1::3] * 2, 0, 1, None, 3),
    "steps from the end": lambda x: torch.slice_scatter(x, x[:2] * 2, 0, -4, None, 2),
    "another axis": lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3),
    "select": lambda x: torch.select_scatter(x, x[0] * 2, 0, 2),
    "select from the end": lambda x: torch.select_scatter(x, x[0] * 2, 0, -1),
    "select a named place": lambda x: torch.select_scatter(x, x[0] * 2, 0, x.shape[0] - 2),
    "select a half": lambda x: torch.select_scatter(x, x[0] * 2, 0, x.shape[0] // 2),
    "select a column": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1),
    "a changed slice": changed(lambda y: y[1:-1].mul_(2)),
    "a changed row": changed(lambda y: y[-2].mul_(2)),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_slices_with_named_sizes(name: str, tmp_path: Path) -> None:
    check(SCATTERS[name], (7, 3), [0], tmp_path)


def test_slices_of_known_sizes(tmp_path: Path) -> None:
    """Bounds behind the axis mean its end."""

    def function(x: Any) -> Any:
        return (
            torch.slice_scatter(x, x[-9:] * 2, 0, -9, 9)
            + torch.slice_scatter(x, x[1:9:2] * 2, 0, 1, 9, 2)
            + torch.slice_scatter(x, x[9:], 0, 9, 11)
            + torch.slice_scatter(x, x[3:2], 0, 3, 2)
        )

    check(function, (7, 3), [], tmp_path)


DIAGONALS: dict[str, Function] = {
    "main": lambda x: torch.diagonal_scatter(x, torch.diagonal(x) * 2),
    "above": lambda x: torch.diagonal_scatter(x, torch.diagonal(x, 1) * 2, 1),
    "below": lambda x: torch.diagonal_scatter(x, torch.diagonal(x, -2) * 2, -2),
    "other axes": lambda x: torch.diagonal_scatter(x, torch.diagonal(x, 1, 1, 0) * 2, 1, 1, 0),
    "changed": changed(lambda y: y.diagonal(1).mul_(2)),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_diagonals(name: str, tmp_path: Path) -> None:
    check(DIAGONALS[name], (7, 7), [0, 1], tmp_path)
    check(DIAGONALS[name], (4, 6), [], tmp_path)
    check(DIAGONALS[name], (6, 4), [], tmp_path)


def test_diagonals_of_a_batch(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        return torch.diagonal_scatter(x, torch.diagonal(x, -1, 2, 1) * 2, -1, 2, 1)

    check(function, (6, 3, 4), [0], tmp_path)
