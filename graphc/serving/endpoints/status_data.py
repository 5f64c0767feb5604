"""What the status page shows, as JSON."""

from __future__ import annotations

import os
import time
from typing import Any

from graphc._version import __version__
from graphc.serving.endpoints.metrics import BatchNumbers, Metrics, VersionNumbers
from graphc.serving.endpoints.service import Manager, Service
from graphc.web.failures import Failure

_NONE = VersionNumbers(0, 0, None, None)
_NO_BATCHES = BatchNumbers(0, 0, 0, {})


def status_data(service: Service, started: float, ready: bool) -> dict[str, Any]:
    """The state of the server. Times are in seconds, sizes in bytes.

    Args:
        started: when the server started, in seconds of `time.monotonic()`.
        ready: whether it takes requests.
    """
    state = "ready" if ready else "stopping" if service.draining else "not ready"
    return {
        "version": __version__,
        "state": state,
        "time": time.time(),
        "uptime": time.monotonic() - started,
        "memory": resident_bytes(),
        "in_progress": service.in_progress,
        "max_concurrent": service.max_concurrent,
        "sessions": {
            "open": len(service.sessions),
            "most": service.sessions.config.max_sessions,
            "bytes": service.sessions.nbytes,
        },
        "models": _models(service.manager, service.metrics),
        "errors": [
            {
                "time": error.time, "model": error.model, "version": error.version,
                "call": f"{error.protocol} {error.method}", "code": error.code,
                "message": error.message, "count": error.count,
            }
            for error in service.errors.rows()
        ],
    }  # fmt: skip


def _models(manager: Manager, metrics: Metrics) -> list[dict[str, Any]]:
    versions = metrics.versions()
    batches: dict[str, dict[str, BatchNumbers]] = {}
    for (model, signature), numbers in metrics.signatures().items():
        batches.setdefault(model, {})[signature] = numbers
    found = []
    for name in sorted(manager.names()):
        try:
            found.append(_model(manager, name, versions, batches.get(name, {})))
        except Failure:  # it was removed meanwhile
            continue
    return found


def _model(
    manager: Manager,
    name: str,
    versions: dict[tuple[str, str], VersionNumbers],
    batches: dict[str, BatchNumbers],
) -> dict[str, Any]:
    overview = manager.overview(name)
    labels: dict[int, list[str]] = {}
    for label, version in sorted(overview.labels.items()):
        labels.setdefault(version, []).append(label)
    rows = [
        {
            # Versions are 64 bits wide, more than a number of JavaScript.
            "version": str(status.version),
            "state": status.state,
            "code": status.error_code,
            "message": status.error_message,
            "labels": labels.get(status.version, []),
            "share": overview.shares.get(status.version),
            **versions.get((name, str(status.version)), _NONE)._asdict(),
        }
        for status in manager.status(name)
    ]
    signatures = sorted(batches.keys() | overview.waiting.keys())
    return {
        "name": name,
        "versions": rows,
        "batches": [
            {
                "signature": signature,
                "waiting": overview.waiting.get(signature, 0),
                **batches.get(signature, _NO_BATCHES)._asdict(),
            }
            for signature in signatures
        ],
    }


def resident_bytes() -> int | None:
    """The memory of this process, where the system has `/proc`; None elsewhere."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
