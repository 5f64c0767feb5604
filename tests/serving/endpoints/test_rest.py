"""The REST application, called directly."""

import asyncio
import gzip
import json
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.rest import RestApplication
from graphc.serving.endpoints.service import Service
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode_all, encode
from graphc.serving.server import asgi
from graphc.web.access import Access
from tests.serving.fakes import DTYPES, Entry, FakeManager, FakeServable, ask, manager

DOUBLE = "/v1/models/double"
M = "/v1/models/m"


@pytest.fixture
def application() -> RestApplication:
    return asgi(manager())


def test_status(application) -> None:
    row = {
        "version": "3",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    for path in (DOUBLE, f"{DOUBLE}/versions/3", f"{DOUBLE}/labels/stable"):
        reply = ask(application, "GET", path)
        assert reply.status == 200 and reply.json == {"model_version_status": [row]}
        assert reply.headers["content-type"] == "application/json"


def test_the_limit_of_bodies_of_a_mounted_application() -> None:
    application = asgi(manager(), max_body_bytes=10)
    assert ask(application, "POST", f"{DOUBLE}:predict", b" " * 11).status == 413


def test_metadata(application) -> None:
    for path in (DOUBLE, f"{DOUBLE}/versions/3", f"{DOUBLE}/labels/stable"):
        found = ask(application, "GET", f"{path}/metadata").json
        assert found["model_spec"] == {"name": "double", "signature_name": "", "version": "3"}
        signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        dims = [{"size": "-1", "name": ""}, {"size": "2", "name": ""}]
        shape = {"dim": dims, "unknown_rank": False}
        assert signature["inputs"]["x"] == {
            "dtype": "DT_FLOAT", "tensor_shape": shape, "name": "x:0",
        }  # fmt: skip


def test_predict_rows_and_columns(application) -> None:
    for path in (DOUBLE, f"{DOUBLE}/versions/3", f"{DOUBLE}/labels/stable"):
        reply = ask(application, "POST", f"{path}:predict", {"instances": [[1, 2], [3, 4]]})
        assert reply.status == 200 and reply.json == {"predictions": [[2.0, 4.0], [6.0, 8.0]]}
    reply = ask(application, "POST", f"{DOUBLE}:predict", {"inputs": {"x": [[1, 2]]}})
    assert reply.json == {"outputs": [[2.0, 4.0]]}


def test_predict_with_several_inputs(application) -> None:
    rows = {"signature_name": "add", "instances": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]}
    assert ask(application, "POST", f"{M}:predict", rows).json == {
        "predictions": [{"sum": 3, "a": 1}, {"sum": 7, "a": 3}]
    }
    columns = {"signature_name": "add", "inputs": {"a": [1], "b": [2]}}
    assert ask(application, "POST", f"{M}:predict", columns).json == {
        "outputs": {"sum": [3], "a": [1]}
    }


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name[0] != "c"])
def test_every_dtype_goes_through(application, dtype: str) -> None:
    values = {"bool": [True, False], "string": ["a", "ä"]}.get(dtype, [1, 0])
    body = {"signature_name": dtype, "instances": values}
    assert ask(application, "POST", "/v1/models/echo:predict", body).json == {"predictions": values}


def test_classify_and_regress(application) -> None:
    body = {"signature_name": "scores", "examples": [{"x": [1, 2]}, {"x": [3, 4]}]}
    assert ask(application, "POST", f"{M}:classify", body).json == {
        "result": [[["0", 1.0], ["1", 2.0]], [["0", 3.0], ["1", 4.0]]]
    }
    body = {"signature_name": "value", "context": {"age": 3}, "examples": [{}, {"age": [4]}]}
    assert ask(application, "POST", f"{M}:regress", body).json == {"result": [6.0, 8.0]}
    body = {"signature_name": "add", "examples": [{"a": 1, "b": 2}]}
    reply = ask(application, "POST", f"{M}:regress", body)
    assert reply.status == 400 and "does not suit regress" in reply.error


def test_binary_tensors() -> None:
    application = asgi(manager())
    request = messages().PackedRequest(output_filter=["sum"])
    request.model_spec.signature_name = "add"
    for name in "ab":
        encode(np.arange(3, dtype=np.int32), request.inputs[name])
    headers = {"content-type": "application/x-protobuf"}
    reply = ask(application, "POST", f"{M}:predict", request.SerializeToString(), headers)
    assert reply.status == 200 and reply.headers["content-type"] == "application/x-protobuf"
    found = parse("PredictResponse", reply.body)
    assert {name: array.tolist() for name, array in decode_all(found.outputs).items()} == {
        "sum": [0, 2, 4]
    }
    assert found.model_spec.version.value == 1
    request.output_filter.append("nope")
    reply = ask(application, "POST", f"{M}:predict", request.SerializeToString(), headers)
    assert reply.status == 400 and "no output 'nope'" in reply.error
    assert ask(application, "POST", f"{M}:predict", b"\xff", headers).status == 400


def test_compression(application) -> None:
    body = gzip.compress(json.dumps({"instances": [[1, 2]] * 500}).encode())
    headers = {"content-encoding": "gzip", "accept-encoding": "gzip, br"}
    reply = ask(application, "POST", f"{DOUBLE}:predict", body, headers, chunks=3)
    assert reply.headers["content-encoding"] == "gzip"
    assert int(reply.headers["content-length"]) == len(reply.body)
    assert json.loads(gzip.decompress(reply.body))["predictions"] == [[2.0, 4.0]] * 500


@pytest.mark.parametrize("body", [b"nonsense", gzip.compress(b"{}", mtime=0)[:-4], b""])
def test_a_body_that_is_not_gzip(application, body: bytes) -> None:
    reply = ask(application, "POST", f"{DOUBLE}:predict", body, {"content-encoding": "gzip"})
    assert reply.status == 400 and "gzip" in reply.error


def test_limits_of_the_body() -> None:
    application = RestApplication(Service(manager(), Metrics()), max_body_bytes=1000)
    path = f"{DOUBLE}:predict"
    headers = {"content-length": "1001"}
    assert ask(application, "POST", path, b"", headers).status == 413  # without reading the body
    assert ask(application, "POST", path, b"x" * 1001, chunks=4).status == 413
    bomb = gzip.compress(b" " * 100_000)
    assert len(bomb) < 1000
    reply = ask(application, "POST", path, bomb, {"content-encoding": "gzip"})
    assert reply.status == 413 and reply.headers["connection"] == "close"
    assert ask(application, "POST", path, b"{}", {"content-encoding": "br"}).status == 415


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("GET", "/v1/models/nope", {}, 404, "Could not find any versions of model nope"),
        ("POST", "/v1/models/nope:predict", {"inputs": 1}, 404, "Servable not found for request"),
        ("GET", f"{DOUBLE}/versions/9", {}, 404, "Could not find"),
        ("GET", f"{DOUBLE}/labels/new", {}, 400, "Unrecognized servable version label"),
        ("GET", f"{DOUBLE}/versions/{'9' * 20}", {}, 404, "Malformed request: GET"),
        ("GET", "/v2", {}, 404, "Malformed request: GET /v2"),
        ("GET", f"{DOUBLE}:predict", {}, 405, "GET is not allowed here, use POST"),
        ("POST", DOUBLE, {}, 405, "use GET"),
        ("POST", f"{DOUBLE}:explain", {}, 404, "Malformed request"),
        ("POST", f"{DOUBLE}:predict", {"inputs": [[1]]}, 400, "expected f32[batch, 2]"),
        ("POST", f"{DOUBLE}:predict", {"signature_name": 3}, 400, "signature_name must be a"),
        (
            "POST", f"{DOUBLE}:predict", {"signature_name": "x", "inputs": [[1, 2]]}, 400,
            'Serving signature key "x" not found; there are: serving_default',
        ),
        (
            "POST", f"{M}:predict", {"signature_name": "fails", "inputs": [1]}, 500,
            "internal error; see the server's log",
        ),
        (
            "POST", f"{M}:predict", {"signature_name": "total", "instances": [[1, 2]]}, 400,
            "output 'total' has shape []",
        ),
    ],
)  # fmt: skip
def test_errors(application, method: str, path: str, body: Any, status: int, error: str) -> None:
    reply = ask(application, method, path, body)
    assert reply.status == status
    assert set(reply.json) == {"error"} and error in reply.error
    if status == 405:
        assert reply.headers["allow"] in error


def test_health_and_tokens() -> None:
    ready = False
    service = Service(manager(), Metrics())
    access = Access(["secret", "other"])
    application = RestApplication(service, access=access, ready=lambda: ready)
    assert ask(application, "GET", "/health/live").status == 200
    assert ask(application, "GET", "/health/ready").status == 503
    ready = True
    assert ask(application, "GET", "/health/ready").status == 200
    for value in ("", "Bearer", "Bearer wrong", "Basic secret", "secret"):
        reply = ask(application, "GET", DOUBLE, headers={"authorization": value})
        assert reply.status == 401 and "authorization: Bearer" in reply.error
    for token in ("secret", "other"):
        headers = {"authorization": f"Bearer {token}"}
        assert ask(application, "GET", DOUBLE, headers=headers).status == 200


def test_metrics(application) -> None:
    ask(application, "POST", f"{DOUBLE}:predict", {"instances": [[1, 2]]})
    ask(application, "POST", f"{DOUBLE}:predict", {"instances": [[1]]})
    ask(application, "GET", "/v1/models/made-up")
    reply = ask(application, "GET", "/monitoring/prometheus/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        # The parser adds the OpenMetrics suffix to each counter.
        (sample.name.removesuffix("_total"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }

    def value(name: str, **labels: str) -> float:
        return samples[(name, *sorted(labels.items()))]

    count = ":tensorflow:serving:request_count"
    assert value(count, model_name="double", status="OK") == 1
    assert value(count, model_name="double", status="INVALID_ARGUMENT") == 1
    assert value(count, model_name="", status="NOT_FOUND") == 1
    latency = ":tensorflow:serving:request_latency"
    labels = {"model_name": "double", "API": "Predict", "entrypoint": "REST"}
    assert value(f"{latency}_count", **labels) == 2
    assert value(f"{latency}_bucket", **labels, le="+Inf") == 2
    ours = {"model": "double", "version": "3", "method": "Predict", "protocol": "REST"}
    assert value("graphc_serving_requests", **ours, status="OK") == 1
    assert b'\n:tensorflow:serving:request_count{model_name="double",status="OK"} 1\n' in reply.body
    assert value("graphc_serving_in_progress") == 0


def waiting() -> tuple[FakeManager, Future]:
    """A manager whose model `slow` answers when the future is set."""
    future: Future = Future()
    entry = Entry({"x": "f32[n]"}, {"y": "f32[n]"})
    return FakeManager(slow=FakeServable(1, {"f": (entry, lambda inputs: future)})), future


def test_the_deadline_cancels_the_run() -> None:
    models, future = waiting()
    application = asgi(models, request_seconds=0.01)
    reply = ask(application, "POST", "/v1/models/slow:predict", {"instances": [1]})
    assert reply.status == 504 and "deadline" in reply.error
    assert future.cancelled() and models.models["slow"].in_use == 0


def test_requests_beyond_the_limit_are_refused() -> None:
    models, future = waiting()
    application = asgi(models, max_concurrent=1)
    replies = []
    path, body = "/v1/models/slow:predict", {"instances": [1]}
    thread = threading.Thread(target=lambda: replies.append(ask(application, "POST", path, body)))
    thread.start()
    while not models.models["slow"].in_use:
        pass
    second = ask(application, "POST", path, body)
    assert second.status == 429 and "1 requests are in progress" in second.error
    future.set_result({"y": np.float32([5])})
    thread.join()
    assert replies[0].json == {"predictions": [5.0]}


def test_a_client_that_goes_away_cancels_the_run() -> None:
    models, future = waiting()
    application = asgi(models)
    body = {"type": "http.request", "body": b'{"instances": [1]}', "more_body": False}
    events = [body, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return events.pop(0)

    async def send(event: Any) -> None:
        raise AssertionError("nobody reads the response")

    scope = {"type": "http", "method": "POST", "path": "/v1/models/slow:predict", "headers": []}
    asyncio.run(application(scope, receive, send))
    assert future.cancelled()


@pytest.mark.parametrize("body", [None, b"{"])
def test_a_body_that_does_not_end(body: bytes | None) -> None:
    events = [{"type": "http.request", "body": body, "more_body": True}] if body else []
    application = asgi(manager(), request_seconds=0.01)
    sent = []

    async def receive() -> Any:
        if events:
            return events.pop(0)
        await asyncio.Event().wait()

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "POST", "path": f"{DOUBLE}:predict", "headers": []}
    asyncio.run(application(scope, receive, send))
    assert sent[0]["status"] == 408


def test_a_server_that_drains() -> None:
    service = Service(manager(), Metrics())
    service.draining = True
    reply = ask(RestApplication(service), "GET", DOUBLE)
    assert reply.status == 503 and "shutting down" in reply.error


def test_an_application_inside_another_one(application) -> None:
    async def outer(scope: Any, receive: Any, send: Any) -> None:
        inner = scope | {"root_path": "/models", "path": f"/models{scope['path']}"}
        await application(inner, receive, send)

    assert ask(outer, "GET", DOUBLE).status == 200


def test_the_other_kinds_of_connection(application) -> None:
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return events.pop(0)

    async def send(event: Any) -> None:
        sent.append(event["type"])

    asyncio.run(application({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    asyncio.run(application({"type": "websocket"}, receive, send))
    assert sent[-1] == "websocket.close"
