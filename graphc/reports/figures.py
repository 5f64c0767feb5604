"""Figures and tables as people read them."""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, unit: str) -> str:
    """A figure with three digits and a prefix.

    >>> amount(12_345_678, "B"), amount(12, "FLOP")
    ('12.3 MB', '12 FLOP')
    """
    for step, prefix in _STEPS:
        if abs(value) >= 0.9995 * step:
            return f"{value / step:.3g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def duration(seconds: float) -> str:
    """
    >>> duration(0.0123), duration(2.5)
    ('12.3 ms', '2.5 s')
    """
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def elapsed(seconds: float) -> str:
    """
    >>> elapsed(2.5), elapsed(0.0123), elapsed(0.00000123)
    ('2.5 s', '12.3 ms', '1.23 us')
    """
    return duration(seconds) if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """The rows as indented lines, with columns under each other, those in `right` to the right."""
    count = max((len(row) for row in rows), default=0)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(count)]
    return [
        "  "
        + "  ".join(
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
