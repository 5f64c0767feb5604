"""The index by the names of other libraries (`other_libraries.toml`), for the hints of errors."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

# The part of a name that the index has before the names of a module of graphc.
_AREAS: Final[dict[str, tuple[str, ...]]] = {
    "graphc": ("tf", "torch", "np"),
    "graphc.data": ("tf.data", "torch.utils.data", "tf.train", "tf.io"),
    "graphc.devices": ("tf.distribute", "tf.config", "torch.cuda"),
    "graphc.fft": ("np.fft", "torch.fft", "tf.signal", "tf.spectral"),
    "graphc.linalg": ("np.linalg", "scipy.linalg", "torch.linalg", "tf.linalg"),
    "graphc.metrics": ("metrics", "tf.metrics"),
    "graphc.nn": (
        "tf.nn",
        "",
        "torch.nn",
        "torch.nn.functional",
        "tf.layers",
        "losses",
        "tf.image",
    ),
    "graphc.nn.initializers": ("initializers", "torch.nn.init"),
    "graphc.random": ("np.random", "tf.random", "torch"),
    "graphc.train": ("tf.train", "torch.optim", "optimizers", "callbacks"),
    "Tensor": ("torch.Tensor", "tf.Tensor", "np.ndarray", "tf.Variable"),
}


@functools.cache
def _index() -> dict[str, list[tuple[str, str]]]:
    """The entries by the last part of the name: where the name is found, and the hint."""
    import tomllib  # only errors need it

    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    found: dict[str, list[tuple[str, str]]] = {}
    for table in tomllib.loads(text).values():
        for theirs, ours in table.items():
            area, _, name = theirs.rpartition(".")
            found.setdefault(name, []).append((area, _hint(ours)))
    return found


def _hint(entry: str) -> str:
    """The entry without backquotes and links. One that begins with code is what to write."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", entry).replace("`", "")
    return f"write {text}" if entry.startswith("`") else text


def counterpart(name: str, module: str, elsewhere: bool = True) -> str | None:
    """The hint of the index for `name`, preferably for that in the module's part of a library.

    Args:
        module: a public module, or "Tensor".
        elsewhere: whether the hint may be for that name in any other part.
    """
    entries = dict(reversed(_index().get(name, [])))
    for area in _AREAS.get(module, ()):
        if area in entries:
            return entries[area]
    return next(iter(reversed(entries.values())), None) if elsewhere else None
