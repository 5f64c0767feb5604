"""The reader of whole batches finds the same features as protobuf does record by record."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.data import FixedLen, RaggedArray, Raw, VarLen
from graphc.data.records import layouts
from graphc.data.records.alike import alike
from graphc.data.records.varints import encode_varints
from graphc.data.records.wire import field, varint
from graphc.errors import DataError
from tests.data.test_examples import reference, values_of

pytest.importorskip("google_crc32c")

SPECS = {
    "a": {"a": VarLen(np.int64)},
    "b": {"b": VarLen(np.float32)},
    "c": {"c": VarLen(bytes)},
    "all": {"a": VarLen(np.int64), "b": VarLen(np.float32), "c": VarLen(bytes)},
    "fixed": {
        "a": FixedLen((2,), np.int64, default=7),
        "b": FixedLen((1,), np.float32, default=7),
        "c": Raw((4,), np.uint8, default=7),
    },
    "single": {"a": FixedLen((), np.int64, default=7), "d": FixedLen((), np.int64, default=7)},
    "required": {"a": FixedLen((), np.int32), "c": FixedLen((), str)},
}

integers = st.one_of(
    st.integers(0, 127), st.integers(0, 2**21), st.integers(-(2**63), 2**63 - 1), st.just(-1)
)


# -- records that any writer may make -------------------------------------------------------------


def number_list(kind: int, wire: int, parts: list[bytes]) -> bytes:
    """An unpacked list of numbers."""
    return field(kind, b"".join(bytes((1 << 3 | wire,)) + part for part in parts))


@st.composite
def features(draw: Any) -> bytes:
    """A Feature of any kind: packed, unpacked, mixed, empty, with unknown fields."""
    kind = draw(st.sampled_from([1, 2, 3]))
    if kind == 1:
        elements = draw(st.lists(st.binary(max_size=200), max_size=3))
        found = field(1, b"".join(field(1, each) for each in elements))
    elif kind == 2:
        values = draw(st.lists(st.floats(width=32, allow_nan=False), max_size=40))
        packed = np.array(values, "<f4").tobytes()
        parts = [packed[at : at + 4] for at in range(0, len(packed), 4)]
        found = draw(
            st.sampled_from([field(2, field(1, packed)), number_list(2, 5, parts), field(2, b"")])
        )
    else:
        numbers = draw(st.lists(integers, max_size=40))
        parts = [varint(each % 2**64) for each in numbers]
        half = len(parts) // 2
        packed = encode_varints(np.array(numbers, np.int64)) if numbers else b""
        found = draw(
            st.sampled_from(
                [
                    field(3, field(1, packed)),
                    number_list(3, 0, parts),
                    field(3, b""),
                    field(3, field(1, b"".join(parts[:half])) + field(1, b"".join(parts[half:]))),
                    field(3, field(1, packed)) + field(3, field(1, packed)),
                ]
            )
        )
    unknown = draw(
        st.sampled_from([b"", b"", b"", b"\x50\x01", field(9, b"x"), b"\xfb\x03\xfc\x03"])
    )
    return draw(st.sampled_from([b"", found, found, found, found + unknown, unknown + found]))


usual = st.fixed_dictionaries(
    {
        "a": st.lists(integers, min_size=1, max_size=2),
        "b": st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=1),
        "c": st.one_of(st.binary(min_size=4, max_size=4), st.just("text"), st.binary(max_size=300)),
        "d": integers,
    }
)


@st.composite
def examples(draw: Any) -> bytes:
    """An Example, mostly with the usual layout, so that many of a batch have the same one."""
    if draw(st.integers(0, 3)):
        row = draw(usual)
        names = draw(st.sampled_from(["abcd", "abcd", "abcd", "dcba", "acd", "a", ""]))
        return gc.data.example({name: row[name] for name in names})
    entries = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c", "d", "", "é" * 70]), max_size=5)):
        key, value = field(1, name.encode()), field(2, draw(features()))
        forms = [key + value, key + value, value + key, key, key + value + field(7, b"?")]
        entries.append(field(1, draw(st.sampled_from(forms))))
    half = len(entries) // 2
    whole = field(1, b"".join(entries))
    merged = field(1, b"".join(entries[:half])) + field(1, b"".join(entries[half:]))
    return draw(st.sampled_from([whole, whole, merged, whole + field(5, b"unknown"), b""]))


batches = st.lists(examples(), min_size=1, max_size=12)


# -- equal results --------------------------------------------------------------------------------


def outcome(records: list[bytes], specs: Any) -> Any:
    """The features as text, which tells -0.0 from 0.0, with dtypes and shapes; or the error."""
    try:
        found = gc.data.parse_examples(records, specs)
    except DataError as error:
        return str(error)
    return {name: shown(value) for name, value in found.items()}


def shown(value: Any) -> Any:
    if isinstance(value, RaggedArray):
        return shown(value.values), shown(value.lengths)
    return value.dtype, value.shape, repr(value.tolist())


def general(records: list[bytes], specs: Any) -> Any:
    """`outcome` of the general reader: protobuf reads every record."""
    with mock.patch.object(layouts, "found", return_value=None):
        return outcome(records, specs)


def by_forms(records: list[bytes], specs: Any) -> Any:
    """`outcome` of the reader for records with different lengths."""
    with mock.patch.object(layouts, "alike", return_value=None):
        return outcome(records, specs)


def check(records: list[bytes], all_specs: Any = SPECS) -> None:
    for specs in all_specs.values():
        want = general(records, specs)
        assert outcome(records, specs) == want
        assert by_forms(records, specs) == want


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(batches)
def test_any_writer(records: list[bytes]) -> None:
    check(records)


equal = st.fixed_dictionaries(
    {
        "a": st.lists(st.integers(0, 127), min_size=2, max_size=2),
        "b": st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=1),
        "c": st.binary(min_size=4, max_size=4),
        "d": st.integers(-5, -1),
    }
).map(gc.data.example)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(
    st.one_of(
        st.lists(usual.map(gc.data.example), min_size=4, max_size=8),
        st.lists(equal, min_size=4, max_size=8),
    ),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
)
def test_changed_bytes(records: list[bytes], changes: list[tuple[int, int, int]]) -> None:
    for number, at, byte in changes:
        data = bytearray(records[number % len(records)])
        data[at % len(data)] = byte
        records[number % len(records)] = bytes(data)
    check(records)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(usual.map(gc.data.example), st.binary(max_size=40)), max_size=8))
def test_some_records_are_no_examples(records: list[bytes]) -> None:
    check(records)


@pytest.mark.slow
def test_every_byte_of_one_record() -> None:
    """Each byte is changed and each length truncated, in the first and the last record."""
    rows = [{"a": [n, 300], "b": [0.5], "c": b"%04d" % n, "d": -n} for n in range(5)]
    records = [gc.data.example(row) for row in rows]
    for number in (0, 4):
        good = records[number]
        for at in range(len(good)):
            for bad in (
                good[:at],
                *(good[:at] + bytes((good[at] ^ bits,)) + good[at + 1 :] for bits in (1, 0x80)),
            ):
                changed = [*records[:number], bad, *records[number + 1 :]]
                check(changed, {key: SPECS[key] for key in ("all", "single")})


def test_equally_long_records() -> None:
    """One record differs in a length, a name, a tag, or in a part that no spec names."""
    rows = [{"a": [n, 100], "b": [n / 3], "c": b"%04d" % n, "d": n} for n in range(6)]
    records = [gc.data.example(row) for row in rows]
    assert alike(records, b"".join(records), {b"a": 0x1A, b"b": 0x12}) is not None
    other = gc.data.example({"a": [1, 100], "b": [0.5], "d": 1, "c": b"4444"})
    renamed = records[3].replace(b"\x01c\x12", b"\x01e\x12")
    kind = records[3].replace(b"a\x12\x06\x1a", b"a\x12\x06\x0a")
    assert {len(each) for each in (*records, other, renamed, kind)} == {len(other)}
    for changed in (other, renamed, kind):
        batch = [*records[:3], changed, *records[3:]]
        assert alike(batch, b"".join(batch), {b"a": 0x1A, b"c": 0x0A}) is None
        check(batch)
    without_d = records[3].replace(b"d\x12\x05\x1a\x03\x0a\x01", b"d\x12\x05any ")
    batch = [*records[:3], without_d, *records[3:]]
    assert alike(batch, b"".join(batch), {b"a": 0x1A}) is not None
    check(batch)


# -- records that the fast reader reads -----------------------------------------------------------


def left(records: list[bytes], specs: Any) -> list[int] | None:
    """The records that the fast reader leaves to protobuf; None for all."""
    found = layouts.found(records, specs)
    return None if found is None else found[1]


KINDS = {"a": "int64_list", "b": "float_list", "c": "bytes_list"}


@pytest.mark.parametrize("size", [1, 100, 127, 128, 5000, 2**14, 40_000, 2**21])
def test_records_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records have lengths of 1 to 4 bytes."""
    monkeypatch.setattr(layouts, "_LARGE", 2**30)
    rows = [
        {"a": [1] * (size // 8), "b": [0.5] * (size // 16), "c": bytes(size - n % 2)}
        for n in range(5)
    ]
    records = [gc.data.example(row) for row in rows]
    assert left(records, KINDS) == []
    found = gc.data.parse_examples(records, SPECS["all"])
    for number, row in enumerate(rows):
        assert found["a"].rows()[number].tolist() == row["a"]
        assert found["b"].rows()[number].tolist() == row["b"]
        assert found["c"].rows()[number].tolist() == [row["c"]]


def test_records_that_protobuf_wrote() -> None:
    message = reference()[0]
    records = []
    for n in range(20):
        made = message()
        made.features.feature["a"].int64_list.value.extend([n, -n] * (n % 3 + 1))
        made.features.feature["b"].float_list.value.extend([n / 3])
        made.features.feature["c"].bytes_list.value.append(b"x" * 10 * n)
        records.append(made.SerializeToString(deterministic=True))
    assert left(records, KINDS) == []
    found = gc.data.parse_examples(records, SPECS["all"])
    for number, record in enumerate(records):
        read = message.FromString(record).features.feature
        for name in "abc":
            assert found[name].rows()[number].tolist() == values_of(read[name])


def test_several_forms_in_one_batch() -> None:
    """Records without some feature, or in another order, also work, up to a number of layouts."""
    row = {"a": [1, 2], "b": [0.5], "c": b"four"}
    forms = [gc.data.example({name: row[name] for name in names}) for names in ("abc", "cab", "ac")]
    unusual = field(1, field(1, field(2, b"") + field(1, b"a")))
    records = [unusual, *forms * 8, b""]
    assert left(records, KINDS) == [0, 25]
    check(records)


@pytest.mark.parametrize("name, kind", [("a", 3), ("b", 2), ("c", 1)])
def test_features_without_values(name: str, kind: int) -> None:
    """A list without values, an element without bytes, and no list."""
    key = field(1, name.encode())
    forms = [field(2, field(kind, b"")), field(2, field(kind, field(1, b""))), field(2, b""), b""]
    for form in forms:
        same = [field(1, field(1, key + form))] * 6
        check(same)
        check([*same, gc.data.example({"d": 1})])


def test_large_records_are_left_to_protobuf() -> None:
    records = [gc.data.example({"c": bytes(20_000)})] * 8
    assert left(records, KINDS) is None
    small = [gc.data.example({"c": b"small"})] * 24
    assert left(records + small, KINDS) == []


def test_names_of_other_features_may_be_any_bytes() -> None:
    entry = field(1, field(1, b"\xff\xfe") + field(2, b"anything"))
    records = [field(1, gc.data.example({"a": n})[2:] + entry) for n in range(6)]
    assert left(records, {"a": "int64_list"}) == []
    assert gc.data.parse_examples(records, SPECS["a"])["a"].values.tolist() == list(range(6))


def test_the_same_name_twice_is_left_to_protobuf() -> None:
    twice = [
        field(1, gc.data.example({"a": n})[2:] + gc.data.example({"a": n + 1})[2:])
        for n in range(6)
    ]
    assert left(twice, {"a": "int64_list"}) is None
    assert gc.data.parse_examples(twice, SPECS["a"])["a"].values.tolist() == list(range(1, 7))


@pytest.mark.parametrize("size", range(1, 7))
def test_lengths_with_more_bytes_than_they_need(size: int) -> None:
    """protobuf accepts up to 5 bytes."""

    def long_field(number: int, value: bytes) -> bytes:
        digits = [len(value) & 0x7F, *[0] * (size - 1)]
        more = [digit | 0x80 for digit in digits[:-1]]
        return bytes((number << 3 | 2, *more, digits[-1])) + value

    records = [
        field(
            1,
            long_field(
                1, long_field(1, b"a") + long_field(2, long_field(3, long_field(1, bytes((n,)))))
            ),
        )
        for n in range(6)
    ]
    check(records)
    if size == 1:
        assert left(records, {"a": "int64_list"}) == []
