"""`gc.tune`: finds the fastest way to compile a program on this machine by measuring."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from graphc.collection import without_collection
from graphc.config import CompileOptions
from graphc.devices.machine import Machine
from graphc.devices.mesh import Strategy
from graphc.errors import AttributeValueError, GraphError
from graphc.ir.dtypes import Array
from graphc.ir.fingerprint import calls_back
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.types import TensorType
from graphc.passes.core.validate import random_value
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.batches import checked_count
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.feeds.fetches import FetchSet, resolve_feeds
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.executable_cache import CacheBackend
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.state.initial import initial_values, state_types
from graphc.runtime.step.compiler import (
    assemble,
    check_graph,
    checked_machine,
    checked_options,
    refuse_workers,
    shape_of,
)
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.prepare import Prepared, prepare
from graphc.runtime.tuning.estimates import Estimates
from graphc.runtime.tuning.search import Search
from graphc.runtime.tuning.tuning_report import Tuning
from graphc.typing import Feeds, Fetches


@without_collection()
def tune(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds | None = None,
    *,
    strategy: Strategy | None = None,
    options: CompileOptions | None = None,
    steps: int | None = None,
    machine: Machine | str | None = None,
    seconds: float = 120.0,
    tolerance: float | None = None,
    progress: bool = True,
) -> Tuning:
    """Measures ways to compile a step; later compilations of the step use the fastest one.

    Each way that gives the same results, in about the same memory, is timed next to the given
    options. A way that is clearly faster (with 95 % confidence, by at least 2 %) is stored in the
    cache under the program's key, with its executable. `gc.compile` and Sessions with the same
    fetches, feeds, sizes and options find it there, in any process. If no way is faster, nothing
    changes. The graph is finalized. Variables keep their values: the trials use copies of the
    initial ones.

    Args:
        graph: the graph.
        fetches: as for `gc.compile`.
        feeds: tensor or name -> a typical value, which is best if time or rounding depends on it;
            or the global shape, as for `gc.compile`, for random values.
        strategy, steps: as for `gc.compile`; values in `feeds` are those of one step.
        options: the start of the search. Entries of `xla_options` that you set are kept.
        machine: as for `gc.compile`: a machine that need not be present. Each way is compiled for
            it and ranked by an estimate of its time from the compiled text: the kernels at the peak
            rates of the GPUs, and the waiting time for collectives. Nothing runs, no results are
            compared, and nothing is stored: compile with `Tuning.options`.
        seconds: the time limit. A compilation that has begun is completed.
        tolerance: how far results may differ, relative to the largest magnitude. None depends on
            the dtype: 1e-4 for float32. Differences that also arise from changing the last bits of
            the inputs are always allowed.
        progress: show a progress bar on standard error.

    Returns:
        The options to compile with, and the times: `print` shows a table.

    Raises:
        AttributeValueError: `seconds` or `tolerance` is not a valid number, or the options include
            `check_numerics`.
        GraphError: the program calls back into Python, which each trial would repeat.
        FeedError, FetchError, UnknownNameError, LayoutError, DeviceError: see `gc.compile`.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> tuning = gc.tune(graph, gc.exp(x), {x: (1000,)}, seconds=0.1, progress=False)
        >>> tuning.ratio <= 1  # the time with tuning.options, relative to the default options
        True
    """
    begin = time.perf_counter()
    FORKING.use_devices()
    check_graph(graph, "gc.tune(graph, fetches, feeds)")
    _check_number("seconds", seconds)
    if tolerance is not None:
        _check_number("tolerance", tolerance, above=False)
    options = _tunable(options)
    refuse_workers(strategy, "tune")
    count = None if steps is None else checked_count(steps, "tune: steps")
    described = checked_machine(machine, "tune")
    step = _step(graph, fetches, feeds, options, strategy, count, described)
    end = begin + seconds
    if described is not None:
        found = Estimates(step.make, step.compilation, described.model, end)
        graph.finalize()
        return found.run(progress)
    values = step.values(count)
    search = Search(
        step.make, step.compilation, step.layout, initial_values(graph), values, tolerance, end
    )
    graph.finalize()
    return search.run(progress)


@dataclass(frozen=True)
class _Step:
    """The step to tune: its compilation with the given options, and what it is fed."""

    fetch_set: FetchSet
    given: Mapping[Tensor, Any]
    shapes: Sequence[tuple[int, ...]]
    compilation: Compilation
    layout: StateLayout

    def make(self, compilation: Compilation, place: CacheBackend) -> Executable:
        return assemble(self.fetch_set, compilation, place, self.layout)

    def values(self, count: int | None) -> list[Array]:
        """What each trial is fed; with a leading axis for several steps."""
        pairs = zip(self.given.items(), self.shapes, strict=True)
        return [_value(tensor, value, shape, count) for (tensor, value), shape in pairs]


def _step(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds | None,
    options: CompileOptions,
    strategy: Strategy | None,
    count: int | None,
    machine: Machine | None,
) -> _Step:
    by_tensor = resolve_feeds(graph, {} if feeds is None else feeds)
    fetch_set = FetchSet.of(graph, fetches, by_tensor)
    given = {tensor: _as_fed(tensor, by_tensor[tensor]) for tensor in fetch_set.feeds}
    prepared = prepare(graph, fetch_set.nest.distinct, fetch_set.feeds, options)
    _refuse_callbacks(prepared)
    shapes = [shape_of(tensor, value) for tensor, value in given.items()]
    request = CompileRequest(prepared, shapes, options, strategy, count, machine=machine)
    layout = StateLayout({}).with_variables(state_types(graph))
    return _Step(fetch_set, given, shapes, Compilation(request), layout)


def _refuse_callbacks(prepared: Prepared) -> None:
    if calls_back(prepared.functional):
        raise GraphError(
            "a program that calls back into Python is not tuned: each trial would call it",
            hint="tune fetches that need no gc.print and no host functions",
        )


def _tunable(options: CompileOptions | None) -> CompileOptions:
    options = checked_options(options)
    if options.check_numerics:
        raise AttributeValueError.here(
            "tune: check_numerics=True looks for errors, which costs more than any choice saves",
            hint="tune without it",
        )
    return options


def _check_number(name: str, value: Any, above: bool = True) -> None:
    if type(value) not in (int, float) or not 0 <= value < math.inf or (above and value == 0):
        least = "above 0" if above else "of at least 0"
        raise AttributeValueError.here(f"tune: {name} must be a number {least}, got {value!r}")


def _as_fed(tensor: Tensor, given: Any) -> Any:
    """A value in the dtype of its feed, as a run would convert it; anything else unchanged."""
    values: tuple[type, ...] = (np.ndarray, np.generic, jax.Array)
    if tensor.ndim == 0:
        values += (int, float, complex)  # a scalar has no shape to be given
    if not isinstance(given, values):
        return given
    source = tensor.node.source
    return np.asarray(FeedSpec.of_type(tensor.name, tensor.type, source).convert(given))


def _value(tensor: Tensor, given: Any, shape: tuple[int, ...], count: int | None) -> Array:
    """The value that each trial is fed: the given one, or a random one. For several steps it has
    a leading axis."""
    if isinstance(given, np.ndarray):
        value = given
    else:
        rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
        value = random_value(rng, TensorType(tensor.type.dtype, shape))
    return value if count is None else np.repeat(value[None], count, 0)
