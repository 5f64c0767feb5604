"""`Vocabulary`: words and the numbers that stand for them in a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from graphc.errors import AttributeValueError, ExecutionError, FeedError
from graphc.ir.dtypes import Array
from graphc.ir.types import TensorType

STRING: Final = np.dtype(object)
"""The dtype of strings outside of programs: arrays of `bytes` objects."""


class Vocabulary:
    """Words, and their numbers: the n-th word has the number n.

    A program computes with numbers only. An input or output of a signature with a vocabulary takes
    or returns words, which are converted on the host: see `gc.Signature`.

    Args:
        words: str, which is encoded as UTF-8, or bytes.
        default: what stands for all others: a number, or one of the words. For an input, words that
            are not in the vocabulary get this number; for an output, other numbers become this
            word. None refuses them.

    Attributes:
        words: the words as bytes.
        default: the number; None if others are refused.

    Raises:
        AttributeValueError: there are no words, one is not a string, or `default` is neither a
            number nor a word.

    Examples:
        >>> vocabulary = gc.Vocabulary(["[UNK]", "good", "bad"], default="[UNK]")
        >>> vocabulary.ids(["bad", "ugly"]).tolist()
        [2, 0]
        >>> vocabulary.strings([1, 7]).tolist()
        [b'good', b'[UNK]']
    """

    def __init__(
        self, words: Sequence[str | bytes], default: int | str | bytes | None = None
    ) -> None:
        # A set has no order, so that its numbers would differ from process to process.
        if not isinstance(words, (list, tuple, np.ndarray)) or not len(words):
            raise _wrong(f"words must be a list of strings, got {words!r:.80}", '["good", "bad"]')
        found = [_encoded(word) for word in words]
        wrong = next((i for i, word in enumerate(found) if word is None), None)
        if wrong is not None:
            raise _wrong(f"words[{wrong}] must be a string, got {words[wrong]!r:.80}")
        self.words = tuple([word for word in found if word is not None])
        self.default = self._number_of(default)

    def _number_of(self, default: Any) -> int | None:
        if default is None:
            return None
        if isinstance(default, (int, np.integer)) and not isinstance(default, bool):
            if abs(int(default)) >= 1 << 63:
                raise _wrong(f"default must be a number of 64 bits or a word, got {default!r:.80}")
            return int(default)
        word = _encoded(default)
        if word is None:
            raise _wrong(f"default must be a number or a word, got {default!r:.80}")
        if word not in self._numbers:
            raise _wrong(
                f"default must be one of the words, got {default!r:.80}", "add it to the words"
            )
        return self._numbers[word]

    @cached_property
    def _numbers(self) -> Mapping[bytes, int]:
        """The first number of each word."""
        found: dict[bytes, int] = {}
        for number, word in enumerate(self.words):
            found.setdefault(word, number)
        return found

    @cached_property
    def _objects(self) -> Array:
        found = np.empty(len(self.words), STRING)
        found[:] = self.words
        return found

    @property
    def repeated(self) -> bytes | None:
        """A word that has several numbers, if there is one. Such a vocabulary is for outputs."""
        if len(self._numbers) == len(self.words):
            return None
        return next(word for i, word in enumerate(self.words) if self._numbers[word] != i)

    def ids(self, words: ArrayLike, where: str = "ids") -> Array:
        """The numbers of words, int64, in an array of the same shape.

        Args:
            words: an array or nested lists of str or bytes.
            where: begins the errors.

        Raises:
            FeedError: a value is not a string, or is not in the vocabulary, which has no default.
        """
        array = words if isinstance(words, np.ndarray) else np.array(words, STRING)
        numbers, default = self._numbers, self.default
        found = np.empty(array.size, np.int64)
        for i, word in enumerate(array.reshape(-1).tolist()):
            known = _encoded(word)
            number = None if known is None else numbers.get(known, default)
            if number is None:
                raise _unknown(where, word, known, len(self.words))
            found[i] = number
        return found.reshape(array.shape)

    def strings(self, ids: ArrayLike, where: str = "strings") -> Array:
        """The words with these numbers, as `bytes` in an array of the same shape.

        Raises:
            FeedError: the numbers are not integers.
            ExecutionError: there is no such number, and no default.
        """
        array = np.asarray(ids)
        if array.dtype.kind not in "iu":
            raise FeedError.here(
                f"{where}: numbers of words must be integers, got {array.dtype.name}",
                hint="gc.cast(x, 'int32')",
            )
        wide = array.astype(np.int64)
        outside = (wide < 0) | (wide >= len(self.words))
        if outside.any():
            if self.default is None or not 0 <= self.default < len(self.words):
                raise ExecutionError(
                    f"{where}: the vocabulary has {len(self.words)} words, none with the number "
                    f"{array[outside].reshape(-1)[0]}",
                    hint="give the vocabulary a default",
                )
            wide = np.where(outside, self.default, wide)
        found = np.empty(array.shape, STRING)
        found[...] = self._objects[wide]
        return found

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return (self.words, self.default) == (other.words, other.default)

    def __hash__(self) -> int:
        return hash((self.words, self.default))

    def __repr__(self) -> str:
        shown = ", ".join(repr(word.decode("utf-8", "replace")) for word in self.words[:3])
        more = f", ... {len(self.words)} words" if len(self.words) > 3 else ""
        return f"Vocabulary([{shown}{more}], default={self.default})"


def misfit(
    type: TensorType, count: int, default: int | None, fed: bool, fetched: bool
) -> str | None:
    """Why a vocabulary with so many words does not fit an input or output; None if it does."""
    if type.dtype.kind not in "iu":
        return f"its numbers are of an integer dtype, not {type}"
    if fetched and default is not None and not 0 <= default < count:
        return f"the default of an output is the number of a word, below {count}, not {default}"
    info = np.iinfo(type.dtype)
    largest = max(count - 1, default or 0)
    if fed and not (info.min <= (default or 0) and largest <= info.max):
        return f"its numbers do not fit into {type}"
    return None


def _encoded(word: Any) -> bytes | None:
    """A string as bytes; None for anything else."""
    if isinstance(word, str):
        return word.encode("utf-8", "surrogatepass")
    return bytes(word) if isinstance(word, bytes) else None


def _unknown(where: str, word: Any, known: bytes | None, count: int) -> FeedError:
    if known is None:
        return FeedError(
            f"{where}: takes strings, got {word!r:.80}", hint="pass str or bytes objects"
        )
    return FeedError(
        f"{where}: the word {known.decode('utf-8', 'replace')!r:.80} is not in the vocabulary of "
        f"{count} words",
        hint="a vocabulary with a default takes other words, too",
    )


def _wrong(what: str, hint: str | None = None) -> AttributeValueError:
    return AttributeValueError.here(f"Vocabulary: {what}", hint=hint)
