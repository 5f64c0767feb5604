"""Branches of TensorFlow as `gc.cond` and `gc.switch`: If and Case, and Switch with Merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.evaluation import Scope, Special, deeper
from graphc.importers.tensorflow.frames import base_op, behind, frames_of
from graphc.importers.tensorflow.graph import Edge, TFGraph, TFNode
from graphc.importers.tensorflow.packing import (
    RefusedBody,
    body_values,
    pack,
    refused_among,
    unpacker,
)
from graphc.importers.tensorflow.registry import Call, Unsupported
from graphc.importers.tensorflow.values import REFUSED, TensorStack, Value
from graphc.ir.node import Tensor

Branch = Callable[[], list[Value]]


def choose(call: Call, index: Value, branches: Sequence[Branch]) -> list[Value]:
    """The results of the branch of a number; those of a bool are the false and the true one."""
    with deeper(call.scope.build):
        if isinstance(index, np.ndarray):
            number = int(index.reshape(()))  # those out of range stand for the last branch
            return branches[number if 0 <= number < len(branches) else -1]()
        kinds: list[list[Value]] = []

        def traced(branch: Branch) -> Callable[[], tuple[Tensor, ...]]:
            def run() -> tuple[Tensor, ...]:
                values = branch()
                kinds.append(values)
                return tuple(pack(call, v, f"result {i}") for i, v in enumerate(values))

            return run

        chosen = ops.reshape(call.tensor(index), ())
        if chosen.dtype == np.bool_:
            chosen = ops.cast(chosen, "int32")
        found = ops.switch(chosen, [traced(branch) for branch in branches])
        examples = next((k for k in kinds if any(isinstance(v, TensorStack) for v in k)), kinds[0])
        return [unpacker(v)(t) for v, t in zip(examples, found, strict=True)]


class FunctionBranch(Special):
    """If, StatelessIf, Case, StatelessCase: the branches are functions."""

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        call = Call(node, scope)
        values = [scope.value(edge) for edge in node.inputs]
        count = len(node.attr("Tout", []))
        if refused_among(values) or not values:
            return [REFUSED] * count
        names = node.attr("branches") or [node.attr("else_branch"), node.attr("then_branch")]
        bodies = [scope.graph.library.function(str(name)) for name in names]
        index = _as_index(call, values[0], len(bodies), "Case" in node.op)
        prefix = f"{scope.prefix}{node.name}/"

        def branch(body: TFGraph) -> Branch:
            if len(body.parameters) != len(values) - 1:
                raise Unsupported("has a branch that takes another number of values")
            bound = {Edge(name, 0): v for name, v in zip(body.parameters, values[1:], strict=True)}
            return lambda: body_values(
                scope.inside(body, bound, prefix), body.results, body.control_results
            )

        try:
            return choose(call, index, [branch(body) for body in bodies])
        except RefusedBody:
            return [REFUSED] * count


def _as_index(call: Call, value: Value, count: int, is_case: bool) -> Value:
    """The number of a branch: for Case, of the last one if out of range; for If, 1 if not zero."""
    if isinstance(value, np.ndarray):
        if is_case:
            return value
        truth = bool(value.reshape(())) if value.dtype.kind != "O" else value.reshape(())[()] != b""
        return np.array(int(truth))
    tensor = ops.reshape(call.tensor(value), ())
    if not is_case:
        return tensor if tensor.dtype == np.bool_ else ops.not_equal(tensor, 0)
    inside = ops.logical_and(ops.greater_equal(tensor, 0), ops.less(tensor, count))
    return ops.where(inside, tensor, ops.full_like(tensor, count - 1))


@dataclass(frozen=True)
class Merging:
    """A Merge and the Switches that its branches begin at.

    Attributes:
        merge: the node.
        test: the predicate, behind identities.
        starts: the results of Switches at which the branches begin.
        branches: for each input of the Merge, whether it is of the true branch.
    """

    merge: TFNode
    test: Edge
    starts: tuple[Edge, ...]
    branches: tuple[bool, ...]

    def needs(self, graph: TFGraph) -> list[Edge]:
        """What the branches take from outside, and the predicate."""
        switches = dict.fromkeys(edge.node for edge in self.starts)
        return [self.test, *(graph.node(name).inputs[0] for name in switches)]


def _starts(graph: TFGraph, edge: Edge) -> set[Edge]:
    """The results of Switches that lead to an edge and do not end in a Merge before it."""
    frames = frames_of(graph)
    found: set[Edge] = set()
    seen: set[tuple[Edge, int]] = set()
    stack = [(edge, 0)]
    while stack:
        here, depth = stack.pop()
        if (here, depth) in seen or depth > 64:
            continue
        seen.add((here, depth))
        node = graph.node(here.node)
        kind = base_op(node)
        if kind == "Exit":
            stack.extend((e, depth) for e in frames.frame_of_exit(node).entering)
            continue
        if kind == "Switch" and len(node.inputs) == 2:
            if depth == 0:
                found.add(Edge(node.name, min(here.index, 1)))
                continue
            depth -= 1
        elif kind == "Merge" and node.name not in frames.loop_merges:
            depth += 1
        stack.extend((e, depth) for e in node.inputs)
        stack.extend((Edge(name, 0), depth) for name in node.controls)
    return found


def merging(graph: TFGraph, merge: TFNode) -> Merging:
    """What is known of a Merge that ends a branch.

    Raises:
        Unsupported: its Switches do not have one predicate.
    """
    key = f"merge {merge.name}"
    if key not in graph.cache:
        graph.cache[key] = _find_merging(graph, merge)
    found: Merging = graph.cache[key]
    return found


def _find_merging(graph: TFGraph, merge: TFNode) -> Merging:
    starts = [_starts(graph, edge) for edge in merge.inputs]
    tests = [
        {(behind(graph, graph.node(e.node).inputs[1]), e.index) for e in found} for found in starts
    ]
    if len(merge.inputs) != 2:
        raise Unsupported(f"has {len(merge.inputs)} inputs: only the two branches of a condition")
    for test, index in sorted(tests[0] | tests[1]):
        sides = [{i for t, i in found if t == test} for found in tests]
        ends = [next(iter(side)) if len(side) == 1 else None for side in sides]
        if any(len(side) > 1 for side in sides):
            continue
        first = ends[0] if ends[0] is not None else 1 - (ends[1] if ends[1] is not None else index)
        if ends[1] is not None and ends[1] == first:
            continue
        own = sorted(
            e
            for found in starts
            for e in found
            if behind(graph, graph.node(e.node).inputs[1]) == test
        )
        return Merging(merge, test, tuple(own), (first == 1, first == 0))
    raise Unsupported("joins branches that do not begin at Switches of one predicate")


class SwitchMerge:
    """Merge after Switches: one `gc.cond` for all Merges of a predicate that fit into it."""

    def needs(self, scope: Scope, node: TFNode) -> Iterable[Edge]:
        return merging(scope.graph, node).needs(scope.graph)

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        graph, call = scope.graph, Call(node, scope)
        group = self._group(scope, node)
        values = {e: scope.value(e) for m in group for e in m.needs(graph)}
        if refused_among(list(values.values())):
            return [REFUSED, REFUSED]

        def branch(side: bool) -> Branch:
            bound = {}
            for m in group:
                for start in m.starts:
                    bound[start] = values[graph.node(start.node).inputs[0]]
                    bound[Edge(start.node, 1 - start.index)] = bound[start]
            inputs = [m.merge.inputs[m.branches.index(side)] for m in group]
            return lambda: body_values(scope.inside(graph, bound, scope.prefix), inputs)

        test = values[group[0].test]
        index = _as_index(call, test, 2, is_case=False)
        try:
            found = choose(call, index, [branch(side=False), branch(side=True)])
        except RefusedBody:
            return [REFUSED, REFUSED]
        places = self._places(call, index, group)
        for m, value, place in zip(group, found, places, strict=True):
            scope.results[m.merge.name] = [value, place]
        return scope.results[node.name]

    def _places(self, call: Call, index: Value, group: Sequence[Merging]) -> list[Value]:
        """The second result of each Merge: the number of the input that it takes."""
        places: list[Value] = []
        for m in group:
            true_place = m.branches.index(True)
            if isinstance(index, np.ndarray):
                places.append(np.array(m.branches.index(bool(index)), np.int32))
            else:
                one = ops.cast(call.tensor(index), "int32")
                places.append(one if true_place == 1 else ops.subtract(1, one))
        return places

    def _group(self, scope: Scope, node: TFNode) -> list[Merging]:
        """The Merge and others of its predicate whose inputs are known by now."""
        own = merging(scope.graph, node)
        group = [own]
        for other in self._alike(scope.graph, own.test):
            if other.merge is own.merge or other.merge.name in scope.results:
                continue
            if all(e in scope.bound or e.node in scope.results for e in other.needs(scope.graph)):
                group.append(other)
        return group

    def _alike(self, graph: TFGraph, test: Edge) -> list[Merging]:
        if "merges" not in graph.cache:
            graph.cache["merges"] = self._all(graph)
        found: list[Merging] = graph.cache["merges"].get(test, [])
        return found

    def _all(self, graph: TFGraph) -> dict[Edge, list[Merging]]:
        loops = frames_of(graph).loop_merges
        found: dict[Edge, list[Merging]] = {}
        for node in graph.nodes.values():
            if base_op(node) == "Merge" and node.name not in loops:
                try:
                    one = merging(graph, node)
                except Unsupported:
                    continue
                found.setdefault(one.test, []).append(one)
        return found


class LoneSwitch(Special):
    """Switch whose Merge is not among what is wanted: its value, if the predicate is known."""

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        value, test = (scope.value(edge) for edge in node.inputs)
        if isinstance(test, np.ndarray) and test.size == 1:
            return [value, value]
        raise Unsupported("leads to a result without a Merge: choose a result behind the Merge")
