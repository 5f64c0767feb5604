"""Small artifacts that the tests of the manager save."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import graphc as gc

BODY = np.arange(16, dtype=np.float32).reshape(4, 4)
X = np.eye(4, dtype=np.float32)


@cache
def _file(value: float) -> Path:
    """`predict(x) = x @ body @ head` with the same body for each `value` of the head, a signature
    that draws random numbers, and one that updates a variable."""
    path = Path(mkdtemp()) / "model.gcx"
    with gc.Graph(seed=0, name="small") as graph:
        x = gc.placeholder(("batch", 4), name="x")
        body = gc.variable(BODY, name="body")
        head = gc.variable(np.full((4, 2), value, np.float32), name="head")
        y = gc.matmul(gc.matmul(x, body), head)
        noisy = y + gc.random.normal((2,))
        grow = body.assign_add(gc.ones_like(body))
    signatures = {
        "predict": gc.Signature({"x": x}, {"y": y}),
        "noisy": gc.Signature({"x": x}, {"y": noisy}),
        "train": gc.Signature({}, {}, updates=[grow]),
    }
    gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])
    return path


def put(base: Path, version: int | str, value: float) -> Path:
    """Saves a version in a folder; the file appears atomically."""
    folder = base / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / ".writing"
    shutil.copy(_file(value), aside)
    return aside.rename(folder / "model.gcx")


def break_file(path: Path) -> None:
    """Truncates a file in the middle."""
    data = path.read_bytes()
    aside = path.with_name("aside")
    aside.write_bytes(data[: len(data) // 2])
    aside.rename(path)


def expected(value: float) -> np.ndarray:
    """The result of `predict` for `X`."""
    return BODY @ np.full((4, 2), value, np.float32)
