"""What can be looked at in a compiled step: its texts, its cost, its memory, its passes."""

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
    """The part of an `Executable` that shows it; nothing here runs or changes it.

    Attributes:
        stages: what it is made from.
        cached: whether it was found in the cache of compiled programs.
    """

    stages: Stages
    cached: bool
    _executor: Executor
    _report: PassReport
    _load_seconds: float | None

    @property
    def layout(self) -> StateLayout:
        """The layout of the states that it takes without moving them."""
        raise NotImplementedError

    def wait(self) -> Self:
        """Returns when it is compiled."""
        raise NotImplementedError

    @property
    def compiled(self) -> Any:
        """The compiled program, as JAX has it; of a program over several devices, its parts."""
        return self._executor.compiled

    @property
    def program(self) -> Program:
        """The optimised program, with its state by variable: what is lowered, but for what a
        strategy and a limit of memory make of it for each device (`stages.local`)."""
        return self.stages.program

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds that making it took in this process: "layout", "lower" (tracing included) and
        "compile"; or "load", where it was found in the cache."""
        if self._load_seconds is not None:
            return {"load": self._load_seconds}
        return self.wait().stages.seconds

    def stablehlo(self) -> str:
        """The StableHLO text that JAX lowered the program to."""
        return str(self.stages.lowered.as_text())

    def hlo(self) -> str:
        """The HLO text after XLA's own passes."""
        return str(self._executor.compiled.as_text())

    def cost(self) -> dict[str, float]:
        """What one run costs each device; for a program on several devices by `gc.device`, all of
        them together.

        Two kinds of figures, under names of their own, since they count loops differently:

        - XLA's estimate, where it makes one: "flops", "bytes accessed" and more. What is in a loop
          counts once, however often the loop runs it.
        - For a machine that is not here XLA makes none. What graphc counts from the HLO text (see
          `hlo_cost`) is given in its place: "total flops", "total bytes accessed" and "total
          kernels", the number of launches. What is in a loop counts as often as it runs.
        """
        analysis = self._executor.compiled.cost_analysis()
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
        """What one run costs each device, counted from the HLO text: FLOPs by unit and dtype,
        bytes, kernels, collectives. For a program on several devices by `gc.device`, all of them
        together. It counts what loops run as often as they run.

        Raises:
            ExecutionError: the text is not HLO that graphc can read.
        """
        compiled = self._executor.compiled
        if isinstance(compiled, CompiledPartition):
            return compiled.hlo_cost()
        return hlo_cost(str(compiled.as_text()))

    def memory(self) -> dict[str, int]:
        """Bytes of one run on each device: "arguments", "outputs", "temporaries", "aliased"
        (outputs that reuse donated arguments), "code"."""
        analysis = self._executor.compiled.memory_analysis()
        return {
            "arguments": int(analysis.argument_size_in_bytes),
            "outputs": int(analysis.output_size_in_bytes),
            "temporaries": int(analysis.temp_size_in_bytes),
            "aliased": int(analysis.alias_size_in_bytes),
            "code": int(analysis.generated_code_size_in_bytes),
        }

    def pass_report(self) -> PassReport:
        """What each pass did, on the symbolic program and again after sizes were bound: when it
        was compiled, if it was found in the cache."""
        return self._report if self.cached else self.stages.report

    def pass_history(self) -> PassHistory:
        """The passes run once more, with the program before and after each, and what it costs:
        operations, bytes moved and bytes at once, estimated from shapes.

        Raises:
            LayoutError: the strategy cannot be followed.
        """
        return pass_history(self.stages.compilation, self.layout, self.stages.budget)

    @property
    def partition(self) -> Partition | None:
        """What each device runs, where the program is on several; printing it shows all clusters
        and what is sent. None on one device, and under a strategy."""
        made = self.stages.in_jax
        return made.partition if isinstance(made, PartitionedProgram) else None
