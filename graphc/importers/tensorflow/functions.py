"""Calls of functions, whose bodies are written in place; and operators that compute nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.importers.tensorflow.evaluation import Scope, Special, called_functions, deeper
from graphc.importers.tensorflow.graph import Edge, TFNode
from graphc.importers.tensorflow.packing import refused_among
from graphc.importers.tensorflow.registry import Unsupported
from graphc.importers.tensorflow.values import NOTHING, REFUSED, Value


class FunctionCall(Special):
    """PartitionedCall, StatefulPartitionedCall, and nodes whose operator is a function's name."""

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        bodies = called_functions(scope.graph, node)
        if not bodies:
            raise Unsupported("calls a function that the file does not have")
        body = bodies[0]
        values = [scope.value(edge) for edge in node.inputs]
        if refused_among(values):
            return [REFUSED] * len(body.results)
        if len(values) != len(body.parameters):
            raise Unsupported(f"gives {len(values)} values to {len(body.parameters)} parameters")
        bound = {Edge(name, 0): v for name, v in zip(body.parameters, values, strict=True)}
        with deeper(scope.build):
            inner = scope.inside(body, bound, f"{scope.prefix}{node.name}/")
            return inner.get(body.results, body.control_results)


class Ignored:
    """NoOp, Assert, PrintV2, summaries: their inputs are not needed."""

    def needs(self, scope: Scope, node: TFNode) -> Iterable[Edge]:
        return ()

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        return [NOTHING]


IGNORED = frozenset(
    (
        "NoOp", "Assert", "PrintV2", "ControlTrigger", "ScalarSummary", "HistogramSummary",
        "ImageSummary", "AudioSummary", "AudioSummaryV2", "MergeSummary", "TensorSummary",
        "TensorSummaryV2", "WriteSummary", "WriteScalarSummary",
    )
)  # fmt: skip
