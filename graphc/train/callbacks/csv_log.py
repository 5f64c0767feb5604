"""`CsvLogger`: a row for each step."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from graphc.train.callbacks.rows import Row, RowLogger


class CsvLogger(RowLogger):
    """Writes a CSV file: a row for each step with the metrics, the figures of a validation after
    the step ("validation/loss"), and the values that callbacks record ("learning_rate").

    A run that continues from a checkpoint continues the file. Rows of later steps, which are
    repeated, are removed. A run from the beginning overwrites the file.

    Args:
        path: of the file. Its folder is created.
        every: how often, in steps.

    Raises:
        AttributeValueError: `path` is no path, or `every` is not a number of steps.
        GraphcError: from `fit`: the file cannot be written.

    Examples:
        >>> import tempfile, pathlib
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name, "log.csv")
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.25))
        >>> job = gc.train.Job(graph, train, [{}] * 2, steps=2, metrics={"w": w})
        >>> history = gc.train.fit(gc.Session(graph), job, callbacks=[gc.train.CsvLogger(path)])
        >>> print(path.read_text())
        step,epoch,w
        1,0,4.0
        2,0,2.0
        <BLANKLINE>
        >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 1) -> None:
        super().__init__(path, every=every)
        self._columns: list[str] = []

    def begin(self, path: Path, step: int) -> float | None:
        """Creates the file, or keeps only its rows up to a step. Returns the step of the last."""
        self._columns, kept = [], []
        if step and path.exists():
            self._columns, rows = _read(path)
            kept = [row for row in rows if _number(row) <= step]
        _replace(path, self._columns, kept)
        return _number(kept[-1]) if kept else None

    def take_back(self, path: Path) -> Row:
        """Removes the last row from the file and returns it."""
        *rows, last = _read(path)[1]
        _replace(path, self._columns, rows)
        whole = ("step", "epoch")
        return {k: int(v) if k in whole else float(v) for k, v in last.items() if v}

    def write(self, path: Path, rows: list[Row]) -> None:
        """Adds rows to the file. If there are new columns, the file is rewritten."""
        names = dict.fromkeys(self._columns) | {name: None for row in rows for name in row}
        if len(names) > len(self._columns):
            old = _read(path)[1]
            self._columns = list(names)
            _replace(path, self._columns, old)
        with path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerows(rows)


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]  # a killed process may leave an incomplete line
    reader = csv.DictReader(io.StringIO(whole))
    rows = list(reader)
    return list(reader.fieldnames or []), rows


def _number(row: dict[str, str]) -> float:
    try:
        return int(row["step"])
    except (KeyError, TypeError, ValueError):
        return float("inf")


def _replace(path: Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    """Rewrites a file: writes another file, then renames it."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", newline="") as file:
        if columns:
            writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    beside.replace(path)
