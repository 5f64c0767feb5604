"""The REST interface over real connections: permissions, and requests that are refused."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphc.cluster.jobs.clients import RemoteQueue
from graphc.cluster.jobs.scheduling import Quota
from graphc.cluster.jobs.server import JobsServer
from graphc.cluster.jobs.spec import JobSpec
from graphc.cluster.jobs.users import User, Users
from graphc.errors import AttributeValueError, ClusterError, GraphcError, UnknownNameError
from tests.cluster.jobs.helpers import ANN, BOB, ROOT, USERS, script, service_of, use_shell

MARK = {"x-graphc-jobs": "1"}
pytest.importorskip("uvicorn")


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.data)


class Asker:
    """A server, and a function that sends requests to it."""

    def __init__(self, server: JobsServer, service: Any, folder: Path) -> None:
        self.server, self.service, self.folder = server, service, folder
        self.url = f"http://127.0.0.1:{server.port}"

    def __call__(self, method: str, path: str, token: str | None = ANN, body: Any = None,
                 **headers: str) -> Answer:  # fmt: skip
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        given |= {} if token is None else {"authorization": f"Bearer {token}"}
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        ) as found:
            found.request(method, path, data, given)
            answer = found.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def submit(self, token: str = ANN, **value: Any) -> Answer:
        return self("POST", "/v1/jobs", token, {"script": "job.py", **value}, **MARK)

    def act(self, number: int, action: str, token: str = ANN) -> Answer:
        return self("POST", f"/v1/jobs/{number}:{action}", token, {}, **MARK)

    def until(self, number: int, state: str) -> dict[str, Any]:
        end = time.monotonic() + 20
        while (job := self("GET", f"/v1/jobs/{number}", ROOT).value)["state"] != state:
            assert time.monotonic() < end, job
            time.sleep(0.02)
        return dict(job)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    use_shell(monkeypatch)
    monkeypatch.setattr("graphc.cluster.jobs.service._TURN", 0.02)
    monkeypatch.setattr("graphc.cluster.jobs.logs._TURN", 0.02)
    script(tmp_path, 'echo "hello $1"; if [ -n "$1" ]; then exec sleep "$1"; fi')
    users = Users(USERS | {User("eve", quota=Quota(devices=1, waiting=1)): "a-token-of-eve-12"})
    service = service_of(tmp_path, quotas=users.quotas)
    with JobsServer(service, users) as server:
        yield Asker(server, service, tmp_path)
        for record in service.store.active("running"):
            service.store.stop(record.id, time.time())
        end = time.monotonic() + 20
        while service.store.active("running") and time.monotonic() < end:
            time.sleep(0.02)


def test_a_job_from_its_submission_to_its_log(ask: Asker) -> None:
    made = ask.submit(parameters={"rate": 0.1})
    assert made.status == 201 and made.value["state"] == "queued"
    number = made.value["id"]
    job = ask.until(number, "failed")  # the shell refuses --rate=0.1 as a time
    assert job["spec"]["parameters"] == {"rate": 0.1} and job["user"] == "ann"
    log = ask("GET", f"/v1/jobs/{number}/log")
    assert log.data.startswith(b"hello --rate=0.1\n")
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    size = int(log.headers["x-next-offset"])
    assert ask("GET", f"/v1/jobs/{number}/log?offset={size}").data == b""
    assert ask("GET", f"/v1/jobs/{number}/log?offset=-4").data == log.data[-4:]
    (ask.folder / f"queue/jobs/{number}/run-1/logs/log.csv").write_text("step,loss\n1,0.5\n")
    assert ask("GET", f"/v1/jobs/{number}/metrics").value == {"loss": [[1.0, 0.5]]}


def test_stop_resume_restart(ask: Asker) -> None:
    number = ask.submit(arguments=["60"]).value["id"]
    ask.until(number, "running")
    assert ask.act(number, "restart").status == 409
    assert ask.act(number, "stop").status == 202
    ask.until(number, "stopped")
    assert ask.act(number, "stop").status == 409
    assert ask.act(number, "resume").value["run"] == 1
    ask.act(number, "stop")
    ask.until(number, "stopped")
    assert ask.act(number, "restart").value["run"] == 2


def test_each_request_needs_a_token(ask: Asker) -> None:
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/service"),
                         ("GET", "/v1/jobs/1/log/events"), ("GET", "/v1/jobs/1/log"),
                         ("POST", "/v1/jobs/1:stop"), ("GET", "/v1/nothing")):  # fmt: skip
        for token in (None, "", "wrong", ANN + "x", ANN[:-1]):
            assert ask(method, path, token, **MARK).status == 401
    assert ask("GET", "/", None).status == 200 and ask("GET", "/health", None).status == 200


def test_users_see_and_stop_their_own_jobs_only(ask: Asker) -> None:
    number = ask.submit(arguments=["60"]).value["id"]
    ask.until(number, "running")
    for path in ("", "/log", "/log/events", "/metrics"):
        assert ask("GET", f"/v1/jobs/{number}{path}", BOB).status == 404
    for action in ("stop", "restart", "resume"):
        assert ask.act(number, action, BOB).status == 404
    assert ask("GET", "/v1/jobs", BOB).value["jobs"] == []
    assert ask("GET", "/v1/jobs", BOB).value["counts"]["running"] == 0
    assert [job["id"] for job in ask("GET", "/v1/jobs", ROOT).value["jobs"]] == [number]
    missing = ask("GET", f"/v1/jobs/{number + 1}", BOB)
    hidden = ask("GET", f"/v1/jobs/{number}", BOB)
    assert missing.data.replace(str(number + 1).encode(), b"N") == hidden.data.replace(
        str(number).encode(), b"N"
    )
    assert ask.act(number, "stop", ROOT).status == 202
    ask.until(number, "stopped")


def test_another_site_cannot_act(ask: Asker) -> None:
    number = ask.submit(arguments=["60"]).value["id"]
    for headers in (
        {}, {**MARK, "origin": "http://evil.example"}, {**MARK, "sec_fetch_site": "cross-site"},
        {**MARK, "sec_fetch_site": "same-site"},
    ):  # fmt: skip
        assert ask("POST", "/v1/jobs", ANN, {"script": "job.py"}, **headers).status == 403
        assert ask("POST", f"/v1/jobs/{number}:stop", ANN, {}, **headers).status == 403
    assert ask("GET", f"/v1/jobs/{number}:stop", ANN, **MARK).status == 405
    origin = f"http://127.0.0.1:{ask.server.port}"
    assert ask("POST", f"/v1/jobs/{number}:stop", ANN, {}, **MARK, origin=origin).status == 202


def test_jobs_that_are_refused(ask: Asker) -> None:
    def told(answer: Answer) -> str:
        assert answer.status == 400
        return str(answer.value["error"])

    assert "processes: must be" in told(ask.submit(processes=0, memory="x"))
    assert "no file '/etc/passwd.py'" in told(ask.submit(script="/etc/passwd.py"))
    assert "no file '../" in told(ask.submit(script="../../../../../../../etc/x.py"))
    assert "no file" in told(ask("POST", "/v1/jobs", ANN, {"artifact": "m.gcx"}, **MARK))
    assert "the service has 4" in told(ask.submit(processes=5))
    assert "the quota is 1" in told(ask.submit("a-token-of-eve-12", processes=2))
    for body in (b"", b"{", b"[1]", b"[" * 60_000, b"\xff", b"null"):
        told(ask("POST", "/v1/jobs", ANN, body, **MARK))
    assert ask("POST", "/v1/jobs", ANN, b" " * (1 << 17), **MARK).status == 413
    assert ask("GET", "/v1/jobs", ROOT).value["jobs"] == []


def test_a_quota_of_waiting_jobs(ask: Asker) -> None:
    eve = "a-token-of-eve-12"
    first = ask.submit(eve, arguments=["60"]).value["id"]
    ask.until(first, "running")
    assert ask.submit(eve).status == 201
    refused = ask.submit(eve)
    assert refused.status == 409 and "the quota is 1" in refused.value["error"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/jobs/1/../../../etc/passwd", 404), ("/v1/jobs/1/log/../../x", 404),
        ("/v1/jobs/1/%2e%2e/token", 404), ("/v1/jobs/-1", 404), ("/v1/jobs/%D9%A1", 404),
        ("/v1/jobs/99999999999999999999", 404), ("/v1/jobs/1:remove", 404), ("/token", 404),
        ("/v1/jobs/7", 404), ("/v1/jobs?state=lost", 400), ("/v1/jobs?limit=x", 400),
        ("/v1/jobs?before=-1", 400), ("/v1/jobs?a=1&" * 20, 400), ("/v1/jobs?limit=0", 200),
    ],
)  # fmt: skip
def test_odd_paths(ask: Asker, path: str, status: int) -> None:
    assert ask("GET", path, ROOT).status == status


def test_lists_are_not_sent_twice(ask: Asker) -> None:
    number = ask.submit().value["id"]
    ask.until(number, "succeeded")
    time.sleep(0.2)
    first = ask("GET", "/v1/jobs")
    tag = first.headers["etag"]
    again = ask("GET", "/v1/jobs", if_none_match=tag)
    assert (again.status, again.data) == (304, b"")
    ask.submit()
    time.sleep(0.3)
    assert ask("GET", "/v1/jobs", if_none_match=tag).status == 200
    limited = ask("GET", "/v1/jobs?limit=1&state=succeeded")
    assert len(limited.value["jobs"]) == 1


def test_a_log_as_it_grows(ask: Asker) -> None:
    script(ask.folder, "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    number = ask.submit().value["id"]
    ask.until(number, "running")
    with closing(http.client.HTTPConnection("127.0.0.1", ask.server.port, timeout=20)) as found:
        found.request("GET", f"/v1/jobs/{number}/log/events",
                      headers={"authorization": f"Bearer {ANN}"})  # fmt: skip
        answer = found.getresponse()
        assert answer.headers["content-type"] == "text/event-stream"
        got = b""
        while b"one" not in got:
            got += answer.read1(1000)
        (ask.folder / "go").touch()
        got += answer.read()
    assert b'event: text\ndata: "two\\n"' in got and got.endswith(b"event: end\ndata: {}\n\n")
    assert ask("HEAD", f"/v1/jobs/{number}/log/events").data == b""
    rest = ask("GET", f"/v1/jobs/{number}/log/events?offset=0", last_event_id="4")
    assert b"one" not in rest.data and b"two" in rest.data


def test_streams_are_bounded_and_freed(ask: Asker, monkeypatch) -> None:
    monkeypatch.setattr("graphc.cluster.jobs.endpoint._MOST_STREAMS", 2)
    number = ask.submit(arguments=["60"]).value["id"]
    ask.until(number, "running")
    path = f"/v1/jobs/{number}/log/events"
    request = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ANN}\r\n\r\n".encode()

    def opened() -> tuple[socket.socket, bytes]:
        found = socket.create_connection(("127.0.0.1", ask.server.port), timeout=20)
        found.sendall(request)
        return found, found.recv(12)

    first, second, third = opened(), opened(), opened()
    assert [each[1] for each in (first, second, third)] == [b"HTTP/1.1 200"] * 2 + [b"HTTP/1.1 429"]
    for each, _ in (first, second, third):
        each.close()
    end = time.monotonic() + 20
    status = b""
    while status != b"HTTP/1.1 200":
        assert time.monotonic() < end
        time.sleep(0.05)
        again, status = opened()
        again.close()


def test_the_server_ends_while_clients_watch(tmp_path: Path, monkeypatch) -> None:
    use_shell(monkeypatch)
    script(tmp_path, "exec sleep 60")
    service = service_of(tmp_path)
    with JobsServer(service, Users(USERS)) as server:
        ask = Asker(server, service, tmp_path)
        number = ask.submit().value["id"]
        ask.until(number, "running")
        watcher = threading.Thread(
            target=lambda: ask("GET", f"/v1/jobs/{number}/log/events"), daemon=True
        )
        watcher.start()
        time.sleep(0.2)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    watcher.join(5)
    assert not watcher.is_alive()
    with JobsServer(service_of(tmp_path), Users(USERS)) as server:  # and the job still exists
        ask = Asker(server, service, tmp_path)
        ask.until(number, "running")
        ask.act(number, "stop")
        ask.until(number, "stopped")


def test_the_page_has_a_policy(ask: Asker) -> None:
    page = ask("GET", "/", None)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert b"http://" not in page.data.replace(b"http://www.w3.org/2000/svg", b"")


def test_the_client_of_the_command_line(ask: Asker) -> None:
    queue = RemoteQueue(ask.url + "/", ANN)
    number = queue.submit(JobSpec.of({"script": "job.py"}))["id"]
    ask.until(number, "succeeded")
    assert queue.log(number, 0) == (b"hello \n", 7) and queue.is_served()
    assert queue.details(number)["state"] == "succeeded"
    assert queue.act(number, "resume")["state"] in ("queued", "running")
    assert queue.listed(5)["jobs"][0]["id"] == number
    with pytest.raises(UnknownNameError, match="no job 99"):
        queue.details(99)
    with pytest.raises(AttributeValueError, match="no file"):
        queue.submit(JobSpec.of({"script": "missing.py"}))
    ask.until(number, "succeeded")
    with pytest.raises(ClusterError, match="has already ended"):
        queue.act(number, "stop")
    with pytest.raises(GraphcError, match="does not accept the token"):
        RemoteQueue(ask.url, "wrong").details(1)
    with pytest.raises(GraphcError, match="does not answer"):
        RemoteQueue("http://127.0.0.1:1", ANN).details(1)
    for url in ("127.0.0.1:80", "ftp://x", ""):
        with pytest.raises(AttributeValueError, match="is not the URL"):
            RemoteQueue(url, ANN)


def test_a_port_that_is_taken(ask: Asker, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    server = JobsServer(service_of(folder), Users(USERS), port=ask.server.port)
    with pytest.raises(ClusterError, match="cannot listen"):
        server.run()
    service_of(folder).close()  # this releases the queue
