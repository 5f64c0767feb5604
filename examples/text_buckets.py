"""A character model of the text files in a folder, read line by line by a bucketing pipeline.

Four files are read at a time. Lines become numbers, are shuffled, and go to buckets by length: the
lines of a batch have similar lengths and are padded to the bucket's size. So little padding is
computed, and one program is compiled for each bucket. `gc.Bucketing` feeds the masks. Training
stops in the middle and continues at the same line, as after a restart.

python examples/text_buckets.py --steps 200
python examples/text_buckets.py ~/notes --pattern "*.txt"
"""

from __future__ import annotations

import argparse
import json
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optax
import sources
from char_lstm import CharLSTM, line_losses

import graphc as gc

BOUNDS = (16, 32, 48, 64)  # the lengths that lines are padded to
FOLDER = sysconfig.get_paths()["stdlib"]


def encoded(line: str) -> dict[str, np.ndarray]:
    return {"lines": sources.encode(line + "\n")}


def fits(line: str) -> bool:
    return bool(line.strip()) and len(line) < max(BOUNDS)


class Text(NamedTuple):
    """The result of `make_text`: the training job, its pipeline and the loss."""

    job: gc.train.Job
    pipeline: gc.data.Pipeline
    loss: gc.Tensor


def batches(paths: Sequence[Path], buckets: gc.Bucketing, size: int) -> gc.data.Pipeline:
    """Endless batches of lists of lines, each from one bucket."""
    return (
        gc.data.from_iterable([str(path) for path in paths])
        .shuffle(seed=0)
        .interleave(gc.data.from_text, cycle=4)
        .filter(fits)
        .map(encoded)
        .shuffle(1000, seed=1)
        .repeat()
        .bucket(buckets, size, length="lines")
    )


def make_text(
    folder: str = FOLDER,
    *,
    pattern: str = "*.py",
    units: int = 64,
    batch: int = 32,
    steps: int = 200,
) -> Text:
    """The graph with its training step, and its data."""
    paths = sorted(Path(folder).glob(pattern))
    if not paths:
        raise SystemExit(f"no files {pattern} in {folder}")
    buckets = gc.Bucketing({"batch": [batch], "time": list(BOUNDS)})
    graph = gc.Graph(seed=0, name="text_buckets")
    with graph:
        lines = gc.placeholder(("batch", "time"), "int32", name="lines")
        mask = buckets.mask("batch", "time")
        loss = gc.nn.masked_mean(line_losses(CharLSTM(units, 1), lines), mask, name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    pipeline = batches(paths, buckets, batch).pad(buckets, fetches=loss)
    job = gc.train.Job(graph, train, pipeline, steps=steps, metrics={"loss": loss})
    return Text(job, pipeline, loss)


def train(session: gc.Session, text: Text, steps: int, position: dict[str, Any] | None) -> Any:
    """Runs steps from a position of the data. Returns the losses and the position after them."""
    with iter(text.pipeline.prefetch(session)) as stream:
        if position is not None:
            stream.restore(position)
        fetches = [text.job.train, text.loss]
        losses = [session.run(fetches, next(stream))[1] for _ in range(steps)]
        return [float(loss) for loss in losses], stream.state()


def build(**options: Any) -> gc.train.Job:
    """The function that `graphc train` calls; `options` are those of `make_text`."""
    return make_text(**options).job


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=FOLDER)
    parser.add_argument("--pattern", default="*.py")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--units", type=int, default=64)
    options = parser.parse_args(argv)
    text = make_text(**vars(options))
    session = gc.Session(text.job.graph)
    half = options.steps // 2
    first, position = train(session, text, half, None)
    saved = json.dumps(position)  # stored with a checkpoint of session.values()
    second, position = train(session, text, options.steps - half, json.loads(saved))
    losses = np.array([*first, *second]) / np.log(2)
    print(f"{position['count']} batches, position of {len(saved)} characters after {half}")
    print(f"{session.compile_count} compiles for {len(BOUNDS)} buckets")
    print(f"bits a character {losses[0]:.2f} at first, {np.mean(losses[-20:]):.2f} at last")


if __name__ == "__main__":
    main()
