"""`gc.report`: a graph, what passes make of it and what it costs, as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphc.artifacts.entry_point import EntryPoint
from graphc.artifacts.loading import Model
from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.errors import AttributeValueError
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType
from graphc.reports.graph_data import Compiled, data_of, data_of_graph
from graphc.reports.graph_page import page
from graphc.reports.source_files import write_report
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.buffers.state_buffers import propose
from graphc.runtime.feeds.fetches import FetchSet, resolve_feeds
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.session import Session
from graphc.runtime.state.initial import state_types
from graphc.runtime.step.compiler import check_strategy, checked_options, refuse_workers, shape_of
from graphc.runtime.step.executable import Executable
from graphc.runtime.step.pass_history import pass_history
from graphc.runtime.targets.partitioned import PartitionedProgram
from graphc.runtime.targets.prepare import prepare
from graphc.typing import Feeds, Fetches


def report(
    target: Graph | Session | Executable,
    path: str | Path,
    fetches: Fetches | None = None,
    feeds: Feeds | None = None,
    *,
    strategy: Strategy | None = None,
    options: CompileOptions | None = None,
) -> None:
    """Writes a page about a graph or a compiled step. It is one file and needs no network.

    The page shows the graph before and after each pass, with scopes that fold, a search, and the
    line of your program that made each node. It shows the cost and memory of each node, the memory
    over the step, what each device runs, the passes, and the placement. XLA is not needed for it:
    costs and memory are estimated from shapes.

    Args:
        target: a graph, a session, or an executable. Without `fetches`, a graph is shown as it was
            built, and a session shows the executable that it compiled last.
        path: the file to write.
        fetches: as for `Session.run`.
        feeds: tensor or name -> shape or value, as for `gc.compile`.
        strategy, options: as for `gc.compile`, if `target` is a graph.

    Raises:
        AttributeValueError: `target` is none of these, or an argument does not apply to it.
        FeedError, FetchError, UnknownNameError: feeds or fetches do not fit the graph.
        LayoutError, DeviceError: the strategy cannot be followed.
        GraphcError: the file cannot be written.

    Examples:
        >>> import pathlib, tempfile
        >>> x = gc.placeholder((None, 4), name="x")
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
        >>> gc.report(graph, path, gc.exp(x), {x: (8, 4)})
        >>> path.read_text()[:15]
        '<!doctype html>'
    """
    if fetches is None and feeds is not None:
        raise AttributeValueError.here(
            "report: feeds were given without fetches",
            hint="gc.report(graph, path, fetches, feeds)",
        )
    write_report(path, page(_data(target, fetches, feeds, strategy, options)))


def _data(
    target: object,
    fetches: Fetches | None,
    feeds: Feeds | None,
    strategy: Strategy | None,
    options: CompileOptions | None,
) -> Mapping[str, Any]:
    if isinstance(target, Graph):
        if fetches is None:
            _refuse_without_fetches(strategy, options)
            return data_of_graph(target)
        compilation = _compilation(target, fetches, feeds, strategy, options)
        return data_of(_compiled(compilation, state_types(target)))
    if strategy is not None or options is not None:
        raise AttributeValueError.here(
            "report: strategy and options are for a graph; a session and an executable have theirs"
        )
    if isinstance(target, Session):
        return data_of(_of_executable(_of_session(target, fetches, feeds)))
    if not isinstance(target, Executable):
        raise AttributeValueError.here(
            "report: the first argument must be a graph, a session or an executable, "
            f"got {type(target).__name__}",
            hint=_hint(target),
        )
    if fetches is not None:
        raise AttributeValueError.here("report: an executable has its fetches already")
    return data_of(_of_executable(target))


def _hint(target: object) -> str:
    """What to give instead: a function of `gc.jit` has an executable, an artifact has no passes."""
    if isinstance(getattr(type(target), "executable", None), property):
        return "give its executable: gc.report(f.executable, path), after a call of it"
    if isinstance(target, Model | EntryPoint):
        return "an artifact keeps no passes and no lines of the program; report its graph instead"
    return 'gc.report(graph, "report.html", fetches, feeds)'


def _refuse_without_fetches(strategy: Strategy | None, options: CompileOptions | None) -> None:
    """Rejects a strategy or options without fetches: then nothing is compiled."""
    for name, value in (("strategy", strategy), ("options", options)):
        if value is not None:
            raise AttributeValueError.here(
                f"report: {name} was given without fetches",
                hint=f"gc.report(graph, path, fetches, feeds, {name}=...)",
            )


def _of_session(session: Session, fetches: Fetches | None, feeds: Feeds | None) -> Executable:
    if fetches is not None:
        return session.compile(fetches, feeds)
    if not session.executables:
        raise AttributeValueError.here(
            "report: the session has not compiled anything, or was closed",
            hint="give fetches: gc.report(session, path, fetches, feeds)",
        )
    return session.executables[-1]


def _of_executable(executable: Executable) -> Compiled:
    stages = executable.stages
    return Compiled(stages.compilation, executable.pass_history(), executable.partition)


def _compilation(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds | None,
    strategy: Strategy | None,
    options: CompileOptions | None,
) -> Compilation:
    """What an executable of the fetches would be made from. No pass has run."""
    options = checked_options(options)
    check_strategy(strategy)
    refuse_workers(strategy, "report")
    given = resolve_feeds(graph, {} if feeds is None else feeds)
    fetch_set = FetchSet.of(graph, fetches, given)
    prepared = prepare(graph, fetch_set.nest.distinct, fetch_set.feeds, options)
    shapes = [shape_of(tensor, given[tensor]) for tensor in fetch_set.feeds]
    return Compilation(CompileRequest(prepared, shapes, options, strategy))


def write_page(path: str | Path, compilation: Compilation, types: Mapping[str, TensorType]) -> None:
    """Writes the page of a compilation; `types` are those of all variables of the graph."""
    write_report(path, page(data_of(_compiled(compilation, types))))


def _compiled(compilation: Compilation, types: Mapping[str, TensorType]) -> Compiled:
    """Runs the passes of a compilation. Nothing is compiled.

    Args:
        types: of all variables of the graph.
    """
    layout = StateLayout({}).with_variables(types)
    if compilation.placement is not None:
        layout = layout.parted(compilation.placement.homes)
    groups = propose(compilation.program, layout, compilation.options.state_buffers)
    layout = layout.with_groups(groups)
    history = pass_history(compilation, layout)
    made = compilation.in_jax(layout)
    partition = made.partition if isinstance(made, PartitionedProgram) else None
    return Compiled(compilation, history, partition)
