"""Conversion between JSON bodies and arrays."""

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from graphc.serving.protocol.rows import read_body, read_examples, read_inputs, write_outputs
from graphc.web.failures import Failure
from tests.serving.fakes import typed

ONE = {"x": typed("f32[batch, 2]")}
TWO = {"a": typed("i32[n]"), "b": typed("bool[n]")}


def read(value: Any, types: Any = ONE) -> Any:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return read_inputs(read_body(data), types)


def refusal(value: Any, types: Any = ONE) -> str:
    with pytest.raises(Failure) as caught:
        read(value, types)
    assert caught.value.code == "INVALID_ARGUMENT"
    return caught.value.message


@pytest.mark.parametrize("form", ["rows", "named", "columns", "named columns"])
def test_texts_for_numbers_take_no_memory(form: str) -> None:
    """NumPy would make an array of strings, all with the size of the longest: 400 MB here."""
    long, short = "x" * 100_000, [["1", "2"]] * 500
    bodies = {
        "rows": {"instances": [[long, "2"], *short]},
        "named": {"instances": [{"x": row} for row in ([long, "2"], *short)]},
        "columns": {"inputs": [[long, "2"], *short]},
        "named columns": {"inputs": {"x": [[long, "2"], *short]}, "signature_name": "f"},
    }
    tracemalloc.start()
    try:
        text = refusal(bodies[form])
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert "expected f32, got 'xxx" in text and len(text) < 200


def test_rows_of_the_only_input() -> None:
    arrays, rows = read({"instances": [[1, 2], [3, 4.5]]})
    assert rows == 2 and arrays["x"].dtype == np.float32
    assert arrays["x"].tolist() == [[1, 2], [3, 4.5]]


def test_rows_with_names() -> None:
    arrays, rows = read({"instances": [{"a": 1, "b": True}, {"b": False, "a": -2}]}, TWO)
    assert rows == 2
    assert arrays["a"].dtype == np.int32 and arrays["a"].tolist() == [1, -2]
    assert arrays["b"].dtype == np.bool_ and arrays["b"].tolist() == [True, False]


def test_columns() -> None:
    arrays, rows = read({"inputs": {"a": [1, 2], "b": [True, False]}}, TWO)
    assert rows is None and arrays["a"].tolist() == [1, 2]
    assert read({"inputs": [[1, 2]]})[0]["x"].tolist() == [[1, 2]]


INTEGERS = ["i4", "i8", "i16", "i32", "i64", "u4", "u8", "u16", "u32", "u64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_whole_range_of_integers(dtype: str) -> None:
    bits = int(dtype[1:])
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    types = {"t": typed(f"{dtype}[n]")}
    found = read({"instances": [low, high]}, types)[0]["t"]
    assert found.dtype == types["t"].dtype and [int(each) for each in found] == [low, high]
    for value in (low - 1, high + 1):
        message = refusal({"instances": [0, value]}, types)
        assert message == f"instances[1]: {value} is not in the range of {dtype}"
    assert "expected" in refusal({"instances": [1.0]}, types)
    assert "integer of" in refusal({"instances": [10**100]}, types)


FLOATS = ["f16", "bf16", "f32", "f64", "f8e4m3fn", "f8e5m2"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype: str) -> None:
    types = {"t": typed(f"{dtype}[n]")}
    found = read({"instances": [0.5, -2, 1]}, types)[0]["t"]
    assert found.dtype == types["t"].dtype
    assert found.astype(np.float64).tolist() == [0.5, -2.0, 1.0]
    assert "range" in refusal(b'{"instances": [1, 1e999]}', types)
    if dtype != "f64":
        assert "instances[1]: 1e+300 is not in the range" in refusal(
            {"instances": [1, 1e300]}, types
        )


def test_nan_and_infinity_are_values() -> None:
    found = read(b'{"instances": [[NaN, Infinity], [-Infinity, 0]]}')[0]["x"]
    assert np.isnan(found[0, 0]) and found[0, 1] == math.inf and found[1, 0] == -math.inf
    body = write_outputs({"y": found}, 2)
    assert body == b'{"predictions": [[NaN, Infinity], [-Infinity, 0.0]]}'


def test_strings_and_base64() -> None:
    types = {"t": typed("string[n]")}
    found = read({"instances": ["ä", {"b64": "/wA="}]}, types)[0]["t"]
    assert found.tolist() == ["ä".encode(), b"\xff\x00"]
    assert read({"instances": [{"b64": "YQ=="}]}, types)[0]["t"].tolist() == [b"a"]
    assert "base64" in refusal({"instances": [{"b64": "a"}]}, types)
    assert "base64" in refusal({"instances": [{"b64": 3}]}, types)
    assert "expected a string" in refusal({"instances": [3]}, types)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "must have 'instances' (rows) or 'inputs' (columns), it has neither"),
        ({"instances": [1], "inputs": 1}, "it has both"),
        ({"instances": []}, "at least one row"),
        ({"instances": 3}, "must be a list"),
        ({"instances": [[1, 2], [3]]}, "instances[1]: expected 2 elements"),
        ({"instances": [[1, 2], 3]}, "instances[1]: expected a list of 2, got 3"),
        ({"instances": [[1, "2"]]}, "instances[0][1]: expected f32, got '2'"),
        ({"instances": [[1, None]]}, "instances[0][1]: expected f32, got null"),
        ({"instances": [[1, True]]}, "instances[0][1]: expected f32, got True"),
        ({"instances": [{"x": [1, 2]}, [1, 2]]}, "instances[1]: expected an object"),
        ({"instances": [{"x": [1, 2]}, {"x": [1, "a"]}]}, "instances[1].x[1]: expected f32"),
        ({"instances": [{"x": [1, 2]}, {"x": [1]}]}, "instances[*].x[1]: expected 2 elements"),
        ({"instances": [{"y": 1}]}, "instances[0]: input 'x' is missing; it takes x f32[batch, 2]"),
        ({"instances": [{"x": 1, "y": 1}]}, "instances[0]: no input 'y'"),
        ({"inputs": {"x": [[1, {}]]}}, "inputs.x[0][1]: expected f32, got an object of 0"),
    ],
)
def test_errors_name_the_place(value: Any, message: str) -> None:
    assert message in refusal(value)


def test_errors_for_several_inputs() -> None:
    assert "the signature has 2 inputs (a, b)" in refusal({"instances": [1]}, TWO)
    assert "b f" not in refusal({"inputs": {"a": [1]}}, TWO)
    assert "expected bool, got 1" in refusal({"inputs": {"a": [1], "b": [1]}}, TWO)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\xfa", "not JSON"),
        (b"[1]", "must be a JSON object, got list"),
        (b"[" * 100_000, "not JSON: it is nested too deep"),
        (b'{"instances": ' + b"[" * 100_000, "not JSON: it is nested too deep"),
        (b'{"instances": ' + b"1" * 10_000 + b"}", "not JSON"),
        (b'{"instances": [' + b"[" * 80 + b"1" + b"]" * 81 + b"}", "deeper than 32"),
    ],
)
def test_bodies_that_are_not_json(data: bytes, message: str) -> None:
    assert message in refusal(data)


def test_complex_numbers_have_no_json() -> None:
    types = {"t": typed("c64[n]")}
    assert "JSON has no c64" in refusal({"instances": [1]}, types)
    with pytest.raises(Failure, match="JSON has no c64"):
        write_outputs({"y": np.ones(1, np.complex64)}, 1)


def test_outputs() -> None:
    y, z = np.float32([1, 2]), np.array([b"a", b"\xff"], object)
    assert json.loads(write_outputs({"y": y}, 2)) == {"predictions": [1.0, 2.0]}
    assert json.loads(write_outputs({"y": y}, None)) == {"outputs": [1.0, 2.0]}
    both = json.loads(write_outputs({"y": y, "z_bytes": z}, 2))
    assert both["predictions"][1] == {"y": 2.0, "z_bytes": {"b64": "/w=="}}
    assert json.loads(write_outputs({"y": y, "z": y[0]}, None)) == {
        "outputs": {"y": [1.0, 2.0], "z": 1.0}
    }
    for wrong in (np.float32(1), np.float32([1])):
        with pytest.raises(Failure, match=r"output 'y' has shape .*send columns"):
            write_outputs({"y": wrong}, 2)


def test_examples() -> None:
    types = {"x": typed("f32[batch, 2, 1]"), "n": typed("i64[batch]")}
    value = {"context": {"n": 7}, "examples": [{"x": [1, 2]}, {"x": [3, 4], "n": [8]}]}
    found = read_examples(read_body(json.dumps(value).encode()), types)
    assert found["x"].tolist() == [[[1], [2]], [[3], [4]]] and found["n"].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "at least one example"),
        ({"examples": [3]}, "examples[0] must be an object"),
        ({"examples": [{}], "context": 3}, "context must be an object"),
        ({"examples": [{}]}, "examples[0]: feature 'x' is missing"),
        ({"examples": [{"x": [1]}]}, "examples[0].x: expected 2 values, got shape [1]"),
        ({"examples": [{"x": [[1, 2]]}]}, "examples[0].x: expected 2 values, got shape [1, 2]"),
        ({"examples": [{"x": [1, "a"]}]}, "examples[0].x[1]: expected f32"),
    ],
)
def test_wrong_examples(value: Any, message: str) -> None:
    with pytest.raises(Failure) as caught:
        read_examples(read_body(json.dumps(value).encode()), ONE)
    assert message in caught.value.message


def test_a_signature_that_takes_no_examples() -> None:
    body = read_body(b'{"examples": [{"x": 1}]}')
    for text in ("f32[]", "f32[batch, n]"):
        with pytest.raises(Failure, match="does not take examples"):
            read_examples(body, {"x": typed(text)})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "bool"])
def test_numbers_are_written_as_json_writes_them(dtype: str) -> None:
    values = np.array([0, 1, 1e-7, 65504, 1e22, 5e-324, 0.1])
    with np.errstate(all="ignore"):
        array = values.astype(dtype)
    for shaped in (array, array[:6].reshape(2, 3), array[1:2].reshape(())):
        if np.isfinite(shaped).all():
            expected = json.dumps({"outputs": shaped.tolist()}).encode()
            assert write_outputs({"y": shaped}, None) == expected
