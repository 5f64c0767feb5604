"""Keys of nodes: which nodes are of the same kind."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.keys import attrs_key, kind_key
from tests.passes.check import program

BODY = "{\n%0 = Add(a0, a1) : f32[3]\nreturn r0 = %0\n}"
NODES = {
    "an add": "Add(x, y) : f32[3]",
    "of others": "Add(y, x) : f32[3]",
    "of one twice": "Add(x, x) : f32[3]",
    "another operator": "Multiply(x, y) : f32[3]",
    "other types": "Add(m, y) : f32[2, 3]",
    "on a device": "Add(x, y) : f32[3] on /device:GPU:0",
    "a sum": "ReduceSum(m) {axes=[0]} : f32[3]",
    "along another axis": "ReduceSum(m) {axes=[1]} : f32[2]",
    "a loop": f"Scan(x, m) {{consts=0, carries=1, length=2}} : f32[3] "
    f"with body(a0: f32[3], a1: f32[3]) {BODY}",
    "a loop of another name": f"Scan(y, m) {{consts=0, carries=1, length=2}} : f32[3] "
    f"with other(u: f32[3], v: f32[3]) {BODY.replace('a0', 'u').replace('a1', 'v')}",
    "a loop with its operands exchanged": f"Scan(x, m) {{consts=0, carries=1, length=2}} : f32[3] "
    f"with body(a0: f32[3], a1: f32[3]) {BODY.replace('a0, a1', 'a1, a0')}",
    "a loop that returns something else": f"Scan(x, m) {{consts=0, carries=1, length=2}} : f32[3] "
    f"with body(a0: f32[3], a1: f32[3]) {BODY.replace('r0 = %0', 'r0 = a0')}",
}
ALIKE = [
    {"an add", "of others", "of one twice"},
    {"a loop", "a loop of another name"},
]


def test_what_nodes_have_in_common() -> None:
    text = "\n".join(f"%{i} = {node}" for i, node in enumerate(NODES.values()))
    start = program(f"program p(x: f32[3], y: f32[3], m: f32[2, 3]) {{\n{text}\nreturn\n}}")
    keys = dict(zip(NODES, map(kind_key, start.nodes), strict=True))
    for a in NODES:
        for b in NODES:
            alike = a == b or any({a, b} <= group for group in ALIKE)
            assert (keys[a] == keys[b]) == alike, (a, b)
            assert not alike or hash(keys[a]) == hash(keys[b]), (a, b)


@pytest.mark.parametrize("size", [3, 1000])
def test_arrays_are_alike_to_the_last_element(size: int) -> None:
    value = np.arange(size, dtype=np.float32)
    other = value.copy()
    other[-2] += 1
    minus = value.copy()
    minus[0] = -0.0
    arrays = [value, other, minus, value.reshape(1, -1), value.view(np.int32)]
    keys = [attrs_key(CONSTANT, {"value": array}) for array in arrays]
    assert len(set(keys)) == len(keys)
    assert attrs_key(CONSTANT, {"value": value.copy()}) == keys[0]
