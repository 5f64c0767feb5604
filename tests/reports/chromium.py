"""Headless Chromium for tests of pages: real clicks and keys, through its debugging pipe."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FOUND = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe", "--window-size=1500,900"),
)


class Page:
    """A page in a browser. Every exception of its scripts fails the next call."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest, self._number, self._session = b"", 0, ""
        self._errors: list[str] = []
        self.requests: list[str] = []

    def attach(self) -> None:
        made = self.send("Target.createTarget", url="about:blank")
        attached = self.send("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writes, data) :]
        until = time.monotonic() + 60
        while True:
            answer = self._message(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._event(answer)

    def _message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._reads], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._reads, 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    def _event(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self._errors.append(details.get("exception", {}).get("description", details["text"]))
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])

    # -- actions of a user -----------------------------------------------------------------------

    def open(self, path: Path) -> None:
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait('document.readyState === "complete"')

    def eval(self, script: str) -> Any:
        """The value of an expression, or of its promise; exceptions in the page are raised here."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        if self._errors:
            raise RuntimeError("\n".join(self._errors))
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not self.eval(condition):
            if time.monotonic() > until:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def frame(self) -> None:
        """Waits until the requested frame is drawn."""
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click_at(self, x: float, y: float, count: int = 1) -> None:
        self.mouse("mouseMoved", x, y)
        for n in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=n)
        self.frame()

    def click(self, selector: str) -> None:
        box = self.eval(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.click_at(*box)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", clickCount=1)
        self.mouse("mouseMoved", *end, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)
        self.frame()

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)
        self.frame()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def colours(self, scheme: str) -> None:
        """`light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.frame()

    def screenshot(self) -> bytes:
        self.frame()
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser that ends with the `with` block. `folder` is for its profile.

    It reads commands at its file descriptor 3 and writes answers at 4.
    """
    if FOUND is None:
        raise RuntimeError("chromium is not installed")
    to_read, write = os.pipe()
    read, to_write = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, to_write)]  # not 3 or 4
    os.close(to_read)
    os.close(to_write)
    command = [FOUND, *_FLAGS, f"--user-data-dir={folder}"]
    shell = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
    process = subprocess.Popen(
        ["bash", "-c", shell, "chromium", *command],
        pass_fds=high,
        env={**os.environ, "IN": str(high[0]), "OUT": str(high[1])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in high:
        os.close(end)
    page = Page(read, write)
    try:
        page.attach()
        yield page
    finally:
        session, page._session = page._session, ""
        with suppress(RuntimeError, TimeoutError, OSError):
            if session:
                page.send("Browser.close")
        os.close(write)
        os.close(read)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
