"""Connections of the Python clients that end, over REST and gRPC, with and without TLS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest

from graphc.serving import AsyncClient, Client, Failure, Server, ServerConfig, TlsConfig
from tests.serving.certificates import Authority, client_context
from tests.serving.cutting import Proxy
from tests.serving.fakes import manager
from tests.serving.stateful import CountingManager, CountingState

ONE = np.int32([1])
SCHEMES = ["http", "https", "grpc", "grpcs"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


class Rig(NamedTuple):
    """A client of a server behind a proxy."""

    proxy: Proxy
    models: Any
    address: str
    options: dict[str, Any]

    def client(self) -> Client:
        return Client(self.address, timeout=60.0, **self.options)

    def async_client(self) -> AsyncClient:
        return AsyncClient(self.address, timeout=60.0, **self.options)

    def lose(self, client: Client) -> None:
        """Ends the connections. Returns when a channel of gRPC knows it."""
        lost = threading.Event()
        if self.address.startswith("grpc"):
            channel = client._transport._channel  # type: ignore[attr-defined]
            ready = grpc.ChannelConnectivity.READY
            channel.subscribe(lambda state: lost.set() if state is not ready else None)
        else:
            lost.set()
        self.proxy.cut()
        assert lost.wait(60)


@pytest.fixture(params=SCHEMES)
def rig(request, authority: Authority) -> Iterator[Callable[[Any], Rig]]:
    """Makes a rig for the models of a manager."""
    scheme: str = request.param
    options: dict[str, Any] = {}
    tls: dict[str, Any] = {}
    if scheme.endswith("s"):
        pair = authority.sign("server")
        tls = {"tls_certificate": str(pair.certificate), "tls_key": str(pair.key)}
        tls["grpc_tls"] = TlsConfig(*pair.texts())
        if scheme == "https":
            options["tls"] = client_context(authority)
        else:
            options["authority"] = str(authority.path)
    with ExitStack() as stack:

        def make(models: Any) -> Rig:
            server = stack.enter_context(
                Server(ServerConfig((), port=0, rest_port=0, **tls), manager=models)
            )
            port = server.rest_port if scheme.startswith("http") else server.port
            proxy = stack.enter_context(Proxy(port))
            return Rig(proxy, models, f"{scheme}://127.0.0.1:{proxy.port}", options)

        yield make


@pytest.fixture
def counting(rig) -> Iterator[Rig]:
    found = rig(CountingManager())
    yield found
    found.models.sessions.close()


def held(models: CountingManager) -> tuple[CountingState, list[Any]]:
    """The state of the session. Its runs begin, and wait for the test."""
    (state,) = models.servable.states
    state.holds_begun = True
    state.held = found = []
    return state, found


def wait_for(runs: list[Any]) -> Any:
    while not runs:
        pass
    return runs.pop()


def test_a_prediction_after_a_lost_connection(rig) -> None:
    rig = rig(manager())
    for size in (1, 1_000_000):  # sent before the end of the connection is known, or not
        x = np.ones((size, 2), np.float32)
        with rig.client() as client:
            for _ in range(3):
                assert (client.predict("double", x=x)["y"] == 2).all()
                rig.lose(client)
    assert rig.proxy.connections >= 6


def test_a_prediction_after_a_lost_connection_with_asyncio(rig) -> None:
    rig = rig(manager())

    async def go() -> None:
        async with rig.async_client() as client:
            for _ in range(3):
                found = await client.predict("double", x=np.ones((1, 2), np.float32))
                assert (found["y"] == 2).all()
                await asyncio.to_thread(rig.lose, client._client)

    asyncio.run(go())
    assert rig.proxy.connections == 3


def test_a_lost_step_of_a_session_is_not_run_again(counting: Rig) -> None:
    results: list[int] = []
    with counting.client() as client, client.session("counter", signature="add") as session:
        session.predict(x=ONE)
        state, runs = held(counting.models)
        thread = threading.Thread(
            target=lambda: results.append(int(session.predict(x=ONE)["total"][0]))
        )
        thread.start()
        run = wait_for(runs)
        state.held = None  # of further runs, of which there are none
        counting.proxy.cut()
        run()
        thread.join()
        assert results == [2] and state.total == 2
        assert session.predict(x=ONE)["total"] == [3]


def test_a_lost_step_of_a_session_with_asyncio(counting: Rig) -> None:
    async def go() -> None:
        async with (
            counting.async_client() as client,
            await client.session("counter", signature="add") as session,
        ):
            await session.predict(x=ONE)
            state, runs = held(counting.models)
            call = asyncio.create_task(session.predict(x=ONE))
            run = await asyncio.to_thread(wait_for, runs)
            state.held = None
            counting.proxy.cut()
            run()
            assert (await call)["total"] == [2] and state.total == 2

    asyncio.run(go())


def test_a_step_that_the_caller_repeats_is_not_run_again(counting: Rig) -> None:
    """The client gives up on a call, but the server has run it."""
    with counting.client() as client, client.session("counter", signature="add") as session:
        session.predict(x=ONE)
        state, runs = held(counting.models)
        with pytest.raises(Failure, match="DEADLINE_EXCEEDED"):
            session.predict(x=ONE, timeout=0.2)
        wait_for(runs)()
        state.held = None
        assert session.predict(x=ONE)["total"] == [2]  # of the run that was given up
        assert session.predict(x=ONE)["total"] == [3]
        with pytest.raises(Failure, match="the run failed"):
            session.predict(x=np.int32([1001]))
        assert session.predict(x=np.int32([10]))["total"] == [13]
        (only,) = session.generate(x=ONE, steps=1)
        assert (
            only["total"]
            == [14]
            == session.generate(x=ONE, steps=1, outputs=["x"]).send(None)["x"] + 13
        )
        assert state.total == 15


def test_steps_of_several_threads(counting: Rig) -> None:
    async def go() -> None:
        async with (
            counting.async_client() as client,
            await client.session("counter", signature="add") as session,
        ):
            found = await asyncio.gather(*[session.predict(x=ONE) for _ in range(20)])
            assert sorted(int(each["total"][0]) for each in found) == list(range(1, 21))

    asyncio.run(go())


def test_a_call_that_waits_for_another_one_of_its_session(counting: Rig) -> None:
    with counting.client() as client, client.session("counter", signature="add") as session:
        _, runs = held(counting.models)
        thread = threading.Thread(target=lambda: session.predict(x=ONE))
        thread.start()
        run = wait_for(runs)
        with pytest.raises(Failure, match="another call of the session did not end"):
            session.predict(x=ONE, timeout=0.2)
        run()
        thread.join()
        assert not runs


def test_a_lost_stream_is_not_run_again(counting: Rig) -> None:
    with counting.client() as client, client.session("counter", signature="add") as session:
        state, runs = held(counting.models)
        steps = session.generate(x=ONE, steps=2)
        failures: list[str] = []

        def read() -> None:
            try:
                next(steps)
            except Failure as failure:
                failures.append(failure.code)

        thread = threading.Thread(target=read)
        thread.start()
        run = wait_for(runs)
        counting.proxy.cut()
        thread.join()
        run()
        state.held = None
        assert failures == ["UNAVAILABLE"]
        total = int(session.predict(x=ONE)["total"][0])
        assert total == state.total in (2, 3)
