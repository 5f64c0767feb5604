"""The fast reader of tables of numbers in JSON, compared with the general reader."""

import json

import numpy as np
import pytest

from graphc.ir.types import parse_type
from graphc.serving.protocol import rows
from graphc.serving.protocol.table import read_table
from graphc.web.failures import Failure

pytest.importorskip("simdjson")
RNG = np.random.default_rng(0)


def inputs(body: rows.Body, kind: str):
    try:
        arrays, count = rows.read_inputs(body, {"x": parse_type(kind)})
    except Failure as failure:
        return failure.message
    return count, *[(a.dtype, a.shape, a.tobytes()) for a in arrays.values()]


def same(data: bytes, kind: str) -> None:
    """Checks that both readers return the same value or raise the same error."""
    assert inputs(rows.read_body(data), kind) == inputs(rows._read_any(data), kind)


@pytest.mark.parametrize("kind", ["f32[n,k]", "f64[n,k]", "f16[n,k]", "bf16[n,k]", "i32[n,k]"])
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_tables_are_read_to_the_bit(key: str, kind: str) -> None:
    exponents = 10.0 ** RNG.integers(-30, 30, (50, 7))
    for values in (
        RNG.normal(size=(3, 5)),
        RNG.normal(size=(50, 7)) * exponents,
        RNG.integers(-9, 9, (2, 2)),
        RNG.integers(2**53, 2**63, (40, 3)),
        RNG.integers(0, 2**64, (4, 3), np.uint64),
        np.array([[65504.0, 65519.0]]),
        np.array([[3.5e38, 1.0]]),
        np.array([[-0.0, 0.0], [5e-324, 1e-400]]),
    ):
        data = json.dumps({key: values.tolist()}).encode()
        assert read_table(data) is not None
        same(data, kind)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "[[]]", "[[], []]", "[1, 2]", "[[1], 2]", "[[[1]], 2]", "[[[1]]]", "[[1], [2, 3]]",
        "[[1], [true]]", "[[1, null]]", '[["1"]]', '["1", [[1]]]', '[{"b64": "YQ=="}]', "[[{}]]",
        "[[1], [NaN]]", "[[1e999]]", "[[1" + "0" * 400 + "]]", "[[1], [2]", "[[01]]", "{}", "3",
        '[[1]], "signature_name": "f"', '[[1]], "instances": [[2]]', '[[1]], "inputs": [[2]]',
        "[" * 50 + "]" * 50,
    ],
)  # fmt: skip
def test_other_bodies_are_left_to_the_general_reader(text: str) -> None:
    for key in ("instances", "inputs"):
        data = f'{{"{key}": {text}}}'.encode()
        assert read_table(data) is None
        try:
            same(data, "f32[n,k]")
        except Failure as failure:
            assert failure.code == "INVALID_ARGUMENT"


def test_a_table_for_several_inputs() -> None:
    with pytest.raises(Failure, match="has 2 inputs"):
        types = {"x": parse_type("f32[n,2]"), "y": parse_type("f32[n,2]")}
        rows.read_inputs(rows.read_body(b'{"instances": [[1, 2]]}'), types)
