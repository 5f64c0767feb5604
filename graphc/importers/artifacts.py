"""Imported models as artifacts: what `graphc import` writes and `graphc serve` serves."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from graphc.artifacts import Signature, save
from graphc.config import CompileOptions
from graphc.importers.core.model import ImportedModel
from graphc.importers.core.model_graph import ModelGraph
from graphc.importers.files import import_model
from graphc.runtime.session import Session
from graphc.store.environment import sources_digest
from graphc.store.folder import default_folder

_WITHOUT_WEIGHTS = 1 << 28  # bytes; a larger file holds its weights itself
PREDICT = "predict"  # the name of the signature


def save_model(
    model: ImportedModel,
    path: str | os.PathLike[str],
    platforms: Sequence[str] = ("cpu", "cuda"),
    *,
    frozen: bool = False,
) -> ModelGraph:
    """Writes an artifact with the signature "predict". Returns the graph in it.

    Args:
        frozen: the signature is frozen: see `gc.freeze`.

    Raises:
        ArtifactError: it cannot be saved.
    """
    made = model.to_graph()
    signature: Signature = made.signature(freeze=frozen)
    session = Session(made.graph, options=CompileOptions(cache=None))
    save(session, os.fspath(path), signatures={PREDICT: signature}, platforms=platforms)
    return made


def cached_artifact(
    path: str | os.PathLike[str], sizes: Mapping[str, int] | None = None, **options: Any
) -> Path:
    """The frozen artifact of a model file, in the user's cache folder. It is made if this version
    of graphc has not made it of these contents before.

    Raises:
        GraphcError: the model cannot be imported or saved.
    """
    digest = hashlib.sha256()
    digest.update(
        f"{sources_digest(frozenset())} {jax.__version__} {sorted((sizes or {}).items())}".encode()
    )
    digest.update(f"{sorted(options.items())}".encode())
    file = Path(path)
    files = sorted(p for p in file.rglob("*") if p.is_file()) if file.is_dir() else _parts(file)
    for part in files:
        digest.update(f"\n{part.relative_to(file.parent)} {part.stat().st_size}\n".encode())
        with part.open("rb") as opened:
            while piece := opened.read(1 << 22):
                digest.update(piece)
    folder = default_folder().parent / "imported"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / f"{digest.hexdigest()}.gcx"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as writing:
            made = Path(writing, "model.gcx")
            save_model(import_model(path, sizes=sizes, **options), made, _platforms(), frozen=True)
            os.replace(made, target)
    return target


def _parts(file: Path) -> list[Path]:
    """A file, and the files beside it that hold its weights: those with its name and another
    ending, and those whose names are in it."""
    names = b""
    if file.stat().st_size < _WITHOUT_WEIGHTS:
        names = file.read_bytes()
    beside = [p for p in file.parent.iterdir() if p.is_file() and p != file]
    stem = f"{file.stem}."
    kept = [p for p in beside if p.name.startswith(stem) or p.name.encode() in names]
    return [file, *sorted(p for p in kept if p.suffix.lower() not in (".gcx", ".json"))]


def _platforms() -> tuple[str, ...]:
    """The platforms for which an artifact is made here."""
    here = jax.default_backend()
    return ("cpu",) if here == "cpu" else ("cpu", "cuda" if here == "gpu" else here)
