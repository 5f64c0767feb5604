"""`Job`: a graph to train, with its batches and the number of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphc.artifacts.signature import Signature
from graphc.ir.calls import explained
from graphc.ir.graph import Graph
from graphc.runtime.session import Session
from graphc.train.callbacks.base import Callback
from graphc.train.evaluation import Metric, Validation
from graphc.typing import Feeds, Fetches


@dataclass(frozen=True)
class Job:
    """The training job for `graphc train script.py`, which the script's `build()` returns.

    Attributes:
        graph: the whole graph.
        train: the fetch that runs one step: the result of `gc.minimize`.
        batches: feeds of each step, in order, by name or tensor; at least `steps` of them.
        steps: how many steps to run. If it is None, `epochs` determines the end of the loop.
        metrics: name -> a scalar tensor, or a metric of `gc.metrics`, whose value covers the steps
            of the epoch so far. Each step computes them.
        evaluate: a function that takes the session after training and returns figures to print.
        signatures: the signatures that `--save` writes to the artifact.
        epochs: how many times to go through `batches`. With `steps` too, the loop ends at the limit
            that is reached first.
        validation: the validation of `fit`.
        callbacks: objects that `fit` calls while it trains.

    Examples:
        >>> x = gc.placeholder((), name="x")
        >>> w = gc.variable(0.0, name="w")
        >>> loss = (w - x) ** 2
        >>> train = gc.minimize(loss, optax.sgd(0.5))
        >>> job = gc.train.Job(graph, train, [{"x": 3.0}] * 4, steps=4, metrics={"loss": loss})
        >>> gc.train.fit(gc.Session(graph), job, progress=False).metrics["loss"]
        array([9., 0., 0., 0.])
    """

    graph: Graph
    train: Fetches
    batches: Iterable[Feeds]
    steps: int | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    evaluate: Callable[[Session], Mapping[str, float]] | None = None
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    epochs: int | None = None
    validation: Validation | None = None
    callbacks: Sequence[Callback] = ()


Job.__init__ = explained(Job.__init__)  # type: ignore[method-assign]
