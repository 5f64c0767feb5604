"""`Staleness`: when a worker may read and when it may apply, so that no update is too stale."""

from __future__ import annotations


class Staleness:
    """Counts updates, and keeps each within `bound` updates of what it was computed from.

    A worker reads, computes, and applies or leaves. The *staleness* of its update is how many
    updates of others were applied between its read and its own. Nothing here waits or locks: the
    caller asks, and asks again when something has changed.

    Let v be the number of updates so far, and r1 <= r2 <= ... <= rm what it was when those read
    who have neither applied nor left. Where they apply in the order of their reads, the j-th does
    it after j - 1 more updates. So all of them can keep within the bound k if

        v + (j - 1) - rj <= k   for j = 1 ... m,                                            (*)

    and (*) always holds:

    - A new reader becomes number m + 1 with r = v, for which (*) says m <= k: that is `admits`.
      It comes last, so the others' places stay.
    - If number p applies, v grows by 1. Behind it everybody moves up one place: nothing changes.
      For each j < p the left side grows by 1, so `may_apply` asks that it was below k. The
      update of p itself has the staleness v - rp <= v + (p - 1) - rp <= k.
    - If somebody leaves, those behind move up: the left sides shrink.

    Nobody waits for ever, and no work is thrown away: number 1 may always apply. Who waits to
    apply has somebody before it; who waits to read, k + 1 others who have read, so there is a
    number 1. It computes and applies, or leaves. With m workers and k >= m - 1 every reader is
    admitted at once. With k = 0 one at a time reads, computes and applies.

    The bound is that of Ho et al. (NIPS 2013): a slowest and a fastest worker drift apart no
    further. There clocks of workers are counted, here updates, as each worker's step is one.

    Attributes:
        version: how many updates there were.
    """

    def __init__(self, bound: int | None) -> None:
        self.version = 0
        self._bound = bound
        self._reads: dict[int, int] = {}  # worker -> version, in the order of the reads

    def admits(self) -> bool:
        """Whether one more worker may read now."""
        return self._bound is None or len(self._reads) <= self._bound

    def read(self, worker: int) -> None:
        """A worker reads, which `admits` allowed."""
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
        """A worker applies, which `may_apply` allowed; gives its update's staleness."""
        staleness = self.version - self._reads.pop(worker)
        self.version += 1
        return staleness

    def leave(self, worker: int) -> None:
        """A worker goes without applying, or has applied."""
        self._reads.pop(worker, None)
