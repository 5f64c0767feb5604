"""Checks of what a `Checkpointer` is given. Each raises AttributeValueError."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from graphc.errors import AttributeValueError
from graphc.ir.source import current_source


def _wrong(name: str, expected: str, got: object) -> AttributeValueError:
    return AttributeValueError(
        f"Checkpointer: {name} must be {expected}, got {got!r:.80}", source=current_source()
    )


def checked_folder(folder: object) -> Path:
    """The path of the folder, which need not exist."""
    if not isinstance(folder, (str, os.PathLike)) or not str(folder):
        raise _wrong("folder", "the path of a folder", folder)
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise _wrong("folder", "a folder, not a file", str(folder))
    return path


def checked_path(path: object, function: str) -> Path:
    """The path that a function is given."""
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise AttributeValueError(
            f"{function}: path must be the path of a folder, got {path!r:.80}",
            source=current_source(),
        )
    return Path(path)


def checked_keep(keep: object) -> int:
    """How many of the latest checkpoints stay."""
    if type(keep) is not int or keep < 1:
        raise _wrong("keep", "a number of checkpoints, at least 1", keep)
    return keep


def checked_best(best: object) -> tuple[str, str, int] | None:
    """(name of the metric, "min" or "max", how many of the best stay), or None."""
    if best is None:
        return None
    if isinstance(best, (tuple, list)) and len(best) == 3:
        name, which, count = best
        if isinstance(name, str) and which in ("min", "max") and type(count) is int and count > 0:
            return name, which, count
    raise _wrong("keep_best", 'like ("validation/loss", "min", 1)', best)


def checked_every(every: object) -> float | None:
    """The seconds between checkpoints that stay, or None."""
    if every is None:
        return None
    if isinstance(every, (int, float)) and every > 0:
        return float(every)
    raise _wrong("keep_every", "a number of seconds above 0", every)


def checked_step(step: object) -> int:
    """The number of a step."""
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise _wrong("step", "an int, at least 0", step)
    number = int(step.__index__())
    if not 0 <= number < 10**18:
        raise _wrong("step", "an int, at least 0", step)
    return number


def checked_metrics(metrics: object) -> dict[str, float]:
    """Name -> figure."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise _wrong("metrics", "a dict of figures", metrics)
    found = {}
    for name, value in metrics.items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError):
            raise _wrong(f"metrics[{name!r}]", "one number", value) from None
        if not isinstance(name, str):
            raise _wrong("metrics", "a dict with str keys", name)
    return found
