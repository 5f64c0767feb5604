"""`JsonLinesLogger`: a JSON object for each step."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from graphc.train.callbacks.rows import Row, RowLogger


class JsonLinesLogger(RowLogger):
    """Writes a file with a JSON object on each line, with the same values as a row of `CsvLogger`.

    Figures that are not finite are the strings "nan", "inf" and "-inf", because JSON has no such
    numbers.

    Args and Raises: see `CsvLogger`.

    Examples:
        >>> import tempfile, pathlib
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name, "log.jsonl")
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.25))
        >>> job = gc.train.Job(graph, train, [{}] * 2, steps=2, metrics={"w": w})
        >>> logger = gc.train.JsonLinesLogger(path, every=2)
        >>> history = gc.train.fit(gc.Session(graph), job, callbacks=[logger])
        >>> print(path.read_text().rstrip())
        {"step": 2, "epoch": 0, "w": 2.0}
        >>> folder.cleanup()
    """

    def begin(self, path: Path, step: int) -> float | None:
        """Creates the file, or keeps only its lines up to a step. Returns the step of the last."""
        kept = []
        if step and path.exists():
            lines = path.read_text().splitlines()
            kept = [line for line in lines if _number(line) <= step]
        _replace(path, kept)
        return _number(kept[-1]) if kept else None

    def take_back(self, path: Path) -> Row:
        """Removes the last line from the file and returns its row."""
        *lines, last = path.read_text().splitlines()
        _replace(path, lines)
        whole = ("step", "epoch")
        return {k: v if k in whole else float(v) for k, v in json.loads(last).items()}

    def write(self, path: Path, rows: list[Row]) -> None:
        """Adds lines to the file."""
        with path.open("a") as file:
            file.writelines(f"{json.dumps(_finite(row))}\n" for row in rows)


def _finite(row: Row) -> dict[str, Any]:
    return {name: v if math.isfinite(v) else str(v) for name, v in row.items()}


def _replace(path: Path, lines: list[str]) -> None:
    """Rewrites the file: writes another file, then renames it."""
    beside = path.with_name(path.name + ".new")
    beside.write_text("".join(f"{line}\n" for line in lines))
    beside.replace(path)


def _number(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):  # a killed process may leave an incomplete line
        return float("inf")
