"""A real TensorBoard in a separate process, queried over HTTP."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen


class Board:
    """A running TensorBoard."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: Any) -> Any:
        """The JSON answer of a plugin."""
        return json.loads(self.bytes(path, **query))

    def bytes(self, path: str, **query: Any) -> bytes:
        with urlopen(f"{self.url}data/{path}?{urlencode(query)}", timeout=60) as answer:
            return bytes(answer.read())

    def post(self, path: str, body: Any) -> Any:
        kind = {"Content-Type": "application/json"}
        request = Request(f"{self.url}data/{path}", json.dumps(body).encode(), kind)
        with urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def scalars(self, run: str, tag: str) -> list[tuple[int, float]]:
        """The points of a curve."""
        points = self.get("plugin/scalars/scalars", run=run, tag=tag)
        return [(step, value) for _, step, value in points]


@contextlib.contextmanager
def board(
    folder: str | os.PathLike[str], ready: Mapping[str, str], *, fast: bool = False
) -> Iterator[Board]:
    """A TensorBoard that has read the folder: it shows the last written scalar tag of each run in
    `ready`."""
    log = Path(folder).parent / f"{Path(folder).name}-tensorboard.log"
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", os.fspath(folder), "--port", "0",
             f"--load_fast={str(fast).lower()}", "--host", "localhost"],
            stdout=output, stderr=output, env=environment,
        )  # fmt: skip
        try:
            yield Board(_url(process, log, ready))
        finally:
            process.terminate()
            process.wait(30)


def _url(process: "subprocess.Popen[bytes]", log: Path, ready: Mapping[str, str]) -> str:
    """Waits until TensorBoard serves requests and has read the folder; returns its address."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if match := re.search(r"at (http://\S+)", log.read_text()):
            tags = Board(match.group(1)).get("plugin/scalars/tags")
            if all(tag in tags.get(run, ()) for run, tag in ready.items()):
                return match.group(1)
        time.sleep(0.1)
    raise RuntimeError(f"TensorBoard is not ready: {log.read_text()}")
