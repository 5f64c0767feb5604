"""Every example compiles for 1, 4 and 8 GPUs, or for the number that it names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import asynchronous
import beam_search
import char_lstm
import clustering
import digits_cnn
import digits_mlp
import fine_tune
import heat_and_wave
import model_parallel_lstm
import numpy as np
import optax
import pipeline_transformer
import pytest
import reinforce
import resnet20
import resume
import save_and_load
import tensor_parallel
import text_buckets
import towers
import transformer_lm

import graphc as gc
from graphc.cli.targets import target_of
from tests.gpu_compile.test_compile import collectives


class Step(NamedTuple):
    """Fetches of a graph to compile, with the shapes of the feeds for a number of devices."""

    graph: gc.Graph
    fetches: Any
    feeds: dict[Any, tuple[int, ...]]


def job(made: gc.train.Job) -> Step:
    target = target_of(made, [], [])
    return Step(made.graph, target.fetches, dict(target.feeds))


def asynchronously() -> Step:
    g = asynchronous.build()
    with g.extend():
        train = gc.minimize(g.tensor("loss"), optax.sgd(0.1), name="here")
    return Step(g, [train, "loss"], {"x": (64, 8, 8, 1), "y": (64,)})


def saved() -> Step:
    g, signatures = save_and_load.build()
    train = signatures["train"]
    return Step(g, [train.updates, train.outputs], {"x": (64, 8, 8, 1), "y": (64,)})


def resumed() -> Step:
    made = resume.build()
    return Step(made.graph, [made.train, "loss"], {"x": (64, 8, 8, 1), "y": (64,)})


def tuned() -> Step:
    g, parts = fine_tune.build("small", "head")
    return Step(g, [parts["last"], parts["all"]], {"x": (64, 8, 8, 1), "y": (64,)})


def bucketed() -> Step:
    made = text_buckets.make_text(units=16, batch=32)
    feeds = {"lines": (32, 16), "mask_batch_time": (32, 16)}
    return Step(made.job.graph, [made.job.train, made.loss], feeds)


SHARED: dict[str, Callable[[], Step]] = {
    "asynchronous": asynchronously,
    "char_lstm": lambda: job(char_lstm.build()),
    "digits_cnn": lambda: job(digits_cnn.build()),
    "digits_mlp": lambda: job(digits_mlp.build()),
    "fine_tune": tuned,
    "resnet20": lambda: job(resnet20.build()),
    "resume": resumed,
    "save_and_load": saved,
    "text_buckets": bucketed,
    "transformer_lm": lambda: job(transformer_lm.build()),
}


@pytest.mark.parametrize("count", [1, 4, 8])
@pytest.mark.parametrize("name", SHARED)
def test_with_the_batch_shared(name: str, count: int) -> None:
    step = SHARED[name]()
    strategy = gc.devices.DataParallel(count) if count > 1 else None
    made = gc.compile(
        step.graph,
        step.fetches,
        step.feeds,
        machine=gc.devices.Machine("h100", count),
        strategy=strategy,
    )
    found = collectives(made)
    assert bool(found["all-reduce"]) == (count > 1)
    assert "S(5)" not in made.hlo()  # nothing is in host memory


def reinforcement() -> Step:
    learner = reinforce.build()
    return Step(learner.graph, [learner.train, learner.loss], {})


def kmeans() -> Step:
    with gc.Graph() as g:
        rows = gc.placeholder(("rows", 64), name="x")
        centers = gc.placeholder((10, 64), name="first")
        found = clustering.kmeans(rows, centers)
    return Step(g, list(found), {rows: (1797, 64), centers: (10, 64)})


def mixture() -> Step:
    first = clustering.start_mixture(clustering.draw_points(64), clustering.TRUTH.means)
    with gc.Graph() as g:
        rows = gc.placeholder(("rows", 2), "float64", name="x")
        found = clustering.expectation_maximization(
            rows, clustering.Mixture(*map(gc.constant, first))
        )
    return Step(g, found, {rows: (4096, 2)})


def heat_and_waves() -> Step:
    with gc.Graph() as g:
        u = gc.placeholder((64, 64), "float64", name="u")
        warm = heat_and_wave.heat(u, gc.constant(1.0, "float64"), 64, 0.01, 100)
        fetches = [warm, *heat_and_wave.wave(u, 64, 0.1, 50)]
    return Step(g, fetches, {u: (64, 64)})


def beams() -> Step:
    language = char_lstm.make_language(units=16, batch=4, lengths=(32,))
    g = language.job.graph
    with g.extend():
        prompt = gc.placeholder((16,), "int32", name="beam_prompt")
        length = gc.placeholder((), "int32", name="beam_length")
        lines = beam_search.search(language.model, prompt, length, beam_search.Limits())
    return Step(g, list(lines), {prompt: (16,), length: ()})


ALONE = {
    "reinforce": reinforcement,
    "clustering": kmeans,
    "clustering (mixture)": mixture,
    "heat_and_wave": heat_and_waves,
    "beam_search": beams,
}


@pytest.mark.parametrize("name", ALONE)
def test_programs_of_loops_on_one(name: str) -> None:
    step = ALONE[name]()
    made = gc.compile(step.graph, step.fetches, step.feeds, machine="h100")
    assert " while(" in made.hlo()


def test_two_devices() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((2, 3), name="x")
        with gc.device("/gpu:0"):
            product = gc.matmul(x, gc.variable(np.ones((3, 4), np.float32), name="kernel"))
        with gc.device("/gpu:1"):
            total = gc.reduce_sum(product)
    step = gc.compile(g, total, {x: (2, 3)}, machine="2xh100")
    assert [cluster.device for cluster in step.partition.clusters] == [
        "/device:GPU:0",
        "/device:GPU:1",
    ]


def test_no_example_is_forgotten() -> None:
    here = {
        "pipeline_transformer",
        "model_parallel_lstm",
        "towers",
        "tensor_parallel",
        "two_devices",
    }
    without_a_program = {"digits", "sources", "several_devices", "load_and_predict", "demo"}
    without_a_program |= {"cluster"}  # it uses that of digits_cnn
    without_a_program |= {"grid_search"}  # scikit-learn builds it
    here |= {"tfrecord_resnet"}  # it uses the program of resnet20
    found = {path.stem for path in Path(digits_cnn.__file__).parent.glob("*.py")}
    assert found == {*SHARED, *(name.split()[0] for name in ALONE), *here, *without_a_program}


@pytest.mark.parametrize("count", [4, 8])
def test_a_pipeline(count: int) -> None:
    size = transformer_lm.Size(8, 96, 4, 64, 32)
    places = [f"/gpu:{i}" for i in range(count)]
    g, text, loss, train = pipeline_transformer.build(size, places, 4)
    step = gc.compile(g, [train, loss], {text: (32, 65)}, machine=gc.devices.Machine("h100", count))
    assert len(step.devices) == count


@pytest.mark.parametrize("count", [1, 4, 8])
def test_layers_on_devices_of_their_own(count: int) -> None:
    places = [f"/gpu:{i}" for i in range(count)]
    model = model_parallel_lstm.build(places, 64, 32)
    step = gc.compile(
        model.graph,
        [model.train, model.loss],
        {model.text: (16, 33)},
        machine=gc.devices.Machine("h100", count),
    )
    assert len(step.devices) == count


def test_towers() -> None:
    made = towers.build()
    target = target_of(made, [], [])
    step = gc.compile(made.graph, target.fetches, dict(target.feeds), machine="4xh100")
    assert len(step.devices) == 4 or step.notes  # its devices have the names of present ones


@pytest.mark.parametrize("axes", [(1, 1), (2, 2), (2, 4)])
def test_tensor_parallelism(axes: tuple[int, int]) -> None:
    count = axes[0] * axes[1]
    step = job(tensor_parallel.build())
    made = gc.compile(
        step.graph,
        step.fetches,
        step.feeds,
        machine=gc.devices.Machine("h100", count),
        strategy=gc.devices.Mesh(dict(zip(("data", "model"), axes, strict=True))),
    )
    assert bool(collectives(made)) == (count > 1)
