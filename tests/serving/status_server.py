"""A server with the status page for invented models: tests define what the page shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphc.serving import Server, ServerConfig
from graphc.serving.models.served import Overview
from graphc.serving.models.versions import VersionStatus
from tests.serving.fakes import FakeManager

HOSTILE = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"


class Models(FakeManager):
    """Models with states, labels and traffic shares.

    Args:
        rows: name -> its states and its overview.
    """

    def __init__(self, rows: dict[str, tuple[list[VersionStatus], Overview]]) -> None:
        super().__init__()
        self.rows = rows

    def names(self) -> list[str]:
        return list(self.rows)

    def status(self, name: str, version: int | None = None) -> Any:
        return self.rows[name][0]

    def overview(self, name: str) -> Overview:
        return self.rows[name][1]

    def retry(self, name: str) -> None:
        self.retried.append(name)


def model(*versions: VersionStatus, **overview: Any) -> tuple[list[VersionStatus], Overview]:
    labels, shares, waiting = (overview.get(key, {}) for key in ("labels", "shares", "waiting"))
    return list(versions), Overview(labels, shares, waiting)


def several() -> Models:
    """A normal model, a failing one, and one whose names and texts contain HTML."""
    error = "the artifact is damaged: model.gcx: checksum of 'kernel' differs\nhint: save it again"
    return Models(
        {
            "flowers": model(
                VersionStatus(4, "AVAILABLE"),
                VersionStatus(3, "AVAILABLE"),
                VersionStatus(2, "END"),
                labels={"stable": 3, "canary": 4},
                shares={3: 95.0, 4: 5.0},
                waiting={"predict": 2},
            ),
            "broken": model(VersionStatus(2**63 - 1, "END", "FAILED_PRECONDITION", error)),
            HOSTILE: model(
                VersionStatus(1, "LOADING", "INTERNAL", HOSTILE), labels={HOSTILE: 1}, shares={}
            ),
        }
    )


@contextmanager
def serving(models: Models, **config: Any) -> Iterator[Server]:
    """A server that has already answered some requests."""
    with Server(ServerConfig((), port=None, rest_port=0, **config), manager=models) as server:
        for name in models.names():
            for version, seconds in ((4, 0.002), (3, 0.003), (3, 0.004), (3, 1.5)):
                server.metrics.request(name, version, "Predict", "OK", seconds, "REST")
            server.metrics.request(name, 3, "Predict", "INTERNAL", 0.1, "REST")
            for rows, padded, reason in ((30, 32, "timeout"), (32, 32, "full"), (3, 4, "idle")):
                server.metrics.batch(name, "predict", rows, padded, reason)
        yield server


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.rest_port}/status"
