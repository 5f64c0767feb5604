"""`graphc cache`: the compiled programs that are stored for later processes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphc.cli.report import amount, duration, print_result, table
from graphc.config import CompileOptions
from graphc.errors import CacheError
from graphc.store.folder import ExecutableCache, Listed, default_folder

_COLUMNS = ("key", "size", "last used", "program", "devices", "jax", "saves")


def run(options: argparse.Namespace) -> None:
    """Performs `options.action` on the folder."""
    cache = ExecutableCache(_folder(options.folder), CompileOptions().cache_limit)
    {"list": _list, "clear": _clear, "size": _size}[options.action](cache, options.json)


def _folder(given: str | None) -> Path:
    if given is None:
        return default_folder()
    folder = Path(given).expanduser().absolute()
    if not folder.is_dir():
        raise CacheError(f"no folder {given!r}", hint="check the path")
    return folder


def _list(cache: ExecutableCache, as_json: bool) -> None:
    rows = [_facts(entry) for entry in cache.entries()]
    lines = [_total(len(rows), cache)]
    if rows:
        lines += table([_COLUMNS, *map(_cells, rows)], right=(1,))
    facts = {"folder": str(cache.folder), "bytes": cache.size(), "entries": rows}
    print_result(facts, lines, as_json=as_json)


def _clear(cache: ExecutableCache, as_json: bool) -> None:
    size = cache.size()
    count = cache.clear()
    facts = {"folder": str(cache.folder), "removed": count, "bytes": size}
    removed = f"removed {_entries(count)}, {amount(size, 'B')}, from {cache.folder}"
    print_result(facts, [removed], as_json=as_json)


def _size(cache: ExecutableCache, as_json: bool) -> None:
    count = len(cache.entries())
    facts = {"folder": str(cache.folder), "entries": count, "bytes": cache.size()}
    print_result(facts, [_total(count, cache)], as_json=as_json)


def _total(count: int, cache: ExecutableCache) -> str:
    return f"{_entries(count)}, {amount(cache.size(), 'B')}, in {cache.folder}"


def _entries(count: int) -> str:
    return f"{count} entr" + ("y" if count == 1 else "ies")


def _facts(entry: Listed) -> dict[str, Any]:
    """The facts about one entry; None for facts that an unusable file does not give."""
    metadata: Mapping[str, Any] = entry.metadata or {}
    environment = metadata.get("environment", {})
    seconds = metadata.get("seconds")
    return {
        "key": entry.key,
        "bytes": entry.bytes,
        "usable": entry.metadata is not None,
        "created": entry.created,
        "last_used": entry.last_used,
        "program": metadata.get("program"),
        "devices": environment.get("devices"),
        "jax": environment.get("jax"),
        "graphc": environment.get("graphc"),
        "seconds_saved": None if seconds is None else sum(seconds.values()),
    }


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    start = (row["key"][:12], amount(row["bytes"], "B"), _ago(time.time() - row["last_used"]))
    if not row["usable"]:
        return (*start, "(unusable)")
    saved = row["seconds_saved"]
    texts = [row["program"], _devices(row["devices"]), row["jax"]]
    texts.append(None if saved is None else duration(saved))
    return (*start, *["" if text is None else text for text in texts])


def _devices(text: str | None) -> str:
    """
    >>> _devices("cpu:0 cpu, cpu:1 cpu")
    '2 x cpu'
    """
    kinds = [device.partition(" ")[2] for device in (text or "").split(", ") if device]
    if not kinds:
        return ""
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} x {kinds[0]}"


def _ago(seconds: float) -> str:
    """
    >>> _ago(0.2), _ago(150), _ago(90_000)
    ('0 s ago', '2 min ago', '25 h ago')
    """
    for unit, length in (("days", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= length:
            return f"{int(seconds // (length / 2))} {unit} ago"
    return f"{max(0, int(seconds))} s ago"
