"""Sessions over REST, with a model without an artifact."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphc.serving.endpoints import rest_sessions
from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.rest import RestApplication
from graphc.serving.endpoints.rest_sessions import _Stream
from graphc.serving.endpoints.service import Service
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode_all, encode
from graphc.web.access import Access
from graphc.web.failures import Failure
from tests.serving.endpoints.session_rig import BASE, PROTOBUF, Connection, held, opened, until
from tests.serving.fakes import Reply, ask, manager
from tests.serving.stateful import CountingManager


@pytest.fixture
def models() -> Iterator[CountingManager]:
    found = CountingManager(idle_seconds=10, max_sessions=2)
    yield found
    found.sessions.close()


@pytest.fixture
def application(models) -> RestApplication:
    return RestApplication(Service(models, Metrics()))


def events(reply: Reply) -> list[tuple[str, Any]]:
    """The kinds and data of server-sent events."""
    found = []
    for block in reply.body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found


def test_create_predict_look_and_close(application, models) -> None:
    reply = ask(application, "POST", BASE)
    assert reply.json.pop("session_id")
    path = opened(application, seed=7)
    reply = ask(application, "POST", f"{path}:predict", {"inputs": [1, 2]})
    assert reply.json == {"outputs": {"total": [10], "x": [1, 2]}}
    body = {"instances": [5], "output_filter": ["total"], "signature_name": "twice"}
    assert ask(application, "POST", f"{path}:predict", body).json == {"predictions": [20]}
    assert ask(application, "GET", path).json == {
        "session_id": path.rpartition("/")[2], "model": "counter", "version": "1",
        "signature_name": "add", "steps": 2, "number": 0, "bytes": 16,
        "idle_seconds": 10, "max_seconds": 3600.0,
    }  # fmt: skip
    assert ask(application, "DELETE", path).json == {}
    reply = ask(application, "GET", path)
    assert reply.status == 404 and "it was closed" in reply.error
    assert ask(application, "POST", "/v1/models/counter/versions/1/sessions").status == 200
    assert ask(application, "POST", "/v1/models/counter/versions/2/sessions").status == 404


def test_a_stream_of_steps(application) -> None:
    path = opened(application)
    body = {"inputs": [1, 2], "steps": 3, "feedback": {"x": "total"}, "output_filter": ["total"]}
    reply = ask(application, "POST", f"{path}:generate", body)
    assert reply.status == 200 and reply.headers["content-type"] == "text/event-stream"
    assert events(reply) == [
        ("", {"outputs": [3]}),
        ("", {"outputs": [6]}),
        ("", {"outputs": [12]}),
        ("end", {"steps": 3, "reason": "steps"}),
    ]
    body |= {"stop": {"total": [24, 48]}}
    reply = ask(application, "POST", f"{path}:generate", body | {"inputs": [0], "steps": 9})
    assert [kind for kind, _ in events(reply)] == ["", "", "end"]
    assert events(reply)[1:] == [("", {"outputs": [24]}), ("end", {"steps": 2, "reason": "stop"})]


def test_a_stream_of_messages(application) -> None:
    path = opened(application)
    request = messages().PackedSessionRequest(steps=2, feedback={"x": "total"})
    encode(np.int32([1, 2]), request.inputs["x"])
    data = request.SerializeToString()
    reply = ask(application, "POST", f"{path}:predict", data, PROTOBUF)
    found = parse("PredictResponse", reply.body)
    assert decode_all(found.outputs)["total"].tolist() == [3]
    assert (found.model_spec.name, found.model_spec.version.value) == ("counter", 1)
    reply = ask(application, "POST", f"{path}:generate", data, PROTOBUF)
    assert reply.body.count(b"data: ") == 3 and b"event: end" in reply.body


@pytest.mark.parametrize(
    ("verb", "body", "text"),
    [
        ("predict", {"inputs": {"y": [1]}}, "input 'x' is missing"),
        ("predict", {"inputs": [1.5]}, "expected i32"),
        ("predict", {"inputs": [1], "output_filter": ["y"]}, "no output 'y'; there are: total, x"),
        ("predict", {"inputs": [1], "output_filter": "y"}, "must be a list of strings"),
        ("predict", {"inputs": [1], "signature_name": "f"}, "there are: add, twice"),
        ("generate", {"inputs": [1]}, "steps must be an integer, got None"),
        ("generate", {"inputs": [1], "steps": True}, "steps must be an integer, got True"),
        ("generate", {"inputs": [1], "steps": 0}, "steps must be from 1 to 2147483647, got 0"),
        ("generate", {"inputs": [1], "steps": 1, "feedback": ["x"]}, "must map inputs to outputs"),
        ("generate", {"inputs": [1], "steps": 1, "feedback": {"y": "x"}}, "no input 'y'"),
        ("generate", {"inputs": [1], "steps": 1, "feedback": {"x": "y"}}, "no output 'y'"),
        ("generate", {"inputs": [1], "steps": 1, "stop": [1]}, "must map outputs to values"),
        ("generate", {"inputs": [1], "steps": 1, "stop": {"y": 1}}, "stop: no output 'y'"),
        ("generate", {"inputs": [1], "steps": 1, "stop": {"x": "a"}}, "stop.x: expected i32"),
        ("generate", {"inputs": [1], "steps": 1, "stop": {"x": [1] * 65}}, "at most 64 values"),
    ],
)
def test_requests_with_mistakes(application, models, verb: str, body: Any, text: str) -> None:
    path = opened(application)
    reply = ask(application, "POST", f"{path}:{verb}", body)
    assert reply.status == 400 and text in reply.error
    assert models.servable.states[0].total == 0
    assert ask(application, "GET", path).json["steps"] == 0


def test_paths_and_methods(application) -> None:
    path = opened(application)
    for method, where, allowed in [
        ("GET", BASE, "POST"),
        ("POST", path, "GET, DELETE"),
        ("GET", f"{path}:predict", "POST"),
        ("GET", f"{path}:generate", "POST"),
    ]:
        reply = ask(application, method, where)
        assert reply.status == 405 and reply.headers["allow"] == allowed
    assert ask(application, "POST", f"{path}:classify").status == 404
    assert ask(application, "POST", f"{BASE}/none:predict", {"inputs": [1]}).status == 404
    assert ask(application, "POST", f"{BASE}/:predict", {"inputs": [1]}).status == 404
    assert ask(application, "POST", "/v1/models/other/sessions").status == 404
    for seed in ("a", True, 2**64, 1.5):
        assert ask(application, "POST", BASE, {"seed": seed}).status == 400


def test_limits_and_expiry(application, models) -> None:
    path = opened(application)
    opened(application)
    assert ask(application, "POST", BASE).status == 429
    models.clock.now = 10.0
    reply = ask(application, "POST", f"{path}:predict", {"inputs": [1]})
    assert reply.status == 410 and "was not used for too long" in reply.error
    metrics = ask(application, "GET", "/monitoring/prometheus/metrics").body.decode()
    assert 'graphc_serving_sessions_ended_total{model="counter",reason="idle"} 2' in metrics
    assert "graphc_serving_sessions 0\n" in metrics


def test_a_manager_without_sessions() -> None:
    application = RestApplication(Service(manager(), Metrics()))
    reply = ask(application, "POST", "/v1/models/double/sessions")
    assert reply.status == 501 and "keeps no sessions" in reply.error


def test_a_step_that_fails_ends_the_stream(application, models) -> None:
    path = opened(application, seed=1000)
    body = {"inputs": [1001], "steps": 3, "feedback": {"x": "total"}}
    reply = ask(application, "POST", f"{path}:generate", body)
    assert reply.status == 500 and reply.error == "the run failed"  # nothing was sent before
    reply = ask(application, "POST", f"{path}:generate", body | {"inputs": [1]})
    error = {"error": "the run failed", "code": "INTERNAL"}
    assert [kind for kind, _ in events(reply)] == ["", "error"]
    assert events(reply)[-1] == ("error", error)
    models.servable.states[0].total = None  # a bug
    reply = ask(application, "POST", f"{path}:generate", body | {"inputs": [1]})
    assert reply.status == 500 and "internal error" in reply.error


def test_each_token_has_its_sessions(models) -> None:
    application = RestApplication(Service(models, Metrics()), access=Access(("one", "two")))
    headers = {"authorization": "Bearer one"}
    path = f"{BASE}/{ask(application, 'POST', BASE, b'', headers).json['session_id']}"
    assert ask(application, "GET", path).status == 401
    assert ask(application, "GET", path, b"", headers).status == 200
    other = {"authorization": "Bearer two"}
    assert ask(application, "GET", path, b"", other).status == 404
    assert ask(application, "DELETE", path, b"", other).status == 404


def test_refused_requests_are_counted_and_logged(models) -> None:
    service = Service(models, Metrics())
    application = RestApplication(service, access=Access(("one",)), max_body_bytes=10)
    assert ask(application, "POST", BASE).status == 401
    assert ask(application, "DELETE", f"{BASE}/x").status == 401
    headers = {"authorization": "Bearer one"}
    assert ask(application, "POST", f"{BASE}/x:predict", b" " * 11, headers).status == 413
    found = [(error.model, error.method, error.code) for error in service.errors.rows()]
    assert found == [
        ("counter", "SessionPredict", "INVALID_ARGUMENT"),
        ("", "CloseSession", "UNAUTHENTICATED"),
        ("", "CreateSession", "UNAUTHENTICATED"),
    ]


def test_large_bodies_do_not_stop_the_event_loop(application, monkeypatch) -> None:
    path = opened(application)
    threads = []
    read = rest_sessions.from_json

    def noting(data: bytes) -> Any:
        threads.append(threading.current_thread())
        return read(data)

    monkeypatch.setattr(rest_sessions, "from_json", noting)
    for count in (1, 40_000):
        assert ask(application, "POST", f"{path}:predict", {"inputs": [1] * count}).status == 200
    small, large = threads
    assert small is threading.main_thread() and large is not small


LONG = {"inputs": [1], "steps": 1000, "feedback": {}}


def test_a_client_that_leaves_ends_the_stream_after_the_step(application, models) -> None:
    path = opened(application)

    async def go() -> None:
        runs = held(models)
        connection = Connection(application, f"{path}:generate", LONG)
        for _ in range(2):
            await until(lambda: runs)
            runs.pop()()
        await until(lambda: len(connection.sent) == 3 and runs)
        assert not connection.task.done()
        connection.left.set()
        runs.pop()()  # the step in progress completes
        await connection.task
        assert not runs and models.servable.states[0].total == 3
        assert connection.sent[-1]["more_body"]  # the end was not sent

    asyncio.run(go())
    assert ask(application, "GET", path).json["steps"] == 3
    models.servable.states[0].held = None
    reply = ask(application, "POST", f"{path}:predict", {"inputs": [1]})
    assert reply.json["outputs"]["total"] == [4]


def test_a_client_that_does_not_read_is_given_up(application, models) -> None:
    async def never(event: Any) -> None:
        await asyncio.Event().wait()

    async def waits() -> None:
        with pytest.raises(Failure, match="does not read"):
            await _Stream(never, 0.0).event(b"{}")

    asyncio.run(waits())
    path = opened(application)

    async def go() -> Connection:
        connection = Connection(application, f"{path}:generate", LONG)
        connection.fails_after = 2
        await connection.task
        return connection

    assert len(asyncio.run(go()).sent) == 3  # the last one did not arrive
    assert models.servable.states[0].total == 2


def test_a_stream_that_does_not_end_while_the_server_drains(models) -> None:
    """uvicorn then cancels the request. The client receives the reason why the stream ends."""
    service = Service(models, Metrics())
    application = RestApplication(service)
    path = opened(application)

    async def go() -> Connection:
        runs = held(models)
        connection = Connection(application, f"{path}:generate", LONG)
        await until(lambda: runs)
        runs.pop()()
        await until(lambda: runs)
        service.draining = True
        connection.task.cancel()
        await connection.task
        return connection

    *_, last, end = asyncio.run(go()).sent
    assert last["body"].startswith(b"event: error\ndata: ") and b"UNAVAILABLE" in last["body"]
    assert not end["more_body"]
    (error,) = service.errors.rows()
    assert (error.code, error.message) == ("UNAVAILABLE", "the server is shutting down")


def test_requests_of_one_session_take_turns(application, models) -> None:
    path = opened(application)

    async def go() -> None:
        runs = held(models)
        stream = Connection(
            application, f"{path}:generate", {"inputs": [1], "steps": 2, "feedback": {}}
        )
        await until(lambda: runs)
        gone = Connection(application, f"{path}:predict", {"inputs": [100]})
        other = Connection(application, f"{path}:predict", {"inputs": [10]})
        await until(lambda: len(next(iter(models.sessions._open.values())).waiting) == 2)
        gone.left.set()
        await gone.task
        assert len(runs) == 1  # only the stream's step
        for _ in range(3):
            await until(lambda: runs)
            assert len(runs) == 1
            runs.pop()()
        await asyncio.gather(stream.task, other.task)
        assert json.loads(other.sent[-1]["body"])["outputs"]["total"] == [12]
        assert not gone.sent

    asyncio.run(go())


def test_a_session_that_is_closed_ends_its_stream(application, models) -> None:
    path = opened(application)

    async def go() -> Connection:
        runs = held(models)
        connection = Connection(application, f"{path}:generate", LONG)
        await until(lambda: runs)
        models.sessions.end("counter", path.rpartition("/")[2])
        models.servable.signatures = {}  # its version may be unloaded
        runs.pop()()
        await connection.task
        return connection

    sent = b"".join(event.get("body", b"") for event in asyncio.run(go()).sent)
    assert sent.count(b"data: ") == 2 and b"event: error" in sent and b"it was closed" in sent
    assert models.servable.in_use == 0
