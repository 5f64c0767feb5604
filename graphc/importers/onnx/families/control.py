"""If, Loop and Scan: resolved at import where that is possible, otherwise graphc's own."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.errors import DTypeError, ShapeError
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.values import is_known, is_strings
from graphc.ops.control.branching import cond
from graphc.ops.control.scan import scan
from graphc.ops.control.while_loops import while_loop

_UNROLLED: Final = 64  # iterations of a loop whose body needs their number


def _if(call: Call) -> Any:
    chosen = call.known(0)
    then, other = call.attr("then_branch"), call.attr("else_branch")
    if chosen is not None:
        return tuple(call.body(then if bool(chosen.reshape(-1)[0]) else other, []))
    predicate = ops.reshape(call.x(0), ())

    def tensors(graph: Any) -> Any:
        return lambda: tuple(call.tensor(value) for value in call.body(graph, []))

    try:
        return tuple(cond(predicate, tensors(then), tensors(other)))
    except (ShapeError, DTypeError) as error:
        raise Refused(
            f"has branches with results of different types ({error.what}), and its condition is "
            "computed when the model runs",
            needs=True,
        ) from error


def _loop(call: Call) -> Any:
    """M, cond, carried values -> carried values, stacked values."""
    graph = call.attr("body")
    carried = list(call.inputs[2:])
    limit = call.known(0) if call.has(0) else None
    keeps_on = call.known(1) if call.has(1) else np.array(True)
    count = None if limit is None else int(limit.reshape(-1)[0])
    if keeps_on is not None and any(v is None or isinstance(v, list) for v in carried):
        return _unrolled(call, graph, count, keeps_on, carried)
    if any(isinstance(value, list) or value is None or is_strings(value) for value in carried):
        raise Refused(
            "carries a sequence through a loop whose number of iterations is computed when the "
            "model runs",
            needs=True,
        )
    try:
        return _as_loop(call, graph, count, carried)
    except Refused as refused:
        if not refused.needs or keeps_on is None or count is None or count > _UNROLLED:
            raise
    return _unrolled(call, graph, count, keeps_on, carried)


def _unrolled(call: Call, graph: Any, count: int | None, keeps_on: Any, carried: list[Any]) -> Any:
    """The iterations one after another: they know the number of the iteration, and may carry
    sequences."""
    rows: list[list[Any]] = []
    going = bool(np.reshape(keeps_on, -1)[0])
    i = 0
    while going and (count is None or i < count):
        if i >= 4 * _UNROLLED:
            raise Refused("has too many iterations to be resolved at import")
        proceed, *results = call.body(graph, [np.array(i, np.int64), np.array(True), *carried])
        if not is_known(proceed):
            raise Refused("decides when the model runs whether to go on", needs=True)
        going = bool(np.reshape(proceed, -1)[0])
        carried, stacked = results[: len(carried)], results[len(carried) :]
        rows.append(stacked)
        i += 1
    scanned = len(graph.output) - 1 - len(carried)
    if scanned and not rows:
        raise Refused("stacks the results of no iteration")
    return (*carried, *(ops.stack([call.tensor(row[k]) for row in rows]) for k in range(scanned)))


def _as_loop(call: Call, graph: Any, count: int | None, carried: list[Any]) -> Any:
    initial = tuple(call.tensor(value) for value in carried)
    scanned = len(graph.output) - 1 - len(initial)
    always = _goes_on(graph)
    if count is not None and always:

        def step(state: Any, i: Any) -> Any:
            _, *results = call.body(graph, [i, np.array(True), *state])
            tensors = [call.tensor(v) for v in results]
            return tuple(tensors[: len(initial)]), tuple(tensors[len(initial) :])

        last, ys = scan(step, initial, ops.arange(count, dtype="int64"), length=count)
        return (*last, *ys)
    if scanned:
        raise Refused(
            "stacks the results of a number of iterations that is computed when the model runs",
            needs=True,
        )
    start = ops.reshape(call.x(1), ()) if call.has(1) else ops.constant(True)
    most = ops.reshape(call.x(0), ()) if call.has(0) else None

    def goes_on(state: Any) -> Any:
        i, going, *_ = state
        return going if most is None else ops.logical_and(going, i < most)

    def body(state: Any) -> Any:
        i, going, *values = state
        proceed, *results = call.body(graph, [i, going, *values])
        tensors = tuple(call.tensor(v) for v in results)
        return (i + 1, ops.reshape(call.tensor(proceed), ()), *tensors)

    first = (ops.constant(0, "int64"), start, *initial)
    _, _, *last = while_loop(goes_on, body, first, max_trip_count=count)
    return tuple(last)


def _goes_on(graph: Any) -> bool:
    """Whether the body returns its condition unchanged, or the constant True."""
    wanted, given = graph.output[0].name, graph.input[1].name
    made = {name: node for node in graph.node for name in node.output}
    while wanted in made and made[wanted].op_type == "Identity":
        wanted = made[wanted].input[0]
    if wanted == given:
        return True
    node = made.get(wanted)
    if node is None or node.op_type != "Constant" or not node.attribute:
        return False
    from onnx import numpy_helper

    attr = node.attribute[0]
    return attr.name == "value" and bool(numpy_helper.to_array(attr.t).reshape(-1)[0])


def _scan(call: Call) -> Any:
    graph, count = call.attr("body"), call.attr("num_scan_inputs")
    if call.version < 9:
        return _batched_scan(call, graph, count)
    given = call.xs()
    states, xs = given[: len(given) - count], given[len(given) - count :]
    scanned = len(graph.output) - len(states)
    axes = call.attr("scan_input_axes") or [0] * count
    directions = call.attr("scan_input_directions") or [0] * count
    outs = call.attr("scan_output_axes") or [0] * scanned
    reverse = call.attr("scan_output_directions") or [0] * scanned
    moved = [ops.moveaxis(x, axis, 0) for x, axis in zip(xs, axes, strict=True)]
    moved = [ops.flip(x, 0) if back else x for x, back in zip(moved, directions, strict=True)]
    last, ys = _scanned(call, graph, tuple(states), tuple(moved))
    ys = [ops.flip(y, 0) if back else y for y, back in zip(ys, reverse, strict=True)]
    return (*last, *(ops.moveaxis(y, 0, axis) for y, axis in zip(ys, outs, strict=True)))


def _scanned(call: Call, graph: Any, states: tuple[Any, ...], xs: tuple[Any, ...]) -> Any:
    def step(state: Any, items: Any) -> Any:
        tensors = [call.tensor(v) for v in call.body(graph, [*state, *items])]
        return tuple(tensors[: len(states)]), tuple(tensors[len(states) :])

    return scan(step, states, xs)


def _batched_scan(call: Call, graph: Any, count: int) -> Any:
    """Version 8: a batch of sequences, with lengths."""
    if call.has(0):
        raise Refused("of version 8 with lengths is not supported")
    given = [call.tensor(v) for v in call.inputs[1:]]
    states, xs = given[: len(given) - count], given[len(given) - count :]
    batch = given[0].shape[0]
    if not isinstance(batch, int):
        raise Refused("of version 8 needs a known size of the batch")
    rows = [
        _scanned(call, graph, tuple(s[i] for s in states), tuple(x[i] for x in xs))
        for i in range(batch)
    ]
    flat = [[*last, *ys] for last, ys in rows]
    return tuple(ops.stack(list(column)) for column in zip(*flat, strict=True))


RULES: Final[dict[str, Rule]] = {"If": _if, "Loop": _loop, "Scan": _scan}
