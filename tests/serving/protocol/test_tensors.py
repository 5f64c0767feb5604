"""Conversion between TensorProto and NumPy, compared with TensorFlow's bytes (make_golden.py)."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode, decode_all, encode
from graphc.web.failures import Failure

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
DTYPES = sorted({name.split()[0] for name in GOLDEN["tensors"]} - {"string"})


def tensor(**fields):
    shape = fields.pop("shape", ())
    made = messages().TensorProto(**fields)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


def refusal(proto, **options) -> str:
    with pytest.raises(Failure) as caught:
        decode(proto, "x", **options)
    assert caught.value.code == "INVALID_ARGUMENT"
    return caught.value.message


@pytest.mark.parametrize("name", sorted(GOLDEN["tensors"]))
def test_tensors_that_tensorflow_wrote_are_read(name: str) -> None:
    found = decode(parse("TensorProto", bytes.fromhex(GOLDEN["tensors"][name])), "x")
    if name == "string":
        assert found.dtype == object and found.tolist() == [b"a", b"\xff\x00", b""]
        return
    assert found.dtype.name == name.split()[0]
    assert found.astype(np.complex64).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_that_are_written_are_read_again(name: str) -> None:
    array = np.array([[0, 1], [1, 0], [1, 1]]).astype(getattr(ml_dtypes, name, name))
    data = encode(array).SerializeToString()
    found = decode(parse("TensorProto", data), "x")
    assert found.dtype == array.dtype and (found == array).all()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
def test_shapes_without_or_with_few_elements(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    found = decode(parse("TensorProto", encode(array).SerializeToString()), "x")
    assert found.shape == shape and (found == array).all()


def test_values_are_in_the_fields_that_clients_read() -> None:
    found = parse("TensorProto", encode(np.float32([1.5, 2])).SerializeToString())
    assert list(found.float_val) == [1.5, 2.0] and not found.tensor_content


def test_text_is_written_as_utf8() -> None:
    assert list(encode(np.array(["ä", "b"])).string_val) == ["ä".encode(), b"b"]


@pytest.mark.parametrize(
    ("values", "expected"), [([], [0, 0, 0]), ([7], [7, 7, 7]), ([7, 8], [7, 8, 8])]
)
def test_the_last_value_is_repeated(values: list[int], expected: list[int]) -> None:
    assert decode(tensor(dtype=3, shape=(3,), int_val=values), "x").tolist() == expected


def test_strings_are_repeated_too() -> None:
    assert decode(tensor(dtype=7, shape=(2,), string_val=[b"a"]), "x").tolist() == [b"a", b"a"]
    assert decode(tensor(dtype=7, shape=(2,)), "x").tolist() == [b"", b""]


def test_what_is_not_a_tensor_is_refused() -> None:
    assert "dtype 20" in refusal(tensor(dtype=20))
    assert "dtype 0" in refusal(tensor())
    assert "2 values for shape [1]" in refusal(tensor(dtype=3, shape=(1,), int_val=[1, 2]))
    assert "negative" in refusal(tensor(dtype=1, shape=(-1,)))
    assert "33 axes" in refusal(tensor(dtype=1, shape=(1,) * 33))
    assert "3 bytes, expected 4" in refusal(tensor(dtype=1, shape=(1,), tensor_content=b"abc"))
    assert "-128 to 127" in refusal(tensor(dtype=6, shape=(1,), int_val=[128]))
    assert "-8 to 7" in refusal(tensor(dtype=29, shape=(1,), int_val=[8]))
    assert "-8 to 7" in refusal(tensor(dtype=29, shape=(1,), tensor_content=b"\x77"))
    assert "0 nor 1" in refusal(tensor(dtype=10, shape=(1,), tensor_content=b"\x02"))
    assert "65535" in refusal(tensor(dtype=19, shape=(1,), half_val=[1 << 16]))
    assert "pairs" in refusal(tensor(dtype=8, shape=(1,), scomplex_val=[1.0]))
    no_rank = tensor(dtype=1)
    no_rank.tensor_shape.unknown_rank = True
    assert "no rank" in refusal(no_rank)


def test_a_small_message_cannot_ask_for_much_memory() -> None:
    huge = tensor(dtype=1, shape=(1 << 40, 1 << 40), float_val=[1.0])
    assert "more than" in refusal(huge)
    assert "more than" in refusal(tensor(dtype=1, shape=(0, 1 << 40, 1 << 40)))
    part = tensor(dtype=1, shape=(100,), float_val=[1.0])
    assert decode_all({"a": part, "b": part}, limit=800)["b"].size == 100
    with pytest.raises(Failure, match="'b'"):
        decode_all({"a": part, "b": part}, limit=799)


@pytest.mark.parametrize("name", sorted(GOLDEN["messages"]))
def test_messages_of_the_real_package_are_read_without_loss(name: str) -> None:
    data = bytes.fromhex(GOLDEN["messages"][name])
    message = parse(name, data)
    assert message.SerializeToString(deterministic=True) == data


def test_the_fields_of_a_real_request() -> None:
    request = parse("PredictRequest", bytes.fromhex(GOLDEN["messages"]["PredictRequest"]))
    spec = request.model_spec
    assert (spec.name, spec.signature_name, spec.version.value) == ("m", "s", 3)
    assert spec.WhichOneof("version_choice") == "version"
    assert list(request.output_filter) == ["y"]
    assert decode_all(request.inputs)["x"].tolist() == [[1.0, 2.0]]
    log = parse("PredictionLog", bytes.fromhex(GOLDEN["messages"]["PredictionLog"]))
    assert log.predict_log.request == request


def test_bytes_that_are_no_message() -> None:
    with pytest.raises(Failure, match="not a PredictRequest") as caught:
        parse("PredictRequest", b"\x0a\xff")
    assert caught.value.code == "INVALID_ARGUMENT"


def test_values_that_are_not_packed_are_read() -> None:
    dim = b"\x12\x04\x12\x02\x08\x03"  # shape [3]
    one, two = np.float32(1).tobytes(), np.float32([2, 3]).tobytes()
    # One value alone (field 5, 4 bytes), then two in a packed field: both encodings in one message.
    data = b"\x08\x01" + dim + b"\x2d" + one + b"\x2a\x08" + two
    assert decode(parse("TensorProto", data), "x").tolist() == [1, 2, 3]


def test_the_bits_of_a_nan_are_kept() -> None:
    bits = np.uint32([0x7FC01234])
    proto = parse("TensorProto", encode(bits.view(np.float32)).SerializeToString())
    assert decode(proto, "x").view(np.uint32).tolist() == bits.tolist()
