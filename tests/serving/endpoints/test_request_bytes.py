"""The budget of bytes of all requests, with messages that arrive when the test says so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphc.serving.endpoints import request_bytes
from graphc.serving.endpoints.request_bytes import RequestBytes
from graphc.web.failures import Failure


class Messages:
    """Messages that arrive when `send` is called.

    Attributes:
        asked: the numbers of the messages that may arrive.
    """

    def __init__(self, budget: RequestBytes, seconds: float = 60.0) -> None:
        self.asked: list[int] = []
        self._budget, self._seconds = budget, seconds
        self._sent: dict[int, asyncio.Future[bytes]] = {}

    def begin(self, number: int) -> asyncio.Task[bytes]:
        async def read() -> bytes:
            self.asked.append(number)
            self._sent[number] = asyncio.get_running_loop().create_future()
            return await self._sent[number]

        return asyncio.create_task(self._budget.message(read, self._seconds))

    def send(self, number: int, data: bytes) -> None:
        self._sent[number].set_result(data)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(limited())


def code_of(task: asyncio.Task[Any]) -> str:
    error = task.exception()
    assert isinstance(error, Failure)
    return error.code


def test_messages_take_half_in_their_order() -> None:
    async def test() -> None:
        budget = RequestBytes(40, 10)
        messages = Messages(budget)
        tasks = [messages.begin(i) for i in range(4)]
        await asyncio.sleep(0)
        assert messages.asked == [0, 1]
        assert (budget.arriving, budget.held) == (20, 0)
        messages.send(1, b"abc")
        assert await tasks[1] == b"abc"
        await asyncio.sleep(0)
        assert messages.asked == [0, 1, 2] and budget.held == 3
        messages.send(0, b"")
        await asyncio.wait(tasks[:1])
        for _ in range(3):
            await asyncio.sleep(0)
        assert messages.asked == [0, 1, 2, 3]
        for number in (2, 3):
            messages.send(number, b"d")
        assert await asyncio.gather(*tasks) == [b"", b"abc", b"d", b"d"]
        assert (budget.arriving, budget.held) == (0, 5)
        budget.release(5)
        assert budget.held == 0

    run(test)


def test_messages_that_arrive_within_the_patience_are_not_refused() -> None:
    """Many ordinary uploads at once take turns."""

    async def test() -> None:
        budget = RequestBytes(40, 10)
        messages = Messages(budget)
        tasks = [messages.begin(i) for i in range(6)]
        for number in range(6):
            while number not in messages.asked:
                await asyncio.sleep(0)
            await asyncio.sleep(0.15)
            messages.send(number, b"a")
        assert await asyncio.gather(*tasks) == [b"a"] * 6

    run(test)


def test_slow_messages_keep_no_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The youngest slow one goes; the oldest, which may end soon, stays."""
    monkeypatch.setattr(request_bytes, "_PATIENCE", 0.1)

    async def test() -> None:
        budget = RequestBytes(40, 10)
        messages = Messages(budget)
        first = messages.begin(0)
        await asyncio.sleep(0.01)
        second = messages.begin(1)
        await asyncio.sleep(0)
        third = messages.begin(2)
        await asyncio.wait([second])
        assert code_of(second) == "RESOURCE_EXHAUSTED"
        while 2 not in messages.asked:
            await asyncio.sleep(0)
        messages.send(2, b"abc")
        messages.send(0, b"de")
        assert await asyncio.gather(first, third) == [b"de", b"abc"]
        assert (budget.arriving, budget.held) == (0, 5)

    run(test)


def test_only_the_first_that_waits_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that waits would refuse a message, and more would go than places are needed."""
    monkeypatch.setattr(request_bytes, "_PATIENCE", 0.1)

    async def test() -> None:
        messages = Messages(RequestBytes(40, 10))
        arriving = [messages.begin(i) for i in range(2)]
        await asyncio.sleep(0.01)
        waiting = [messages.begin(i) for i in range(2, 6)]
        await asyncio.wait(arriving, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.03)
        assert [task.done() for task in arriving] == [False, True]
        assert code_of(arriving[1]) == "RESOURCE_EXHAUSTED"
        for task in (*arriving, *waiting):
            task.cancel()
        await asyncio.wait([arriving[0], *waiting])

    run(test)


def test_requests_in_progress_refuse_messages_at_once() -> None:
    async def test() -> None:
        budget = RequestBytes(40, 10)
        budget.hold(31)
        messages = Messages(budget)
        task = messages.begin(0)
        await asyncio.wait([task])
        assert code_of(task) == "RESOURCE_EXHAUSTED" and not messages.asked
        budget.release(31)
        task = messages.begin(0)
        await asyncio.sleep(0)
        assert messages.asked == [0]
        budget.hold(30)
        with pytest.raises(Failure, match="all requests together exceed 40 bytes"):
            budget.hold(1)
        budget.release(31)
        messages.send(0, b"a")
        assert await task == b"a"

    run(test)


def test_messages_that_do_not_arrive_in_time() -> None:
    async def test() -> None:
        budget = RequestBytes(40, 10)
        task = Messages(budget, seconds=0.01).begin(0)
        await asyncio.wait([task])
        assert code_of(task) == "DEADLINE_EXCEEDED"
        assert (budget.arriving, budget.held) == (0, 0)

    run(test)


def test_clients_that_go_give_their_places_back() -> None:
    async def test() -> None:
        budget = RequestBytes(20, 10)
        messages = Messages(budget)
        tasks = [messages.begin(i) for i in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()  # it waits
        await asyncio.wait(tasks[1:2])
        tasks[0].cancel()  # it arrives
        await asyncio.wait(tasks[:1])
        for _ in range(3):
            await asyncio.sleep(0)
        assert messages.asked == [0, 2] and budget.arriving == 10
        messages.send(2, b"abc")
        assert await tasks[2] == b"abc"

    run(test)
