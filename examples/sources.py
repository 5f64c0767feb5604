"""Text without a download: the sources of Python's standard library, as character indices."""

from __future__ import annotations

import string
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

CHARACTERS = "\n" + string.digits + string.ascii_letters + string.punctuation + " "
TRAINING = ("argparse.py", "inspect.py", "subprocess.py", "typing.py", "ast.py", "dataclasses.py")
TEST = ("textwrap.py", "heapq.py")

_NUMBERS = {character: i for i, character in enumerate(CHARACTERS)}


def encode(text: str) -> np.ndarray:
    """int32 `[len(text)]`; a character that is not in `CHARACTERS` becomes "?"."""
    return np.array([_NUMBERS.get(c, _NUMBERS["?"]) for c in text], np.int32)


def decode(numbers: np.ndarray) -> str:
    return "".join(CHARACTERS[i] for i in numbers)


def read(names: Sequence[str]) -> str:
    """The text of these modules of the standard library, one after the other."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def windows(text: np.ndarray, length: int, batch: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Endless batches `[batch, length]` of pieces of `text` at random positions."""
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(text) - length + 1, (batch, 1))
        yield text[starts + np.arange(length)]


def lines(text: str, longest: int) -> list[np.ndarray]:
    """Each line that is not blank, with its newline; longer lines are omitted."""
    found = [line + "\n" for line in text.splitlines() if line.strip()]
    return [encode(line) for line in found if len(line) <= longest]
