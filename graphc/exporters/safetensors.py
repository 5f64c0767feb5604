"""`to_safetensors`: the values of variables in a safetensors file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from safetensors.numpy import save

from graphc.errors import AttributeValueError, ModelExportError
from graphc.exporters.core.files import write
from graphc.runtime.session import Session

_INTEGERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_FLOATS = {"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"}
_DTYPES: Final = frozenset({"bool", *_INTEGERS, *_FLOATS})
"""What every supported version of safetensors has a name for."""


def to_safetensors(
    session: Session,
    path: str | os.PathLike[str],
    names: Iterable[str] | Mapping[str, str] | None = None,
) -> None:
    """Writes the values of variables to a safetensors file.

    Variables of an imported model have the names of its framework. A file of them therefore loads
    into the PyTorch module: `module.load_state_dict(safetensors.torch.load_file(path))`. The file
    is replaced as a whole, so readers see the old or the new one.

    Args:
        path: the file to write.
        names: the names of the variables to write, or variable -> its name in the file. By default
            all variables under their own names, also those of the optimizer.

    Raises:
        UnknownNameError: there is no such variable.
        AttributeValueError: `names` is not of strings, or gives two variables the same name.
        ModelExportError: safetensors cannot express the dtypes of some variables; the error names
            all of them. Or the file cannot be written.

    Examples:
        >>> import os, tempfile
        >>> from safetensors.numpy import load_file
        >>> w = gc.variable([1.0, 2.0], name="dense/w")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.safetensors")
        ...     gc.to_safetensors(gc.Session(graph), path, {"dense/w": "dense.weight"})
        ...     load_file(path)
        {'dense.weight': array([1., 2.], dtype=float32)}
    """
    renamed = _renamed(names)
    if not isinstance(session, Session):
        raise AttributeValueError.here(
            f"to_safetensors: takes a session, got {type(session).__name__}",
            hint="gc.to_safetensors(session, path); safetensors.numpy.save_file writes arrays",
        )
    values = session.values(None if renamed is None else list(renamed))
    _refuse_dtypes(values)
    arrays = {(renamed or {}).get(name, name): value for name, value in values.items()}
    write(path, save(arrays))


def _renamed(names: Iterable[str] | Mapping[str, str] | None) -> dict[str, str] | None:
    """Variable -> its name in the file, or None for all under their own names."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise _bad_names(f"takes names or a dict of names, got {names!r}")
    renamed = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    for name in (*renamed, *renamed.values()):
        if not isinstance(name, str):
            raise _bad_names(f"names must be strings, got {name!r}")
    twice = [name for name, count in Counter(renamed.values()).items() if count > 1]
    if twice:
        raise _bad_names(f"several variables would be named {twice[0]!r}")
    return renamed


def _bad_names(what: str) -> AttributeValueError:
    return AttributeValueError.here(
        f"to_safetensors: {what}", hint='write names={"dense/w": "dense.weight"}'
    )


def _refuse_dtypes(values: Mapping[str, np.ndarray[Any, Any]]) -> None:
    refused = [f"{n!r} is {v.dtype.name}" for n, v in values.items() if v.dtype.name not in _DTYPES]
    if refused:
        raise ModelExportError.here(
            "to_safetensors: safetensors cannot express the dtypes of some variables",
            details=refused,
            hint="write the others only: names=[...]",
        )
