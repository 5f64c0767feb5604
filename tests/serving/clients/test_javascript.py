"""The JavaScript client in Node.js and in headless Chromium: the checks of checks.mjs."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.reports.chromium import FOUND, browser

ROOT = Path(__file__).parents[3]
CHECKS = Path(__file__).parent / "checks.mjs"
NAMES = re.findall(r"^  async (\w+)\(", CHECKS.read_text(), re.MULTILINE)
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def in_node(addresses: dict[str, str]) -> dict[str, str]:
    """The results of the checks in Node.js: name -> "" or what is wrong."""
    script = f"""
        import {{ run }} from {json.dumps(CHECKS.as_uri())};
        console.log(JSON.stringify(await run({json.dumps(addresses)})));
    """
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_in_node(in_node: dict[str, str], name: str) -> None:
    assert in_node[name] == ""


class _Pages(SimpleHTTPRequestHandler):
    """Serves the files of the project; and forwards /NAME/v1/... to the server with that name.

    So the page and the model servers have one origin, as behind a reverse proxy.
    """

    protocol_version = "HTTP/1.1"

    def __init__(self, *given: Any, servers: dict[str, str]) -> None:
        self._servers = servers
        super().__init__(*given, directory=str(ROOT))

    def do_GET(self) -> None:
        name, _, path = self.path[1:].partition("/")
        if name in self._servers:
            self._forward(self._servers[name], f"/{path}")
        elif name == "empty":
            self._reply(200, "text/html", b"<!doctype html>")
        else:
            super().do_GET()

    do_POST = do_GET

    def _forward(self, address: str, path: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kept = ("authorization", "content-type")
        headers = {name: self.headers[name] for name in kept if name in self.headers}
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        try:
            connection.request(self.command, path, body, headers)
            response = connection.getresponse()
            self._reply(response.status, response.headers["content-type"], response.read())
        except OSError:  # no server, or the browser has gone
            self.close_connection = True
        finally:
            connection.close()

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture(scope="module")
def in_browser(addresses: dict[str, str], tmp_path_factory) -> Iterator[dict[str, str]]:
    """The results of the checks in a browser."""
    handler = partial(_Pages, servers=addresses)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{pages.server_address[1]}"
        forwarded = {name: f"{origin}/{name}" for name in addresses}
        with browser(tmp_path_factory.mktemp("profile")) as page:
            page.send("Page.navigate", url=f"{origin}/empty")
            page.wait(f'location.origin === "{origin}" && document.readyState === "complete"')
            module = f"{origin}/{CHECKS.relative_to(ROOT)}"
            run = f"import({json.dumps(module)}).then(m => m.run({json.dumps(forwarded)}))"
            yield page.eval(run)
        pages.shutdown()


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.skipif(FOUND is None, reason="chromium is not installed")
@pytest.mark.xdist_group("chromium")
@pytest.mark.parametrize("name", NAMES)
def test_in_a_browser(in_browser: dict[str, str], name: str) -> None:
    assert in_browser[name] == ""
