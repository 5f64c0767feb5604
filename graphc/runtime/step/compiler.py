"""`gc.compile`: graph -> functionalize -> passes -> bind sizes -> replicate -> JAX -> XLA."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax

from graphc.build.specs import TensorSpec
from graphc.config import CompileOptions
from graphc.devices.asynchronous import AsyncDataParallel
from graphc.devices.machine import Machine
from graphc.devices.mesh import Mesh, Strategy
from graphc.devices.pipelining import PipelineParallel
from graphc.devices.remote_session import RemoteSession
from graphc.devices.remote_workers import RemoteWorkers
from graphc.devices.strategy import DataParallel
from graphc.errors import AttributeValueError, FeedError, GraphError
from graphc.ir.dtypes import as_dtype, kind_of
from graphc.ir.graph import Graph
from graphc.ir.host_values import is_typed_key
from graphc.ir.node import Tensor
from graphc.ir.stack import within_stack
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.buffers.state_buffers import propose
from graphc.runtime.core.across import spans_processes
from graphc.runtime.core.background import in_background
from graphc.runtime.core.forking import FORKING, SharedLock
from graphc.runtime.feeds.batches import checked_count
from graphc.runtime.feeds.fetches import FetchSet, resolve_feeds
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.executable_cache import CacheBackend, CacheSlot
from graphc.runtime.pipeline.joint import agree_on_program
from graphc.runtime.pipeline.placement_log import PlacementLog
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.pipeline.stages import Stages
from graphc.runtime.pipeline.tuned import find_tuned
from graphc.runtime.state.initial import state_types
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.executors import Executor
from graphc.runtime.targets.interface import Interface
from graphc.runtime.targets.prepare import prepare
from graphc.typing import Feeds, Fetches


def compile(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds | None = None,
    *,
    strategy: Strategy | None = None,
    options: CompileOptions | None = None,
    soft_placement: bool = True,
    log_placement: bool = False,
    steps: int | None = None,
    machine: Machine | str | None = None,
) -> Executable:
    """Compiles one step ahead of time, or finds it in the cache. Finalizes the graph.

    Args:
        fetches: a nest (lists, tuples, dicts) of tensors, variables, nodes and names.
        feeds: tensor or name -> the global shape it will be fed with, as a tuple, a
            `TensorSpec`, or anything with a shape and a dtype.
        strategy: a `gc.devices.DataParallel`, `Mesh` or `PipelineParallel`; or None.
        options: see `CompileOptions`.
        soft_placement, log_placement: as for `Session`.
        steps: how many steps a call makes in a loop on the device. Feeds and fetched values then
            have a leading axis of that size, which is not part of the shapes in `feeds`. None
            means one step without such an axis. See `Session.run_steps`.
        machine: GPUs to compile for, such as "8xh100". This machine need not have them.

    Raises:
        FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph.
        AttributeValueError: `steps` is not a valid number of steps.
        LayoutError, DeviceError: the strategy cannot be followed.
        MissingExtraError: `machine` was given, and JAX's CUDA plugin is not installed.
        MemoryLimitError: the program does not fit into the memory of `machine`.
        CacheError: other users have access to the folder that `options.cache` names.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> step = gc.compile(graph, {"sum": gc.reduce_sum(x)}, {x: (3,)})
        >>> fetched, state = step(step.init(), {x: [1.0, 2.0, 3.0]})
        >>> fetched
        {'sum': Array(6., dtype=float32)}
    """
    step = _begin(
        graph, fetches, feeds, strategy, options, soft_placement, log_placement, steps, machine
    )
    return step.wait()


def compile_async(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds | None = None,
    *,
    strategy: Strategy | None = None,
    options: CompileOptions | None = None,
    soft_placement: bool = True,
    log_placement: bool = False,
    steps: int | None = None,
    machine: Machine | str | None = None,
) -> Future[Executable]:
    """Like `compile`, but lowers and compiles in the background, several steps at a time.
    Finalizes the graph.

    The arguments are those of `compile`. Errors in the program are raised at once. If XLA rejects
    the program, `result()` of the future raises the error.

    Examples:
        >>> x = gc.placeholder((None,), name="x")
        >>> steps = [gc.compile_async(graph, gc.reduce_sum(x), {x: (n,)}) for n in (2, 3)]
        >>> step = steps[1].result()
        >>> step(step.init(), {x: [1.0, 2.0, 3.0]})[0]
        Array(6., dtype=float32)
    """
    step = _begin(
        graph, fetches, feeds, strategy, options, soft_placement, log_placement, steps, machine
    )
    return in_background(step.wait)


def _begin(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds | None,
    strategy: Strategy | None,
    options: CompileOptions | None,
    soft: bool,
    log: bool,
    steps: int | None,
    machine: Machine | str | None,
) -> Executable:
    """The executable. It is compiled when `wait` is called."""
    check_graph(graph, "gc.compile(graph, fetches, feeds)")
    options = checked_options(options)
    check_strategy(strategy)
    refuse_workers(strategy, "compile")
    count = None if steps is None else checked_count(steps, "compile: steps")
    given = resolve_feeds(graph, {} if feeds is None else feeds)
    fetch_set = FetchSet.of(graph, fetches, given)
    described = checked_machine(machine, "compile")
    request = CompileRequest(
        prepare(graph, fetch_set.nest.distinct, fetch_set.feeds, options),
        [shape_of(tensor, given[tensor]) for tensor in fetch_set.feeds],
        options,
        strategy,
        count,
        soft=soft,
        machine=described,
    )
    placements = PlacementLog(described) if log else None
    with _LOCK.lock:
        layout = _LAYOUTS.get(graph, StateLayout({})).with_variables(state_types(graph))
        step = build(fetch_set, request, layout, placements)
        _LAYOUTS[graph] = step.layout
    return step


# The layouts of executables' states. Executables of one graph share a layout where possible.
_LAYOUTS: WeakKeyDictionary[Graph, StateLayout] = WeakKeyDictionary()
_LOCK = SharedLock()


def check_graph(graph: object, call: str) -> None:
    """Raises `GraphError` for a first argument that is no graph; `call` is a correct call."""
    if not isinstance(graph, Graph):
        raise GraphError(
            f"the first argument must be a graph, got {type(graph).__name__}", hint=call
        )


def checked_options(options: CompileOptions | None) -> CompileOptions:
    """`options`, or the defaults.

    Raises:
        AttributeValueError: `options` has another type.
    """
    if options is None:
        return CompileOptions()
    if not isinstance(options, CompileOptions):
        raise AttributeValueError(
            f"options must be a gc.CompileOptions, got {type(options).__name__}",
            hint='gc.CompileOptions(precision="bf16")',
        )
    return options


def check_strategy(strategy: object) -> None:
    """Raises `AttributeValueError` for what is not a strategy, such as a number or a class."""
    of_steps = DataParallel | Mesh | PipelineParallel
    of_sessions = AsyncDataParallel | RemoteWorkers | RemoteSession
    if strategy is None or isinstance(strategy, of_steps | of_sessions):
        return
    given = strategy.__name__ if isinstance(strategy, type) else type(strategy).__name__
    raise AttributeValueError(
        f"strategy must be an object of gc.devices or gc.cluster, got {given}",
        hint="strategy=gc.devices.DataParallel(2)",
    )


def checked_machine(machine: Machine | str | None, function: str) -> Machine | None:
    """`machine` as a record.

    Raises:
        AttributeValueError: it is not a machine.
    """
    if machine is None or isinstance(machine, Machine):
        return machine
    if isinstance(machine, str):
        return Machine(machine)
    raise AttributeValueError(
        f"{function}: machine must be a gc.devices.Machine, got {type(machine).__name__}",
        hint='pass machine="8xh100"',
    )


def refuse_workers(strategy: object, function: str) -> None:
    """Raises `AttributeValueError` for a strategy that does not apply to single steps."""
    if isinstance(strategy, AsyncDataParallel | RemoteWorkers | RemoteSession):
        raise AttributeValueError(
            f"{function}: {type(strategy).__name__} is for sessions, and a single step has no "
            "workers or tasks",
            hint="gc.Session(graph, strategy=...)",
        )


@within_stack
def build(
    fetch_set: FetchSet,
    request: CompileRequest,
    layout: StateLayout,
    log: PlacementLog | None = None,
) -> Executable:
    """The executable of a fetch set. It comes from the cache. Otherwise the passes run now, and it
    is lowered and compiled when that is first needed. Finalizes the graph.

    Args:
        layout: the layout of the existing state. The executable's layout may have more groups.
        log: records the placement of nodes and variables.
    """
    FORKING.use_devices()
    compilation = Compilation(request)
    if log is not None:
        log.add(compilation)
    if compilation.placement is not None:
        layout = layout.parted(compilation.placement.homes)
    if spans_processes(compilation.devices):
        agree_on_program(compilation)
    tuned = find_tuned(compilation, layout)
    if tuned is not None:
        compilation = compilation.under(tuned.choice.apply(request.options))
        compilation.notes.append(str(tuned))
    executable = assemble(fetch_set, compilation, CacheSlot(compilation, layout), layout)
    fetch_set.graph.finalize()
    return executable


def assemble(
    fetch_set: FetchSet, compilation: Compilation, slot: CacheBackend, layout: StateLayout
) -> Executable:
    """The executable of a compilation: found in `slot`, or made and stored there."""
    made = make(compilation, slot, layout)
    return Executable(
        fetch_set,
        made.executor,
        layout=made.layout,
        report=made.report,
        key=compilation.key,
        stages=made.stages,
        load_seconds=made.seconds,
        notes=compilation.notes,
    )


class Made(NamedTuple):
    """The result for a program: found in the cache, or compiled when it first runs.

    Attributes:
        executor: runs the program.
        stages: the stages of its compilation.
        layout: the layout of the state; it has the buffers that the program uses.
        report: what the passes did.
        seconds: how long reading it from the cache took; None if the cache did not have it.
    """

    executor: Executor
    stages: Stages
    layout: StateLayout
    report: PassReport
    seconds: float | None


def make(
    compilation: Compilation, slot: CacheBackend, layout: StateLayout, *, grow: bool = True
) -> Made:
    """The result of a compilation: found in `slot`, or made and stored there.

    Args:
        layout: the layout of the existing state.
        grow: whether state may be put into more groups; otherwise its layout does not change.
    """
    options = compilation.options

    def executor(interface: Interface, compiled: Callable[[], Any]) -> Executor:
        return Executor(interface, compiled, compilation.devices, options.max_in_flight)

    found = slot.find()
    if found is not None and (grow or found.layout.buffers == layout.buffers):
        stages = Stages(compilation, found.layout, budget=found.budget, names=found.names)
        ready = executor(found.interface, lambda: found.compiled)
        return Made(ready, stages, found.layout, found.report, found.seconds)
    if grow:
        layout = layout.with_groups(propose(compilation.program, layout, options.state_buffers))
    stages = Stages(compilation, layout, slot.keep if found is None else None)
    ready = executor(stages.interface, lambda: stages.compiled)
    return Made(ready, stages, layout, compilation.report, None)


def shape_of(tensor: Tensor, value: Any) -> tuple[int, ...]:
    """The shape that a feed of `gc.compile` declares. A value may have a dtype that a run casts."""
    if is_typed_key(value):
        value = jax.random.key_data(value)
    if isinstance(value, TensorSpec) or hasattr(value, "shape"):
        dtype = getattr(value, "dtype", None)
        if dtype is not None and kind_of(as_dtype(dtype)) != kind_of(tensor.type.dtype):
            raise FeedError(
                f"feed {tensor.name!r} is {tensor.type.dtype.name} in the graph, "
                f"{as_dtype(dtype).name} in feeds",
                source=tensor.node.source,
                hint="feeds are cast within a kind only (bool, integer, floating, complex)",
            )
        value = value.shape
    if isinstance(value, int):
        value = (value,)
    if not isinstance(value, (tuple, list)) or not all(type(d) is int and d >= 0 for d in value):
        raise FeedError(
            f"feed {tensor.name!r}: {value!r} is not a shape",
            source=tensor.node.source,
            hint="give a tuple of ints: feeds={x: (128, 784)}",
        )
    return tuple(value)
