"""The job service under load: 1,000 queued jobs, and 50 clients that watch the queue and a log.

Two jobs run and write a line with the time ten times a second; the others wait. Each client follows
the log of a running job, and requests the queue every two seconds, as the page does. The clients
run in this process, on the same cores as the service.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Row = tuple[str, str, str]
JOBS, WATCHERS, SECONDS = 1000, 50, 20.0
_UNENDED = "/v1/jobs?state=queued,running&limit=200"
REFRESH = 2.0  # seconds, as on the page
REPOSITORY = Path(__file__).parent.parent
SCRIPT = """
import time
while True:
    print("at", time.time(), flush=True)
    time.sleep(0.1)
"""


def rows() -> Iterator[Row]:
    """Submission, watching, and a restart of the service."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.py").write_text(SCRIPT)
        service = Service(folder)
        try:
            yield from _submitted(service)
            yield from _watched(service)
            service.process.kill()
            service.process.wait()
            before = time.perf_counter()
            service = Service(folder)
            yield f"start after kill -9, {JOBS} jobs", f"{time.perf_counter() - before:.2f} s", "-"
        finally:
            while numbers := [job["id"] for job in service.ask("GET", _UNENDED)["jobs"]]:
                for number in numbers:
                    service.ask("POST", f"/v1/jobs/{number}:stop", {})
            service.process.terminate()
            service.process.wait()


class Service:
    """A service in a separate process."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "graphc", "jobs", "serve", "--queue", folder / "queue",
                   "--root", folder, "--port", "0", "--max-devices", "2"]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        address, _, token = self.process.stdout.readline().partition("/#token=")
        self.port = int(address.rpartition(":")[2])
        self.headers = {"authorization": f"Bearer {token.strip()}", "x-graphc-jobs": "1"}

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        connection = self.connection()
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, self.headers)
        found = json.loads(connection.getresponse().read() or b"{}")
        connection.close()
        return dict(found)

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _submitted(service: Service) -> Iterator[Row]:
    times: list[float] = []

    def submit(_: int) -> None:
        before = time.perf_counter()
        service.ask("POST", "/v1/jobs", {"script": "job.py", "time_limit": "1h"})
        times.append(time.perf_counter() - before)

    before = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(submit, range(JOBS)))
    rate = JOBS / (time.perf_counter() - before)
    yield f"submitting {JOBS} jobs, 4 at a time", f"{rate:.0f} a second", "-"
    yield "a submission, median and 99th percentile", _shown(times), "-"


def _running(service: Service) -> list[int]:
    return [job["id"] for job in service.ask("GET", "/v1/jobs?state=running")["jobs"]]


def _log(service: Service, number: int) -> bytes:
    connection = service.connection()
    connection.request("GET", f"/v1/jobs/{number}/log", headers=service.headers)
    found = connection.getresponse().read()
    connection.close()
    return found


def _watched(service: Service) -> Iterator[Row]:
    while not all(b"at " in _log(service, n) for n in _running(service)):
        time.sleep(0.1)
    numbers = _running(service)
    delays: list[float] = []
    lists: list[float] = []
    end = time.monotonic() + SECONDS
    threads = [
        threading.Thread(target=part, args=arguments)
        for index in range(WATCHERS)
        for part, arguments in (
            (_follow, (service, numbers[index % 2], end, delays)),
            (_refresh, (service, end, lists)),
        )
    ]
    before, cpu = time.perf_counter(), service.cpu_seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    share = (service.cpu_seconds - cpu) / (time.perf_counter() - before)
    yield f"{WATCHERS} clients: a line until it is seen", _shown(delays), "-"
    yield f"{WATCHERS} clients: the queue", _shown(lists), "-"
    yield f"{WATCHERS} clients: the service's share of a core", f"{100 * share:.0f} %", "-"
    yield "the service's memory", f"{service.resident / 1e6:.0f} MB", "-"


def _follow(service: Service, number: int, end: float, delays: list[float]) -> None:
    connection = service.connection()
    path = f"/v1/jobs/{number}/log/events?offset=-1"
    connection.request("GET", path, headers=service.headers)
    answer = connection.getresponse()
    first = True  # the first event has old lines
    while time.monotonic() < end:
        line = answer.readline()
        now = time.time()
        if line.startswith(b"data: "):
            texts = [part.partition(" at ")[2] for part in json.loads(line[6:]).split("\n")]
            delays += [] if first else [now - float(text) for text in texts if text]
            first = False
    connection.close()


def _refresh(service: Service, end: float, times: list[float]) -> None:
    connection, tag = service.connection(), ""
    while time.monotonic() < end:
        before = time.perf_counter()
        connection.request("GET", "/v1/jobs", headers={**service.headers, "if-none-match": tag})
        answer = connection.getresponse()
        answer.read()
        tag = answer.headers["etag"] or ""
        times.append(time.perf_counter() - before)
        time.sleep(REFRESH)
    connection.close()


def _shown(seconds: list[float]) -> str:
    high = statistics.quantiles(seconds, n=100)[98]
    return f"{1e3 * statistics.median(seconds):.1f} and {1e3 * high:.1f} ms"
