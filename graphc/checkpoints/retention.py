"""Which checkpoints stay when a new one is complete."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Facts(NamedTuple):
    """What is known of a checkpoint.

    Attributes:
        created: in seconds since 1970.
    """

    step: int
    created: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Retention:
    """The rules. A checkpoint stays if one of them keeps it.

    Attributes:
        latest: how many of the latest stay.
        best: the name of a metric, "min" or "max", and how many of the best stay.
        every: seconds; the first one stays, and each that is so much later than the one before
            that stayed by this rule.
    """

    latest: int
    best: tuple[str, str, int] | None
    every: float | None

    def leave(self, facts: Sequence[Facts]) -> set[int]:
        """The steps of the checkpoints that do not stay.

        Args:
            facts: of all checkpoints, the latest step last.
        """
        stay = {fact.step for fact in facts[-self.latest :]}
        return {fact.step for fact in facts} - stay - self._best(facts) - self._regular(facts)

    def _best(self, facts: Sequence[Facts]) -> set[int]:
        if self.best is None:
            return set()
        name, which, count = self.best
        sign = 1 if which == "min" else -1
        known = [(sign * fact.metrics[name], fact.step) for fact in facts if name in fact.metrics]
        known = [pair for pair in known if not math.isnan(pair[0])]
        return {step for _, step in sorted(known)[:count]}

    def _regular(self, facts: Sequence[Facts]) -> set[int]:
        if self.every is None:
            return set()
        kept, last = set(), -math.inf
        for fact in sorted(facts, key=lambda fact: fact.created):
            if fact.created >= last + self.every:
                kept.add(fact.step)
                last = fact.created
        return kept
