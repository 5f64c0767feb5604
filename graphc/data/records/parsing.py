"""`parse_examples` and `parse_sequence_examples`: batches of protobuf messages to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from graphc.data.records import layouts
from graphc.data.records.columns import Flat, column, integers
from graphc.data.records.messages import Messages, import_messages
from graphc.data.records.specs import FixedLen, RaggedArray, Raw, Spec, VarLen, kind_of
from graphc.data.records.values import Features, Lists, Wrong
from graphc.errors import DataError, DTypeError, FeedError, nearest
from graphc.ir.calls import explained
from graphc.ir.dtypes import Array

Serialized: TypeAlias = Sequence[bytes] | Array
"""Messages as bytes: a list, or an array of objects as `Pipeline.batch` makes it."""

Parsed: TypeAlias = dict[str, Array | RaggedArray]
_Columns: TypeAlias = dict[str, list[Any]]


@explained
def parse_examples(serialized: Serialized, features: Mapping[str, Spec]) -> Parsed:
    """Features of a batch of `tf.train.Example` messages, as arrays with a leading axis [batch].

    Other features of the records are ignored.

    Args:
        serialized: the messages as bytes; a batch of `gc.data.from_records(paths).batch(n)`.
        features: what to read, and how: `gc.data.FixedLen`, `VarLen` or `Raw` for each name.

    Raises:
        DataError: a record is no Example, has another kind or number of values, or does not have a
            feature without default. The error names the feature and the record.
        MissingExtraError: protobuf is not installed.

    Examples:
        >>> records = [gc.data.example({"name": "Ada", "ids": [3, 1, 4]})]
        >>> features = {"name": gc.data.FixedLen((), bytes), "ids": gc.data.VarLen(np.int64)}
        >>> batch = gc.data.parse_examples(records, features)
        >>> batch["name"], batch["ids"]
        (array([b'Ada'], dtype=object),
         RaggedArray(values=array([3, 1, 4]), lengths=array([3])))
    """
    name = "parse_examples"
    messages = import_messages(name)
    specs = _checked_specs(name, features, "features")
    records = _records(name, serialized)
    columns = _features(records, specs, messages)
    return _parsed(name, specs, columns, _Names(messages.example, records))


@explained
def parse_sequence_examples(
    serialized: Serialized,
    context: Mapping[str, Spec] | None = None,
    sequences: Mapping[str, Spec] | None = None,
) -> tuple[Parsed, Parsed]:
    """Features of a batch of `tf.train.SequenceExample` messages: of the context, and of the steps.

    A sequence is a `RaggedArray`: the values of all steps, and how many steps each record has. With
    `VarLen` as its spec, the steps are ragged themselves. `.padded(0)` makes one array of it.

    Args:
        serialized: the messages as bytes.
        context: what to read of the context; see `parse_examples`.
        sequences: what to read of each step. A spec with a default also allows records without the
            sequence: it has no steps then.

    Raises:
        DataError: see `parse_examples`. The error names the step as well.
        MissingExtraError: protobuf is not installed.

    Examples:
        >>> record = gc.data.sequence_example({"label": 1}, {"words": [[3.0, 1.0], [4.0, 1.0]]})
        >>> context, steps = gc.data.parse_sequence_examples(
        ...     [record],
        ...     {"label": gc.data.FixedLen((), np.int64)},
        ...     {"words": gc.data.FixedLen((2,), np.float32)},
        ... )
        >>> context["label"], steps["words"].padded(0)
        (array([1]), array([[[3., 1.], [4., 1.]]], dtype=float32))
    """
    name = "parse_sequence_examples"
    messages = import_messages(name)
    above = _checked_specs(name, context or {}, "context")
    below = _checked_specs(name, sequences or {}, "sequences")
    records = _records(name, serialized)
    columns, lists = _columns(above, len(records)), _columns(below, len(records))
    for number, record in enumerate(records):
        try:
            message = messages.sequence_example(record)
        except messages.errors as error:
            raise _no_message(name, number, "SequenceExample", record, error) from None
        for key, values in columns.items():
            values[number] = message.features.named.get(key)
        for key, values in lists.items():
            steps = message.lists.named.get(key)
            values[number] = None if steps is None else list(steps.feature)
    names = _Names(messages.sequence_example, records)
    parsed = _parsed(name, above, _as_lists(columns), names)
    sequence = {key: _steps(name, key, spec, lists[key], names) for key, spec in below.items()}
    return parsed, {**sequence}


def _features(
    records: list[bytes], specs: Mapping[str, Spec], messages: Messages
) -> dict[str, Lists]:
    """The features of all records: protobuf reads those that are not in the usual form."""
    found = layouts.found(records, {key: kind_of(spec) for key, spec in specs.items()})
    if found is None:
        values = _columns(specs, len(records))
        _read(records, range(len(records)), values, messages)
        return _as_lists(values)
    spans, left = found
    _read(records, left, {key: each.odd for key, each in spans.items()}, messages)
    return {**spans}


def _read(records: list[bytes], numbers: Iterable[int], values: Any, messages: Messages) -> None:
    """Puts the features of some records into `values[name][number]`."""
    wanted = list(values.items())
    for number in numbers:
        record = records[number]
        try:
            message = messages.example(record)
        except messages.errors as error:
            raise _no_message("parse_examples", number, "Example", record, error) from None
        get = message.features.named.get
        for key, each in wanted:
            each[number] = get(key)


class _Names:
    """The names in a record, for the error about a feature that is missing."""

    def __init__(self, read: Any, records: list[bytes]) -> None:
        self._read, self._records = read, records

    def features(self, number: int) -> list[str]:
        return self._of(self._read(self._records[number]).features.named)

    def lists(self, number: int) -> list[str]:
        return self._of(self._read(self._records[number]).lists.named)

    def _of(self, names: Iterable[str | bytes]) -> list[str]:
        return sorted(name_of(each) for each in names)


def name_of(name: str | bytes) -> str:
    """The name of a feature, which protobuf gives as bytes if it is not UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


def _checked_specs(name: str, specs: Any, argument: str) -> dict[str, Spec]:
    if not isinstance(specs, Mapping):
        raise FeedError.here(
            f"{name}: {argument} must be a dict of names and specs, got {type(specs).__name__}",
            hint='{"label": gc.data.FixedLen((), np.int64)}',
        )
    for key, spec in specs.items():
        named = isinstance(key, str) and key.encode(errors="ignore").decode() == key
        if not named or not isinstance(spec, (FixedLen, VarLen, Raw)):
            raise FeedError.here(
                f"{name}: the spec of {key!r} is {spec!r:.80}",
                hint="gc.data.FixedLen(shape, dtype), VarLen(dtype) or Raw(shape, dtype)",
            )
    return dict(specs)


def _records(name: str, serialized: Any) -> list[bytes]:
    """The messages of a batch."""
    if isinstance(serialized, (bytes, bytearray, str)):
        raise FeedError.here(
            f"{name}: takes a batch of messages, got one of {type(serialized).__name__}",
            hint="[record] for a batch of one; gc.data.parse_example for a single Example",
        )
    if isinstance(serialized, np.ndarray):
        if serialized.dtype != object or serialized.ndim != 1:
            raise FeedError.here(
                f"{name}: takes a list of bytes, got an array of {serialized.dtype} with shape "
                f"{serialized.shape}",
                hint="NumPy's arrays of bytes lose zeros at the end: use a list, or an array of "
                "objects [batch]",
            )
        serialized = serialized.tolist()
    records = list(serialized)
    if set(map(type, records)) == {bytes}:
        return records
    for number, record in enumerate(records):
        if type(record) is not bytes:
            if not isinstance(record, (bytes, bytearray, memoryview)):
                raise DTypeError.here(
                    f"{name}: record {number} is {type(record).__name__}, expected bytes"
                )
            records[number] = bytes(record)
    return records


def _columns(specs: Mapping[str, Spec], count: int) -> _Columns:
    return {key: [None] * count for key in specs}


def _as_lists(columns: _Columns) -> dict[str, Lists]:
    return {key: Features(values) for key, values in columns.items()}


def _parsed(
    name: str, specs: Mapping[str, Spec], columns: Mapping[str, Lists], names: _Names
) -> Parsed:
    found: Parsed = {}
    flat = _together(specs, columns)
    for key, spec in specs.items():
        try:
            found[key] = column(spec, columns[key], flat.get(key))
        except Wrong as wrong:
            known = names.features(wrong.row) if wrong.found == "is missing" else []
            raise _error(name, key, f"record {wrong.row}", wrong, known) from None
    return found


def _together(specs: Mapping[str, Spec], columns: Mapping[str, Lists]) -> dict[str, Flat]:
    """The features of integers, if there are several; none of them if one is wrong."""
    keys = [key for key, spec in specs.items() if kind_of(spec) == "int64_list"]
    if len(keys) < 2 or not len(columns[keys[0]]):
        return {}
    with suppress(Wrong):  # `column` finds it again, and knows the record
        return dict(zip(keys, integers([columns[key] for key in keys]), strict=True))
    return {}


def _steps(
    name: str, key: str, spec: Spec, lists: list[list[bytes] | None], names: _Names
) -> RaggedArray:
    """One sequence of all records."""
    optional = isinstance(spec, VarLen) or spec.default is not None
    for number, steps in enumerate(lists):
        if steps is None and not optional:
            wrong = Wrong(number, "is missing", "a sequence", "give the spec a default")
            raise _error(name, key, f"record {number}", wrong, names.lists(number))
    lengths = np.array([len(steps or ()) for steps in lists], np.int64)
    flat: list[bytes | None] = [step for steps in lists for step in steps or ()]
    try:
        return RaggedArray(column(spec, Features(flat)), lengths)
    except Wrong as wrong:
        ends = np.cumsum(lengths)
        number = int(np.searchsorted(ends, wrong.row, "right"))
        step = wrong.row - int(ends[number] - lengths[number])
        raise _error(name, key, f"step {step} of record {number}", wrong, []) from None


def _error(name: str, key: str, where: str, wrong: Wrong, known: list[str]) -> DataError:
    details = [f"expected {wrong.wanted}"]
    hint = wrong.hint
    if wrong.found == "is missing":
        details.append(f"the record has: {', '.join(known[:20]) or 'no features'}")
        near = nearest(key, known) or ""
        hint = near if near.startswith("did you mean") else hint
    return DataError.here(
        f"{name}: feature {key!r} of {where} {wrong.found}", details=details, hint=hint
    )


def _no_message(name: str, number: int, kind: str, record: bytes, error: Exception) -> DataError:
    return DataError.here(
        f"{name}: record {number} is not a tf.train.{kind}",
        details=[f"{len(record)} bytes that begin with {record[:16]!r}", str(error)[:200]],
        hint=f"records must be serialized {kind} messages, as gc.data."
        f"{'example' if kind == 'Example' else 'sequence_example'} makes them",
    )
