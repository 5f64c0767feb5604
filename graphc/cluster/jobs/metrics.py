"""The curves of a job, from the files that `CsvLogger` and `JsonLinesLogger` write."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_MOST_BYTES: Final = 1 << 20  # of a file; of a larger one, lines at even distances are read
_MOST_POINTS: Final = 400  # of a curve
_LONGEST_LINE: Final = 1 << 16
_MOST_CURVES: Final = 50
_STEP: Final = ("step", "epoch")

Curves = dict[str, list[tuple[float, float | None]]]


def curves_of(folder: Path) -> Curves:
    """The curves of a folder of logs: name -> (step, value). A value is None if it is not finite.

    Long ones are thinned. Files that are not logs are left out.

    Examples:
        >>> import tempfile, pathlib
        >>> from graphc.cluster.jobs.metrics import curves_of
        >>> folder = tempfile.TemporaryDirectory()
        >>> text = "step,epoch,loss\\n1,0,0.5\\n2,0,nan\\n"
        >>> _ = pathlib.Path(folder.name, "log.csv").write_text(text)
        >>> curves_of(pathlib.Path(folder.name))
        {'loss': [(1.0, 0.5), (2.0, None)]}
        >>> folder.cleanup()
    """
    path = _log_of(folder)
    if path is None:
        return {}
    try:
        rows = _json_rows(path) if path.suffix == ".jsonl" else _csv_rows(path)
        return _thinned(_curves(rows))
    except (OSError, csv.Error):
        return {}


def _log_of(folder: Path) -> Path | None:
    """The file with the curves: log.jsonl or log.csv, otherwise the first of such a form."""
    for name in ("log.jsonl", "log.csv"):
        if (folder / name).is_file() and not (folder / name).is_symlink():
            return folder / name
    try:
        found = sorted(p for p in folder.iterdir() if p.suffix in (".jsonl", ".csv"))
    except OSError:
        return None
    return next((path for path in found if path.is_file() and not path.is_symlink()), None)


def _lines(path: Path) -> tuple[str, list[str]]:
    """The first line, and the others or some of them; the last may be incomplete."""
    with path.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
        start, end = file.tell(), path.stat().st_size
        if end - start <= _MOST_BYTES:
            lines = file.read(_MOST_BYTES).splitlines()
        else:
            lines = [file.readline(_LONGEST_LINE)]
            for part in range(1, _MOST_POINTS):
                file.seek(start + (end - start) * part // _MOST_POINTS)
                file.readline(_LONGEST_LINE)  # the rest of a line
                lines.append(file.readline(_LONGEST_LINE))
            lines = list(dict.fromkeys(lines))  # a long line is met several times
    return _text(first), [_text(line) for line in lines]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    first, lines = _lines(path)
    for line in (first, *lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _csv_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    first, lines = _lines(path)
    names = next(csv.reader([first]), [])
    for row in csv.reader(lines):
        if len(row) == len(names):
            yield dict(zip(names, row, strict=True))


def _curves(rows: Iterable[Mapping[str, Any]]) -> Curves:
    found: Curves = {}
    for number, row in enumerate(rows, 1):
        given = (_float(row.get(name)) for name in _STEP)
        finite = (value for value in given if value is not None and math.isfinite(value))
        step = next(finite, float(number))
        for name, text in row.items():
            value = _float(text)
            known = name in found or len(found) < _MOST_CURVES
            if name not in _STEP and value is not None and known:
                found.setdefault(name, []).append((step, value if math.isfinite(value) else None))
    return found


def _thinned(curves: Curves) -> Curves:
    found = {}
    for name, points in curves.items():
        kept = points[:: max(1, -(-len(points) // _MOST_POINTS))]
        found[name] = kept if kept[-1] == points[-1] else [*kept, points[-1]]
    return found


def _float(value: object) -> float | None:
    """A number, or None. A JSON log writes "nan" and "inf" as texts."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or value == "":
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
