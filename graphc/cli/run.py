"""`graphc run`: runs one signature of an artifact on arrays from files."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.artifacts import EntryPoint, Model, load
from graphc.cli.arrays import common, write_arrays
from graphc.cli.report import print_json
from graphc.errors import FeedError, GraphcError, UnknownNameError
from graphc.ir.dtypes import Array, short_name


def run(options: argparse.Namespace) -> None:
    """Reads the inputs, runs once, and prints or writes the results."""
    model = load(options.artifact)
    point = _chosen(model, options.signature)
    _check_names(point, options)
    inputs = _inputs(options.input)
    if point.updates_state:
        results, _ = point(model.state(), **inputs)
    else:
        results = point(**inputs)
    values = {name: np.asarray(value) for name, value in results.items()}
    if options.output is not None:
        _write(options.output, values)
    if options.json:
        print_json(_facts(point, values, options.output))
        return
    for name, value in values.items():
        print(f"{name}: {short_name(value.dtype)}[{', '.join(map(str, value.shape))}]")
        if options.output is None:
            print(np.array2string(common(value), threshold=100, precision=6))
    if point.updates_state:
        print("the new state was not kept: use gc.load to train from an artifact")
    if options.output is not None:
        print(f"wrote {options.output}")


def _chosen(model: Model, name: str | None) -> EntryPoint:
    if name is not None:
        return model.signatures[name]
    if len(model.signatures) > 1:
        names = ", ".join(model.signatures)
        raise UnknownNameError(
            f"the artifact has {len(model.signatures)} signatures: {names}",
            hint="choose one: --signature NAME",
        )
    return next(iter(model.signatures.values()))


def _check_names(point: EntryPoint, options: argparse.Namespace) -> None:
    """Rejects missing and unknown inputs. The error shows the full command for the signature."""
    given = [name for name, _ in options.input]
    missing = [name for name in point.inputs if name not in given]
    unknown = [name for name in given if name not in point.inputs]
    if not missing and not unknown:
        return
    form = ["graphc run", shlex.quote(options.artifact), "--signature", point.name]
    form += [f"--input {name}=FILE.npy" for name in point.inputs]
    types = ", ".join(f"{name} {type.shown()}" for name, type in point.inputs.items())
    what = f"no input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
    raise FeedError(
        f"{point.name!r}: {what}; it takes {types or 'no inputs'}", hint=f"write {' '.join(form)}"
    )


def _inputs(pairs: Sequence[tuple[str, str]]) -> dict[str, Array]:
    inputs: dict[str, Array] = {}
    for name, path in pairs:
        if name in inputs:
            raise FeedError(f"input {name!r} is given twice")
        inputs[name] = _read(name, path)
    return inputs


def _read(name: str, path: str) -> Array:
    try:
        value = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise FeedError(f"input {name!r}: no file {path!r}", hint="check the path") from None
    except (OSError, ValueError, EOFError) as error:
        why = f" that can be read ({str(error).splitlines()[0]})" if str(error) else ""
        raise FeedError(
            f"input {name!r}: {path!r} is not a NumPy file{why}",
            hint="write an array of numbers with numpy.save(path, array)",
        ) from error
    if not isinstance(value, np.ndarray):
        value.close()
        raise FeedError(
            f"input {name!r}: {path!r} holds several arrays",
            hint="give a .npy file, written with numpy.save(path, array)",
        )
    return value


def _write(path: str, values: Mapping[str, Array]) -> None:
    try:
        write_arrays(path, values)
    except OSError as error:
        raise GraphcError(
            f"cannot write {path!r}: {error.strerror or error}",
            hint="give a file in a folder that exists",
        ) from error


def _facts(point: EntryPoint, values: Mapping[str, Array], output: str | None) -> dict[str, Any]:
    rows = {}
    for name, value in values.items():
        rows[name] = {"dtype": short_name(value.dtype), "shape": list(value.shape)}
        if output is None:
            rows[name]["values"] = common(value).tolist()
    return {"signature": point.name, "outputs": rows, "file": output}
