"""Workers that wait for each other, compared with workers that do not, on handwritten digits.

python examples/asynchronous.py --workers 4 --staleness 8

Both train the same network on the same examples in the same order. Synchronous: each step takes one
batch, which the devices share, and all devices wait for the sum of the gradients. Asynchronous:
each worker takes a piece of the batch, and its gradient is applied as soon as it is ready, to
parameters that other workers may have changed. So there are more updates, with smaller batches. The
run with staleness 0 makes the same updates one at a time and shows the effect of staleness.

With --ray, the workers and two parameter servers also run as Ray processes.

The order of asynchronous updates is random, so their figures differ a little in each run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import digits
import numpy as np
import optax
import several_devices

import graphc as gc

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """One run.

    Attributes:
        examples, seconds, losses: for each update the number of examples seen, the time, and
            the loss of the batch.
        accuracy: the accuracy on the test set at the end.
        staleness: how many updates had each staleness; empty for a synchronous run.
    """

    name: str
    examples: np.ndarray
    seconds: np.ndarray
    losses: np.ndarray
    accuracy: float
    staleness: Mapping[int, int]


def build() -> gc.Graph:
    """A multi-layer perceptron with its training step."""
    graph = gc.Graph(seed=0, name="asynchronous")
    with graph:
        x = gc.placeholder((None, 8, 8, 1), name="x")
        y = gc.placeholder((None,), "int32", name="y")
        hidden = gc.nn.Dense(64, activation=gc.nn.relu, name="hidden")(gc.nn.Flatten()(x))
        logits = gc.nn.Dense(10, name="out")(hidden)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        gc.minimize(loss, optax.adam(1e-3), name="train")
        correct = gc.equal(gc.argmax(logits, axis=-1), y)
        gc.reduce_mean(gc.cast(correct, "float32"), name="accuracy")
    return graph


def pieces(batches: Iterator[Feeds], count: int) -> Iterator[Feeds]:
    """Cuts each batch into `count` equal pieces."""
    for feeds in batches:
        size = len(feeds["y"]) // count
        for start in range(0, size * count, size):
            yield {name: value[start : start + size] for name, value in feeds.items()}


def accuracy_of(session: gc.Session, data: Feeds) -> float:
    return float(session.run("accuracy:0", {"x": data["x_test"], "y": data["y_test"]}))


def synchronous(graph: gc.Graph, data: Feeds, batches: Sequence[Feeds], devices: int) -> Curve:
    """`DataParallel`: one step for each batch."""
    session = gc.Session(graph, strategy=gc.devices.DataParallel(devices))
    start = session.values()
    session.run(["train", "loss"], batches[0])  # compiles
    session.set_all(start)
    losses, seconds = [], []
    begin = time.perf_counter()
    for feeds in batches:
        losses.append(float(session.run(["train", "loss"], feeds)[1]))
        seconds.append(time.perf_counter() - begin)
    examples = np.cumsum([len(feeds["y"]) for feeds in batches])
    accuracy = accuracy_of(session, data)
    return Curve("synchronous", examples, np.array(seconds), np.array(losses), accuracy, {})


def asynchronous(
    name: str, graph: gc.Graph, data: Feeds, batches: Sequence[Feeds], strategy: Any, workers: int
) -> Curve:
    """Makes an update for each piece of a batch."""
    session = gc.Session(graph, strategy=strategy)
    start = session.values()
    fetches = ["train", "loss"]
    first = list(pieces(iter(batches[:1]), workers))
    session.run_workers(fetches, [[piece] for piece in first])  # compiles for each worker
    session.set_all(start)
    losses, seconds = [], []
    begin = time.perf_counter()

    def note(step: Any) -> None:
        losses.append(float(step.values[1]))
        seconds.append(time.perf_counter() - begin)

    run = session.run_workers(fetches, pieces(iter(batches), workers), on_step=note)
    examples = np.arange(1, run.updates + 1) * len(first[0]["y"])
    accuracy = accuracy_of(session, data)
    session.close()
    return Curve(name, examples, np.array(seconds), np.array(losses), accuracy, run.staleness)


def report(curve: Curve) -> None:
    tenth = max(len(curve.losses) // 10, 1)
    loss = curve.losses[-tenth:].mean()
    print(
        f"{curve.name:<14}test accuracy {curve.accuracy:.4f}  loss {loss:.4f}  "
        f"{len(curve.losses)} updates in {curve.seconds[-1]:.2f} s"
    )
    most = max(curve.staleness.values(), default=0)
    for staleness, count in curve.staleness.items():
        print(f"  staleness {staleness:>3} {count:>6} {'#' * -(-40 * count // most)}")


def plot(curves: Sequence[Curve], path: str) -> None:
    """Plots losses by examples and by seconds, and the staleness, as a PNG."""
    try:
        import matplotlib
    except ImportError:
        print('no plot: matplotlib is not installed; pip install "graphc[examples]"')
        return
    matplotlib.use("Agg")  # draws into files, without a display
    from matplotlib import pyplot

    figure, (by_examples, by_seconds, stale) = pyplot.subplots(
        1, 3, figsize=(13, 4.3), layout="constrained"
    )
    colours = ("tab:blue", "tab:green", "tab:orange", "tab:red")
    for curve, colour in zip(curves, colours, strict=False):
        width = max(len(curve.losses) // 40, 1)  # a moving average of the losses
        smooth = np.convolve(curve.losses, np.full(width, 1 / width), mode="valid")
        label = f"{curve.name}, test accuracy {curve.accuracy:.3f}"
        for axes, along in ((by_examples, curve.examples), (by_seconds, curve.seconds)):
            axes.plot(along[width - 1 :], smooth, color=colour, label=label)
        if curve.name in ("asynchronous", "with Ray"):
            bars = list(curve.staleness), list(curve.staleness.values())
            stale.bar(*bars, color=colour, alpha=0.6, label=curve.name)
    for axes, words in ((by_examples, "examples seen"), (by_seconds, "seconds")):
        axes.set(xlabel=words, ylabel="training loss (moving average)", yscale="log")
        axes.grid(alpha=0.3)
    figure.legend(*by_examples.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    by_examples.set_title("the same examples")
    by_seconds.set_title("on this machine")
    stale.set_title("asynchronous: staleness of the updates")
    stale.set(xlabel="updates of others since the read", ylabel="updates")
    stale.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"plot in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--staleness", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--steps", type=int, default=300, help="synchronous ones")
    parser.add_argument("--ray", action="store_true", help="also with processes of Ray")
    parser.add_argument("--plot", default="asynchronous.png", help="where the plot goes")
    options = parser.parse_args()
    data, graph = digits.load(), build()
    stream = gc.data.Batches({"x": data["x_train"], "y": data["y_train"]}, options.batch, seed=1)
    batches = list(islice(stream, options.steps))
    devices = several_devices.most(options.workers)
    workers = options.workers
    one_at_a_time, free = (
        gc.devices.AsyncDataParallel(workers, server="/cpu:0", staleness=staleness)
        for staleness in (0, options.staleness)
    )
    curves = [
        synchronous(graph, data, batches, devices),
        asynchronous("one at a time", graph, data, batches, one_at_a_time, workers),
        asynchronous("asynchronous", graph, data, batches, free, workers),
    ]
    if options.ray:
        servers = gc.cluster.ParameterServers(workers, staleness=options.staleness, shards=2)
        curves.append(asynchronous("with Ray", graph, data, batches, servers, workers))
    for curve in curves:
        report(curve)
    plot(curves, options.plot)


if __name__ == "__main__":
    main()
