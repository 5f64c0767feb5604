"""The inspection of a compiled step: its texts, cost, memory and passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from graphc.devices.partition import Partition
from graphc.ir.program import Program
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.hlo.hlo_cost import HloCost, hlo_cost
from graphc.runtime.pipeline.stages import Stages
from graphc.runtime.step.pass_history import PassHistory, pass_history
from graphc.runtime.targets.executors import Executor
from graphc.runtime.targets.partitioned import PartitionedProgram
from graphc.runtime.targets.scripts import CompiledPartition


class Inspected:
    """The inspection methods of an `Executable`. They neither run nor change it.

    Attributes:
        stages: the stages of its compilation.
        cached: whether it was found in the cache of compiled programs.
    """

    stages: Stages
    cached: bool
    executor: Executor
    _report: PassReport
    _load_seconds: float | None

    @property
    def layout(self) -> StateLayout:
        """The layout of the states that it uses without moving them."""
        raise NotImplementedError

    def wait(self) -> Self:
        """Waits until it is compiled."""
        raise NotImplementedError

    @property
    def compiled(self) -> Any:
        """JAX's compiled program; for a program on several devices, its parts.

        Examples:
            >>> type(gc.compile(graph, gc.constant(1) + 1).compiled).__name__
            'Compiled'
        """
        return self.executor.compiled

    @property
    def program(self) -> Program:
        """The optimised program, with one state value per variable. The lowered program of each
        device (`stages.local`) also includes the changes for a strategy and a memory limit.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> len(gc.compile(graph, x * 2 + 0, {x: (2,)}).program.nodes)  # the 2 and the product
            2
        """
        return self.stages.program

    @property
    def seconds(self) -> Mapping[str, float]:
        """The duration of each stage in this process, in seconds: "layout", "lower" (includes
        tracing) and "compile". If it was found in the cache, only "load".

        Examples:
            >>> options = gc.CompileOptions(cache=None)
            >>> sorted(gc.compile(graph, gc.constant(1) + 1, options=options).seconds)
            ['compile', 'layout', 'lower']
        """
        if self._load_seconds is not None:
            return {"load": self._load_seconds}
        return self.wait().stages.seconds

    def stablehlo(self) -> str:
        """The StableHLO text that JAX lowered the program to.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> "stablehlo.exponential" in gc.compile(graph, gc.exp(x), {x: (2,)}).stablehlo()
            True
        """
        return str(self.stages.lowered.as_text())

    def hlo(self) -> str:
        """The HLO text after XLA's own passes.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> gc.compile(graph, gc.exp(x), {x: (2,)}).hlo().startswith("HloModule")
            True
        """
        return str(self.executor.compiled.as_text())

    def cost(self) -> dict[str, float]:
        """The cost of one run on each device. For a program on several devices by `gc.device`, the
        total cost on all of them.

        There are two kinds of numbers. They have different names, because they count loops
        differently:

        - XLA's estimate, if there is one: "flops", "bytes accessed" and more. The body of a loop
          counts once, for any number of iterations.
        - For another machine, XLA makes no estimate. Instead, graphc counts from the HLO text (see
          `hlo_cost`): "total flops", "total bytes accessed" and "total kernels", the number of
          launches. The body of a loop counts once for each iteration.

        Examples:
            >>> x = gc.placeholder((64, 64), name="x")
            >>> gc.compile(graph, x @ x, {x: (64, 64)}).cost()["flops"]
            524288.0
        """
        analysis = self.executor.compiled.cost_analysis()
        found = analysis[0] if isinstance(analysis, list) else analysis
        if found:
            return dict(found)
        counted = self.hlo_cost()
        return {
            "total flops": counted.flops,
            "total bytes accessed": float(counted.bytes_accessed),
            "total kernels": float(counted.kernels),
        }

    def hlo_cost(self) -> HloCost:
        """The cost of one run on each device, counted from the HLO text: FLOPs by unit and dtype,
        bytes, kernels, collectives. For a program on several devices by `gc.device`, the total
        cost on all of them. The body of a loop counts once for each iteration.

        Raises:
            ExecutionError: graphc cannot parse the HLO text.

        Examples:
            >>> x = gc.placeholder((64, 64), name="x")
            >>> gc.compile(graph, x @ x, {x: (64, 64)}).hlo_cost().flops
            524288.0
        """
        compiled = self.executor.compiled
        if isinstance(compiled, CompiledPartition):
            return compiled.hlo_cost()
        return hlo_cost(str(compiled.as_text()))

    def memory(self) -> dict[str, int]:
        """Bytes of one run on each device: "arguments", "outputs", "temporaries", "aliased"
        (outputs that reuse donated arguments), "code".

        Examples:
            >>> x = gc.placeholder((64, 64), name="x")
            >>> gc.compile(graph, x @ x, {x: (64, 64)}).memory()["arguments"]
            16384
        """
        analysis = self.executor.compiled.memory_analysis()
        return {
            "arguments": int(analysis.argument_size_in_bytes),
            "outputs": int(analysis.output_size_in_bytes),
            "temporaries": int(analysis.temp_size_in_bytes),
            "aliased": int(analysis.alias_size_in_bytes),
            "code": int(analysis.generated_code_size_in_bytes),
        }

    def pass_report(self) -> PassReport:
        """What each pass did, on the symbolic program and again after sizes were bound. If the
        executable was found in the cache, the report is from its compilation.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> report = gc.compile(graph, x * 1, {x: (2,)}).pass_report()
            >>> [row.name for row in report.rows if row.changed]
            ['simplify-algebra', 'prune']
        """
        return self._report if self.cached else self.stages.report

    def pass_history(self) -> PassHistory:
        """Runs the passes again. Returns the program before and after each pass, and its cost:
        operations, bytes moved and peak memory in bytes, estimated from shapes.

        Raises:
            LayoutError: the strategy cannot be followed.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> history = gc.compile(graph, x * 1, {x: (2,)}).pass_history()
            >>> [step.row.name for step in history.steps if step.row.changed]
            ['simplify-algebra', 'prune']
        """
        return pass_history(self.stages.compilation, self.layout, self.stages.budget)

    @property
    def partition(self) -> Partition | None:
        """What each device runs, if the program is on several devices. Printing it shows all
        clusters and transfers. None on one device, and under `DataParallel` and `Mesh`.

        Examples:
            >>> gc.compile(graph, gc.constant(1) + 1).partition is None
            True
        """
        made = self.stages.in_jax
        return made.partition if isinstance(made, PartitionedProgram) else None
