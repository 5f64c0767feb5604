"""`SummaryWriter`: what to log, as calls with a tag, a value and a step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.calls import explain_methods
from graphc.ir.graph import Graph
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.runtime.step.executable import Executable
from graphc.train.tensorboard.audio import audio, checked_sounds
from graphc.train.tensorboard.event_writer import EventWriter
from graphc.train.tensorboard.graph_def import graph_def
from graphc.train.tensorboard.histograms import histogram, nonfinite
from graphc.train.tensorboard.hparams import Hparam, checked_hparams, session_start
from graphc.train.tensorboard.images import checked_images, image
from graphc.train.tensorboard.pr_curves import pr_curve, pr_table
from graphc.train.tensorboard.protos import protos
from graphc.train.tensorboard.run_metadata import run_metadata
from graphc.train.tensorboard.summaries import event, scalar
from graphc.train.tensorboard.summaries import text as text_summary
from graphc.train.tensorboard.values import (
    Values,
    checked_number,
    checked_step,
    checked_tag,
    checked_texts,
    host_copy,
    require_rank,
)


class SummaryWriter(EventWriter):
    """Writes a run for TensorBoard into a folder. TensorFlow is not needed.

    The values are checked and copied in the call; a thread encodes and writes them. A write that
    fails is raised by the next call. Use the writer as a context manager, or close it. What has
    been written when the process is killed remains readable.

    A process that was forked may go on with the writer: it gets a file of its own in the same
    folder. Writers of one process with the same folder share a file.

    Args:
        log_dir: the folder of the run; it is made if it is absent. TensorBoard is started with it,
            or with a folder of several runs.
        purge_step: with a step, TensorBoard no longer shows what earlier files in the folder have
            logged at this step and later ones. Give the next step when training is resumed from a
            checkpoint.

    Attributes:
        log_dir: the folder.

    Raises:
        GraphcError: the folder or the file cannot be made. Every method raises it if an earlier
            event was not written.
        MissingExtraError: the packages of the extra `tensorboard` are not installed.

    Examples:
        >>> import os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with gc.train.SummaryWriter(folder) as writer:
        ...     for step in range(10):
        ...         writer.scalar("loss", 1 / (step + 1), step)
        ...     writer.histogram("weights", np.random.normal(size=1000), step)
        >>> len(os.listdir(folder))
        1
    """

    # -- values -------------------------------------------------------------------------------

    def scalar(self, tag: str, value: Values, step: int, *, description: str = "") -> None:
        """Logs a point of a curve.

        Args:
            tag: the name of the curve. Tags with the same text before the first slash are a group.
            value: a number, or an array of rank 0. NaN and infinity are shown by triangles.
            step: the position on the curve.
            description: Markdown, shown beside the curve.

        Raises:
            ShapeError, DTypeError: the value is not one real number.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.scalar("loss", 0.5, step=10)
        """
        array = host_copy("scalar", value)
        require_rank("scalar", array, (0,), "log each element under a tag, or a histogram")
        number = float(array)
        self._put("scalar", tag, step, 0, lambda: scalar(tag, number, description))

    def image(
        self, tag: str, images: Values, step: int, *, most: int = 4, description: str = ""
    ) -> None:
        """Logs an image, or the first images of a batch.

        Args:
            tag: the name of the image.
            images: [height, width], [height, width, channels] or [images, height, width, channels],
                with 1 to 4 channels (gray, gray and alpha, RGB, RGB and alpha). uint8, or bools and
                floats from 0 to 1; other floats are clipped. A pixel is red where a float is NaN or
                infinite.
            step: the training step.
            most: how many images of a batch to log.
            description: Markdown, shown beside the image.

        Raises:
            ShapeError, DTypeError: the value is no image.
            MissingExtraError: Pillow is not installed.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.image("digits", np.zeros((2, 8, 8, 1)), step=10)
        """
        pixels = checked_images(images, checked_number("image", "most", most, 1))
        self._put("image", tag, step, pixels.nbytes, lambda: image(tag, pixels, description))

    def audio(
        self,
        tag: str,
        sounds: Values,
        step: int,
        *,
        sample_rate: int = 44_100,
        most: int = 4,
        description: str = "",
    ) -> None:
        """Logs a sound, or the first sounds of a batch.

        Args:
            tag: the name of the sound.
            sounds: [samples], [samples, channels] or [sounds, samples, channels], with 1 or 2
                channels. int16, or floats from -1 to 1; other floats are clipped, and NaN is
                silence.
            step: the training step.
            sample_rate: samples per second.
            most: how many sounds of a batch to log.
            description: Markdown, shown beside the sound.

        Raises:
            ShapeError, DTypeError: the value is no sound.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.audio("tone", np.sin(np.arange(8000) / 3), step=10, sample_rate=8000)
        """
        rate = checked_number("audio", "sample_rate", sample_rate, 1)
        samples = checked_sounds(sounds, checked_number("audio", "most", most, 1))
        self._put(
            "audio", tag, step, samples.nbytes, lambda: audio(tag, samples, rate, description)
        )

    def histogram(
        self, tag: str, values: Values, step: int, *, buckets: int = 30, description: str = ""
    ) -> None:
        """Logs the distribution of an array's elements, for the views of histograms and of
        distributions.

        NaN and infinite elements are left out. From the first step that has some, their number is
        the curve `<tag>/nonfinite`.

        Args:
            tag: the name of the histogram.
            values: an array of any shape and of any real dtype; it may be empty.
            step: the training step.
            buckets: the number of intervals of equal width.
            description: Markdown, shown beside the histogram.

        Raises:
            DTypeError: the elements are not real numbers.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.histogram("weights", np.arange(10.0), step=10)
        """
        count = checked_number("histogram", "buckets", buckets, 1)
        array = host_copy("histogram", values)
        self._put(
            "histogram", tag, step, array.nbytes, lambda: histogram(tag, array, count, description)
        )
        bad = nonfinite(array)
        if bad or tag in self._nonfinite:
            self._nonfinite.add(tag)
            self.scalar(f"{tag}/nonfinite", bad, step, description=_NONFINITE)

    def text(
        self,
        tag: str,
        text: str | Sequence[str] | Sequence[Sequence[str]],
        step: int,
        *,
        description: str = "",
    ) -> None:
        """Logs Markdown.

        Args:
            tag: the name of the text.
            text: a text, a list of texts, or a table as a list of rows of texts.
            step: the training step.
            description: Markdown, shown beside the text.

        Raises:
            DTypeError: it holds something else than texts.
            ShapeError: the rows of a table have different lengths, or the rank is above 2.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.text("notes", "a **new** rate", step=10)
        """
        texts = checked_texts(text)
        size = sum(map(len, texts.reshape(-1)))
        self._put("text", tag, step, size, lambda: text_summary(tag, texts, description))

    def pr_curve(
        self,
        tag: str,
        labels: Values,
        predictions: Values,
        step: int,
        *,
        weights: Values | None = None,
        thresholds: int = 201,
        description: str = "",
    ) -> None:
        """Logs the precision and the recall of a binary classifier at evenly spaced thresholds.

        Args:
            tag: the name of the curve.
            labels: bools, or 0 and 1.
            predictions: probabilities from 0 to 1, of the shape of the labels.
            step: the training step.
            weights: of the examples; at least 0. They are broadcast.
            thresholds: how many.
            description: Markdown, shown beside the curve.

        Raises:
            ShapeError, DTypeError, AttributeValueError: the arguments are not of this form.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.pr_curve("val", labels=[0, 1], predictions=[0.2, 0.9], step=10)
        """
        count = checked_number("pr_curve", "thresholds", thresholds, 2)
        table = pr_table(labels, predictions, weights, count)
        self._put("pr_curve", tag, step, table.nbytes, lambda: pr_curve(tag, table, description))

    # -- the run ------------------------------------------------------------------------------

    def hparams(self, values: Mapping[str, Hparam], *, trial: str | None = None) -> None:
        """Logs the hyperparameters of the run. The HParams view shows them beside the run's
        scalars, and beside those of runs in subfolders, such as `train` and `validation`.

        Closing the writer marks the run as a success; leaving the `with` block by an exception, as
        a failure; by Ctrl-C or SystemExit, as running, since it may be resumed. TensorBoard shows
        the first values and the first mark in a folder.

        Args:
            values: name -> a finite number, a text or a bool.
            trial: runs with the same trial are one row, with averages. By default, these are the
                runs with equal hyperparameters.

        Raises:
            AttributeValueError: a value is something else.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.hparams({"rate": 0.1, "optimizer": "adam"})
        """
        found = checked_hparams(values)
        now = time.time()
        self._put_event("hparams", 0, lambda: event(now, 0, session_start(found, trial)))
        self._hparams = True

    def graph(self, target: Graph | Program | Executable) -> None:
        """Logs a graph for the Graphs view. The last one that is logged in a run is shown.

        Name scopes are boxes, sizes are labels of edges, devices are colors. The body of a loop, a
        branch or a function is a scope below its node, from `args` to `results`.

        Args:
            target: a graph; a program, such as `executable.pass_history().after("prune")`; or an
                executable, for the program that runs.

        Raises:
            AttributeValueError: it is something else.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> x = gc.placeholder((3,), name="x")
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.graph(graph)
        """
        described = graph_def(_program_of("graph", target))
        content: bytes = described.definition.SerializeToString()
        now = time.time()
        self._put_event(
            "graph",
            len(content),
            lambda: _serialized(protos().event.Event(wall_time=now, graph_def=content)),
        )

    def run_metadata(
        self,
        tag: str,
        target: Graph | Program | Executable,
        step: int,
        *,
        seconds: Mapping[str, float] | Mapping[Node, float],
        memory: Mapping[str, int] | Mapping[Node, int] | None = None,
    ) -> None:
        """Logs the time and the memory of nodes. The Graphs view offers the tag beside the graph
        of the run, and colors by compute time or by memory.

        Args:
            tag: what was measured, such as "step 1000". Each tag of a run can be used once.
            target: what was given to `graph`.
            step: the training step.
            seconds: node, or its name -> its compute time in a step.
            memory: node, or its name -> bytes. By default the bytes of its results, for nodes
                whose sizes are known.

        Raises:
            UnknownNameError: the target has no such node.
            AttributeValueError: a time or a size is not a finite number of at least 0.
            GraphcError: an earlier event was not written.

        Examples:
            >>> import tempfile
            >>> x = gc.ones((3,), name="x")
            >>> with gc.train.SummaryWriter(tempfile.mkdtemp()) as writer:
            ...     writer.run_metadata("step 10", graph, 10, seconds={"x": 0.001})
        """
        name = checked_tag("run_metadata", tag)
        if name in self._measured:
            raise AttributeValueError.here(
                f"SummaryWriter.run_metadata: the tag {tag!r} has been logged",
                hint='TensorBoard shows one measurement under a tag: give another, "step 2000"',
            )
        described = graph_def(_program_of("run_metadata", target))
        content: bytes = run_metadata(described, seconds, memory).SerializeToString()
        number = checked_step("run_metadata", step)
        now = time.time()

        def encode() -> bytes:
            message = protos().event
            tagged = message.TaggedRunMetadata(tag=name, run_metadata=content)
            return _serialized(
                message.Event(wall_time=now, step=number, tagged_run_metadata=tagged)
            )

        self._put_event("run_metadata", len(content), encode)
        self._measured.add(name)


_NONFINITE = "The number of elements that are NaN or infinite. The histogram leaves them out."

explain_methods(SummaryWriter)


def _serialized(message: Any) -> bytes:
    made: bytes = message.SerializeToString()
    return made


def _program_of(method: str, target: Graph | Program | Executable) -> Graph | Program:
    if isinstance(target, Executable):
        return target.program
    if not isinstance(target, Graph | Program):
        raise AttributeValueError.here(
            f"SummaryWriter.{method}: takes a graph, a program or an executable, got "
            f"{type(target).__name__}",
            hint="session.graph is the graph of a session",
        )
    return target
