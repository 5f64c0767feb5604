"""One name for many similar names: `block*/out/MatMul`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

_NUMBER = re.compile(r"(\d+)")


def common_name(names: Sequence[str]) -> str:
    """The common form of all names, with `*` for the numbers in which they differ.

    The first name often lacks a number (`Add`, `Add_1`, ...), so the last two are compared.
    """
    a, b = names[-2], names[-1]
    if a == b:
        return a
    parts, others = _NUMBER.split(a), _NUMBER.split(b)
    if len(parts) == len(others) and parts[::2] == others[::2]:
        return "".join(p if p == o else "*" for p, o in zip(parts, others, strict=True))
    same = takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return "".join(letter for letter, _ in same) + "*"


def scope_of(names: Sequence[str]) -> str:
    """The scope of most of `names`, up to its `*`: `block*`."""
    scopes = [name[: name.index("*") + 1] for name in names if "*" in name]
    return max(set(scopes), key=lambda s: (scopes.count(s), s)) if scopes else "repeated"
