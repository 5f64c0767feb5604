"""Strings of a signature: its vocabularies in an artifact, and the conversions on the host."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.artifacts.container import Members
from graphc.artifacts.manifest import Entry, VocabularyRow, corrupt
from graphc.artifacts.vocabulary import STRING, Vocabulary, misfit
from graphc.errors import AttributeValueError, UnknownNameError, nearest
from graphc.ir.types import TensorType

_LENGTH = np.dtype("<u4")


class Strings:
    """Converts the strings of a signature. The vocabularies are read when they are first needed.

    Args:
        name: of the signature.
        entry: its record.
        members: of the file.
    """

    def __init__(self, name: str, entry: Entry, members: Members) -> None:
        self._name = name
        self._rows = entry.vocabularies
        self._inputs = {v.name: v.type.dtype for v in entry.inputs if v.name in self._rows}
        self._outputs = {o.value.name for o in entry.outputs if o.value.name in self._rows}
        self._members = members
        self._known: dict[str, Vocabulary] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def vocabularies(self) -> dict[str, Vocabulary]:
        """The vocabularies by the name of the input or output.

        Raises:
            ArtifactCorruptError: one was altered, or is not what its record says.
        """
        return {name: self._read(name) for name in self._rows}

    def ids(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs, with numbers in place of strings. Arrays of integers stay as they are.

        Raises:
            FeedError: a value is not a string, or a word is not in the vocabulary.
        """
        if not self._inputs:
            return inputs
        found = dict(inputs)
        for name, dtype in self._inputs.items():
            if name in inputs and not _is_integer(inputs[name]):
                where = f"{self._name!r}: input {name!r}"
                found[name] = self._read(name).ids(inputs[name], where).astype(dtype)
        return found

    def strings(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs, with strings in place of numbers.

        Raises:
            ExecutionError: a number is not in the vocabulary.
        """
        found = dict(outputs)
        for name in self._outputs & outputs.keys():
            if getattr(outputs[name], "dtype", None) != STRING:
                where = f"{self._name!r}: output {name!r}"
                found[name] = self._read(name).strings(outputs[name], where)
        return found

    def _read(self, name: str) -> Vocabulary:
        if name not in self._known:
            self._known[name] = self._vocabulary(name)
        return self._known[name]

    def _vocabulary(self, name: str) -> Vocabulary:
        row = self._rows[name]
        words = unpacked(self._members[row.member], row.count, f"the vocabulary of {name!r}")
        found = Vocabulary(words, row.default)
        if name in self._inputs and found.repeated is not None:
            raise corrupt(f"the vocabulary of {name!r}", "have each word once")
        return found


def _is_integer(value: Any) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u")


def with_strings(types: Mapping[str, TensorType], entry: Entry) -> dict[str, TensorType]:
    """The types as callers see them: strings where there is a vocabulary."""
    return {
        name: type._replace(dtype=STRING) if name in entry.vocabularies else type
        for name, type in types.items()
    }


def packed_all(
    name: str, vocabularies: Mapping[str, Vocabulary], entry: Entry
) -> tuple[dict[str, VocabularyRow], dict[str, bytes]]:
    """The records of the vocabularies of a signature, and the members with their words.

    Raises:
        UnknownNameError: there is no such input or output.
        AttributeValueError: a vocabulary does not fit the input or output.
    """
    inputs = {value.name: value.type for value in entry.inputs}
    outputs = {output.value.name: output.value.type for output in entry.outputs}
    rows, members = {}, {}
    for argument, vocabulary in vocabularies.items():
        types = [t[argument] for t in (inputs, outputs) if argument in t]
        if not types:
            raise UnknownNameError(
                f"signature {name!r} has a vocabulary for {argument!r}, which is no input or "
                "output",
                hint=nearest(argument, {**inputs, **outputs}),
            )
        where = f"signature {name!r}: the vocabulary of {argument!r}"
        _check(where, vocabulary, types, argument in inputs, argument in outputs)
        data = packed(vocabulary)
        member = f"vocabularies/{hashlib.sha256(data).hexdigest()[:32]}"
        rows[argument] = VocabularyRow(member, len(vocabulary), vocabulary.default)
        members[member] = data
    return rows, members


def _check(
    where: str, vocabulary: Vocabulary, types: list[TensorType], fed: bool, fetched: bool
) -> None:
    for type in types:
        problem = misfit(type, len(vocabulary), vocabulary.default, fed, fetched)
        if problem is not None:
            raise AttributeValueError(f"{where}: {problem}")
    if fed and vocabulary.repeated is not None:
        raise AttributeValueError(
            f"{where} has the word {vocabulary.repeated.decode('utf-8', 'replace')!r:.80} more "
            "than once",
            hint="each word of an input has one number",
        )


def packed(vocabulary: Vocabulary) -> bytes:
    """The lengths of the words, then the words."""
    lengths = np.array([len(word) for word in vocabulary.words], _LENGTH)
    return lengths.tobytes() + b"".join(vocabulary.words)


def unpacked(data: memoryview, count: int, where: str) -> list[bytes]:
    """The words.

    Raises:
        ArtifactCorruptError: there are not so many.
    """
    start = count * _LENGTH.itemsize
    if start > len(data):
        raise corrupt(where, f"have {count} words")
    ends = start + np.cumsum(np.frombuffer(data[:start], _LENGTH), dtype=np.int64)
    if ends[-1] != len(data):
        raise corrupt(where, f"have {ends[-1]} bytes")
    places = [start, *ends.tolist()]
    return [bytes(data[a:b]) for a, b in pairwise(places)]
