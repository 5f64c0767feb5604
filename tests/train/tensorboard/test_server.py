"""What a real TensorBoard shows of the files that `SummaryWriter` writes."""

import io
import re
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from PIL import Image

import graphc as gc
from tests.near import assert_near
from tests.train.tensorboard.server import Board, board

pytestmark = pytest.mark.slow


def example_graph() -> gc.Graph:
    with gc.Graph(name="example") as graph:
        x = gc.placeholder(("batch", 4), name="x")
        with gc.name_scope("hidden"), gc.device("/gpu:1"):
            w = gc.variable(np.ones((4, 3), np.float32), name="w")
            h = gc.tanh(x @ w, name="out")
        with gc.control_dependencies([h]):
            state, _ = gc.scan(lambda c, _: (gc.tanh(c), ()), h, None, length=3)
        y = gc.cond(gc.reduce_sum(state) > 0, lambda: state * 2.0, lambda: state * 3.0)
        loss = gc.reduce_mean(y**2, name="loss")
        gc.minimize(loss, optax.sgd(0.1))
    return graph


RAMP = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
TONE = np.sin(np.arange(800) / 10).astype(np.float32)
LABELS = np.array([1, 0, 1, 1, 0], bool)
SCORES = np.array([0.9, 0.8, 0.5, 0.2, 0.0])


READY = {"all": "end", "compiled": "end", "good": "accuracy", "bad": "accuracy"}


def write(folder: Path) -> None:
    with gc.train.SummaryWriter(folder / "all") as writer:
        for step in range(4):
            writer.scalar("curve", step**2, step)
        for step, value in enumerate([1.0, np.nan, np.inf, -np.inf, 1e300, 2.5]):
            writer.scalar("odd/values", value, step)
        writer.scalar('a "quoted", <b>/ näme\n', jnp.float32(1.5), 7, description="*slanted*")
        writer.image("ramp", RAMP, 3)
        writer.image("batch", np.stack([RAMP, 1 - RAMP, RAMP, RAMP])[..., None], 0, most=2)
        writer.image("broken", np.where(RAMP > 0.5, np.nan, RAMP), 0)
        writer.audio("tone", TONE, 2, sample_rate=8000)
        writer.audio("stereo", np.stack([TONE, -TONE], 1)[None], 2, sample_rate=8000)
        writer.histogram("normal", np.arange(60.0), 1, buckets=6)
        writer.histogram("bf16", jnp.arange(8, dtype="bfloat16"), 1)
        writer.histogram("bad", np.array([1.0, np.nan, np.inf, 3.0]), 1)
        writer.histogram("bad", np.array([1.0, 2.0]), 2)
        writer.histogram("empty", np.zeros((0, 3)), 1)
        writer.histogram("equal", np.full(5, 7.0), 1)
        writer.text("note", "# Title\n\nsome **bold** text", 0)
        writer.text("table", [["a", "b"], ["c", "<script>d</script>"]], 0)
        writer.pr_curve("pr", LABELS, SCORES, 1, thresholds=11)
        graph = example_graph()
        writer.graph(graph)
        writer.run_metadata("step 5", graph, 5, seconds={"hidden/MatMul": 2e-3, "loss": 1e-4})
        writer.scalar("end", 1.0, 0)
    for name, rate, fails in (("good", 0.1, False), ("bad", 0.2, True)):
        try:
            with gc.train.SummaryWriter(folder / name) as writer:
                writer.hparams({"rate": rate, "optimizer": "sgd", "deep": True, "layers": 3})
                writer.scalar("accuracy", 1 - rate, 10)
                if fails:
                    raise KeyError("stopped")
        except KeyError:
            pass
    graph = example_graph()
    step = gc.compile(graph, ["train", "loss:0"], {"x": (2, 4)})
    with gc.train.SummaryWriter(folder / "compiled") as writer:
        writer.graph(step)
        seconds = {node: 1e-3 for node in step.program.nodes}
        writer.run_metadata("all", step, 1, seconds=seconds)
        writer.scalar("end", 1.0, 0)


@pytest.fixture(scope="module", params=["python", "data-server"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Board]:
    """TensorBoard with its Python reader and with its fast reader."""
    if request.param == "data-server":
        pytest.importorskip("tensorboard_data_server")
    folder = tmp_path_factory.mktemp("tensorboard") / "logs"
    write(folder)
    with board(folder, READY, fast=request.param == "data-server") as running:
        yield running


def test_every_plugin_is_active(server: Board) -> None:
    listing = server.get("plugins_listing")
    wanted = (
        "scalars images audio histograms distributions text pr_curves hparams graphs timeseries"
    )
    assert {name for name in wanted.split() if not listing[name]["enabled"]} == set()


def test_scalars(server: Board) -> None:
    assert server.scalars("all", "curve") == [(0, 0.0), (1, 1.0), (2, 4.0), (3, 9.0)]


def test_scalars_that_are_not_finite(server: Board) -> None:
    values = [value for _, value in server.scalars("all", "odd/values")]
    assert values == [1.0, "NaN", "Infinity", "-Infinity", "Infinity", 2.5]


def test_odd_names(server: Board) -> None:
    tag = 'a "quoted", <b>/ näme\n'
    assert server.scalars("all", tag) == [(7, 1.5)]
    tags = server.get("plugin/scalars/tags")["all"]
    assert tags[tag]["description"] == "<p><em>slanted</em></p>"


def picture(server: Board, tag: str, sample: int = 0) -> tuple[Any, Any]:
    found = server.get("plugin/images/images", run="all", tag=tag, sample=sample)[-1]
    data = server.bytes(f"plugin/images/individualImage?{found['query']}&x")
    return found, np.asarray(Image.open(io.BytesIO(data)))


def test_images(server: Board) -> None:
    found, pixels = picture(server, "ramp")
    assert (pixels.shape, found["step"]) == ((3, 4), 3)
    np.testing.assert_array_equal(pixels, np.rint(RAMP * 255))
    assert server.get("plugin/images/tags")["all"]["batch"]["samples"] == 2
    np.testing.assert_array_equal(picture(server, "batch", 1)[1], np.rint((1 - RAMP) * 255))


def test_pixels_that_are_nan_are_red(server: Board) -> None:
    pixels = picture(server, "broken")[1]
    bad = RAMP > 0.5
    assert (pixels[bad] == [255, 0, 0]).all()
    np.testing.assert_array_equal(pixels[~bad][:, 1], np.rint(RAMP[~bad] * 255))


@pytest.mark.parametrize(("tag", "channels"), [("tone", 1), ("stereo", 2)])
def test_audio(server: Board, tag: str, channels: int) -> None:
    found = server.get("plugin/audio/audio", run="all", tag=tag, sample=0)[0]
    assert (found["step"], found["contentType"]) == (2, "audio/wav")
    data = server.bytes(f"plugin/audio/individualAudio?{found['query']}&x")
    with wave.open(io.BytesIO(data)) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (8000, channels)
        samples = np.frombuffer(sound.readframes(9999), "<i2").reshape(-1, channels)
    np.testing.assert_array_equal(samples[:, 0], np.rint(TONE * 32767))


def histogram(server: Board, tag: str) -> list[tuple[int, Any]]:
    events = server.get("plugin/histograms/histograms", run="all", tag=tag)
    return [(step, np.array(rows)) for _, step, rows in events]


def test_histograms(server: Board) -> None:
    [(step, rows)] = histogram(server, "normal")
    counts, edges = np.histogram(np.arange(60.0), 6)
    assert step == 1
    assert_near(rows, np.stack([edges[:-1], edges[1:], counts], 1), 1e-12)
    [(_, rows)] = histogram(server, "bf16")
    assert (rows[:, 2].sum(), rows[0, 0], rows[-1, 1]) == (8, 0.0, 7.0)


def test_histograms_say_what_they_leave_out(server: Board) -> None:
    assert [rows[:, 2].sum() for _, rows in histogram(server, "bad")] == [2, 2]
    assert server.scalars("all", "bad/nonfinite") == [(1, 2.0), (2, 0.0)]


def test_histograms_without_a_range(server: Board) -> None:
    assert not histogram(server, "empty")[0][1].any()
    rows = histogram(server, "equal")[0][1]
    assert (rows[:, :2] == 7.0).all()
    assert rows[:, 2].tolist() == [0.0] * 29 + [5.0]


def test_distributions(server: Board) -> None:
    [event] = server.get("plugin/distributions/distributions", run="all", tag="normal")
    percentiles = dict(event[2])
    assert percentiles[0] == 0
    assert percentiles[5000] == pytest.approx(29.5)
    assert percentiles[10000] == 59
    for tag in ("empty", "equal", "bad"):
        assert server.get("plugin/distributions/distributions", run="all", tag=tag)


def test_text(server: Board) -> None:
    [note] = server.get("plugin/text/text", run="all", tag="note")
    assert "<h1>Title</h1>" in note["text"]
    [table] = server.get("plugin/text/text", run="all", tag="table")
    assert table["text"].count("<td>") == 4
    assert "<script>" not in table["text"]


def test_pr_curves(server: Board) -> None:
    [entry] = server.get("plugin/pr_curves/pr_curves", run="all", tag="pr")["all"]
    thresholds = np.linspace(0, 1, 11)
    positive = SCORES[None] >= thresholds[:, None]
    hits, misses = (positive & LABELS).sum(1), (positive & ~LABELS).sum(1)
    # The plugin omits thresholds without positive predictions, except the first.
    kept = (hits + misses) > 0
    precision = np.asarray(entry["precision"])
    wanted = (hits / np.maximum(hits + misses, 1))[kept]
    assert_near(precision[: kept.sum()], wanted, 1e-6)
    recall = np.asarray(entry["recall"])
    assert_near(recall[: kept.sum()], (hits / LABELS.sum())[kept], 1e-6)


def test_hparams(server: Board) -> None:
    statuses = ["STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING", "STATUS_UNKNOWN"]
    body = {"allowedStatuses": statuses, "startIndex": 0, "sliceSize": 9, "colParams": []}
    groups = server.post("plugin/hparams/session_groups", body)["sessionGroups"]
    found = {group["sessions"][0]["name"]: group for group in groups}
    assert set(found) == {"good", "bad"}
    wanted = {"rate": 0.1, "optimizer": "sgd", "deep": True, "layers": 3}
    assert found["good"]["hparams"] == wanted
    assert found["good"]["name"] == "deep=True, layers=3, optimizer=sgd, rate=0.1"
    assert found["good"]["sessions"][0]["status"] == "STATUS_SUCCESS"
    assert found["bad"]["sessions"][0]["status"] == "STATUS_FAILURE"
    [metric] = found["good"]["metricValues"]
    assert (metric["name"]["tag"], metric["trainingStep"]) == ("accuracy", 10)
    assert metric["value"] == pytest.approx(0.9)


def nodes_of(text: str) -> dict[str, str]:
    """Name -> the node in text form."""
    parts = re.split(r"^node \{\n", text, flags=re.M)[1:]
    return {re.search(r'name: "(.*)"', part).group(1): part for part in parts}  # type: ignore[union-attr]


def test_graph(server: Board) -> None:
    text = server.bytes(
        "plugin/graphs/graph", run="all", limit_attr_size=1024, large_attrs_key="_too_large_attrs"
    ).decode()
    nodes = nodes_of(text)
    assert 'device: "/device:GPU:1"' in nodes["hidden/MatMul"]
    assert re.search(r'input: "x"\n\s*input: "hidden/w/read"', nodes["hidden/MatMul"])
    assert re.findall(r"size: (-?\d+)", nodes["hidden/MatMul"]) == ["-1", "3"]
    assert 'input: "hidden/w"' in nodes["hidden/w/read"]
    assert 'input: "^hidden/out"' in nodes["Scan"]
    assert 'input: "hidden/out"' in nodes["Scan/scan_body/args/carry0"]
    assert 'input: "cond/true_branch/Multiply_1"' in nodes["cond"]
    assert any(name.startswith("train/gradients/hidden/MatMul") for name in nodes)
    assert 'input: "^train/Assign"' in nodes["train"]
    info = server.get("plugin/graphs/info")["all"]
    assert info["run_graph"]
    assert info["tags"]["step 5"]["profile"]


def test_run_metadata(server: Board) -> None:
    text = server.bytes("plugin/graphs/run_metadata", run="all", tag="step 5").decode()
    found = re.findall(
        r'node_name: "(.*)"\s+all_start_micros: \d+\s+all_end_rel_micros: (\d+)', text
    )
    assert dict(found) == {"hidden/MatMul": "2000", "loss": "100"}
    assert 'device: "/device:GPU:1"' in text


def test_graph_and_metadata_of_an_executable(server: Board) -> None:
    nodes = nodes_of(server.bytes("plugin/graphs/graph", run="compiled").decode())
    assert re.findall(r"size: (-?\d+)", nodes["hidden/MatMul"]) == ["2", "3"]
    assert 'op: "Placeholder"' in nodes["x"]
    assert 'input: "hidden/w"' in nodes["assign/hidden/w"]
    assert "fetches/loss" in nodes
    text = server.bytes("plugin/graphs/run_metadata", run="compiled", tag="all").decode()
    assert re.search(r'node_name: "hidden/MatMul"[^}]*?all_end_rel_micros: 1000', text)
    assert re.search(r'node_name: "hidden/MatMul"[^}]*memory \{[^}]*total_bytes: 24', text)
