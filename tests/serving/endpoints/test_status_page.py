"""The status page without a browser: its data, reloading, and permissions."""

import asyncio
import json
from typing import Any

import pytest

from graphc.serving import Server, ServerConfig
from graphc.serving.endpoints.last_errors import LastErrors
from graphc.serving.endpoints.metrics import Metrics, quantile
from graphc.serving.endpoints.rest import RestApplication
from graphc.serving.endpoints.service import Service
from graphc.serving.endpoints.status_data import resident_bytes
from graphc.serving.endpoints.status_page import StatusPage
from graphc.serving.models.versions import VersionStatus
from graphc.web.access import Access
from tests.serving.fakes import FakeManager, ask, manager
from tests.serving.stateful import CountingManager
from tests.serving.status_server import Models, model, several

RELOAD = "/status/reload"
OUR_PAGE = {"host": "a:1", "x-graphc-status": "reload"}


def page(models: Any, tokens: tuple[str, ...] = ()) -> StatusPage:
    service = Service(models, Metrics())
    access = Access(tokens)
    return StatusPage(RestApplication(service, access=access), service, access)


def data(application: StatusPage) -> Any:
    return ask(application, "GET", "/status/data").json


def test_the_page_runs_only_its_own_script() -> None:
    for path in ("/", "/status"):
        reply = ask(page(manager()), "GET", path)
        assert reply.status == 200 and reply.headers["content-type"] == "text/html; charset=utf-8"
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert b"http://" not in reply.body and b"https://" not in reply.body


def test_data() -> None:
    application = page(several())
    metrics = application._service.metrics
    for version, seconds in ((3, 0.002), (3, 0.002), (4, 0.2)):
        metrics.request("flowers", version, "Predict", "OK", seconds, "REST")
    metrics.request("flowers", 4, "Predict", "INTERNAL", 0.2, "GRPC")
    metrics.batch("flowers", "predict", 30, 32, "timeout")
    metrics.batch("flowers", "predict", 32, 32, "full")
    found = data(application)
    assert found["state"] == "ready" and found["in_progress"] == 0 and found["uptime"] >= 0
    _, broken, flowers = found["models"]
    assert broken["versions"][0]["version"] == "9223372036854775807"  # not rounded as a float
    assert broken["versions"][0]["code"] == "FAILED_PRECONDITION"
    fourth, third, second = flowers["versions"]
    assert (fourth["requests"], fourth["errors"], fourth["labels"]) == (2, 1, ["canary"])
    assert (third["requests"], third["errors"], third["share"]) == (2, 0, 95.0)
    assert 0.001 < third["p50"] < third["p99"] < 0.0025 and 0.1 < fourth["p50"] < 0.25
    assert second["requests"] == 0 and second["p50"] is None and second["share"] is None
    assert flowers["batches"] == [
        {
            "signature": "predict", "waiting": 2, "batches": 2, "rows": 62, "padding": 2,
            "reasons": {"timeout": 1, "full": 1},
        }
    ]  # fmt: skip


def test_a_model_that_is_removed_meanwhile() -> None:
    class Removed(FakeManager):
        def names(self) -> list[str]:
            return ["gone", *super().names()]

        def overview(self, name: str) -> Any:
            self.status(name)  # raises an error for unknown models
            return super().overview(name)

    models = Removed(**manager().models)
    assert [row["name"] for row in data(page(models))["models"]] == ["double", "echo", "m"]


def test_the_last_errors() -> None:
    application = page(manager())
    for _ in range(3):
        ask(application, "POST", "/v1/models/double:predict", {"instances": [["<b>", 1]]})
    ask(application, "POST", "/v1/models/nope:predict", {"instances": [1]})
    last, first = data(application)["errors"]
    assert (last["model"], last["version"], last["code"]) == ("nope", None, "NOT_FOUND")
    assert (first["model"], first["version"], first["count"]) == ("double", 3, 3)
    assert first["code"] == "INVALID_ARGUMENT" and "<b>" in first["message"]
    assert first["call"] == "REST Predict" and first["time"] > 1.7e9


def test_the_last_errors_are_bounded() -> None:
    errors = LastErrors(most=2)
    for text in ("first", "second", "first", "third" * 1000):
        errors.add("m" * 1000, 1, "REST", "Predict", "INTERNAL", text)
    assert [row.message[:6] for row in errors.rows()] == ["thirdt", "first"]
    assert [row.count for row in errors.rows()] == [1, 2]
    assert len(errors.rows()[0].model) == 120 and len(errors.rows()[0].message) == 500


def test_a_model_is_reloaded() -> None:
    models = manager()
    application = page(models)
    for origin in ({}, {"origin": "http://a:1"}, {"sec-fetch-site": "same-origin"}):
        reply = ask(application, "POST", RELOAD, {"model": "double"}, OUR_PAGE | origin)
        assert reply.status == 202
    assert models.retried == ["double"] * 3
    assert ask(application, "POST", RELOAD, {"model": "nope"}, OUR_PAGE).status == 404
    for body in (b"", b"{", b"[]", b'{"model": 1}', b"[" * 4000):
        reply = ask(application, "POST", RELOAD, body, OUR_PAGE)
        assert reply.status == 400 and "the body must be" in reply.error
    assert ask(application, "POST", RELOAD, b" " * 5000, OUR_PAGE).status == 413
    count = application._service.metrics.requests.value
    assert count("double", "", "ReloadModel", "REST", "OK") == 3


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "a:1"},  # a form of another site
        OUR_PAGE | {"origin": "http://evil.example"},
        OUR_PAGE | {"origin": "null"},
        OUR_PAGE | {"origin": "http://a:2"},
        OUR_PAGE | {"sec-fetch-site": "cross-site"},
        OUR_PAGE | {"sec-fetch-site": "same-site", "origin": "http://a:1"},
    ],
    ids=["no mark", "other site", "null", "other port", "cross-site", "same-site"],
)
def test_other_sites_cannot_reload(headers: dict[str, str]) -> None:
    models = manager()
    reply = ask(page(models), "POST", RELOAD, {"model": "double"}, headers)
    assert reply.status == 403 and models.retried == []


def test_tokens() -> None:
    models = manager()
    application = page(models, ("secret",))
    assert ask(application, "GET", "/status").status == 200  # the page itself contains no data
    good, bad = ({"authorization": f"Bearer {token}"} for token in ("secret", "other"))
    assert ask(application, "GET", "/status/data", headers=bad).status == 401
    assert ask(application, "GET", "/status/data", headers=good).status == 200
    assert ask(application, "POST", RELOAD, {"model": "m"}, OUR_PAGE | bad).status == 401
    assert models.retried == []
    assert ask(application, "POST", RELOAD, {"model": "m"}, OUR_PAGE | good).status == 202


def test_open_sessions() -> None:
    models, counting = manager(), CountingManager(max_sessions=3)
    models.sessions = counting.sessions
    application = page(models)
    assert data(application)["sessions"] == {"open": 0, "most": 3, "bytes": 0}
    counting.sessions.open(counting.servable, "add")
    assert data(application)["sessions"] == {"open": 1, "most": 3, "bytes": 8}
    counting.sessions.close()
    assert data(page(manager()))["sessions"] == {"open": 0, "most": 0, "bytes": 0}


def test_a_slow_client_keeps_no_others_out() -> None:
    application = page(manager())
    seen = []

    async def receive() -> Any:
        seen.append(application._service.in_progress)
        return {"type": "http.request", "body": b'{"model": "double"}'}

    async def send(event: Any) -> None:
        pass

    headers = [(b"host", b"a:1"), (b"x-graphc-status", b"reload")]
    scope = {"type": "http", "method": "POST", "path": RELOAD, "headers": headers}
    asyncio.run(application(scope, receive, send))
    assert seen == [0]


def test_methods_and_other_paths() -> None:
    application = page(manager())
    for method, path in (("POST", "/"), ("POST", "/status/data"), ("GET", RELOAD), ("PUT", RELOAD)):
        reply = ask(application, method, path)
        assert reply.status == 405 and reply.headers["allow"] in ("GET", "POST")
    assert ask(application, "HEAD", "/status").body == b""
    for path in ("/status/", "/status/other", "/v1/models/double/status"):
        assert ask(application, "GET", path).status == 404
    assert ask(application, "GET", "/v1/models/double").status == 200


def test_the_states_of_the_server() -> None:
    models = Models({"m": model(VersionStatus(1, "LOADING"))})
    service = Service(models, Metrics())
    application = StatusPage(RestApplication(service), service, ready=lambda: False)
    assert data(application)["state"] == "not ready"
    service.draining = True
    assert data(application)["state"] == "stopping"
    reply = ask(application, "POST", RELOAD, {"model": "m"}, OUR_PAGE)
    assert reply.status == 503 and models.retried == []


def test_a_server_without_the_page() -> None:
    import http.client
    from contextlib import closing

    statuses = {}
    for shown in (True, False):
        config = ServerConfig((), port=None, rest_port=0, status_page=shown)
        with (
            Server(config, manager=manager()) as server,
            closing(http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)) as rest,
        ):
            rest.request("GET", "/status/data")
            reply = rest.getresponse()
            statuses[shown] = reply.status, "models" in json.loads(reply.read())
    assert statuses == {True: (200, True), False: (404, False)}


def test_quantiles() -> None:
    assert quantile((1.0, 2.0), (0, 0, 0), 0.5) is None
    assert quantile((1.0, 2.0), (4, 0, 0), 0.5) == 0.5
    assert quantile((1.0, 2.0), (0, 4, 0), 0.25) == 1.25
    assert quantile((1.0, 2.0), (1, 0, 9), 0.99) == 2.0  # above the last bucket bound
    assert quantile((1.0, 2.0, 4.0), (2, 0, 2), 0.5) == 1.0


def test_the_memory_of_this_process() -> None:
    found = resident_bytes()
    assert found is None or 10_000_000 < found < 1 << 42
