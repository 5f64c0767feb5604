"""`HasProfile`: the method of sessions that `graphc.reports` implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from graphc.ir.calls import explained
from graphc.typing import Feeds, Fetches


class HasProfile:
    """`profile` of sessions. Its implementation is in a layer above and is passed in."""

    _profiler: ClassVar[Callable[..., Any]]  # graphc/reports/session_methods.py sets it

    @explained
    def profile(
        self, fetches: Fetches, feeds: Feeds | Iterable[Feeds] | None = None, *, steps: int = 20
    ) -> Any:
        """Measures where the time of a step goes: by node, by the user's line, and on the host.

        Args:
            fetches, feeds, steps: as for `gc.profile`.

        Returns:
            A `gc.Profile`.

        Raises:
            AttributeValueError, ExecutionError, FeedError, FetchError, UnknownNameError: as for
                `gc.profile`.

        Examples:
            >>> x = gc.placeholder((64, 64), name="x")
            >>> session = gc.Session(graph)
            >>> profile = session.profile(x @ x, {x: np.ones((64, 64), "float32")}, steps=5)
            >>> list(profile.nodes), profile.steps
            (['MatMul'], 5)
        """
        return self._profiler(fetches, feeds, steps=steps)
