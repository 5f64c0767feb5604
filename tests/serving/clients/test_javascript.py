"""The JavaScript client in Node.js and in headless Chromium, with the checks of checks.mjs."""

from __future__ import annotations

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

import pytest

from tests.reports.chromium import FOUND, browser

ROOT = Path(__file__).parents[3]
CHECKS = Path(__file__).parent / "checks.mjs"
NAMES = re.findall(r"^  async (\w+)\(", CHECKS.read_text(), re.MULTILINE)
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def in_node(addresses: dict[str, str]) -> dict[str, str]:
    """The results of the checks in Node.js: name -> "" or the error."""
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
    """Serves the files of the project, and an empty page."""

    def do_GET(self) -> None:
        if self.path != "/empty":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture(scope="module")
def in_browser(addresses: dict[str, str], tmp_path_factory) -> Iterator[dict[str, str]]:
    """The results of the checks in a browser, on a page of another origin than the servers'."""
    handler = partial(_Pages, directory=str(ROOT))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{pages.server_address[1]}"
        with browser(tmp_path_factory.mktemp("profile")) as page:
            page.send("Page.navigate", url=f"{origin}/empty")
            page.wait(f'location.origin === "{origin}" && document.readyState === "complete"')
            module = f"{origin}/{CHECKS.relative_to(ROOT)}"
            run = f"import({json.dumps(module)}).then(m => m.run({json.dumps(addresses)}))"
            yield page.eval(run)
        pages.shutdown()


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.skipif(FOUND is None, reason="chromium is not installed")
@pytest.mark.xdist_group("chromium")
@pytest.mark.parametrize("name", NAMES)
def test_in_a_browser(in_browser: dict[str, str], name: str) -> None:
    assert in_browser[name] == ""
