"""Connections of the HTTP server: what is written at once is sent at once."""

import asyncio

import pytest

from graphc.web.connections import JoiningTransport


class Transport(asyncio.Transport):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closed_after: int | None = None

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.closed_after = len(self.sent)

    def is_closing(self) -> bool:
        return self.closed_after is not None


async def _written(*parts: bytes, close: bool = False) -> Transport:
    inner = Transport()
    joining = JoiningTransport(inner, asyncio.get_running_loop())
    for part in parts:
        joining.write(part)
    if close:
        joining.close()
        assert joining.is_closing()
    await asyncio.sleep(0)
    return inner


def test_the_head_and_the_body_are_sent_together() -> None:
    assert asyncio.run(_written(b"head", b"body")).sent == [b"headbody"]


def test_a_head_without_a_body_is_sent() -> None:
    """The first event of a stream may come much later."""
    assert asyncio.run(_written(b"head")).sent == [b"head"]


@pytest.mark.parametrize("size", [1 << 13, 1 << 20])
def test_little_waits(size: int) -> None:
    """A response whose parts are written without a pause does not collect in memory."""
    parts = [b"%d" % (i % 10) * size for i in range(8)]
    sent = asyncio.run(_written(*parts)).sent
    assert b"".join(sent) == b"".join(parts)
    assert max(map(len, sent)) <= max(size, (1 << 14) + size)
    assert len(sent) >= (8 if size > 1 << 14 else 2)


def test_everything_is_sent_before_the_end() -> None:
    inner = asyncio.run(_written(b"head", b"body", close=True))
    assert inner.sent == [b"headbody"] and inner.closed_after == 1


def test_later_parts_are_sent_later() -> None:
    async def run() -> list[bytes]:
        inner = Transport()
        joining = JoiningTransport(inner, asyncio.get_running_loop())
        for part in (b"a", b"b"):
            joining.write(part)
            await asyncio.sleep(0)
        return inner.sent

    assert asyncio.run(run()) == [b"a", b"b"]
