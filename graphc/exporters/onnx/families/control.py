"""Loops and branches: their bodies are graphs that may use the values around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.dtypes import number_of
from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import BOOL, INT64, Writer
from graphc.ir.node import Tensor
from graphc.ops.control.bodies import parts_of
from graphc.ops.control.platforms import number_on


def _input(w: Writer, like: Value, rank: int | None = None) -> Value:
    """A new input of a body."""
    return Value(w.new_name(w.prefix), like.dtype, like.rank if rank is None else rank)


def _graph(w: Writer, inputs: Sequence[Value], outputs: Sequence[Value]) -> Any:
    """The body as a graph. Its outputs are results of its own nodes, each once."""
    from onnx import helper

    own = {name for node in w.nodes for name in node.output}
    results: list[Value] = []
    for value in outputs:
        if value.name not in own or value in results:
            value = w.add("Identity", [value], [(value.dtype, value.rank)], {})[0]
        results.append(value)

    def info(value: Value) -> Any:
        shape = [None] * value.rank
        return helper.make_tensor_value_info(value.name, number_of(value.dtype), shape)

    name = w.new_name(f"{w.prefix}/body")
    return helper.make_graph(w.nodes, name, list(map(info, inputs)), list(map(info, results)))


def _types(outputs: Sequence[Tensor]) -> list[tuple[Any, int]]:
    return [(t.dtype, t.ndim) for t in outputs]


def _scan(c: Call) -> list[Value]:
    given = parts_of(c.node, c.xs)
    body = c.w.body()
    carries = [_input(body, x) for x in given.carries]
    xs = [_input(body, x, x.rank - 1) for x in given.xs]
    results = c.write_body(body, c.node.regions[0], [*given.consts, *carries, *xs])
    return _write_scan(c, body, given.carries, carries, given.xs, xs, results)


def _map(c: Call) -> list[Value]:
    count = c.attrs["mapped"]
    stacks, others = c.xs[:count], c.xs[count:]
    body = c.node.regions[0]
    return mapped(c.w, stacks, lambda w, xs: c.write_body(w, body, [*xs, *others]))


def mapped(
    w: Writer, stacks: Sequence[Value], function: Callable[[Writer, list[Value]], list[Value]]
) -> list[Value]:
    """The stacked results of `function` for each slice of the stacks, by a Scan."""
    body = w.body()
    xs = [_input(body, x, x.rank - 1) for x in stacks]
    found = function(body, xs)
    results = [(value.dtype, value.rank + 1) for value in found]
    graph = _graph(body, xs, found)
    return w.ops("Scan", *stacks, results=results, body=graph, num_scan_inputs=len(stacks))


def _write_scan(
    c: Call,
    body: Writer,
    carries: Sequence[Value],
    inner: list[Value],
    stacks: Sequence[Value],
    slices: list[Value],
    results: list[Value],
) -> list[Value]:
    w = c.w
    if not stacks:  # ONNX counts iterations by what they read
        stacks = [c.count(c.attrs["length"])]
        slices = [_input(body, stacks[0], 0)]
    attrs: dict[str, Any] = {"num_scan_inputs": len(stacks)}
    if c.attrs.get("reverse"):
        attrs["scan_input_directions"] = [1] * len(stacks)
        if len(results) > len(inner):
            attrs["scan_output_directions"] = [1] * (len(results) - len(inner))
    graph = _graph(body, [*inner, *slices], results)
    return w.ops("Scan", *carries, *stacks, results=_types(c.node.outputs), body=graph, **attrs)


def _while(c: Call) -> list[Value]:
    """Stacked results are carried as a whole: a loop that ends early leaves zeros in them."""
    given = parts_of(c.node, c.xs)
    count = len(given.carries)
    w, body = c.w, c.w.body()
    step, condition = c.node.regions
    stacks = [c.expand(w.constant(0, t.dtype), t.type.shape) for t in c.node.outputs[count:]]
    start = c.write_body(w, condition, [*given.consts, *given.carries])[0]
    turn = Value(body.new_name(f"{w.prefix}/turn"), INT64, 0)
    going = Value(body.new_name(f"{w.prefix}/going"), BOOL, 0)
    inner = [_input(body, x) for x in (*given.carries, *stacks)]
    carries, written = inner[:count], inner[count:]
    slices = []
    if given.xs or written:
        place = body.cast(carries[0], INT64)
        slices = [body.gather(x, place, 0) for x in given.xs]
    results = c.write_body(body, step, [*given.consts, *carries, *slices])
    rows = [body.unsqueeze(place, [0])] if written else []
    new = [
        body.op("ScatterND", stack, rows[0], body.unsqueeze(y, [0]), rank=stack.rank)
        for stack, y in zip(written, results[count:], strict=True)
    ]
    again = c.write_body(body, condition, [*given.consts, *results[:count]])[0]
    graph = _graph(body, [turn, going, *inner], [again, *results[:count], *new])
    types = _types(c.node.outputs)
    return w.ops("Loop", None, start, *given.carries, *stacks, results=types, body=graph)


def _switch(c: Call) -> list[Value]:
    """Nested branches: an index beyond the ends takes the first or the last."""
    index, *operands = c.xs
    if c.attrs["platforms"] is not None:
        return c.write_body(c.w, c.node.regions[_on_cpu(c)], operands)
    if index.dtype == BOOL:  # the second branch is for True
        index = c.w.cast(index, "int32")
    return _choose(c, c.w, index, operands, 0)


def _on_cpu(c: Call) -> int:
    """The number of the branch for CPUs: an ONNX model does not know its platform."""
    number = number_on(c.attrs["platforms"], "cpu")
    if number is None:
        raise Refused("has no branch for CPUs, and an ONNX model has no branches by platform")
    return number


def _choose(c: Call, w: Writer, index: Value, operands: list[Value], number: int) -> list[Value]:
    bodies = c.node.regions
    if number == len(bodies) - 1:
        return c.write_body(w, bodies[number], operands)
    first, others = w.body(), w.body()
    is_first = w.compare("LessOrEqual", index, w.like(index, number))
    then = _graph(first, [], c.write_body(first, bodies[number], operands))
    other = _graph(others, [], _choose(c, others, index, operands, number + 1))
    results = _types(c.node.outputs)
    return w.ops("If", is_first, results=results, then_branch=then, else_branch=other)


RULES: Final[dict[str, Rule]] = {
    "Call": lambda c: c.write_body(c.w, c.node.regions[0], c.xs),
    "CustomGradient": lambda c: list(c.xs[: c.attrs["count"]]),
    "Map": _map,
    "PlatformIndex": lambda c: [c.w.constant(_on_cpu(c), "int32")],
    "Scan": _scan,
    "Switch": _switch,
    "While": _while,
}
