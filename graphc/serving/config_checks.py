"""Checks of the values of configurations, with errors that name them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from graphc.errors import AttributeValueError

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s,\"]+")
LARGEST_VERSION = 2**63 - 1
"""Versions are int64 on the wire."""
MAX_BODY_BYTES = 64 << 20
"""The default of `ServerConfig.max_body_bytes`."""


# All of these raise `AttributeValueError`.


def check_origins(origins: tuple[str, ...]) -> None:
    """Checks origins of web pages, as browsers send them."""
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            refuse(
                f"cors_origins: {origin!r} is not an origin",
                "https://example.com or http://localhost:3000, without a path; or *",
            )


def check_devices(devices: Any) -> None:
    """Checks a number of devices, or a tuple of their names."""
    if devices is None or isinstance(devices, tuple):
        return
    if type(devices) is not int or devices < 1:
        refuse(
            f"devices must be a number of devices or a tuple of names, got {devices!r}",
            'devices=2, or devices=("/gpu:0", "/gpu:1")',
        )


def check_version(where: str, version: Any) -> None:
    """Checks that a version is an int from 0 to 2**63 - 1.

    Raises:
        AttributeValueError: it is not.
    """
    if type(version) is not int or not 0 <= version <= LARGEST_VERSION:
        refuse(f"{where}: a version must be an int from 0 to 2**63 - 1, got {version!r}")


def check_name(name: Any) -> None:
    """Checks the name of a model, which is a part of URLs."""
    if not isinstance(name, str) or not name or name in (".", ".."):
        refuse(f"a model's name must be a str that is not empty, got {name!r}")
    bad = [char for char in name if char in "/:?#%\\" or not char.isprintable()]
    if bad:
        refuse(f"model {name!r}: the name must not contain {bad[0]!r}")


def check_traffic(where: str, traffic: Any, labels: Mapping[str, int]) -> None:
    """Checks percentages by label or version: their sum is 100."""
    for target, percent in traffic.items():
        if isinstance(target, str) and target not in labels:
            refuse(f"{where}: traffic names the label {target!r}, which it does not have")
        if not isinstance(target, str):
            check_version(f"{where}: traffic", target)
        if type(percent) not in (int, float) or not 0 <= percent <= 100:
            refuse(f"{where}: traffic of {target!r} must be a percentage, got {percent!r}")
    total = math.fsum(traffic.values())
    if traffic and not math.isclose(total, 100, abs_tol=1e-6):
        refuse(f"{where}: the traffic percentages must have the sum 100, got {total:g}")


def checked_path(where: str, path: Any) -> str:
    """The path of a model as text."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        refuse(f"{where}: base_path must be a path, got {path!r}")
    if "\0" in str(os.fspath(path)):
        refuse(f"{where}: base_path contains a NUL character")
    return os.fspath(path)


def check_text(what: str, text: Any) -> None:
    """Checks that a value is a text with at least one character."""
    if not isinstance(text, str) or not text:
        refuse(f"{what} must be a str that is not empty, got {text!r}")


def check_int(name: str, value: Any, least: int) -> None:
    """Checks that a value is an int of at least `least`."""
    if type(value) is not int or value < least:
        refuse(f"{name} must be an int of at least {least}, got {value!r}")


def check_seconds(name: str, value: Any) -> None:
    """Checks that a value is a finite number of at least 0."""
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        refuse(f"{name} must be a number of at least 0, got {value!r}")


def check_bool(name: str, value: Any) -> None:
    """Checks that a value is a bool."""
    if type(value) is not bool:
        refuse(f"{name} must be a bool, got {value!r}")


def refuse(what: str, hint: str | None = None) -> NoReturn:
    """Raises `AttributeValueError`."""
    raise AttributeValueError(what, hint=hint)


def most_request_bytes(given: int | None, body: int) -> int:
    """The bytes of all requests together.

    Args:
        given: `max_request_bytes`.
        body: `max_body_bytes`.

    Raises:
        AttributeValueError: it is less than twice `body`.
    """
    if given is None:
        return max(4 << 30, 2 * body)
    check_int("max_request_bytes", given, 1)
    if given < 2 * body:
        refuse(
            f"max_request_bytes must be at least twice max_body_bytes ({body}), got {given}",
            f"max_request_bytes={2 * body}, or a smaller max_body_bytes",
        )
    return given
