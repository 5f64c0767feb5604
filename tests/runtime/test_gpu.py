"""Important paths on a GPU, where one is present."""

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import ExecutionError, LoweringError
from tests.near import assert_near

pytestmark = pytest.mark.gpu


def regression():
    g = gc.Graph(seed=0)
    with g:
        x = gc.placeholder(("batch", 4), name="x")
        y = gc.placeholder(("batch", 1), name="y")
        h = gc.nn.Dense(16, activation=gc.nn.relu, name="hidden")(x)
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(1, name="out")(h) - y), name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 4)).astype(np.float32)
    return g, train, loss, {"x": xs, "y": xs.sum(1, keepdims=True)}


def test_a_session_trains_on_the_gpu() -> None:
    g, train, loss, feeds = regression()
    s = gc.Session(g)
    losses = [float(s.run([train, loss], feeds)[1]) for _ in range(300)]
    assert losses[-1] < 0.05 * losses[0]
    assert s.get("out/kernel").devices().pop().platform == "gpu"


def test_data_parallel_on_all_gpus() -> None:
    g, train, loss, feeds = regression()
    gpus = [d for d in jax.devices() if d.platform == "gpu"]
    alone, together = gc.Session(g), gc.Session(g, strategy=gc.devices.DataParallel(gpus))
    for _ in range(20):
        a, b = (s.run([train, loss], feeds)[1] for s in (alone, together))
    assert_near(a, b, rtol=1e-4)


def test_the_cache_keeps_what_was_compiled_for_the_gpu() -> None:
    results = []
    for strategy in (None, gc.devices.DataParallel(["/gpu:0"])):
        for _ in range(2):
            g, train, loss, feeds = regression()
            session = gc.Session(g, strategy=strategy)
            losses = [float(session.run([train, loss], feeds)[1]) for _ in range(5)]
            results.append((losses, session.executables[0].cached))
    assert [cached for _, cached in results] == [False, True] * 2
    assert results[0][0] == results[1][0] and results[2][0] == results[3][0]


def test_an_artifact_runs_on_the_gpu(tmp_path) -> None:
    g, train, loss, feeds = regression()
    s = gc.Session(g)
    signature = gc.Signature({"x": g.tensor("x"), "y": g.tensor("y")}, {"loss": loss})
    gc.save(s, tmp_path / "m.gcx", signatures={"loss": signature})
    saved = gc.load(tmp_path / "m.gcx").signatures["loss"](**feeds)["loss"]
    assert_near(saved, s.run(loss, feeds), rtol=1e-5)


def test_without_free_memory_a_run_fails_before_it_begins() -> None:
    g, train, loss, _ = regression()
    session = gc.Session(g)
    rows = 1 << 24  # the hidden layer takes 1 GiB
    xs = jax.device_put(np.ones((rows, 4), np.float32))
    feeds = {"x": xs, "y": xs[:, :1]}
    before = session.run([train, loss], feeds)[1]
    stats = xs.devices().pop().memory_stats()
    free = stats["bytes_limit"] - stats["bytes_in_use"]
    taken = jax.device_put(np.zeros(1 << 20, np.float32))
    taken = jax.numpy.resize(taken, (free - (1 << 28)) // 4).block_until_ready()
    with pytest.raises(ExecutionError, match=r"before it began: .* MiB are free"):
        session.run([train, loss], feeds)
    del taken
    assert session.run([train, loss], feeds)[1] < before


def test_what_cpus_alone_compute_is_placed_on_the_cpu() -> None:
    def build(place: str | None) -> gc.Session:
        g = gc.Graph()
        with g:
            x = gc.placeholder((3, 3), name="x")
            with gc.device(place):
                t, z = gc.linalg.schur(x + 0.0)
            gc.identity(z @ t @ gc.transpose(z), name="again")
        return gc.Session(g)

    x = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    with pytest.raises(LoweringError, match="on CPUs only, but it runs on gpu"):
        build(None).run("again:0", {"x": x})
    assert_near(build("/cpu:0").run("again:0", {"x": x}), x, rtol=1e-2, atol=1e-2)


def test_an_embedding_on_the_processor_and_the_rest_on_the_gpu() -> None:
    def train(place: str | None) -> tuple[list[float], gc.Session]:
        g = gc.Graph(seed=0)
        with g:
            ids = gc.placeholder((16,), "int32", name="ids")
            with gc.device(place):
                rows = gc.nn.Embedding(1000, 8, name="words")(ids)
            loss = gc.reduce_mean(gc.square(gc.nn.Dense(1, name="out")(rows) - 1.0), name="loss")
            step = gc.minimize(loss, optax.adagrad(0.1), name="train")
        session = gc.Session(g)
        batch = {ids: np.arange(16, dtype=np.int32)}
        return [float(session.run([step, loss], batch)[1]) for _ in range(20)], session

    expected, _ = train(None)
    got, session = train("/cpu:0")
    assert_near(got, expected, rtol=1e-4)
    assert session.get("words/table").devices().pop().platform == "cpu"
    assert session.get("out/kernel").devices().pop().platform == "gpu"


def test_long_attention_in_bfloat16_runs_by_cudnn_forward_once() -> None:
    def step(**options: object) -> tuple[gc.Executable, list[np.ndarray]]:
        with gc.Graph(seed=0) as g:
            x = gc.placeholder((2, 256, 4, 64), name="x")
            weights = gc.variable(np.full((64, 64), 1 / 64, np.float32), name="weights")
            q = gc.matmul(x, weights)
            y = gc.nn.attention(q, q + x, x, causal=True)
            fetches = [y, gc.gradients(gc.reduce_sum(gc.square(y)), weights)]
        made = gc.compile(g, fetches, {x: x.shape}, options=gc.CompileOptions(**options))
        data = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
        (y, slopes), _ = made(made.init(), {"x": data})
        return made, [np.asarray(y, np.float32), np.asarray(slopes[0])]

    narrow, got = step(precision="bf16")
    _, expected = step(fuse_attention=False)
    for a, b in zip(got, expected, strict=True):
        assert_near(a, b, rtol=1e-7, atol=2e-2 * np.abs(b).max())
    calls = [line for line in narrow.hlo().splitlines() if "custom-call(" in line]
    assert sum('__cudnn$fmhaSoftmax"' in line for line in calls) == 1
    assert sum('__cudnn$fmhaSoftmaxBackward"' in line for line in calls) == 1
