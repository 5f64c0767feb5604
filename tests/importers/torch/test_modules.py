"""PyTorch modules: names, buffers, training, named sizes, files, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import graphc as gc  # noqa: E402
from graphc.errors import ArgumentError, ModelFileError, ModelImportError  # noqa: E402
from tests.near import assert_near  # noqa: E402


class Net(nn.Module):
    """Convolution, batch norm, a counter in a buffer, and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.head.bias.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3)))


BATCH = torch.export.Dim("batch", min=1, max=1024)


def double() -> Any:
    torch.manual_seed(0)
    return Net().double()


def test_names_are_those_of_the_state_dict() -> None:
    module = double()
    layer = gc.from_torch(module, (torch.randn(2, 1, 5, 5).double(),), dynamic_shapes=({0: BATCH},))
    assert str(layer.inputs["x"].shape[0]) == "batch"
    alone = layer.to_graph()
    used = {n for n in module.state_dict() if n != "norm.num_batches_tracked"}
    assert set(alone.graph.variables) == used == set(alone.variables)
    trainable = {v.name for v in alone.variables.values() if v.trainable}
    assert trainable == {n for n, p in module.named_parameters() if p.requires_grad}
    for count in (1, 7):
        x = torch.randn(count, 1, 5, 5).double()
        with gc.Session(alone.graph) as session:
            got = session.run(alone.outputs["output_0"], {alone.inputs["x"]: x.numpy()})
        assert_near(got, module.eval()(x).detach().numpy(), rtol=1e-9)
    chosen = gc.from_torch(module, (x,), trainable="head.*").to_graph()
    assert [v.name for v in chosen.variables.values() if v.trainable] == [
        "head.weight",
        "head.bias",
    ]


def test_ten_steps_of_training_equal_those_of_pytorch_and_go_back() -> None:
    """Compares parameters, moving averages and counters; then writes them back to the module."""
    module = double()
    x, y = torch.randn(6, 1, 5, 5).double(), torch.randint(0, 3, (6,))
    layer = gc.from_torch(module, (x,), training=True)
    with gc.Graph() as graph:
        images = gc.placeholder(("batch", 1, 5, 5), "float64", name="images")
        logits = gc.from_torch(module, (x,), training=True, dynamic_shapes=({0: BATCH},))(images)
        labels = gc.placeholder(("batch",), "int32", name="labels")
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=labels))
        train = gc.minimize(loss, optax.adamw(1e-2, weight_decay=0.01))
    assert list(layer.outputs) == ["output_0"]
    module.train()
    chosen = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(chosen, lr=1e-2, weight_decay=0.01)
    with gc.Session(graph) as session:
        for _ in range(10):
            session.run(train, {images: x.numpy(), labels: y.numpy().astype(np.int32)})
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
        for name, value in module.state_dict().items():
            got = np.asarray(session.get(name))
            assert_near(got, value.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
        again = double()
        found = {name: torch.from_numpy(np.array(session.get(name))) for name in again.state_dict()}
    again.load_state_dict(found)
    assert_near(again.eval()(x).detach(), module.eval()(x).detach(), rtol=1e-9)


def test_dropout_draws_from_the_streams_of_the_graph() -> None:
    module = nn.Sequential(nn.Dropout(0.5))
    x = torch.ones(1000)
    alone = gc.from_torch(module, (x,), training=True).to_graph(seed=3)
    with gc.Session(alone.graph) as session:
        a, b = (
            np.asarray(session.run(alone.outputs["output_0"], {alone.inputs["input"]: x.numpy()}))
            for _ in range(2)
        )
    assert not np.array_equal(a, b) and set(np.unique(a)) == {0.0, 2.0}
    assert 400 < (a == 0).sum() < 600
    alone = gc.from_torch(module, (x,)).to_graph()
    with gc.Session(alone.graph) as session:
        same = session.run(alone.outputs["output_0"], {alone.inputs["input"]: x.numpy()})
    np.testing.assert_array_equal(same, x.numpy())


def test_results_in_nests_and_keyword_arguments() -> None:
    class Nested(nn.Module):
        def forward(self, x: Any, *, scale: Any) -> Any:
            return {"twice": x * 2, "both": (x, x * scale)}

    x = torch.arange(3.0)
    layer = gc.from_torch(Nested(), (x,), {"scale": torch.tensor(5.0)})
    with gc.Graph() as graph:
        found = layer(gc.constant(x.numpy()), scale=np.float32(5))
    with gc.Session(graph) as session:
        got = session.run(found)
    np.testing.assert_array_equal(got["both"][1], [0, 5, 10])
    np.testing.assert_array_equal(got["twice"], [0, 2, 4])


def test_tied_weights_are_one_variable() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.embed(ids))

    module = Tied()
    alone = gc.from_torch(module, (torch.tensor([1, 2]),)).to_graph()
    assert len(alone.graph.variables) == 1
    session = gc.Session(alone.graph)
    for name in alone.graph.variables:
        session.set(name, np.ones((5, 4), np.float32))
    values = {n: torch.from_numpy(np.array(session.get(n))) for n in alone.graph.variables}
    module.load_state_dict(values, strict=False)  # as the guide has it
    np.testing.assert_array_equal(module.head.weight.detach().numpy(), np.ones((5, 4)))


def test_groups_of_rows_and_their_counts() -> None:
    """A mixture of experts has such groups."""

    class Experts(nn.Module):
        def forward(self, x: Any, w: Any, groups: Any) -> Any:
            counts = torch.histc(groups.float(), bins=3, min=0, max=2)
            ends = counts.cumsum(0).to(torch.int32)
            return counts, torch._grouped_mm(x, w, ends)

    groups = torch.tensor([0, 0, 2, 2, 2])
    x, w = torch.randn(5, 8).bfloat16(), torch.randn(3, 8, 16).bfloat16()
    alone = gc.from_torch(Experts(), (x, w, groups)).to_graph()
    feeds = [np.asarray(x.float()), np.asarray(w.float()), groups.numpy()]
    feeds = [f.astype(t.dtype) for f, t in zip(feeds, alone.inputs.values(), strict=True)]
    with gc.Session(alone.graph) as session:
        counts, rows = session.run(
            list(alone.outputs.values()), dict(zip(alone.inputs.values(), feeds, strict=True))
        )
    np.testing.assert_array_equal(counts, [2, 0, 3])
    want = torch.cat([x[:2].float() @ w[0].float(), x[2:].float() @ w[2].float()])
    assert_near(np.asarray(rows, np.float32), want.numpy(), rtol=0.02, atol=0.05)


class _Spectrum(nn.Module):
    """Operators whose decompositions have operators that must be decomposed, too."""

    def forward(self, x: Any) -> Any:
        window = torch.hann_window(8, dtype=x.dtype)
        spectrum = torch.stft(x, 8, window=window, return_complex=True)
        return spectrum.abs(), torch.istft(2 * spectrum, 8, window=window)


def test_decompositions_of_decompositions() -> None:
    module, x = _Spectrum(), torch.randn(2, 32).double()
    alone = gc.from_torch(module, (x,)).to_graph()
    found = gc.Session(alone.graph).run(list(alone.outputs.values()), {"x": x.numpy()})
    for mine, theirs in zip(found, module(x), strict=True):
        assert_near(mine, theirs.numpy(), 1e-10, 1e-10)


def test_sizes_are_computed_with_their_names() -> None:
    class Sizes(nn.Module):
        def forward(self, x: Any) -> Any:
            n, t = x.shape
            return x.reshape(n * t) / t, torch.arange(t) + n

    time = torch.export.Dim("time", min=2, max=99)
    layer = gc.from_torch(Sizes(), (torch.ones(2, 3),), dynamic_shapes=({0: BATCH, 1: time},))
    alone = layer.to_graph()
    assert str(alone.outputs["output_0"].shape[0]) == "batch*time"
    x = np.ones((4, 5), np.float32)
    with gc.Session(alone.graph) as session:
        got = session.run(list(alone.outputs.values()), {alone.inputs["x"]: x})
    assert_near(got[0], x.reshape(-1) / 5, rtol=1e-6)
    np.testing.assert_array_equal(got[1], np.arange(5) + 4)


def test_all_that_is_missing_with_the_lines_of_the_model() -> None:
    class Missing(nn.Module):
        def forward(self, x: Any) -> Any:
            a = torch.linalg.svdvals(x)
            return a, torch.nonzero(x), torch.geqrf(x)

    with pytest.raises(ModelImportError) as caught:
        gc.from_torch(Missing(), (torch.ones(3, 3),))
    text = str(caught.value)
    assert "aten.geqrf.default is not imported" in text and "test_modules.py:" in text
    assert "aten.nonzero.default has a result whose size depends on values" in text


def test_parts_whose_sizes_depend_on_values_are_refused() -> None:
    """As in a mixture of experts that splits its rows by counts."""

    class Experts(nn.Module):
        def forward(self, x: Any, counts: Any) -> Any:
            first, second = x.split(counts.tolist())
            return first.sum() + second.sum()

    with pytest.raises(ModelImportError, match="into sizes that depend on values"):
        gc.from_torch(Experts(), (torch.ones(5, 2), torch.tensor([2, 3])))


def test_strides_of_a_part_of_a_tensor_are_refused() -> None:
    class Strided(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[:, 1:].as_strided((2, 2), (2, 1), 0)

    with pytest.raises(ModelImportError, match="of a tensor with gaps"):
        gc.from_torch(Strided(), (torch.ones(3, 3),))


def test_nodes_carry_the_line_of_the_model() -> None:
    alone = gc.from_torch(double(), (torch.randn(2, 1, 5, 5).double(),)).to_graph()
    sources = {str(node.source) for node in alone.graph.nodes}
    assert any(source.startswith("test_modules.py:") for source in sources)


class _Unused(nn.Module):
    """Computes a result that nobody uses."""

    def forward(self, x: Any) -> Any:
        torch.sin(x)
        return x.exp()


class _InPlace(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x + 1).relu_()


class _Tracking(nn.Module):
    """A batch norm in training mode whose counter is not in the graph: only its schema, which does
    not say so, would show the change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("var", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return nn.functional.batch_norm(x, self.mean, self.var, training=True)


@pytest.mark.parametrize(
    ("module", "times"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.GELU(), nn.Dropout(0.5)), 0),
        (_Unused(), 0),
        (_InPlace(), 1),
        (_Tracking(), 1),
    ],
)
def test_a_program_is_traced_again_only_if_it_changes_tensors(
    module: Any, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = module.double(), torch.randn(4, 3).double()
    calls: list[Any] = []
    real = torch.export.ExportedProgram.run_decompositions
    monkeypatch.setattr(
        torch.export.ExportedProgram,
        "run_decompositions",
        lambda program, *args: calls.append(args) or real(program, *args),
    )
    alone = gc.from_torch(module.eval(), (x,)).to_graph()
    assert len(calls) == times
    session = gc.Session(alone.graph)
    (given,) = alone.inputs.values()
    (found,) = session.run(list(alone.outputs.values()), {given: x.numpy()})
    with torch.no_grad():
        assert_near(found, module(x).numpy(), 1e-12)


class _UnusedWithoutGradient(nn.Module):
    """A part that is given to a region without gradients, which uses only its size."""

    def forward(self, x: Any) -> Any:
        x = torch.cat((x, x))
        part = x[1:]
        with torch.no_grad():
            places = torch.arange(part.shape[0], dtype=x.dtype)
        return x.exp() + places.sum()


def test_a_part_of_which_a_region_without_gradients_needs_only_the_size() -> None:
    """torch.export forgets that the part, which becomes unused, uses the whole."""
    module, x = _UnusedWithoutGradient(), torch.randn(4, 3)
    alone = gc.from_torch(module, (x,)).to_graph()
    (found,) = gc.Session(alone.graph).run(list(alone.outputs.values()), {"x": x.numpy()})
    assert_near(found, module(x).numpy(), 1e-6, 1e-6)


class _OnlyTracking(_Tracking):
    def forward(self, x: Any) -> Any:
        super().forward(x)
        return x.exp()


@pytest.mark.parametrize("kind", [_Tracking, _OnlyTracking])
def test_changed_averages_are_updates(kind: type[_Tracking]) -> None:
    module, x = kind().double(), torch.randn(4, 3).double()
    alone = gc.from_torch(module, (x,)).to_graph()
    session = gc.Session(alone.graph)
    session.run([*alone.outputs.values(), *alone.updates], {"x": x.numpy()})
    module(x)
    for name, buffer in module.named_buffers():
        assert_near(session.get(name), buffer.numpy(), 1e-12)


def test_an_instance_norm_that_changes_its_averages_is_refused() -> None:
    module, x = nn.InstanceNorm2d(3, track_running_stats=True), torch.randn(2, 3, 4, 4)
    with pytest.raises(ModelImportError, match="changes its moving averages"):
        gc.from_torch(module, (x,), training=True)
    alone = gc.from_torch(module, (x,)).to_graph()
    (found,) = gc.Session(alone.graph).run(list(alone.outputs.values()), {"input": x.numpy()})
    with torch.no_grad():
        assert_near(found, module.eval()(x).numpy(), 1e-5)


def test_a_saved_program(tmp_path: Path) -> None:
    module = double().eval()
    x = torch.randn(2, 1, 5, 5).double()
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    for source in (tmp_path / "m.pt2", torch.export.load(tmp_path / "m.pt2")):
        alone = gc.from_torch(source).to_graph()
        with gc.Session(alone.graph) as session:
            got = session.run(alone.outputs["output_0"], {alone.inputs["x"]: x.numpy()})
        assert_near(got, module(x).detach().numpy(), rtol=1e-9)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="example inputs, which are missing"):
        gc.from_torch(double())
    with pytest.raises(ArgumentError, match=r"takes a torch\.nn\.Module"):
        gc.from_torch(3)
    with pytest.raises(ModelFileError, match="cannot be read: No such file"):
        gc.from_torch(tmp_path / "m.pt2")
    with pytest.raises(ModelFileError, match=r"is of torch\.save, which"):
        (tmp_path / "m.pt").write_bytes(b"")
        gc.import_model(tmp_path / "m.pt")

    class Decides(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelImportError, match=r"torch\.export cannot export Decides"):
        gc.from_torch(Decides(), (torch.ones(3),))


def test_a_program_that_pytorch_cannot_make_functional_is_one_error() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                self.a.weight.mul_(0.5)
            return self.b(self.a(x))

    with pytest.raises(ModelImportError, match=r"cannot make the exported program functional"):
        gc.from_torch(Tied(), (torch.ones(1, 3),))
