"""Reads event files with the package `tensorboard`."""

import os
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing import event_file_loader
from tensorboard.util import tensor_util


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*tfevents*"))


def events(folder: str | os.PathLike[str]) -> list[Any]:
    """Every event of the files in a folder, in the order in which TensorBoard reads them."""
    found: list[Any] = []
    for file in files(Path(folder)):
        found += event_file_loader.LegacyEventFileLoader(str(file)).Load()
    return found


def values(folder: str | os.PathLike[str]) -> list[tuple[int, str, Any]]:
    """(step, tag, array) of every summary."""
    return [
        (event.step, value.tag, tensor_util.make_ndarray(value.tensor))
        for event in events(folder)
        for value in event.summary.value
    ]


def scalars(folder: str | os.PathLike[str], tag: str) -> list[tuple[int, float]]:
    return [(step, float(array)) for step, name, array in values(folder) if name == tag]
