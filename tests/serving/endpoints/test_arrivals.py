"""Results of other threads reach the event loop, many with one call."""

from __future__ import annotations

import asyncio
import gc as garbage
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from graphc.serving.endpoints.arrivals import Arrivals


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the calls from other threads."""

    calls = 0

    def call_soon_threadsafe(self, callback: Any, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.calls += 1
        return super().call_soon_threadsafe(callback, *args, **kwargs)


def test_results_that_arrive_together_take_one_call() -> None:
    arrivals = Arrivals()
    given: list[Future[int]] = [Future() for _ in range(20)]

    async def main() -> list[int]:
        waiting = [arrivals.wrap(future) for future in given]
        batch = threading.Thread(target=lambda: [f.set_result(i) for i, f in enumerate(given)])
        batch.start()
        batch.join()  # the loop runs nothing meanwhile
        return await asyncio.gather(*waiting)

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        assert runner.run(main()) == list(range(20))
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        assert loop.calls == 1


def test_results_of_many_threads_all_arrive() -> None:
    arrivals, threads, each = Arrivals(), 8, 300

    async def main() -> None:
        given: list[Future[int]] = [Future() for _ in range(threads * each)]
        waiting = [arrivals.wrap(future) for future in given]

        def run(first: int) -> None:
            for i in range(first, first + each):
                given[i].set_result(i)

        workers = [threading.Thread(target=run, args=(n * each,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        found = await asyncio.wait_for(asyncio.gather(*waiting), 30)
        assert found == list(range(threads * each))

    asyncio.run(main())


def test_errors_and_cancellations() -> None:
    arrivals = Arrivals()

    async def main() -> None:
        failed: Future[int] = Future()
        odd: Future[int] = Future()
        dropped: Future[int] = Future()
        unwanted: Future[int] = Future()
        late: Future[int] = Future()
        late.set_running_or_notify_cancel()
        zero, one, two, three, four = map(arrivals.wrap, (odd, failed, dropped, unwanted, late))
        odd.set_exception(StopIteration())
        failed.set_exception(ValueError("no"))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await zero
        with pytest.raises(ValueError, match="no"):
            await one
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await two
        three.cancel()
        four.cancel()  # it runs already: the result comes, and nobody takes it
        await asyncio.sleep(0)
        assert unwanted.cancelled()
        late.set_result(1)
        await asyncio.sleep(0.01)
        assert four.cancelled()

    asyncio.run(main())


def test_results_are_freed_without_garbage_collection() -> None:
    arrivals = Arrivals()

    class Result:
        pass

    async def main() -> weakref.ref[Result]:
        given: Future[Result] = Future()
        waiting = arrivals.wrap(given)
        given.set_result(Result())
        return weakref.ref(await waiting)

    garbage.collect()
    garbage.disable()
    try:
        assert asyncio.run(main())() is None
    finally:
        garbage.enable()


def test_two_loops_get_their_own_results() -> None:
    arrivals = Arrivals()

    def run(number: int, found: dict[int, int]) -> None:
        async def main() -> int:
            given: Future[int] = Future()
            waiting = arrivals.wrap(given)
            threading.Timer(0.01, given.set_result, (number,)).start()
            return await asyncio.wait_for(waiting, 30)

        found[number] = asyncio.run(main())

    found: dict[int, int] = {}
    workers = [threading.Thread(target=run, args=(n, found)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == {n: n for n in range(4)}


def test_a_result_after_the_end_of_the_loop_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    arrivals, given = Arrivals(), [Future[int]() for _ in range(3)]

    async def main() -> None:
        for future in given:
            arrivals.wrap(future)

    asyncio.run(main())
    for future in given:
        future.set_result(1)
    assert not arrivals._arrived
    assert not caplog.records  # futures log the errors of callbacks
