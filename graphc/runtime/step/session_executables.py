"""The methods of a session for compiling its steps ahead of time, and for looking at them."""

from __future__ import annotations

from concurrent.futures import Future

from graphc.devices.remote_session import RemoteRunner
from graphc.errors import GraphError
from graphc.runtime.core.background import in_background
from graphc.runtime.step.executable import Executable
from graphc.runtime.step.programs import Programs
from graphc.typing import Feeds, Fetches


class HasExecutables:
    """The methods of a session for its executables."""

    _programs: Programs
    _remote: RemoteRunner | None

    def compile(
        self, fetches: Fetches, feeds: Feeds | None = None, *, steps: int | None = None
    ) -> Executable:
        """Compiles the program that `run` needs for these fetches and feeds of these shapes.

        Args:
            fetches: as for `run`.
            feeds: tensor or name -> the global shape of one run, as for `gc.compile`.
            steps: the number of steps, for `run_steps`.

        Returns:
            The executable, for inspection. `run` finds it by itself.

        Raises:
            FeedError, FetchError, UnknownNameError, LayoutError: as `run` does.

        Examples:
            >>> x = gc.placeholder(("batch",), name="x")
            >>> gc.Session(graph).compile(x * 2, {x: (32,)})
            <Executable graph: 2 nodes, 1 feeds, 1 fetches, 0 variables assigned>
        """
        made = self._begin(fetches, feeds, steps)
        for executable in made:
            executable.wait()
        return made[0]

    def compile_async(
        self, fetches: Fetches, feeds: Feeds | None = None, *, steps: int | None = None
    ) -> Future[Executable]:
        """Like `compile`, but lowers and compiles in the background, several programs at a time.

        A run that needs a program that is not ready waits for it. The arguments are those of
        `compile`. Errors in the program are raised at once. If XLA rejects the program, `result()`
        of the future raises the error.

        Examples:
            >>> x = gc.placeholder(("batch",), name="x")
            >>> session = gc.Session(graph)
            >>> begun = session.compile_async(x * 2, {x: (32,)})
            >>> begun.result()
            <Executable graph: 2 nodes, 1 feeds, 1 fetches, 0 variables assigned>
        """
        made = self._begin(fetches, feeds, steps)
        first, *_ = [in_background(executable.wait) for executable in made]
        return first

    def _begin(self, fetches: Fetches, feeds: Feeds | None, steps: int | None) -> list[Executable]:
        feeds = {} if feeds is None else feeds
        if self._remote is not None:
            raise GraphError(
                "compile: the steps of this session are compiled by its tasks, when they first run",
                hint="run the step; gc.compile compiles for this process",
            )
        return self._programs.begin(self._programs.plan_of(fetches, feeds), feeds, steps)

    @property
    def executables(self) -> list[Executable]:
        """Every executable this session has compiled, in order.

        Examples:
            >>> session = gc.Session(graph)
            >>> total = session.run(gc.constant([1, 2]) + 1)
            >>> session.executables
            [<Executable graph: 1 nodes, 0 feeds, 1 fetches, 0 variables assigned>]
        """
        return self._programs.executables

    @property
    def compile_count(self) -> int:
        """How many executables this session has compiled.

        Examples:
            >>> x = gc.placeholder(("batch",), name="x")
            >>> y, session = x + 1, gc.Session(graph)
            >>> for batch in ([1, 2], [3, 4], [5]):
            ...     value = session.run(y, {x: batch})
            >>> session.compile_count  # one for each shape
            2
        """
        return len(self.executables)
