"""`Traffic`: which version takes a request that names none."""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Traffic:
    """Splits requests by percentages: a smooth weighted round robin, without random numbers.

    Of every 100 requests, a version with 5 percent takes 5, in even distances. The caller holds a
    lock.

    Args:
        percent: version -> percent.

    Examples:
        >>> from graphc.serving.models.traffic import Traffic
        >>> traffic = Traffic({1: 75, 2: 25})
        >>> [traffic.next({1, 2}) for _ in range(8)]
        [1, 1, 2, 1, 1, 1, 2, 1]
    """

    def __init__(self, percent: Mapping[int, float]) -> None:
        self.percent = dict(percent)
        self._credit = dict.fromkeys(percent, 0.0)

    def next(self, available: Collection[int]) -> int | None:
        """The version for the next request; None if no version has a percentage and is available.
        The share of a version that is not available goes to the others."""
        weights = {v: p for v, p in self.percent.items() if p and v in available}
        if not weights:
            return None
        for version, weight in weights.items():
            self._credit[version] += weight
        chosen = max(weights, key=lambda version: self._credit[version])
        self._credit[chosen] -= sum(weights.values())
        return chosen
