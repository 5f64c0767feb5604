"""`Staleness`: decides when a worker may read and apply, so that no update is too stale."""

from __future__ import annotations


class Staleness:
    """Counts updates, and limits the staleness of each to `bound`.

    A worker reads, computes, and then applies or leaves. The *staleness* of its update is the
    number of updates by other workers that were applied between its read and its own update. This
    class neither waits nor locks: the caller asks, and asks again after a change.

    Let v be the number of updates so far. Let r1 <= r2 <= ... <= rm be the values of v at the reads
    of the workers that have neither applied nor left. If they apply in the order of their reads,
    the j-th one applies after j - 1 more updates. So all of them can stay within the bound k if

        v + (j - 1) - rj <= k   for j = 1 ... m,                                            (*)

    and (*) always holds:

    - A new reader becomes number m + 1 with r = v, for which (*) requires m <= k. This is the
      condition of `admits`. It comes last, so the places of the others do not change.
    - If number p applies, v grows by 1. All readers behind it move up one place, so nothing changes
      for them. For each j < p the left side grows by 1, so `may_apply` requires that it was below
      k. The update of p itself has the staleness v - rp <= v + (p - 1) - rp <= k.
    - If a worker leaves, those behind it move up, and their left sides shrink.

    No worker waits forever, and no work is lost, because number 1 may always apply. A worker that
    waits to apply has a worker before it. A worker that waits to read has k + 1 workers before it
    that have read. In both cases there is a number 1, which computes and applies, or leaves. With m
    workers and k >= m - 1, every reader is admitted at once. With k = 0, one worker at a time
    reads, computes and applies.

    The bound is that of Ho et al. (NIPS 2013), which limits the distance between the slowest and
    the fastest worker. They count clocks of workers. Here updates are counted, since each step of a
    worker makes one.

    Attributes:
        version: the number of updates so far.
    """

    def __init__(self, bound: int | None) -> None:
        self.version = 0
        self._bound = bound
        self._reads: dict[int, int] = {}  # worker -> version, in the order of the reads

    def admits(self) -> bool:
        """Whether one more worker may read now."""
        return self._bound is None or len(self._reads) <= self._bound

    def read(self, worker: int) -> None:
        """Records the read of a worker. `admits` must have allowed it."""
        self._reads[worker] = self.version

    def may_apply(self, worker: int) -> bool:
        """Whether a worker that has read may apply its update before all others."""
        if self._bound is None:
            return True
        for before, (other, version) in enumerate(self._reads.items()):
            if other == worker:
                return True
            if self.version + before - version >= self._bound:
                return False
        raise KeyError(worker)

    def apply(self, worker: int) -> int:
        """Records the update of a worker and returns its staleness. `may_apply` must have allowed
        it."""
        staleness = self.version - self._reads.pop(worker)
        self.version += 1
        return staleness

    def leave(self, worker: int) -> None:
        """Removes a worker that has applied, or that leaves without applying."""
        self._reads.pop(worker, None)
