"""`to_saved_model`: writes the folder."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphc.artifacts.exporting import export
from graphc.artifacts.signature import Signature
from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, ModelExportError, ModelFileError
from graphc.exporters.core.files import write
from graphc.exporters.core.inference import check_effects, check_signature
from graphc.exporters.saved_model.nodes import SAVED_UNDER, model_of, number_of
from graphc.exporters.saved_model.tensor_bundle import write_bundle
from graphc.runtime.session import Session
from graphc.train.tensorflow.schema import parse

_LARGEST: Final = 1_900_000_000  # bytes: protobuf cannot hold more than 2 GiB
_FILE: Final = "saved_model.pb"
_FOLDER: Final = "variables"
_IN_GRAPH: Final = 100_000_000  # bytes of values: larger models have them in files of variables


def to_saved_model(
    session: Session,
    path: str | os.PathLike[str],
    signature: Signature,
    *,
    signature_name: str = "serving_default",
    platforms: Sequence[str] = ("cpu",),
    variables: bool | None = None,
) -> None:
    """Writes a signature as a SavedModel, with the values of its variables (extra `tensorflow`).

    TensorFlow 2.15 and later load it, and so does TensorFlow Serving. Neither is needed here. The
    program is one operator, `XlaCallModule`, with StableHLO. Variables keep their names, as
    constants, or as variables of TensorFlow if they are large. Open sizes stay open. Models are for
    inference: a signature with updates is refused, and so are random numbers.

    Args:
        path: a folder, which is made. An earlier model of this function in it is replaced.
        signature: the inputs and outputs.
        signature_name: the name of the signature in the model.
        platforms: where it runs: "cpu", "cuda", "tpu".
        variables: whether the values are in the folder "variables", which may have any size. By
            default if they have more than 100 MB: TensorFlow holds constants in memory several
            times, and no more than 1.9 GB of them. A model without the folder is one file, which is
            replaced as a whole.

    Raises:
        ModelExportError: TensorFlow cannot express it, the constants are larger than 1.9 GB, or a
            file cannot be written.
        ArtifactError: JAX cannot export the program.
        FeedError, FetchError, UnknownNameError: the signature does not fit the graph.
        MissingExtraError: protobuf or google-crc32c is not installed.

    Examples:
        >>> import os, tempfile
        >>> x = gc.placeholder(("batch", 2), name="x")
        >>> signature = gc.Signature({"x": x}, {"double": x * 2})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model")
        ...     gc.to_saved_model(gc.Session(graph), path, signature)
        ...     os.listdir(path)
        ['saved_model.pb']
    """
    check_signature("to_saved_model", "the SavedModels that it writes", signature)
    _check_names(signature_name, platforms, variables)
    folder = _folder(path)
    made = export(session, "main", signature, platforms, False, None, CompileOptions())
    entry = made.entry
    check_effects("to_saved_model", (*entry.read, *entry.written), entry.assigned)
    read = [name for name in (*entry.written, *entry.read) if name not in made.values]
    arrays = {**made.values, **session.values(read)}
    total = sum(array.nbytes for array in arrays.values())
    variables = total > _IN_GRAPH if variables is None else variables
    if total > _LARGEST and not variables:
        raise _too_large(total, "variables=True")
    data = model_of(made, arrays, signature_name, variables).SerializeToString()
    if len(data) > _LARGEST:
        raise _too_large(len(data), "gc.save writes models of any size")
    try:
        if variables or (folder / _FOLDER).exists():
            _replace(folder, data, arrays if variables else None)
            return
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelExportError.here(
            f"cannot make the folder {str(folder)!r}: {error.strerror}"
        ) from error
    write(folder / _FILE, data)


def _too_large(size: int, hint: str) -> ModelExportError:
    return ModelExportError.here(
        f"to_saved_model: {_FILE} would have {size} bytes, and the format holds at most 2 GiB",
        hint=hint,
    )


def _replace(folder: Path, data: bytes, arrays: Mapping[str, np.ndarray[Any, Any]] | None) -> None:
    """Writes a model beside the folder, then renames it.

    Args:
        data: of "saved_model.pb".
        arrays: the variables; None if the model has none.
    """
    folder = folder.resolve()  # a link stays a link
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    aside.mkdir()
    try:
        if arrays is not None:
            (aside / _FOLDER).mkdir()
            numbers = {name: number_of(array.dtype) for name, array in arrays.items()}
            write_bundle(aside / _FOLDER / _FOLDER, numbers, arrays.__getitem__)
        write(aside / _FILE, data)
        if folder.exists():
            shutil.copymode(folder, aside)
        _swap(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _swap(made: Path, folder: Path) -> None:
    """Puts a folder in the place of another, which stays there if that fails."""
    old = made.with_name(f"{made.name}.old")
    try:
        if folder.exists():
            folder.rename(old)
        made.rename(folder)
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)


def _check_names(signature_name: object, platforms: object, variables: object) -> None:
    if variables is not None and type(variables) is not bool:
        raise AttributeValueError.here(
            f"to_saved_model: variables must be a bool, got {variables!r}", hint="True or False"
        )
    if not isinstance(signature_name, str) or not signature_name:
        raise AttributeValueError.here(
            f"to_saved_model: signature_name must be a string, got {signature_name!r}",
            hint='signature_name="serving_default"',
        )
    known = ("cpu", "cuda", "tpu")
    if (
        isinstance(platforms, str)
        or not isinstance(platforms, Sequence)
        or not platforms
        or any(each not in known for each in platforms)
    ):
        raise AttributeValueError.here(
            f"to_saved_model: platforms must be among {', '.join(known)}, got {platforms!r}",
            hint='platforms=["cpu", "cuda"]',
        )


def _folder(path: str | os.PathLike[str]) -> Path:
    """The folder, if nothing else than an earlier model is in it."""
    folder = Path(path)
    others = [p.name for p in folder.iterdir() if p.name != _FILE] if folder.is_dir() else []
    if others == [_FOLDER] and _is_own(folder):
        others = []
    if others or (folder.exists() and not folder.is_dir()):
        what = f"holds {others[0]!r}" if others else "is a file"
        raise ModelExportError.here(
            f"to_saved_model: {str(folder)!r} {what}",
            hint="give a new folder, so that models do not mix",
        )
    return folder


def _is_own(folder: Path) -> bool:
    """Whether this function wrote the model in a folder, and its variables."""
    file = folder / _FILE
    if not file.is_file():
        return False
    try:
        model = parse("SavedModel", file.read_bytes(), _FILE)
    except (ModelFileError, OSError):
        return False
    saved = [meta.saver_def.filename_tensor_name for meta in model.meta_graphs]
    variables = folder / _FOLDER
    if saved != [SAVED_UNDER] or variables.is_symlink() or not variables.is_dir():
        return False
    inside = {f"{_FOLDER}.index", f"{_FOLDER}.data-00000-of-00001"}
    return all(p.name in inside and p.is_file() for p in variables.iterdir())
