"""A small decoder whose hidden state is a variable: saves it, and runs it step by step."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

import graphc as gc

TOKENS, WIDTH = 16, 8
STATE_BYTES = 4 * WIDTH


@cache
def _file(scale: float) -> Path:
    path = Path(mkdtemp()) / "model.gcx"
    rng = np.random.default_rng(3)

    def weights(name: str, *shape: int) -> gc.Variable:
        return gc.variable(scale * rng.normal(size=shape).astype(np.float32), name=name)

    with gc.Graph(seed=5, name="decoder") as graph:
        token = gc.placeholder((1,), "int32", name="token")
        hidden = gc.variable(np.zeros((1, WIDTH), np.float32), name="hidden")
        embedding, mixing = weights("embedding", TOKENS, WIDTH), weights("mixing", WIDTH, WIDTH)
        head = weights("head", WIDTH, TOKENS)
        new = gc.tanh(embedding[token] + hidden @ mixing)
        logits = new @ head
        keep = hidden.assign(new)
        following = gc.cast(gc.argmax(logits, axis=-1), "int32")
        drawn = gc.random.categorical(logits)
    signatures = {
        "step": gc.Signature({"token": token}, {"next": following, "logits": logits}, [keep]),
        "draw": gc.Signature({"token": token}, {"next": drawn}, [keep]),
        "look": gc.Signature({}, {"hidden": hidden}),
        "logits": gc.Signature({"token": token}, {"logits": logits}),
    }
    gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])
    return path


@cache
def _loaded(scale: float) -> Any:
    return gc.load(_file(scale))


def put(base: Path, version: int = 1, scale: float = 1.0) -> Path:
    """Saves a version in a folder; the file appears atomically."""
    folder = base / str(version)
    folder.mkdir(parents=True)
    shutil.copy(_file(scale), folder / ".writing")
    return (folder / ".writing").rename(folder / "model.gcx")


def local(
    signature: str, tokens: Sequence[int], scale: float = 1.0, seed: int | None = None
) -> Iterator[dict[str, Any]]:
    """The outputs of a signature without a server: first for these tokens, then for the previous
    output `next`."""
    model = _loaded(scale)
    state = model.state() if seed is None else model.state().seeded(seed)
    given, outputs = list(tokens), {}
    while True:
        token = np.int32([given.pop(0)]) if given else outputs["next"]
        outputs, state = model.signatures[signature](state, token=token)
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        yield outputs
