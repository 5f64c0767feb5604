"""`memory_limit` of a saved program: every form of the program observes it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.artifacts import container
from graphc.errors import ArtifactCorruptError, ArtifactError
from graphc.runtime.pipeline.fitting import taken_by
from tests.artifacts.forge import entry, forge
from tests.near import assert_near

pytestmark = [
    pytest.mark.slow,
    pytest.mark.one_jax,
    pytest.mark.xdist_group("saved within a limit"),  # one process runs the expensive fixture
]

BLOCKS, ROWS, WIDTH = 8, 256, 16
X = np.random.default_rng(1).normal(size=(ROWS, WIDTH))
PLACED = {"one": None, "replicas": gc.devices.DataParallel(2)}


def graph_of_blocks() -> gc.Graph:
    """Residual blocks, which are rolled: their activations are larger than their parameters."""
    with gc.Graph(seed=0, name="blocks") as graph:
        x = h = gc.placeholder(("batch", WIDTH), "float64", name="x")
        for i in range(BLOCKS):
            with gc.name_scope(f"block{i}"):
                wide = gc.tanh(gc.nn.Dense(4 * WIDTH, dtype="float64", name="up")(h))
                h = h + gc.nn.Dense(WIDTH, dtype="float64", name="down")(gc.sin(wide))
        loss = gc.reduce_mean(gc.square(h - x), name="loss")
        gc.minimize(loss, optax.adam(0.01), name="train")
    return graph


def save(
    path: Path, where: str, limit: int | None = None, without: tuple[str, ...] = (), **more: Any
) -> Path:
    graph = graph_of_blocks()
    session = gc.Session(graph, strategy=PLACED[where])
    train = gc.Signature(
        {"x": "x"}, {"loss": "loss"}, updates=["train"], sizes={"batch": ROWS},
        replicated=where == "replicas",
    )  # fmt: skip
    predict = gc.Signature({"x": "x"}, {"loss": "loss"})  # with open sizes
    # With `stack-less`, the program without a limit would need hardly more than the minimum.
    left_out = ("stack-less", *without)
    options = gc.CompileOptions(memory_limit=limit, without_passes=left_out)
    signatures = {"train": train, "predict": predict}
    gc.save(session, path, signatures=signatures, options=options, **more)
    return path


def only_the_graph(manifest: dict[str, Any]) -> None:
    entry(manifest)["convention"] = 99


def steps(path: Path, way: str) -> tuple[list[float], int]:
    """The losses of three steps, and the bytes that one step takes."""
    if way == "graph":
        forge(path, path.with_suffix(".graph"), only_the_graph)
        path = path.with_suffix(".graph")
    model = gc.load(path, trust_native=way == "native")
    train, state = model.signatures["train"], model.state()
    losses = []
    for _ in range(3):
        outputs, state = train(state, x=X)
        losses.append(float(outputs["loss"]))
    assert train.way == way, train.notes
    return losses, taken_by(train._chain.step((X.shape,)).compiled)


@pytest.fixture(scope="module", params=PLACED)
def saved(request, tmp_path_factory) -> tuple[str, Path, Path, int]:
    """The placement, the file without a limit, the file with a limit, and the limit."""
    folder, where = tmp_path_factory.mktemp(request.param), request.param
    free = save(folder / "free.gcx", where, native=True)
    limit = min(int(0.75 * steps(free, way)[1]) for way in ("native", "stablehlo"))
    return where, free, save(folder / "tight.gcx", where, limit, native=True), limit


@pytest.mark.slow
@pytest.mark.parametrize("way", ["native", "stablehlo", "graph"])
def test_every_form_keeps_to_it(saved, way: str) -> None:
    _, free, tight, limit = saved
    losses, bytes_of_free = steps(free, way)
    same, bytes_of_tight = steps(tight, way)
    assert bytes_of_tight <= limit
    # Without a limit, the graph is compiled with all passes.
    assert way == "graph" or limit < bytes_of_free
    assert_near(same, losses, rtol=1e-12)


def test_a_pass_that_is_left_out_is_left_out(saved, tmp_path: Path) -> None:
    where, *_, limit = saved
    with pytest.raises(ArtifactError, match="does not fit"):
        save(tmp_path / "model.gcx", where, limit, without=("recompute",))


def test_where_it_is_loaded_it_may_not_fit(tmp_path: Path) -> None:
    """A step on one device takes more memory than on each of two devices."""
    with pytest.raises(ArtifactError) as refused:
        save(tmp_path / "two.gcx", "replicas", 1000)
    found = re.search(r"takes at least (\d+)", str(refused.value))
    assert found is not None
    path = save(tmp_path / "two.gcx", "replicas", int(found[1]))
    model = gc.load(path, strategy=gc.devices.DataParallel(1))
    train, state = model.signatures["train"], model.state()
    with pytest.raises(ArtifactError) as caught:
        train(state, x=X)
    said = str(caught.value)
    assert re.search(r"hint: save it with memory_limit=\d+ or more, or feed a smaller", said), said


def test_what_draws_may_have_open_sizes(tmp_path: Path) -> None:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", 4), name="x")
        y = gc.random.dropout(x, 0.5, name="y")
    draw = gc.Signature({"x": x}, {"y": y})
    options = gc.CompileOptions(memory_limit="1MiB")
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures={"draw": draw}, options=options)
    model = gc.load(tmp_path / "m.gcx")
    drawn, _ = model.signatures["draw"](model.state(), x=np.ones((5, 4), np.float32))
    assert set(np.unique(drawn["y"])) <= {0.0, 2.0}


def test_what_assigns_nothing_may_have_open_sizes(saved) -> None:
    _, free, tight, _ = saved
    found = [gc.load(path).signatures["predict"](x=X[:5])["loss"] for path in (free, tight)]
    assert found[0] == found[1]


def test_what_cannot_fit_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    with pytest.raises(ArtifactError) as caught:
        save(path, "one", 1000)
    said = str(caught.value)
    assert said.startswith("signature 'train': the program does not fit into memory_limit=1000")
    assert "a file stores each variable separately" in said
    least = int(re.search(r"hint: pass options with memory_limit=(\d+) or more", said)[1])  # type: ignore[index]
    assert least > 1000
    assert not list(tmp_path.iterdir())


def test_a_step_with_open_sizes_is_refused(tmp_path: Path) -> None:
    session = gc.Session(graph_of_blocks(), options=gc.CompileOptions(memory_limit="1GiB"))
    train = gc.Signature({"x": "x"}, {"loss": "loss"}, updates=["train"])
    with pytest.raises(ArtifactError) as caught:
        gc.save(session, tmp_path / "model.gcx", signatures={"train": train})
    said = str(caught.value)
    assert "signature 'train' must fit into memory_limit=1073741824" in said
    assert "sizes={'batch': ...}" in said
    assert not list(tmp_path.iterdir())


def test_a_file_from_before_limits_is_read(saved, tmp_path: Path) -> None:
    where, free, _, _ = saved

    def forget(manifest: dict[str, Any]) -> None:
        only_the_graph(manifest)
        for name in ("train", "predict"):
            del entry(manifest, name)["memory_limit"]

    forge(free, tmp_path / "old.gcx", forget)
    assert "memory_limit" not in entry(container.read(tmp_path / "old.gcx")[0])
    losses, _ = steps(tmp_path / "old.gcx", "graph")
    assert_near(losses, steps(free, "graph")[0], rtol=1e-12)


@pytest.mark.parametrize("lie", [0, -1, "1GiB", 1.5, True])
def test_a_limit_that_is_none(saved, tmp_path: Path, lie: Any) -> None:
    _, _, tight, _ = saved
    forge(tight, tmp_path / "lie.gcx", lambda m: entry(m).update(memory_limit=lie))
    with pytest.raises(ArtifactCorruptError, match="memory_limit"):
        gc.load(tmp_path / "lie.gcx")
