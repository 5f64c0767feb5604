"""The part of a job that is compiled or inspected: its fetches, and the shapes of its feeds."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from graphc.cli.script import load_job
from graphc.config import CompileOptions
from graphc.devices.machine import Machine
from graphc.devices.strategy import DataParallel
from graphc.errors import FeedError
from graphc.ir.capture import choose
from graphc.ir.dims import as_symbol, substitute
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.opdef import Effects
from graphc.runtime.feeds.fetches import FetchNest, resolve_feed
from graphc.train.job import Job
from graphc.train.stepping import step_fetches


class Target(NamedTuple):
    """A nest of fetches, and the shape of each feed that they need."""

    fetches: Any
    nest: FetchNest
    feeds: dict[Tensor, tuple[int, ...]]


def job_and_target(options: argparse.Namespace) -> tuple[Job, Target]:
    """The job of the script, and the target that `--fetch` and `--feed` choose: see `target_of`."""
    job = load_job(options.script, options.arguments)
    return job, target_of(job, options.fetch, options.feed)


def target_of(
    job: Job, names: Sequence[str], shapes: Sequence[tuple[str, tuple[int, ...]]]
) -> Target:
    """The target of `--fetch` and `--feed`: by default a training step on the job's first batch.

    Raises:
        UnknownNameError: there is no such tensor, node or variable.
        FeedError: the sizes of a needed feed are not known, or a feed is not needed.
    """
    graph = job.graph
    fetches: Any = list(names) or step_fetches(job.train, job.metrics)
    nest = FetchNest(graph, fetches)
    given = {resolve_feed(graph, name): shape for name, shape in shapes}
    needed = _needed(graph, nest, set(given))
    sizes = _sizes(graph, given)
    unknown = [t for t in needed if t not in given]
    shapes_by_size = {t: _bound(graph, t, sizes) for t in unknown}
    if None in shapes_by_size.values():
        known = _first_batch(job)
        shapes_by_size |= {
            t: known[t] for t, s in shapes_by_size.items() if s is None and t in known
        }
    for tensor, shape in shapes_by_size.items():
        if shape is None:
            raise _not_known(tensor)
        given[tensor] = shape
    return Target(fetches, nest, given)


def _sizes(graph: Graph, given: Mapping[Tensor, Sequence[int]]) -> dict[str, int]:
    """The named sizes that follow from the given shapes; each class of sizes has one name."""
    sizes: dict[str, int] = {}
    for tensor, shape in given.items():
        for dim, size in zip(tensor.type.shape, shape, strict=False):
            name = as_symbol(graph.constraints.find(dim))
            if name is not None:
                sizes.setdefault(name, size)
    return sizes


def _bound(graph: Graph, tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of a feed, if these sizes determine it."""
    dims = [substitute(graph.constraints.find(dim), sizes) for dim in tensor.type.shape]
    known = tuple(dim for dim in dims if isinstance(dim, int))
    return known if len(known) == len(dims) else None


def _needed(graph: Graph, nest: FetchNest, fed: set[Tensor]) -> list[Tensor]:
    """The placeholders that the fetches depend on, in program order."""
    chosen = choose(graph, nest.distinct, fed)
    return [n.outputs[0] for n in graph.nodes if n in chosen and n.op.effects & Effects.FEED]


def _first_batch(job: Job) -> dict[Tensor, tuple[int, ...]]:
    feeds = next(iter(job.batches), {})
    return {resolve_feed(job.graph, key): np.shape(value) for key, value in feeds.items()}


def _not_known(tensor: Tensor) -> FeedError:
    name = tensor.name.removesuffix(":0")
    sizes = ",".join(str(dim) for dim in tensor.type.shape)
    return FeedError(
        f"feed {name!r} is {tensor.type}, and its sizes are not known",
        source=tensor.node.source,
        hint=f"give them: --feed {name}={sizes}, with numbers",
    )


def machine_of(options: argparse.Namespace) -> Machine | None:
    """The machine of `--machine`; without it, devices are requested by `ask_for_devices`."""
    if options.machine is not None:
        return Machine(options.machine)
    ask_for_devices(options.devices or 1)
    return None


def ask_for_devices(count: int) -> None:
    """Requests that the CPU is split into `count` virtual devices, in case there are no others.

    It must be called before JAX uses a device. Flags that the user passed to XLA are unchanged.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if count > max(1, getattr(jax.config, "jax_num_cpu_devices", 0)):
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError:
            return  # devices exist already; if there are too few, using them raises the error


def strategy_for(count: int) -> DataParallel | None:
    """Data parallelism over the first `count` devices; None for one device.

    Raises:
        DeviceError: there are fewer devices.
    """
    if count == 1:
        return None
    strategy = DataParallel(count)
    strategy.resolve()
    return strategy


def strategy_on(machine: Machine | None, count: int | None) -> DataParallel | None:
    """Data parallelism over `count` devices; None for one device.

    Args:
        machine: the machine with the devices; None for this process.
        count: the number of devices; by default all of `machine`, or one of this process.

    Raises:
        DeviceError: this process has fewer devices. Compiling checks those of `machine`.
    """
    if machine is None:
        return strategy_for(count or 1)
    count = count or machine.count
    return None if count == 1 else DataParallel(count)


def options_with_cache(folder: str | None) -> CompileOptions:
    """The default options, with compiled programs stored in `folder` if it is given."""
    return CompileOptions() if folder is None else CompileOptions(cache=folder)
