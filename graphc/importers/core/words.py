"""Strings that are known only in a run: numbers of words in the graph, a vocabulary beside it.

What a graph can do with an input of strings is to look them up in tables with constant keys, to
compare them with constants, and to move them. So the words that matter are known at import: a
program computes with their numbers, and all other words are `UNKNOWN`. Results that are strings are
among the constants of the graph in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.artifacts.vocabulary import Vocabulary
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor

UNKNOWN: Final = -1
NUMBERS: Final = np.dtype(np.int32)


@dataclass(eq=False)
class WordList:
    """Words and their numbers. It grows while a graph is imported.

    Attributes:
        is_open: whether a value may be another word, as in an input.
        numbers: word -> number.
    """

    is_open: bool
    numbers: dict[bytes, int] = field(default_factory=dict)

    def number(self, word: str | bytes) -> int:
        """The number of a word, which is added if it is new."""
        data = word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word
        return self.numbers.setdefault(data, len(self.numbers))

    def numbers_of(self, words: Array) -> Array:
        """The numbers of an array of words."""
        flat = [self.number(word) for word in words.reshape(-1).tolist()]
        return np.array(flat, NUMBERS).reshape(words.shape)

    def vocabulary(self) -> Vocabulary:
        """The words as a vocabulary."""
        return Vocabulary(list(self.numbers) or [b""], UNKNOWN if self.is_open else None)


@dataclass(frozen=True, eq=False)
class Words:
    """Strings that are known only in a run.

    Attributes:
        ids: the numbers of the words.
        words: the words.
    """

    ids: Tensor
    words: WordList


def together(
    values: Sequence[Any], is_constant: Callable[[Any], bool]
) -> tuple[list[Any], WordList]:
    """The values with numbers of one list of words in place of strings.

    Args:
        is_constant: whether a value is an array of strings.

    Raises:
        ValueError: they are of several inputs.
    """
    found = [value.words for value in values if isinstance(value, Words)]
    inputs = {id(words): words for words in found if words.is_open}
    if len(inputs) > 1 or (inputs and len({id(words) for words in found}) > 1):
        raise ValueError("joins strings of several inputs")
    words = found[0] if found else WordList(is_open=False)
    return [_numbers(value, words, is_constant) for value in values], words


def _numbers(value: Any, words: WordList, is_constant: Callable[[Any], bool]) -> Any:
    if isinstance(value, Words):
        if value.words is words:
            return value.ids
        known: Any = np.array([words.number(word) for word in value.words.numbers], NUMBERS)
        return ops.take(ops.constant(known), value.ids, axis=0)
    if is_constant(value):
        return ops.constant(words.numbers_of(value))
    return value


def looked_up(keys: Words, known: Array, values: Array, default: Any) -> Tensor:
    """The values of a table with constant keys, numbers.

    Args:
        known: the keys of the table, strings.
        values: their values.
        default: the value for other keys.
    """
    numbers = keys.words.numbers_of(known.reshape(-1))
    count = len(keys.words.numbers)
    row = np.full(count, default, values.dtype)
    row[numbers] = values.reshape(-1)
    fallback = ops.constant(np.asarray(default, values.dtype).reshape(()))
    if not count:
        return ops.broadcast_to(fallback, keys.ids.shape)
    # Words that are added later have larger numbers: this table does not have them.
    is_known = ops.logical_and(ops.greater_equal(keys.ids, 0), ops.less(keys.ids, count))
    return ops.where(is_known, _values_at(row, keys.ids), fallback)


def _values_at(row: Array, ids: Tensor) -> Tensor:
    """The values of a row at places; anything at places outside."""
    if row.dtype.kind in "iu":  # a row that counts needs no constant in the program
        counts = row.astype(object) - np.arange(len(row)).astype(object)
        if (counts == counts[0]).all() and abs(int(counts[0])) < 1 << 30:
            return ops.cast(ids, row.dtype) + np.asarray(counts[0]).astype(row.dtype)
    return ops.take(ops.constant(row), ops.clip(ids, 0, len(row) - 1), axis=0)
