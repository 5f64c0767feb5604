"""Numbered requests of sessions: a repeated one is not run again. With a model without artifact."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.rest import RestApplication
from graphc.serving.endpoints.service import Service
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode_all, encode
from tests.serving.endpoints.session_rig import PROTOBUF, Connection, held, opened, until
from tests.serving.fakes import ask
from tests.serving.stateful import CountingManager

STREAM = {"inputs": [1], "steps": 2, "feedback": {}}


@pytest.fixture
def models() -> Iterator[CountingManager]:
    found = CountingManager()
    yield found
    found.sessions.close()


@pytest.fixture
def application(models) -> RestApplication:
    return RestApplication(Service(models, Metrics()))


def predict(application: Any, path: str, number: Any, x: int = 1, **more: Any) -> Any:
    body = {"inputs": [x], "number": number, "output_filter": ["total"], **more}
    return ask(application, "POST", f"{path}:predict", body)


def total(models: CountingManager) -> int:
    return models.servable.states[0].total


def test_a_repeated_request_has_the_result_of_the_first(application, models) -> None:
    path = opened(application)
    for number in (1, 1, 2, 2, 7, 7):  # numbers may be left out
        found = predict(application, path, number).json
    assert found == {"outputs": [3]} and total(models) == 3
    shown = ask(application, "GET", path).json
    assert (shown["steps"], shown["number"]) == (3, 7)
    metrics = ask(application, "GET", "/monitoring/prometheus/metrics").body.decode()
    assert 'graphc_serving_session_steps_total{model="counter"} 3' in metrics
    body = {"instances": [5], "number": 8}
    for _ in range(2):
        reply = ask(application, "POST", f"{path}:predict", body)
        assert reply.json == {"predictions": [{"total": 8, "x": 5}]}


def test_requests_without_a_number_run_each_time(application, models) -> None:
    path = opened(application)
    predict(application, path, 1)
    for _ in range(2):
        ask(application, "POST", f"{path}:predict", {"inputs": [10]})
    assert predict(application, path, 1).json == {"outputs": [1]}
    assert total(models) == 21


def test_a_repeated_message(application, models) -> None:
    path = opened(application)
    request = messages().PackedSessionRequest(number=3)
    encode(np.int32([1, 2]), request.inputs["x"])
    for _ in range(2):
        reply = ask(application, "POST", f"{path}:predict", request.SerializeToString(), PROTOBUF)
        found = decode_all(parse("PredictResponse", reply.body).outputs)
        assert found["total"].tolist() == [3] and found["x"].tolist() == [1, 2]
    assert total(models) == 3


def test_numbers_that_do_not_fit(application, models) -> None:
    path = opened(application)
    predict(application, path, 4)
    reply = predict(application, path, 3)
    assert reply.status == 409
    assert "expected 5 or higher for a new request, or 4 to repeat the last" in reply.error
    assert "got 3" in reply.error
    for more in ({"x": 2}, {"signature_name": "twice"}, {"output_filter": []}):
        reply = predict(application, path, 4, **more)
        assert reply.status == 409
        assert "expected 5 or higher, got 4, which was the number of another" in reply.error
    for number in (-1, 2**63, 1.5, "1", True, None):
        reply = predict(application, path, number)
        assert reply.status == 400 and "number must be an integer from 1 to" in reply.error
    request = messages().PackedSessionRequest(number=-1).SerializeToString()
    assert ask(application, "POST", f"{path}:predict", request, PROTOBUF).status == 400
    assert total(models) == 1


def test_a_request_that_failed_may_be_sent_again(application, models) -> None:
    path = opened(application)
    assert predict(application, path, 1, x=1.5).status == 400
    assert predict(application, path, 1, x=1001).status == 500
    assert predict(application, path, 1, x=1001).status == 500
    assert predict(application, path, 1, x=2).json == {"outputs": [2]}
    assert total(models) == 2


def test_only_the_outputs_of_the_last_request_are_kept(application, models) -> None:
    path = opened(application)
    (session,) = models.sessions._open.values()
    for number in (1, 2):
        predict(application, path, number, x=number)
    assert {name: each.tolist() for name, each in session.last._run.result().items()} == {
        "total": [3]
    }
    ask(application, "POST", f"{path}:generate", STREAM | {"number": 3})
    assert session.last._run.result() == {}


def result(connection: Connection) -> Any:
    return json.loads(connection.sent[-1]["body"])["outputs"]


@pytest.mark.parametrize("begun", [True, False])
def test_the_client_leaves_before_its_repeated_request(application, models, begun: bool) -> None:
    """As a browser does whose connection ends: the run in progress has the result."""
    path, body = opened(application), {"inputs": [1], "number": 1, "output_filter": ["total"]}

    async def go() -> None:
        runs = held(models)
        models.servable.states[0].holds_begun = begun
        first = Connection(application, f"{path}:predict", body)
        await until(lambda: runs)
        second = Connection(application, f"{path}:predict", body)
        (session,) = models.sessions._open.values()
        await until(lambda: session.waiting)
        first.left.set()
        await first.task
        await until(lambda: not session.waiting)
        if not begun:  # the run of the first one was cancelled
            await until(lambda: len(runs) == 2)
        while runs:
            runs.pop(0)()
        await second.task
        assert result(second) == [1] and not first.sent

    asyncio.run(go())
    assert total(models) == 1


def test_equal_requests_at_the_same_moment(application, models) -> None:
    path, body = opened(application), {"inputs": [1], "number": 1, "output_filter": ["total"]}

    async def go() -> None:
        runs = held(models)
        both = [Connection(application, f"{path}:predict", body) for _ in range(2)]
        await until(lambda: runs)
        runs.pop()()
        await asyncio.gather(*[each.task for each in both])
        assert [result(each) for each in both] == [[1], [1]] and not runs

    asyncio.run(go())
    assert total(models) == 1


def test_a_repeated_stream_is_not_run_again(application, models) -> None:
    path, body = opened(application), STREAM | {"number": 1}
    assert ask(application, "POST", f"{path}:generate", body).status == 200
    reply = ask(application, "POST", f"{path}:generate", body)
    assert reply.status == 409 and total(models) == 2
    for text in ("number 1 has begun before", "completed 2 runs", "with number 2 or higher"):
        assert text in reply.error
    reply = predict(application, path, 1)
    assert reply.status == 409 and "which was the number of another request" in reply.error
    assert predict(application, path, 2).json == {"outputs": [3]}


def test_a_stream_that_failed_at_once_may_be_sent_again(application, models) -> None:
    path, body = opened(application), STREAM | {"number": 1}
    assert ask(application, "POST", f"{path}:generate", body | {"steps": 0}).status == 400
    reply = ask(application, "POST", f"{path}:generate", body | {"inputs": [1001]})
    assert reply.status == 500 and "the run failed" in reply.error
    assert ask(application, "POST", f"{path}:generate", body).status == 200
    assert total(models) == 2


def test_a_stream_that_is_repeated_in_its_first_run(application, models) -> None:
    path, body = opened(application), STREAM | {"number": 1}

    async def go() -> None:
        runs = held(models)
        models.servable.states[0].holds_begun = True
        first = Connection(application, f"{path}:generate", body)
        await until(lambda: runs)
        second = Connection(application, f"{path}:generate", body)
        (session,) = models.sessions._open.values()
        await until(lambda: session.waiting)
        first.left.set()
        await second.task
        assert second.sent[0]["status"] == 409
        runs.pop()()
        await first.task
        assert not runs

    asyncio.run(go())
    assert total(models) == 1
