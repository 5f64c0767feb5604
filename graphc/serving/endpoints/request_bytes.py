"""`RequestBytes`: the bytes that all requests together may have in memory."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from graphc.web.failures import Failure

_PATIENCE: Final = 2.0  # seconds that a message waits for others which arrive, before one must go
_MOST_WAITING: Final = 1024


@dataclass(eq=False, slots=True)
class _Reader:
    """Waits for a message.

    Attributes:
        limit: of the whole wait; it can be cut short.
        place: set when the message may arrive.
        since: when it was set.
    """

    limit: asyncio.Timeout
    place: asyncio.Future[None]
    since: float = 0.0
    is_refused: bool = False


class RequestBytes:
    """A budget for the bytes of requests, which REST and gRPC share.

    The body of a request by REST is counted while it arrives. gRPC says the size of a message only
    when all of it is there. So each message that arrives counts as the largest one, and such
    messages may take half of the budget. A message that finds it taken waits. If it waits long,
    the youngest message that arrives slowly is refused: slow clients keep no others out.

    All methods are called in the event loop.

    Args:
        most: the bytes of all requests together.
        message: the bytes of the largest message.

    Attributes:
        held: the bytes of the requests in progress.
        arriving: the bytes that messages may have which arrive.
    """

    def __init__(self, most: int, message: int) -> None:
        self.held = 0
        self._most, self._message = most, message
        self._readers: list[_Reader] = []
        self._waiting: deque[_Reader] = deque()

    @property
    def arriving(self) -> int:
        return len(self._readers) * self._message

    def hold(self, size: int) -> None:
        """Counts bytes of a request, also if it then fails: `release` follows in any case.

        Raises:
            Failure: RESOURCE_EXHAUSTED: all requests have too many.
        """
        self.held += size
        if self.held + self.arriving > self._most:
            raise self._refusal()

    def release(self, size: int) -> None:
        """The end of a request with these bytes."""
        self.held -= size
        self._wake()

    async def message(self, read: Callable[[], Awaitable[bytes]], seconds: float) -> bytes:
        """The bytes of a message, which are counted from now on as by `hold`.

        Args:
            read: waits for the message.
            seconds: how long the message may take.

        Raises:
            Failure: RESOURCE_EXHAUSTED: there is no room for it; DEADLINE_EXCEEDED: it did not
                arrive in time.
        """
        async with self._reader(seconds) as reader:
            self._waiting.append(reader)
            self._wake()
            if not reader.place.done():
                await self._wait(reader)
            data = await read()
            self.held += len(data)
            return data

    @asynccontextmanager
    async def _reader(self, seconds: float) -> AsyncIterator[_Reader]:
        """A reader, which holds a place at most until the end of the block."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reader = _Reader(asyncio.timeout(seconds), place)
        try:
            async with reader.limit:
                yield reader
        except TimeoutError:
            if reader.is_refused:
                raise Failure(
                    "RESOURCE_EXHAUSTED",
                    "the message arrived slowly, and others waited for its place; try later",
                ) from None
            if not place.done():
                raise self._refusal() from None
            raise Failure(
                "DEADLINE_EXCEEDED", f"the message did not arrive within {seconds:g} s"
            ) from None
        finally:
            if reader in self._readers:
                self._readers.remove(reader)
            elif reader in self._waiting:
                self._waiting.remove(reader)
            self._wake()

    @property
    def _fits(self) -> bool:
        arriving = self.arriving + self._message
        return arriving <= self._most // 2 and self.held + arriving <= self._most

    def _wake(self) -> None:
        """Gives places to the messages that wait, in their order."""
        while self._waiting and self._fits:
            reader = self._waiting.popleft()
            reader.since = time.monotonic()
            reader.place.set_result(None)
            self._readers.append(reader)

    async def _wait(self, reader: _Reader) -> None:
        """Waits for a place."""
        if len(self._waiting) > _MOST_WAITING:
            raise self._refusal()
        while not reader.place.done():
            if self.held + self._message > self._most:
                raise self._refusal()  # requests in progress may take long
            await asyncio.wait([reader.place], timeout=_PATIENCE)
            # Only the first one that waits makes room: the others wait for those before them, too.
            if self._waiting and self._waiting[0] is reader:
                self._refuse_youngest()

    def _refuse_youngest(self) -> None:
        """Makes room among the messages that arrive slowly: older ones may end soon."""
        latest = time.monotonic() - _PATIENCE
        slow = [r for r in self._readers if r.since <= latest and not r.is_refused]
        if slow:
            youngest = max(slow, key=lambda r: r.since)
            youngest.is_refused = True
            youngest.limit.reschedule(asyncio.get_running_loop().time())

    def _refusal(self) -> Failure:
        return Failure(
            "RESOURCE_EXHAUSTED", f"all requests together exceed {self._most} bytes; try later"
        )
