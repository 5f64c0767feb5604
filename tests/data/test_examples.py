"""Examples and SequenceExamples: written, parsed by a spec, and compared with the results of
TensorFlow and protobuf for the same bytes."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.data import FixedLen, RaggedArray, Raw, VarLen
from graphc.data.records.varints import decode_varints, encode_varints
from graphc.data.records.wire import field, varint
from graphc.errors import (
    ArgumentError,
    AttributeValueError,
    DataError,
    DTypeError,
    FeedError,
    MissingExtraError,
)

pytest.importorskip("google.protobuf")

FILES = Path(__file__).with_name("tensorflow_records")


def ragged(value: Any) -> list[Any]:
    """A RaggedArray as nested lists."""
    if not isinstance(value, RaggedArray):
        return value.tolist()
    return [ragged(row) for row in value.rows()]


def floats(values: Any) -> Any:
    """Floats from the text in parsed.json."""
    return [floats(each) for each in values] if isinstance(values, list) else float(values)


# -- against TensorFlow ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tfrecord", "tfrecord.gz", "tfrecord.zlib"])
def test_examples_that_tensorflow_wrote(name: str) -> None:
    records = list(gc.data.read_tfrecords(FILES / f"examples.{name}"))
    want = json.loads((FILES / "parsed.json").read_text())
    spec = {
        "label": FixedLen((), np.int64, default=-7),
        "name": FixedLen((), bytes),
        "ids": VarLen(np.int64),
        "x": FixedLen((2,), np.float32),
    }
    batch = gc.data.parse_examples(records, spec)
    assert batch["label"].tolist() == want["label"]
    assert [each.decode("latin-1") for each in batch["name"]] == want["name"]
    assert ragged(batch["ids"]) == want["ids"]
    assert batch["x"].tolist() == floats(want["x"])
    for n, record in enumerate(records):  # one by one: no two records have the same layout
        one = gc.data.parse_example(record, spec)
        assert one["label"] == want["label"][n] and one["ids"].tolist() == want["ids"][n]


def test_sequence_examples_that_tensorflow_wrote() -> None:
    records = list(gc.data.read_tfrecords(FILES / "sequences.tfrecord"))
    want = json.loads((FILES / "parsed.json").read_text())
    context, steps = gc.data.parse_sequence_examples(
        records,
        {"label": FixedLen((), np.int64)},
        {"words": FixedLen((2,), np.float32), "ids": VarLen(np.int64)},
    )
    assert context["label"].tolist() == want["context"]
    assert steps["words"].padded(0).tolist() == floats(want["words"])
    assert steps["words"].lengths.tolist() == want["lengths"]
    assert ragged(steps["ids"]) == want["steps"]
    assert steps["ids"].padded(9).tolist() == [
        [[1, 2], [9, 9], [3, 9]],
        [[-5, 9], [9, 9], [9, 9]],
        [[9, 9], [9, 9], [9, 9]],
    ]


# -- compared with protobuf and TensorFlow's own messages -----------------------------------------


@lru_cache(maxsize=1)
def reference() -> tuple[Any, Any]:
    """Classes of Example and SequenceExample as TensorFlow declares them."""
    from google.protobuf import descriptor_pb2 as d
    from google.protobuf import descriptor_pool, message_factory

    kinds = d.FieldDescriptorProto
    file = d.FileDescriptorProto(name="reference.proto", package="reference", syntax="proto3")

    def add(parent: Any, name: str) -> Any:
        return (parent.nested_type if parent is not file else parent.message_type).add(name=name)

    def put(
        message: Any, name: str, number: int, kind: int, of: str = "", many: bool = False
    ) -> Any:
        made = message.field.add(name=name, number=number, type=kind)
        made.label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
        if of:
            made.type_name = f".reference.{of}"
        return made

    def put_map(message: Any, name: str, number: int, of: str) -> None:
        entry = add(message, f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        put(entry, "key", 1, kinds.TYPE_STRING)
        put(entry, "value", 2, kinds.TYPE_MESSAGE, of)
        put(message, name, number, kinds.TYPE_MESSAGE, f"{message.name}.{entry.name}", True)

    for name, kind in (("Bytes", "BYTES"), ("Float", "FLOAT"), ("Int64", "INT64")):
        put(add(file, f"{name}List"), "value", 1, getattr(kinds, f"TYPE_{kind}"), "", True)
    feature = add(file, "Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("Bytes", "Float", "Int64"), 1):
        lower = f"{name.lower()}_list"
        put(feature, lower, number, kinds.TYPE_MESSAGE, f"{name}List").oneof_index = 0
    put_map(add(file, "Features"), "feature", 1, "Feature")
    put(add(file, "FeatureList"), "feature", 1, kinds.TYPE_MESSAGE, "Feature", True)
    put_map(add(file, "FeatureLists"), "feature_list", 1, "FeatureList")
    put(add(file, "Example"), "features", 1, kinds.TYPE_MESSAGE, "Features")
    sequence = add(file, "SequenceExample")
    put(sequence, "context", 1, kinds.TYPE_MESSAGE, "Features")
    put(sequence, "feature_lists", 2, kinds.TYPE_MESSAGE, "FeatureLists")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"reference.{name}"))
        for name in ("Example", "SequenceExample")
    ]
    return found[0], found[1]


def values_of(feature: Any) -> list[Any] | None:
    kind = feature.WhichOneof("kind")
    return None if kind is None else list(getattr(feature, kind).value)


def test_what_is_written_is_what_protobuf_reads() -> None:
    rng = np.random.default_rng(0)
    many = rng.integers(-(2**63), 2**63 - 1, 300) >> rng.integers(0, 63, 300)
    given: dict[str, Any] = {
        "int": -5,
        "ints": [0, 127, 128, 2**63 - 1, -(2**63)],
        "many": many,
        "bool": np.array([True, False]),
        "uint8": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "jax": jnp.arange(3),
        "int4": np.array([-8, 7], ml_dtypes.int4),
        "big": np.array([1, 2], ">i4"),
        "big float": np.array([1.5, 2], ">f4"),
        "big double": np.array([1.5, 2], ">f8"),
        "float": 0.1,
        "double": np.array([[1e-40, np.inf], [-np.inf, 2.5]]),
        "bf16": np.array([1.5, -2], ml_dtypes.bfloat16),
        "nothing": [],
        "none": None,
        "no ints": np.array([], np.int64),
        "no floats": np.zeros((0, 3), np.float32),
        "bytes": b"\xff\0",
        "text": "größe",
        "list": [b"a", bytearray(b"b"), "c"],
        "objects": np.array([b"a\0", "b"], object),
        "U": np.array(["x", "yz"]),
        "ключ": 1,
        "": 2,
    }
    message = reference()[0].FromString(gc.data.example(given)).features.feature
    got = {key: values_of(message[key]) for key in message}
    assert got.keys() == given.keys()
    float32 = np.float32(0.1).item()
    want = {**given, "many": many.tolist(), "int": [-5], "bool": [1, 0], "uint8": list(range(6))}
    want |= {"jax": [0, 1, 2], "int4": [-8, 7], "big": [1, 2], "float": [float32], "none": None}
    want |= {"double": [np.float32(1e-40).item(), np.inf, -np.inf, 2.5], "bf16": [1.5, -2.0]}
    want |= {
        "big float": [1.5, 2.0],
        "big double": [1.5, 2.0],
        "nothing": None,
        "no ints": [],
        "no floats": [],
        "bytes": [b"\xff\0"],
        "": [2],
    }
    want |= {"text": ["größe".encode()], "list": [b"a", b"b", b"c"], "objects": [b"a\0", b"b"]}
    want |= {"U": [b"x", b"yz"], "ключ": [1]}
    assert got == want
    again = gc.data.parse_example(gc.data.example(given))
    found = {key: value if value is None else list(value) for key, value in again.items()}
    assert found == want


def test_sequences_are_what_protobuf_reads() -> None:
    record = gc.data.sequence_example(
        {"label": 1}, {"x": np.arange(6.0).reshape(3, 2), "names": ["a", b"b"], "none": [[], 3]}
    )
    message = reference()[1].FromString(record)
    assert values_of(message.context.feature["label"]) == [1]
    lists = message.feature_lists.feature_list
    got = {key: [values_of(each) for each in lists[key].feature] for key in lists}
    assert got == {"x": [[0, 1], [2, 3], [4, 5]], "names": [[b"a"], [b"b"]], "none": [None, [3]]}


def test_forms_that_only_other_writers_use() -> None:
    """Merged, mixed and repeated parts, unknown fields and groups: results equal protobuf's."""
    key = field(1, b"ids")
    packed, one = field(1, b"\x06\x07"), b"\x08\x05"
    unknown = (
        b"\x98\x06\x01" + b"\x9b\x06\x10\x01\x9c\x06" + b"\x55" + bytes(4) + b"\x51" + bytes(8)
    )
    forms = [
        field(3, packed + one + packed),
        field(3, packed) + field(3, one),  # joined
        field(2, field(1, bytes(4))) + field(3, packed),  # the last kind counts
        field(3, packed) + field(1, field(1, b"x")) + field(3, one),
        unknown + field(3, unknown + packed + unknown) + unknown,
        field(3, b"") + unknown,
        b"\x1a\x84\x80\x00" + packed,  # a length with more bytes than necessary
        unknown,
        b"",
        field(3, field(1, b"\x80\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f")),
    ]
    records = [field(1, field(1, key + field(2, form))) for form in forms]
    records.append(field(1, field(1, field(2, field(3, packed)) + key)))  # value before key
    records.append(
        field(1, field(1, key + field(2, forms[0])) + field(1, key + field(2, forms[1])))
    )
    records.append(field(1, field(1, key)))  # no value
    records.append(b"")
    example = reference()[0]
    want = []
    for record in records:
        feature = example.FromString(record).features.feature
        want.append(values_of(feature["ids"]) if "ids" in feature else None)
    assert want[:4] == [[6, 7, 5, 6, 7], [6, 7, 5], [6, 7], [5]]
    spec = {"ids": VarLen(np.int64)}
    assert ragged(gc.data.parse_examples(records, spec)["ids"]) == [each or [] for each in want]
    singles = [gc.data.parse_example(record).get("ids") for record in records]
    assert [None if each is None else each.tolist() for each in singles] == want


@pytest.mark.parametrize("count", [1, 7, 64, 65, 1000])
def test_varints(count: int) -> None:
    rng = np.random.default_rng(count)
    for bits in range(1, 65):
        values = rng.integers(-(2**63), 2**63 - 1, count, endpoint=True) >> np.int64(64 - bits)
        for each in (values, np.abs(values)):
            data = encode_varints(each)
            assert data == b"".join(varint(int(v) & 2**64 - 1) for v in each.tolist())
            assert decode_varints(data)[0].tolist() == each.tolist()


# -- specs ----------------------------------------------------------------------------------------


def test_dtypes_and_shapes() -> None:
    rows = [{"i": [1, 0], "f": [[0.5], [2.0]], "s": ["a", "ü"]}] * 3
    records = [gc.data.example(row) for row in rows]
    for dtype in ("int8", "uint64", "bool", "int4", "int32", np.int64, jnp.int16):
        found = gc.data.parse_examples(records, {"i": FixedLen((2,), dtype)})["i"]
        assert found.dtype == np.dtype(dtype) and found.tolist() == [[1, 0]] * 3
    for dtype in ("float16", "bfloat16", "float64", "f32", "float8_e4m3fn"):
        found = gc.data.parse_examples(records, {"f": FixedLen((2, 1), dtype)})["f"]
        assert found.shape == (3, 2, 1) and found.astype("f4").tolist() == [[[0.5], [2.0]]] * 3
    found = gc.data.parse_examples(records, {"s": FixedLen((1, 2), str)})["s"]
    assert found.dtype == object and found.tolist() == [[["a", "ü"]]] * 3
    assert gc.data.parse_examples(records, {}) == {}
    for batch in ([], np.array([], object)):
        none = gc.data.parse_examples(
            batch, {"i": FixedLen((2,), "int8"), "s": VarLen(str), "f": Raw((3,), "float32")}
        )
        assert none["i"].shape == (0, 2) and none["i"].dtype == np.int8
        assert none["s"].values.shape == (0,) and none["s"].lengths.shape == (0,)
        assert none["f"].shape == (0, 3)
    nothing = gc.data.parse_examples([gc.data.example({"x": []})], {"x": VarLen("float32", pad=0)})
    assert nothing["x"].shape == (1, 0)
    empty = [gc.data.example({"x": np.zeros((0, 2))})]
    assert gc.data.parse_examples(empty, {"x": FixedLen((0, 2), "float32")})["x"].shape == (1, 0, 2)


def test_results_are_arrays_of_their_own() -> None:
    records = [gc.data.example({"x": [1.0], "i": [1], "r": b"\x01\x02"})] * 2
    spec = {"x": FixedLen((1,), "float32"), "i": FixedLen((1,), "int64"), "r": Raw((2,), "uint8")}
    spec |= {"v": VarLen("int64")}
    batch = gc.data.parse_examples(records, spec)
    for name in "xir":
        batch[name][...] = 7
        assert batch[name].flags.c_contiguous
    assert gc.data.parse_examples(records, spec)["x"].tolist() == [[1.0], [1.0]]


def test_defaults() -> None:
    records = [
        gc.data.example(row) for row in ({"a": [1, 2]}, {"b": "x"}, {"a": [], "r": bytes(4)})
    ]
    spec = {
        "a": FixedLen((2,), np.int32, default=9),
        "b": FixedLen((), str, default="none"),
        "c": FixedLen((2,), "float32", default=[0.5, 1]),
        "r": Raw((2,), "int16", default=-1),
    }
    batch = gc.data.parse_examples(records, spec)
    assert batch["a"].tolist() == [[1, 2], [9, 9], [9, 9]]
    assert batch["b"].tolist() == ["none", "x", "none"]
    assert batch["c"].tolist() == [[0.5, 1]] * 3
    assert batch["r"].tolist() == [[-1, -1], [-1, -1], [0, 0]]
    for each in spec.values():
        assert "default" in repr(each)


def test_ragged_and_padded() -> None:
    rows = [[1, 2, 3, 4], [], [5, 6]]
    records = [gc.data.example({"ids": row, "s": [str(n) for n in row]}) for row in rows]

    def parse(spec: Any, name: str = "ids") -> Any:
        return gc.data.parse_examples(records, {name: spec})[name]

    assert ragged(parse(VarLen(np.int64))) == rows
    assert parse(VarLen("int16", pad=-1)).tolist() == [[1, 2, 3, 4], [-1] * 4, [5, 6, -1, -1]]
    assert parse(VarLen("int16", pad=0, length=5)).shape == (3, 5)
    assert parse(VarLen("int8", shape=(2,), pad=0)).shape == (3, 2, 2)
    assert ragged(parse(VarLen("int8", shape=(2,)))) == [[[1, 2], [3, 4]], [], [[5, 6]]]
    assert parse(VarLen(bytes, pad=b""), "s")[2].tolist() == [b"5", b"6", b"", b""]
    with pytest.raises(DataError, match=r"feature 'ids' of record 0 has length 4\n.*at most 3"):
        parse(VarLen("int8", pad=0, length=3))
    with pytest.raises(DataError, match=r"of record 0 has 4 values\n.*rows of shape \(3,\)"):
        parse(VarLen("int8", shape=(3,)))
    words = parse(VarLen(np.int64))
    assert words.padded(0, 6).shape == (3, 6)
    with pytest.raises(AttributeValueError, match="row 0 is longer than 3: 4"):
        words.padded(0, 3)


def test_raw_arrays() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("uint8", ">i2", "<f8", "bool", "complex64", "bfloat16", "float8_e4m3fn"):
        arrays = [rng.integers(0, 2, (2, 3)).astype(dtype) for _ in range(4)]
        records = [gc.data.example({"x": array.tobytes()}) for array in arrays]
        records[2] = field(1, field(1, field(1, b"y")) + records[2][2:])  # another layout
        got = gc.data.parse_examples(records, {"x": Raw((2, 3), dtype)})["x"]
        assert got.dtype == np.dtype(dtype).newbyteorder("=")
        assert (got == np.stack(arrays)).all()
    with pytest.raises(
        DataError, match=r"record 1 has 5 bytes\n.*expected 4 bytes for uint8 \(4,\)"
    ):
        records = [gc.data.example({"x": bytes(n)}) for n in (4, 5)]
        gc.data.parse_examples(records, {"x": Raw((4,), np.uint8)})
    with pytest.raises(DataError, match="record 0 has 2 elements"):
        gc.data.parse_examples([gc.data.example({"x": [b"1", b"2"]})], {"x": Raw((1,), np.uint8)})


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: FixedLen((-1,), "int32"), AttributeValueError, "shape must be a tuple of sizes"),
        (lambda: FixedLen("ab", "int32"), AttributeValueError, "got 'ab'"),
        (lambda: FixedLen((None,), "int32"), AttributeValueError, "VarLen for sizes that differ"),
        (lambda: FixedLen((), "complex64"), DTypeError, "not complex64"),
        (lambda: FixedLen((), "strange"), DTypeError, "strange"),
        (lambda: FixedLen((), object), DTypeError, "object"),
        (lambda: FixedLen((2,), "int32", default=[1, 2, 3]), AttributeValueError, r"shape \(3,\)"),
        (lambda: FixedLen((), "int8", default=300), DTypeError, "300 is out of the range of int8"),
        (lambda: FixedLen((), "int8", default=0.5), DTypeError, "0.5 is out of the range of int8"),
        (lambda: FixedLen((), "uint8", default=-1), DTypeError, "out of the range"),
        (lambda: FixedLen((), bytes, default="x"), DTypeError, "'x' is not bytes"),
        (lambda: FixedLen((), "int32", default="x"), DTypeError, "default"),
        (lambda: VarLen("int32", (0, 2)), AttributeValueError, "no values to count"),
        (lambda: VarLen("int32", length=3), AttributeValueError, "length=3 with pad=None"),
        (lambda: VarLen("int32", pad=0, length=-3), AttributeValueError, "length=-3"),
        (lambda: VarLen("int32", pad="x"), DTypeError, "default"),
        (lambda: Raw((), object), DTypeError, "no numbers have the dtype object"),
        (lambda: Raw((), "S0"), DTypeError, "no numbers"),
        (lambda: Raw((), "nothing"), DTypeError, "nothing"),
        (lambda: Raw((2,), "uint8", default=300), DTypeError, "300 is out of the range of uint8"),
    ],
)
def test_specs_that_are_refused(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        make()
    assert "test_examples.py" in str(caught.value)


# -- errors ---------------------------------------------------------------------------------------

GOOD = gc.data.example({"label": 1, "x": [0.5, 1.5], "name": "a", "big": 300})


@pytest.mark.parametrize(
    ("bad", "spec", "lines"),
    [
        ({"label": [1.0]}, {"label": FixedLen((), "int64")}, ["is a float_list", "an int64_list"]),
        (
            {"label": "a"},
            {"label": VarLen("int64")},
            ["is a bytes_list", "an int64_list", "bytes"],
        ),
        ({"name": 3}, {"name": FixedLen((), bytes)}, ["is an int64_list", "np.int64"]),
        ({"name": 3}, {"name": Raw((1,), "uint8")}, ["is an int64_list", "expected a bytes_list"]),
        (
            {"x": [1.0]},
            {"x": FixedLen((2,), "float32")},
            ["has 1 values", "2 for shape (2,)", "VarLen"],
        ),
        ({"name": ["a", "b"]}, {"name": FixedLen((), bytes)}, ["has 2 values", "1 for shape ()"]),
        ({"lable": 1}, {"label": FixedLen((), "int64")}, ["is missing", "did you mean 'lable'?"]),
        ({}, {"label": FixedLen((), "int64")}, ["is missing", "no features", "a default"]),
        ({"label": []}, {"label": FixedLen((), "int64")}, ["is missing", "the record has: label"]),
        ({"big": 128}, {"big": VarLen("int16"), "label": VarLen("int64")}, []),
        (
            {"big": 70000},
            {"big": FixedLen((), "int16")},
            ["has the value 70000", "in the range of int16"],
        ),
        ({"big": -1}, {"big": FixedLen((), "uint64")}, ["has the value -1", "wider"]),
        (
            {"x": [1e6, 1]},
            {"x": VarLen("float16")},
            ["has the value 1000000.0", "range of float16"],
        ),
        ({"name": b"\xff"}, {"name": FixedLen((), str)}, ["is not UTF-8", "read it as bytes"]),
    ],
)
def test_errors_name_the_feature_and_the_record(bad: Any, spec: Any, lines: list[str]) -> None:
    records = [GOOD, GOOD, gc.data.example(bad), GOOD]
    if not lines:
        assert len(gc.data.parse_examples(records, spec)["big"].lengths) == 4
        return
    with pytest.raises(DataError) as caught:
        gc.data.parse_examples(records, spec)
    message = str(caught.value)
    (name,) = spec
    for text in (
        f"feature {name!r} of record 2 {lines[0][:2]}",
        *lines,
        "test_examples.py",
        "hint",
    ):
        assert text in message, message


def test_several_features_of_integers_are_decoded_together() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"a": int(rng.integers(-5, 500)), "b": rng.integers(0, 10**6, n % 4), "c": [n, 2 * n]}
        for n in range(60)
    ]
    spec = {
        "a": FixedLen((), np.int64),
        "b": VarLen(np.int32),
        "c": FixedLen((2,), np.int64),
        "d": FixedLen((), np.uint8, default=7),
    }
    records = [gc.data.example(row) for row in rows]
    batch = gc.data.parse_examples(records, spec)
    for name, each in spec.items():  # as one by one
        alone = gc.data.parse_examples(records, {name: each})[name]
        assert ragged(batch[name]) == ragged(alone) and type(batch[name]) is type(alone)
    batch["a"][:] = -1
    assert batch["c"].tolist() == [row["c"] for row in rows]
    for bad, text in (
        ({"c": "x"}, "feature 'c' of record 41 is a bytes_list"),
        ({"c": [1]}, "feature 'c' of record 41 has 1 values"),
        ({"d": 300}, "feature 'd' of record 41 has the value 300"),
        ({"a": None}, "feature 'a' of record 41 is missing"),
    ):
        records[41] = gc.data.example({**rows[41], **bad})
        with pytest.raises(DataError, match=text):
            gc.data.parse_examples(records, spec)
    feature = field(1, b"c") + field(2, field(3, field(1, b"\x80")))
    records[41] = gc.data.example(rows[41]) + field(1, field(1, feature))
    with pytest.raises(DataError, match="feature 'c' of record 41 is damaged"):
        gc.data.parse_examples(records, spec)


def test_errors_of_sequences() -> None:
    good = gc.data.sequence_example({}, {"x": [[1.0], [2.0]], "i": [1, 2]})
    bad = gc.data.sequence_example({}, {"x": [[1.0], [2.0], [3.0, 4.0]], "i": [1, 2, "x"]})

    def parse(records: list[bytes], **specs: Any) -> Any:
        return gc.data.parse_sequence_examples(records, {}, specs)[1]

    with pytest.raises(DataError, match=r"feature 'x' of step 2 of record 1 has 2 values"):
        parse([good, bad], x=FixedLen((1,), "float32"))
    with pytest.raises(DataError, match=r"feature 'i' of step 2 of record 1 is a bytes_list"):
        parse([good, bad], i=VarLen("int32"))
    with pytest.raises(DataError, match=r"(?s)feature 'y' of record 0 is missing.*has: i, x"):
        parse([good], y=FixedLen((), "float32"))
    assert parse([good], y=FixedLen((), "float32", default=0))["y"].lengths.tolist() == [0]
    assert ragged(parse([good], y=VarLen(bytes))["y"]) == [[]]
    with pytest.raises(DataError, match=r"record 0 is not a tf\.train\.SequenceExample"):
        parse([b"\xff"], x=VarLen("float32"))
    with pytest.raises(DataError, match="feature 'z' of record 0 is missing"):
        gc.data.parse_sequence_examples([good], {"z": FixedLen((), "float32")})


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (field(3, field(1, b"\x80")), "a varint does not end"),
        (field(3, field(1, b"\x80" * 11 + b"\x01")), "a varint does not end"),
        (field(3, b"\x08"), "a varint does not end"),
        (field(3, b"\x0a\x05\x01"), "ends 4 bytes after"),
        (b"\x1a\x7f", "ends 127 bytes after"),
        (b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "bytes after the message"),
        (b"\x07", "there is no field number 0"),
        (b"\x0f", "wire type 7 of field 1"),
        (b"\x0c", "wire type 4 of field 1"),
        (b"\x0b" * 200, "wire type 3 of field 1"),
        (b"\x0b", "a group does not end"),
    ],
)
def test_damaged_features(form: bytes, text: str) -> None:
    record = field(1, field(1, field(1, b"label") + field(2, form)))
    for spec in (FixedLen((), np.int64), VarLen(np.int64)):
        with pytest.raises(DataError, match=text) as caught:
            gc.data.parse_examples([GOOD, record], {"label": spec})
        assert "feature 'label' of record 1 is damaged" in str(caught.value)
    with pytest.raises(DataError, match=r"feature 'label'(?s:.*)" + text):
        gc.data.parse_example(record)


def test_damaged_floats() -> None:
    record = field(1, field(1, field(1, b"x") + field(2, field(2, field(1, b"12345")))))
    with pytest.raises(DataError, match="a float has less than 4 bytes"):
        gc.data.parse_examples([GOOD, record], {"x": VarLen("float32")})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: gc.data.parse_examples(GOOD, {}), FeedError, "takes a batch of messages, got one"),
        (lambda: gc.data.parse_examples([GOOD, "x"], {}), DTypeError, "record 1 is str, expected"),
        (
            lambda: gc.data.parse_examples([b"\xff"], {}),
            DataError,
            "record 0 is not a tf.train.Exam",
        ),
        (lambda: gc.data.parse_examples(np.array([GOOD]), {}), FeedError, "lose zeros at the end"),
        (lambda: gc.data.parse_examples(np.array([[GOOD]], object), {}), FeedError, r"\(1, 1\)"),
        (lambda: gc.data.parse_examples([], {"x": np.int64}), FeedError, "the spec of 'x' is"),
        (lambda: gc.data.parse_examples([], {1: VarLen("int32")}), FeedError, "the spec of 1"),
        (lambda: gc.data.parse_examples([], {"\ud800": VarLen("int32")}), FeedError, "the spec of"),
        (lambda: gc.data.example({"\ud800": 1}), DTypeError, "a name: .* cannot be encoded"),
        (lambda: gc.data.parse_examples([], ["x"]), FeedError, "must be a dict"),
        (lambda: gc.data.parse_examples([], feature={}), ArgumentError, "features"),
        (lambda: gc.data.example(["x"]), FeedError, "takes a dict"),
        (lambda: gc.data.example({1: 2}), DTypeError, "the name 1 is int"),
        (lambda: gc.data.example({"x": 2**63}), DTypeError, "'x'"),
        (lambda: gc.data.example({"x": np.uint64(2**63)}), DTypeError, "does not fit int64"),
        (lambda: gc.data.example({"x": 1e39}), DTypeError, "does not fit float32"),
        (lambda: gc.data.example({"x": 1j}), DTypeError, "no feature can be made of complex"),
        (lambda: gc.data.example({"x": [b"a", 1]}), DTypeError, "not all bytes or text: int"),
        (lambda: gc.data.example({"x": object()}), DTypeError, "no feature can be made of object"),
        (lambda: gc.data.example({"x": [[1], [2, 3]]}), DTypeError, "no feature can be made"),
        (lambda: gc.data.example({"x": "\ud800"}), DTypeError, "cannot be encoded as UTF-8"),
        (lambda: gc.data.sequence_example({}, {"x": 3}), DTypeError, "one value for each step"),
        (lambda: gc.data.sequence_example({}, {"x": [1, 1j]}), DTypeError, "step 1 of 'x'"),
    ],
)
def test_calls_that_are_refused(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call()
    assert "test_examples.py" in str(caught.value)


def test_without_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc.data.records import messages

    messages._messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    record = gc.data.example({"x": 1})  # this field is not needed for writing
    with pytest.raises(MissingExtraError, match="parse_examples needs protobuf") as caught:
        gc.data.parse_examples([record], {"x": VarLen("int32")})
    assert "graphc[records]" in str(caught.value)


# -- with pipelines -------------------------------------------------------------------------------


def parse_batch(batch: Any) -> Any:
    return gc.data.parse_examples(batch, {"x": Raw((2,), "uint8"), "ids": VarLen("int32")})


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_records_are_parsed(tmp_path: Path, workers: int) -> None:
    with gc.data.TFRecordWriter(tmp_path / "a") as file:
        for n in range(10):
            file.write(gc.data.example({"x": bytes([n, 1]), "ids": [n] * n}))
    pipeline = gc.data.from_records(tmp_path / "a").batch(4).map(parse_batch, workers=workers)
    batches = list(pipeline)
    assert [batch["x"].shape for batch in batches] == [(4, 2), (4, 2), (2, 2)]
    assert isinstance(batches[0]["ids"], RaggedArray)
    assert np.concatenate([batch["x"][:, 0] for batch in batches]).tolist() == list(range(10))
    singles = gc.data.from_records(tmp_path / "a").map(
        lambda record: gc.data.parse_example(record, {"x": Raw((2,), "uint8")})
    )
    assert next(iter(singles.batch(3)))["x"].tolist() == [[0, 1], [1, 1], [2, 1]]
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 2), "uint8", name="x")
        total = gc.sum(gc.cast(x, "int32"))
    session = gc.Session(graph)
    feeds = pipeline.map(lambda batch: {"x": batch["x"]}).prefetch(session)
    assert sum(int(session.run(total, each)) for each in feeds) == 55


def test_an_error_in_a_pipeline_says_which_batch(tmp_path: Path) -> None:
    with gc.data.TFRecordWriter(tmp_path / "a") as file:
        for n in range(10):
            file.write(gc.data.example({"x": bytes(2 if n < 9 else 3)}))
    items = iter(gc.data.from_records(tmp_path / "a").batch(4).map(parse_batch))
    next(items), next(items)
    with pytest.raises(DataError, match="feature 'x' of record 1 has 3 bytes") as caught:
        next(items)
    assert "record 9" in "".join(caught.value.__notes__)
