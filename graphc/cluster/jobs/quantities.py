"""Sizes and times as people write them: 4GiB, 90s, 2h."""

from __future__ import annotations

import math
import re
from typing import Final

_BYTES: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_LONGEST: Final = 366 * 86400
_NUMBER: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)


def bytes_of(value: object) -> int:
    """A number of bytes from an int or a text.

    Raises:
        ValueError: it is none; the message says what is allowed.

    Examples:
        >>> from graphc.cluster.jobs.quantities import bytes_of
        >>> bytes_of("1.5GiB"), bytes_of("2 MB"), bytes_of(4096)
        (1610612736, 2000000, 4096)
    """
    found = _value(value, _BYTES)
    if found is None or not 1 <= found < 2**60:
        raise ValueError('a size such as "4GiB", "512MB" or a number of bytes')
    return int(found)


def seconds_of(value: object) -> float:
    """A time in seconds from a number or a text.

    Raises:
        ValueError: it is none; the message says what is allowed.

    Examples:
        >>> from graphc.cluster.jobs.quantities import seconds_of
        >>> seconds_of("90s"), seconds_of("1.5h"), seconds_of(30)
        (90.0, 5400.0, 30.0)
    """
    found = _value(value, _SECONDS)
    if found is None or not 0 < found <= _LONGEST:
        raise ValueError('a time such as "90s", "30min", "2h", "1d" or a number of seconds')
    return found


def shown_bytes(count: float) -> str:
    """A size for people.

    Examples:
        >>> from graphc.cluster.jobs.quantities import shown_bytes
        >>> shown_bytes(1610612736)
        '1.5 GiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def _value(value: object, units: dict[str, int]) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        # An int of JSON may have any number of digits.
        return float(value) if abs(value) < 2**60 and math.isfinite(value) else None
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        return None
    return float(match[1]) * units[match[2].lower()]
