"""Reads the data inside a report's page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Data = dict[str, Any]


def read(path: Path) -> Data:
    """The data of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text())
    if found is None:
        raise ValueError("the page has no data")
    return dict(json.loads(found.group(1)))


def numbers(program: Data) -> list[int]:
    """The numbers of a program's nodes, in order."""
    ranges = program["nodes"]
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return [number for first, count in pairs for number in range(first, first + count)]


def rows(data: Data, program: Data) -> Iterator[Data]:
    """The rows of a program's nodes; the rows of a body follow its node."""
    for number in numbers(program):
        row = data["nodes"][number]
        yield row
        for body in row.get("r", ()):
            yield from rows(data, body)


def edges(data: Data, program: Data) -> set[tuple[str, str]]:
    """(producer, user) by name, between the ports and nodes of a program."""
    makers = {tensor: f"{kind}:{name}" for name, kind, tensor in program["inputs"]}
    found = set()
    for number in numbers(program):
        row = data["nodes"][number]
        found |= {(makers[tensor], row["n"]) for tensor in row["i"]}
        makers |= dict.fromkeys(row["u"], row["n"])
    return found | {(makers[tensor], f"{kind}:{name}") for name, kind, tensor in program["outputs"]}
