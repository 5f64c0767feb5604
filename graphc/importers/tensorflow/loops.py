"""Loops of both versions, of functions and of frames, as `gc.while_loop` and `gc.scan`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from graphc import ops
from graphc.importers.tensorflow.evaluation import Scope, Special, deeper
from graphc.importers.tensorflow.frames import Frame, frames_of
from graphc.importers.tensorflow.graph import Edge, TFGraph, TFNode
from graphc.importers.tensorflow.loop_trips import Side, Trips, count_trips
from graphc.importers.tensorflow.packing import (
    RefusedBody,
    Unpack,
    body_values,
    pack,
    refused_among,
    unpacker,
)
from graphc.importers.tensorflow.registry import Call, Unsupported
from graphc.importers.tensorflow.values import REFUSED, TensorStack, Value
from graphc.ir.node import Tensor
from graphc.ops.control.bodies import open_body

Step = Callable[[list[Value]], list[Value]]


@dataclass
class Loop:
    """A loop before it is written.

    Attributes:
        call: the node.
        init: the first values of what is carried.
        test: carried values -> the condition.
        step: carried values -> the next ones.
        trips: the number of iterations.
    """

    call: Call
    init: list[Value]
    test: Callable[[list[Value]], Value]
    step: Step
    trips: Trips

    def build(self) -> list[Value]:
        """The final values.

        Raises:
            Unsupported: a carried value is no tensor.
            RefusedBody: an operator in the loop is refused.
        """
        with deeper(self.call.scope.build):
            self._find_elements()
            first = [pack(self.call, v, f"carried value {i}") for i, v in enumerate(self.init)]
            unpack = [unpacker(v) for v in self.init]
            final = self._write(first, unpack)
        return [f(t) for f, t in zip(unpack, final, strict=True)]

    def _next(self, carry: Sequence[Tensor], unpack: Sequence[Unpack]) -> list[Tensor]:
        values = self.step([f(t) for f, t in zip(unpack, carry, strict=True)])
        return [pack(self.call, v, f"carried value {i}") for i, v in enumerate(values)]

    def _write(self, first: list[Tensor], unpack: Sequence[Unpack]) -> list[Tensor]:
        if self.trips.exact and self.trips.most is not None:
            found, _ = ops.scan(
                lambda carry, _: (tuple(self._next(carry, unpack)), None),
                tuple(first),
                None,
                length=self.trips.most,
            )
            return list(found)
        most = self.trips.most if not isinstance(self.trips.most, int) else self.trips.most or None
        found = ops.while_loop(
            lambda carry: self._holds(carry, unpack),
            lambda carry: tuple(self._next(carry, unpack)),
            tuple(first),
            max_trip_count=most,
        )
        return list(found)

    def _holds(self, carry: Sequence[Tensor], unpack: Sequence[Unpack]) -> Tensor:
        value = self.test([f(t) for f, t in zip(unpack, carry, strict=True)])
        return ops.reshape(self.call.tensor(value), ())

    def _find_elements(self) -> None:
        """Finds the shapes of lists that are written in the loop, by a trial of its body."""
        unknown = [
            i
            for i, v in enumerate(self.init)
            if isinstance(v, TensorStack) and v.data is None and v.element is None
        ]
        if not unknown:
            return
        after = self._try_step()
        for i in unknown:
            found = after[i]
            if isinstance(found, TensorStack) and found.element is not None:
                self.init[i] = replace(self.init[i], element=found.element)

    def _try_step(self) -> list[Value]:
        refusals = len(self.call.scope.build.refusals)
        with open_body("trial") as child:
            values = []
            for i, value in enumerate(self.init):
                if isinstance(value, TensorStack) and value.data is None:
                    values.append(value)
                    continue
                tensor = pack(self.call, value, f"carried value {i}")
                inner = child.add_input(tensor.type, f"carry{i}")
                values.append(unpacker(value)(inner))
            after = self.step(values)
        del self.call.scope.build.refusals[refusals:]
        return after


class FunctionLoop(Special):
    """While, StatelessWhile: the condition and the body are functions."""

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        init = [scope.value(edge) for edge in node.inputs]
        if refused_among(init):
            return [REFUSED] * len(init)
        library = scope.graph.library
        test, body = (library.function(str(node.attr(key))) for key in ("cond", "body"))
        if not len(init) == len(body.parameters) == len(body.results) == len(test.parameters):
            raise Unsupported("has functions that take and return other numbers of values")
        if len(test.results) != 1:
            raise Unsupported("has a condition that returns more than one value")
        return _FunctionLoop(scope, node, test, body, init).build()


class _FunctionLoop:
    """One loop of functions. What its body hands on unchanged is not carried."""

    def __init__(
        self, scope: Scope, node: TFNode, test: TFGraph, body: TFGraph, init: list[Value]
    ) -> None:
        self.call = Call(node, scope)
        self.test, self.body, self.init = test, body, init
        arguments = [Edge(name, 0) for name in body.parameters]
        side = Side(body, {edge: i for i, edge in enumerate(arguments)}, {})
        same = zip(body.results, arguments, strict=True)
        self.moving = [i for i, (after, own) in enumerate(same) if side.strip(after) != own]

    def build(self) -> list[Value]:
        """The final values of all arguments."""
        first = [self.init[i] for i in self.moving]
        following = [self.body.results[i] for i in self.moving]
        trips = count_trips(
            self._side(self.test), self.test.results[0], self._side(self.body), following, first
        )
        return self._all(_built(Loop(self.call, first, self._holds, self._step, trips)))

    def _all(self, carry: Sequence[Value]) -> list[Value]:
        values = list(self.init)
        for i, value in zip(self.moving, carry, strict=True):
            values[i] = value
        return values

    def _side(self, graph: TFGraph) -> Side:
        edges = [Edge(name, 0) for name in graph.parameters]
        carried = {edges[i]: k for k, i in enumerate(self.moving)}
        known = {e: v for e, v in zip(edges, self.init, strict=True) if e not in carried}
        return Side(graph, carried, known)

    def _scope(self, graph: TFGraph, carry: Sequence[Value]) -> Scope:
        edges = [Edge(name, 0) for name in graph.parameters]
        outer = self.call.scope
        prefix = f"{outer.prefix}{self.call.node.name}/"
        return outer.inside(graph, dict(zip(edges, self._all(carry), strict=True)), prefix)

    def _step(self, carry: list[Value]) -> list[Value]:
        results = [self.body.results[i] for i in self.moving]
        return body_values(self._scope(self.body, carry), results, self.body.control_results)

    def _holds(self, carry: list[Value]) -> Value:
        return body_values(self._scope(self.test, carry), self.test.results)[0]


def _built(loop: Loop) -> list[Value]:
    try:
        return loop.build()
    except RefusedBody:
        return [REFUSED] * len(loop.init)


class FrameExit:
    """Exit: the end of a loop of version 1. The first exit writes the loop for all of them."""

    def needs(self, scope: Scope, node: TFNode) -> Iterable[Edge]:
        frame = frames_of(scope.graph).frame_of_exit(node)
        return frame.entering

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        frame = frames_of(scope.graph).frame_of_exit(node)
        key = f"frame {frame.name}"
        if key not in scope.results:
            scope.results[key] = self._build(scope, node, frame)
        final = scope.results[key]
        return [final[frame.exits[node.name]]]

    def _build(self, scope: Scope, node: TFNode, frame: Frame) -> list[Value]:
        init = [scope.value(edge) for edge in frame.entering_carried]
        fixed = {Edge(enter.name, 0): scope.value(enter.inputs[0]) for enter in frame.invariants}
        if refused_among([*init, *fixed.values()]):
            return [REFUSED] * len(init)
        # A value that no iteration changes, such as the handle of a TensorArray.
        moving = [k for k, after in enumerate(frame.following) if not frame.is_same(k, after)]
        number = {k: i for i, k in enumerate(moving)}

        def bound(carry: Sequence[Value]) -> dict[Edge, Value]:
            values = list(init)
            for k, value in zip(moving, carry, strict=True):
                values[k] = value
            found = dict(fixed)
            for k, value in enumerate(values):
                found.update({edge: value for edge in frame.edges_of(k)})
            return found

        def step(carry: list[Value]) -> list[Value]:
            inner = scope.inside(scope.graph, bound(carry), scope.prefix)
            return body_values(inner, [frame.following[k] for k in moving])

        def holds(carry: list[Value]) -> Value:
            inner = scope.inside(scope.graph, bound(carry), scope.prefix)
            return body_values(inner, [frame.condition])[0]

        carried = {e: number[k] for k in moving for e in frame.edges_of(k)}
        same = {e: init[k] for k in range(len(init)) if k not in number for e in frame.edges_of(k)}
        side = Side(scope.graph, carried, {**fixed, **same})
        first = [init[k] for k in moving]
        following = [frame.following[k] for k in moving]
        trips = count_trips(side, frame.condition, side, following, first)
        final = _built(Loop(Call(node, scope), first, holds, step, trips))
        results = list(init)
        for k, value in zip(moving, final, strict=True):
            results[k] = value
        return results


class FrameEnter(Special):
    """Enter outside its loop: what a loop takes. In the loop it is bound."""

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        return [scope.value(node.inputs[0])]
