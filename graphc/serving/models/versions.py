"""Finds the versions of a model in its folder, and selects those to serve."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graphc.serving.config import All, Latest, Policy, Specific
from graphc.serving.config_checks import LARGEST_VERSION

ARTIFACT = "model.gcx"
"""The artifact's name in the folder of a version."""

_NAME = re.compile(r"([0-9]{1,19})(\.gcx)?")


class Found(NamedTuple):
    """One version in the file system. Two records are equal if the file has not changed.

    Attributes:
        path: the artifact; empty if it may not be read.
        folder: the folder of the version, which may hold requests for warm-up; empty for a file.
        stamp: the device, inode, size and times of the file.
        problem: why it may not be read; empty if it may.
    """

    version: int
    path: str
    folder: str
    stamp: tuple[int, ...]
    problem: str = ""


def find(base_path: str) -> dict[int, Found]:
    """The versions in a folder: `<version>/model.gcx` and `<version>.gcx`; or a file as version 1.

    Other names are ignored. A version whose file is outside the folder, through a link, has a
    `problem`. A folder without an artifact is not a version yet. If two names are the same number,
    the shorter name is taken, and a folder before a file.
    """
    base = os.path.realpath(base_path)
    if os.path.isfile(base):
        found = _found(1, base, "", base)
        return {} if found is None else {1: found}
    try:
        names = os.listdir(base)
    except OSError:
        return {}
    versions: dict[int, Found] = {}
    for name in sorted(names, key=lambda name: (len(name), name)):
        match = _NAME.fullmatch(name)
        if match is None or int(match[1]) > LARGEST_VERSION or int(match[1]) in versions:
            continue
        path = os.path.join(base, name)
        folder = "" if match[2] else path
        found = _found(
            int(match[1]), os.path.join(path, ARTIFACT) if folder else path, folder, base
        )
        if found is not None:
            versions[found.version] = found
    return versions


def _found(version: int, path: str, folder: str, base: str) -> Found | None:
    """The record of a file; None if there is no such file."""
    real = os.path.realpath(path)
    if real != base and os.path.commonpath([real, base]) != base:
        problem = f"the file of version {version} is outside base_path, through a link"
        return Found(version, "", "", (), problem)
    try:
        facts = os.stat(real)
    except OSError:
        return None
    stamp = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    real_folder = os.path.dirname(real) if folder else ""
    return Found(version, real, real_folder, stamp)


def select(policy: Policy, versions: Iterable[int]) -> set[int]:
    """The versions that a policy serves.

    Examples:
        >>> from graphc.serving.config import Latest
        >>> select(Latest(2), [1, 2, 10])
        {2, 10}
    """
    match policy:
        case Latest(count):
            return set(sorted(versions)[-count:])
        case Specific(chosen):
            return set(chosen) & set(versions)
        case All():
            return set(versions)


class VersionStatus(NamedTuple):
    """The state of a version, as `GetModelStatus` reports it.

    Attributes:
        state: "START", "LOADING", "AVAILABLE", "UNLOADING", "END" or "UNKNOWN", see `STATES`.
        error_code: gRPC's canonical name; "OK" if there is no error.
        error_message: without paths of the server.
        requests: how many requests the version has taken.
    """

    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""
    requests: int = 0


STATES: Mapping[str, int] = {
    "UNKNOWN": 0,
    "START": 10,
    "LOADING": 20,
    "AVAILABLE": 30,
    "UNLOADING": 40,
    "END": 50,
}
"""The states with TensorFlow Serving's numbers."""
