"""What tracing an optimizer gave, kept on disk: tracing one for 300 parameters takes JAX longer
than everything else that a training step that was compiled before needs for its start."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from graphc._version import __version__
from graphc.config import CompileOptions, Default
from graphc.errors import SerialError
from graphc.ir.types import TensorType
from graphc.optim.digest import digest_of
from graphc.optim.recipe import NeedsObjective, Recipe
from graphc.store.environment import jaxlib_build, settings, sources_digest
from graphc.store.folder import ExecutableCache, open_cache

Cache = str | os.PathLike[str] | Default | None


_NEEDS_OBJECTIVE = b"needs the objective"  # in the place of a recipe


def recipe_of(
    tx: Any,
    parameters: Mapping[str, TensorType],
    loss: TensorType,
    label: str,
    cache: Cache,
    captured: Sequence[TensorType] | None = None,
) -> Recipe:
    """The recipe of an optax transformation: from the cache, or `traced` and then kept there.

    Args:
        captured: as of `traced`.

    Raises:
        NeedsObjective: the transformation evaluates the loss, and `captured` is None.
        CacheError: the folder that the user named is not private to the user.
        AttributeValueError: `cache` is no path.
        JaxImportError: as of `traced`.
    """
    store = open_cache(CompileOptions(cache=cache))
    environment = _environment()
    others = [str(loss), None if captured is None else [*map(str, captured)]]
    key = None if store is None else _key(tx, parameters, others, label, environment)
    found = None if store is None or key is None else _find(store, key)
    if found is not None:
        return found
    # Not before: what traces takes a tenth of the time in which a compiled step starts again.
    from graphc.optim.traced import traced

    if store is None or key is None:
        return traced(tx, parameters, loss, label, captured)
    start = time.perf_counter()
    metadata = {
        "program": f"{label} (minimize, {len(parameters)} parameters)",
        "environment": environment,
    }
    try:
        recipe = traced(tx, parameters, loss, label, captured)
    except NeedsObjective:
        metadata["seconds"] = {"trace": time.perf_counter() - start}
        store.put(key, metadata, _NEEDS_OBJECTIVE)
        raise
    metadata["seconds"] = {"trace": time.perf_counter() - start}
    store.put(key, metadata, recipe.to_bytes())
    return recipe


def _find(store: ExecutableCache, key: str) -> Recipe | None:
    entry = store.get(key)
    if entry is None:
        return None
    if entry.payload == _NEEDS_OBJECTIVE:
        raise NeedsObjective
    try:
        return Recipe.from_bytes(entry.payload)
    except SerialError:  # of no use: made anew, and stored in its place
        return None


def _key(
    tx: Any,
    parameters: Mapping[str, TensorType],
    others: Sequence[Any],
    label: str,
    environment: Mapping[str, str],
) -> str | None:
    """What a recipe is found by; None for a transformation that may be another one next time."""
    digest = digest_of(tx)
    if digest is None:
        return None
    types = [[name, str(type)] for name, type in parameters.items()]
    text = json.dumps(["recipe", digest, types, others, label, dict(environment)])
    return hashlib.sha256(text.encode()).hexdigest()


def _environment() -> dict[str, str]:
    """What else decides how a transformation is traced, and what its nodes are."""
    return {
        "graphc": f"{__version__} {sources_digest()}",
        "jax": jax.__version__,
        "jaxlib": jaxlib_build(),
        "numpy": np.__version__,
        "optax": _optax_build(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "settings": settings(),
    }


@lru_cache(maxsize=1)
def _optax_build() -> str:
    """The version of optax, and a digest of when its files were written: somebody may have put
    a print into one. Python itself looks at no more before it uses what it compiled."""
    folder = Path(optax.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        facts = path.stat()
        digest.update(f"{path.relative_to(folder)} {facts.st_size} {facts.st_mtime_ns}".encode())
    return f"{optax.__version__} {digest.hexdigest()[:16]}"
