"""Sessions with the whole server: both endpoints, both clients, streams, tokens, draining."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from graphc.serving import AsyncClient, Client, Failure, ModelConfig, Server, ServerConfig
from graphc.serving.models.sessions import Session
from tests.serving.decoder import local, put
from tests.serving.stateful import CountingManager

FEEDBACK = {"token": "next"}
ONE = np.int32([1])


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models") / "decoder"
    put(folder)
    config = ServerConfig((ModelConfig("decoder", str(folder)),), port=0, rest_port=0)
    with Server(config) as found:
        yield found


@pytest.fixture(params=["http", "grpc"])
def scheme(request) -> str:
    return request.param


def address(server: Server, scheme: str) -> str:
    return f"{scheme}://127.0.0.1:{server.rest_port if scheme == 'http' else server.port}"


@pytest.fixture
def client(server, scheme) -> Iterator[Client]:
    with Client(address(server, scheme)) as found:
        yield found


def alike(found: list, expected: Iterator) -> bool:
    pairs = list(zip(found, islice(expected, len(found)), strict=True))
    return all(a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a) for a, b in pairs)


def test_a_session_has_the_bits_of_local_decoding(client) -> None:
    with client.session("decoder", signature="step") as session:
        assert (session.model, session.version) == ("decoder", 1)
        found = [session.predict(token=np.int32([token])) for token in (4, 2)]
        found += session.generate(token=ONE, steps=5, feedback=FEEDBACK)
        found += session.generate({"token": found[-1]["next"]}, steps=1, feedback=FEEDBACK)
        assert len(found) == 8 and alike(found, local("step", [4, 2, 1]))
        assert set(session.predict(token=ONE, outputs=["next"])) == {"next"}
        (only,) = session.generate(token=ONE, steps=1, outputs=["next"])
        assert set(only) == {"next"} and only["next"].dtype == np.int32
        assert session.predict(signature="look")["hidden"].shape == (1, 8)
    with pytest.raises(Failure, match="it was closed") as caught:
        session.predict(token=ONE)
    assert caught.value.code == "NOT_FOUND"
    session.close()  # a second time


def test_two_streams_at_once(client) -> None:
    with (
        client.session("decoder", signature="step") as one,
        client.session("decoder", signature="draw", seed=2**64 - 1) as two,
    ):
        steps = one.generate(token=ONE, steps=9, feedback=FEEDBACK)
        draws = two.generate(token=ONE, steps=9, feedback=FEEDBACK)
        pairs = list(zip(steps, draws, strict=True))
    assert alike([step for step, _ in pairs], local("step", [1]))
    assert alike([draw for _, draw in pairs], local("draw", [1], seed=-1))
    with pytest.raises(Failure, match="seed must be an integer of 64 bits") as caught:
        client.session("decoder", seed=2**64)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_stream_stops_at_a_value(client) -> None:
    expected = [int(outputs["next"][0]) for outputs in islice(local("step", [1]), 50)]
    stop = expected[3]
    with client.session("decoder", signature="step") as session:
        found = session.generate(token=ONE, steps=50, feedback=FEEDBACK, stop={"next": [-1, stop]})
        tokens = [int(outputs["next"][0]) for outputs in found]
    assert tokens == expected[: expected.index(stop) + 1]


def test_errors(client) -> None:
    with pytest.raises(Failure, match="Servable not found"):
        client.session("other")
    with pytest.raises(Failure, match="there are: draw, logits, look, step"):
        client.session("decoder", signature="other")
    with pytest.raises(Failure, match="not found"):
        client.session("decoder", version=7)
    with client.session("decoder") as session:
        with pytest.raises(Failure, match="name a signature; there are"):
            session.predict(token=ONE)
        with pytest.raises(Failure, match="expected i32"):
            session.predict(token=np.float32([1]), signature="step")
        feedback = {"token": "logits"}
        with pytest.raises(Failure, match=r"output 'logits' is f32\[1, 16\], but input") as caught:
            next(session.generate(token=ONE, steps=2, feedback=feedback, signature="step"))
        assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(Failure, match=r"updates variables \(hidden\); use it in a session"):
        client.predict("decoder", token=ONE, signature="step")


def test_an_asynchronous_client(server, scheme) -> None:
    async def decode(client: AsyncClient, token: int) -> list:
        async with await client.session("decoder", signature="step") as session:
            found = [await session.predict(token=np.int32([token]))]
            steps = session.generate(token=found[0]["next"], steps=4, feedback=FEEDBACK)
            return found + [outputs async for outputs in steps]

    async def several() -> list[list]:
        async with AsyncClient(address(server, scheme)) as client:
            return await asyncio.gather(*[decode(client, token) for token in range(4)])

    for token, found in enumerate(asyncio.run(several())):
        assert len(found) == 5 and alike(found, local("step", [token]))


def test_metrics(server, client) -> None:
    with client.session("decoder", signature="step") as session:
        session.predict(token=ONE)
        text = server.metrics.text().decode()
    assert "graphc_serving_sessions 1\n" in text and "graphc_serving_session_bytes 32\n" in text
    assert 'graphc_serving_session_steps_total{model="decoder"}' in text
    text = server.metrics.text().decode()
    assert 'graphc_serving_sessions_ended_total{model="decoder",reason="closed"}' in text
    assert "graphc_serving_sessions 0\n" in text


def only(models: CountingManager) -> Session:
    (session,) = models.sessions._open.values()
    return session


@pytest.fixture
def counting(scheme) -> Iterator[tuple[Server, CountingManager, Client]]:
    models = CountingManager()
    config = ServerConfig((), port=0, rest_port=0)
    with Server(config, manager=models) as server, Client(address(server, scheme)) as client:
        yield server, models, client
    models.sessions.close()


def test_a_stream_that_is_closed_leaves_whole_steps(counting) -> None:
    _, models, client = counting
    with client.session("counter", signature="add") as session:
        runs = models.servable.states[0].held = []
        steps = session.generate(x=ONE, steps=10**6, feedback={})
        release = threading.Thread(target=lambda: [wait_for(runs)() for _ in range(2)])
        release.start()
        assert [int(next(steps)["total"][0]) for _ in range(2)] == [1, 2]
        release.join()
        steps.close()
        other = threading.Thread(target=lambda: results.append(session.predict(x=ONE)))
        results: list[dict[str, Any]] = []
        other.start()  # it waits until the server has left the stream
        while other.is_alive():
            if runs:
                runs.pop()()
        total = int(results[0]["total"][0])
        assert total == models.servable.states[0].total == only(models).steps
        # Two steps of the stream, and the steps that began before the server knew.
        assert 3 <= total < 10**6


def test_a_stream_after_a_failed_call_takes_its_number(counting) -> None:
    """The server refuses numbers below that of the stream, so the failed call gets a new one."""
    _, models, client = counting
    with client.session("counter", signature="add") as session:
        step = session._transport.step
        session._transport.step = unreachable
        try:
            with pytest.raises(Failure, match="not reached"):
                session.predict(x=ONE)
        finally:
            session._transport.step = step
        list(session.generate(x=ONE, steps=2))
        assert session.predict(x=ONE)["total"] == [3]
        assert only(models).steps == 3


def unreachable(*_: Any) -> bytes:
    raise Failure("DEADLINE_EXCEEDED", "the server was not reached")


def test_numbers_that_were_used_before(counting) -> None:
    _, models, client = counting
    with client.session("counter", signature="add") as session:
        session.predict(x=ONE)
        session.predict(x=ONE)
        list(session.generate(x=ONE, steps=2))
        for number, call, error in [
            (2, lambda: session.predict(x=ONE), "expected 4 or higher for a new request"),
            (3, lambda: session.predict(x=ONE), "the number of another request of this session"),
            (3, lambda: next(session.generate(x=ONE, steps=2)), "number 3 has begun before"),
        ]:
            session._numbers = itertools.count(number)
            with pytest.raises(Failure, match=error) as caught:
                call()
            assert caught.value.code == "ABORTED"
        assert only(models).steps == models.servable.states[0].total == 4
        session._numbers = itertools.count(4)
        assert session.predict(x=ONE)["total"] == [5]


def wait_for(runs: list) -> Any:
    while not runs:
        pass
    return runs.pop()


def test_streams_are_finished_when_the_server_stops(counting) -> None:
    server, models, client = counting
    session = client.session("counter", signature="add")
    runs = models.servable.states[0].held = []
    results: list[int] = []

    def read() -> None:
        for outputs in session.generate(x=ONE, steps=3, feedback={}):
            results.append(int(outputs["total"][0]))

    thread = threading.Thread(target=read)
    thread.start()
    run = wait_for(runs)
    server.stop()
    while server.is_ready:
        pass
    run()
    wait_for(runs)()
    wait_for(runs)()
    thread.join()
    assert results == [1, 2, 3]


def test_a_session_belongs_to_a_token(scheme) -> None:
    models = CountingManager()
    config = ServerConfig((), port=0, rest_port=0, tokens=("one", "two"))
    with Server(config, manager=models) as server:
        where = address(server, scheme)
        with Client(where, token="one") as client, Client(where, token="two") as other:
            session = client.session("counter", signature="add")
            stolen = other.session("counter", signature="add")
            stolen.id = session.id
            for call in (
                lambda: stolen.predict(x=ONE),
                lambda: next(stolen.generate(x=ONE, steps=1, feedback={})),
            ):
                with pytest.raises(Failure, match="no session"):
                    call()
            assert session.predict(x=ONE)["total"] == [1]
    models.sessions.close()


def test_a_stream_without_a_server(counting) -> None:
    server, _, client = counting
    session = client.session("counter", signature="add")
    server.stop()
    while server._background._thread.is_alive():
        pass
    with pytest.raises(Failure, match="UNAVAILABLE"):
        next(session.generate(x=ONE, steps=1, feedback={}))
    with pytest.raises(Failure, match="UNAVAILABLE"):
        session.close()


def test_a_stream_that_takes_too_long(counting) -> None:
    _, models, client = counting
    session = client.session("counter", signature="add")
    models.servable.states[0].held = []
    with pytest.raises(Failure, match="DEADLINE_EXCEEDED"):
        next(session.generate(x=ONE, steps=1, feedback={}, timeout=0.2))
