"""Random programs over the catalogue of these tests, valid at the stage `functional`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from graphc.ir.dims import symbol
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program, region
from graphc.ir.types import TensorType
from graphc.ir.values import array_of_bytes
from tests.ir.catalogue import CATALOGUE

N, M = symbol("n"), symbol("m")
DIMS = st.sampled_from([0, 1, 3, N, M, 2 * N + 1, N * M, (N + 1) // 2, N // M])
NAMES = st.sampled_from(["x", "hidden/kernel", "a-b", "x:1", "two words", '"', "é", "%0", "none"])
DTYPES = st.sampled_from(list(BY_SHORT.values()))


@st.composite
def arrays(draw: Any) -> np.ndarray[Any, Any]:
    """Arrays with any bits, including NaNs with payloads."""
    dtype = draw(DTYPES)
    shape = draw(st.sampled_from([(), (0,), (3,), (2, 0), (2, 2), (8, 9)]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    data = rng.bytes(int(np.prod(shape)) * dtype.itemsize)
    if dtype == BY_SHORT["bool"]:
        data = bytes(b & 1 for b in data)
    elif dtype in (BY_SHORT["i4"], BY_SHORT["u4"]):
        data = bytes(b & 15 for b in data)
    return array_of_bytes(data, dtype, shape)


DIM_TUPLES = st.lists(DIMS, max_size=3).map(tuple)
PLAIN = {
    "i": st.integers(),
    "f": st.floats() | st.integers(-3, 3),
    "b": st.booleans(),
    "s": st.text(max_size=8),
    "d": st.none() | DTYPES,
    "n": st.none() | DIMS | st.just(symbol("none")),
    "ints": st.lists(st.integers(-3, 300), max_size=3).map(tuple),
    "dims": DIM_TUPLES,
    "pairs": st.lists(DIM_TUPLES, max_size=2).map(tuple),
    "a": st.none() | arrays(),
}
MAPPINGS = st.dictionaries(
    st.sampled_from(["axis", "a b", "dtype", '"']),
    st.one_of(*PLAIN.values(), st.complex_numbers(), st.dictionaries(NAMES, st.none())),
    max_size=4,
)
EVERYTHING = st.fixed_dictionaries({}, optional={**PLAIN, "m": st.none() | MAPPINGS})


def _node(op: str, inputs: Any, types: Any, attrs: Any = None, **fields: Any) -> Node:
    operator = CATALOGUE[op]
    outputs = tuple(Tensor(type, "t") for type in types)
    return Node(operator, tuple(inputs), outputs, operator.complete(attrs or {}), **fields)


@st.composite
def _nodes(draw: Any, available: list[Tensor], depth: int) -> list[Node]:
    """Nodes over `available`, to which their results are added."""
    nodes = []
    for _ in range(draw(st.integers(0, 5))):
        x = draw(st.sampled_from(available))
        kind = draw(st.sampled_from(["Add", "Everything", "Constant", "Scan", "Print", "Reshape"]))
        labels: dict[str, Any] = {}
        if draw(st.booleans()):
            labels = {
                "name": draw(NAMES),
                "device": draw(st.sampled_from(["", "/device:GPU:0", "/job:w/task:1"])),
                "control_inputs": tuple(draw(st.lists(NAMES, max_size=2))),
            }
        if kind == "Add":
            node = _node(kind, [x, x], [x.type], **labels)
        elif kind == "Everything":
            node = _node(kind, [x], [x.type], draw(EVERYTHING), **labels)
        elif kind == "Constant":
            value = draw(arrays())
            type = TensorType(value.dtype, value.shape)
            node = _node(kind, [], [type], {"value": value}, **labels)
        elif kind == "Reshape":
            type = TensorType(x.type.dtype, draw(DIM_TUPLES))
            node = _node(kind, [x], [type], {"shape": type.shape}, **labels)
        elif kind == "Print" or depth == 0:
            node = _node("Print", [x], [], **labels)
        else:
            inner = [Tensor(x.type, "a0")]
            body = region("body", list(inner), draw(_nodes(inner, depth - 1)), [inner[-1]])
            node = _node(kind, [x], [inner[-1].type], {"length": 2}, regions=(body,), **labels)
        nodes.append(node)
        available.extend(node.outputs)
    return nodes


@st.composite
def programs(draw: Any) -> Program:
    """A valid program, with regions up to two levels deep."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4))
    inputs, seen = [], set()
    for name in names:
        kind = draw(st.sampled_from(["feed", "state"]))
        if (name, kind) not in seen:
            seen.add((name, kind))
            type = TensorType(draw(DTYPES), draw(DIM_TUPLES))
            inputs.append(Port(name, kind, Tensor(type, name)))
    available = [port.tensor for port in inputs]
    nodes = draw(_nodes(available, 2))
    outputs = [Port(p.name, "state", p.tensor) for p in inputs if p.kind == "state"]
    outputs += [Port(f"f{i}", "fetch", t) for i, t in enumerate(available[-2:])]
    axes = {p.name: 0 for p in inputs if p.kind == "feed" and p.tensor.type.rank}
    equalities = draw(st.sampled_from([(), ((2 * N, M + 1),), ((N * M, 12), (M, N))]))
    return Program(draw(NAMES), tuple(inputs), tuple(nodes), tuple(outputs), equalities, axes)
