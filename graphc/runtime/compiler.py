"""`gc.compile`: graph -> functionalize -> passes -> bind sizes -> replicate -> JAX -> XLA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from graphc.build.specs import TensorSpec
from graphc.config import CompileOptions
from graphc.devices.placer import place
from graphc.devices.strategy import DataParallel
from graphc.errors import AttributeValueError, FeedError, GraphError
from graphc.ir.dtypes import as_dtype
from graphc.ir.fingerprint import cache_key
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.runtime.environment import environment
from graphc.runtime.executable import Executable
from graphc.runtime.executors import SingleDevice
from graphc.runtime.feeds import FeedSpec, bind_feeds
from graphc.runtime.fetches import FetchNest, resolve_feeds
from graphc.runtime.initial import state_types
from graphc.runtime.prepare import Prepared, bind, prepare
from graphc.runtime.replicated import Replicated
from graphc.runtime.state import StateLayout


def compile(
    graph: Graph,
    fetches: Any,
    feeds: Mapping[Any, Any] | None = None,
    *,
    strategy: DataParallel | None = None,
    options: CompileOptions | None = None,
) -> Executable:
    """Compiles one step ahead of time. Finalizes the graph.

    Args:
        fetches: a nest (lists, tuples, dicts) of tensors, variables, nodes and names.
        feeds: tensor or name -> the global shape it will be fed with, as a tuple, a
            `TensorSpec`, or anything with a shape and a dtype.
        strategy: a `gc.devices.DataParallel`, or None for one device.
        options: see `CompileOptions`.

    Raises:
        FeedError, FetchError, UnknownNameError: feeds and fetches that do not fit the graph.
        LayoutError, DeviceError: the strategy cannot be followed.
    """
    if not isinstance(graph, Graph):
        raise GraphError(
            f"the first argument must be a graph, got {type(graph).__name__}",
            mend="gc.compile(graph, fetches, feeds)",
        )
    options = checked_options(options)
    nest = FetchNest(graph, fetches)
    given = resolve_feeds(graph, {} if feeds is None else feeds)
    prepared = prepare(graph, nest.distinct, list(given), options)
    shapes = [_shape_of(tensor, value) for tensor, value in given.items()]
    layout = StateLayout(state_types(graph))
    return build(graph, nest, list(given), prepared, shapes, layout, strategy, options)


def checked_options(options: CompileOptions | None) -> CompileOptions:
    """`options`, or the defaults.

    Raises:
        AttributeValueError: something else was given.
    """
    if options is None:
        return CompileOptions()
    if not isinstance(options, CompileOptions):
        raise AttributeValueError(
            f"options must be a gc.CompileOptions, got {type(options).__name__}"
        )
    return options


def build(
    graph: Graph,
    nest: FetchNest,
    feeds: Sequence[Tensor],
    prepared: Prepared,
    shapes: Sequence[Sequence[int]],
    layout: StateLayout,
    strategy: DataParallel | None,
    options: CompileOptions,
    device: jax.Device | None = None,
) -> Executable:
    """The executable of a prepared fetch set for feeds of these shapes. Finalizes the graph.

    Args:
        device: the one that state lies on already, which overrides what the program asks for.
    """
    bindings = bind_feeds(prepared.program, shapes, prepared.sources)
    program, late = bind(prepared, bindings, options)
    notes: list[str] = []
    executor: SingleDevice | Replicated
    if strategy is None:
        wanted, notes = place(program)
        if device is not None and device != wanted:
            notes = [*notes, f"runs on {device}, where the state is, not on {wanted}"]
        devices: Sequence[jax.Device] = [device or wanted]
        executor = SingleDevice(program, options, devices[0])
    else:
        executor = Replicated(program, options, strategy, prepared.sources)
        devices, notes = executor.devices, executor.notes
    key = cache_key(
        prepared.functional,
        bindings=bindings,
        options=_key_options(options, strategy),
        extra=environment(devices),
    )
    on_cpu = devices[0].platform == "cpu"
    specs = [
        FeedSpec(port, prepared.sources.get(port.name), copy=on_cpu)
        for port in program.ports("feed")
    ]
    graph.finalize()
    return Executable(
        graph,
        executor,
        specs=specs,
        feeds=feeds,
        rebuild=nest.rebuild,
        layout=layout,
        donate=options.donate,
        reports=[prepared.report] + ([late] if late is not None else []),
        key=key,
        devices=devices,
        notes=notes,
    )


def _key_options(options: CompileOptions, strategy: DataParallel | None) -> dict[str, str]:
    """The options that change the executable; checks and dumps do not."""
    return {
        "pipeline": options.pipeline,
        "donate": str(options.donate),
        "xla_options": str(sorted(options.xla_options.items())),
        "strategy": str(strategy),
    }


def _shape_of(tensor: Tensor, value: Any) -> tuple[int, ...]:
    """The shape that a feed of `gc.compile` declares."""
    if isinstance(value, TensorSpec) or hasattr(value, "shape"):
        dtype = getattr(value, "dtype", None)
        if dtype is not None and as_dtype(dtype) != tensor.type.dtype:
            raise FeedError(
                f"feed {tensor.name!r} is {tensor.type.dtype.name} in the graph, "
                f"{as_dtype(dtype).name} in feeds",
                source=tensor.node.source,
            )
        value = value.shape
    if isinstance(value, int):
        value = (value,)
    if not isinstance(value, (tuple, list)) or not all(type(d) is int and d >= 0 for d in value):
        raise FeedError(
            f"feed {tensor.name!r}: {value!r} is not a shape",
            source=tensor.node.source,
            mend="give a tuple of ints: feeds={x: (128, 784)}",
        )
    return tuple(value)
