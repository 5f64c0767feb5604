"""JSON bodies of requests and responses: rows (`instances`), columns (`inputs`) and examples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.dtypes import Array, is_floating
from graphc.ir.types import TensorType, shown_types
from graphc.serving.protocol.checks import Types, check_names, listed
from graphc.serving.protocol.table import Table, read_table
from graphc.serving.protocol.tensors import STRING
from graphc.serving.protocol.values import from_array, invalid, to_array
from graphc.web.failures import Failure
from graphc.web.http import write_json


class Body(NamedTuple):
    """A JSON body.

    Attributes:
        value: the object.
        data: its bytes.
        careful: whether it may contain a bool; see `to_array`.
        quotes: the number of quotes.
        exact: whether integers of more than 64 bits are integers, and not floats.
        table: what the body contains instead of `value`, if it is a table of numbers alone.
    """

    value: dict[str, Any]
    data: bytes
    careful: bool
    quotes: int
    exact: bool = True
    table: Table | None = None

    def text(self, key: str) -> str:
        """The text under a key, "" without the key.

        Raises:
            Failure: INVALID_ARGUMENT: it is not a text.
        """
        found = self.value.get(key, "")
        if not isinstance(found, str):
            raise invalid(f"{key} must be a string, got {type(found).__name__}")
        return found


def read_body(data: bytes) -> Body:
    """The object of a body.

    Raises:
        Failure: INVALID_ARGUMENT: it is not JSON, not an object, or nested too deep.
    """
    table = read_table(data)
    return _read_any(data) if table is None else Body({}, data, False, 0, False, table)


def _read_any(data: bytes) -> Body:
    # Bodies of numbers have no "r" and few "f": the first search is short.
    careful = (b"r" in data and b"true" in data) or (b"f" in data and b"false" in data)
    quotes = data.count(b'"')
    if (fast := _fast_reader()) is not None:
        with suppress(ValueError):  # for example NaN, which is no JSON but allowed here
            found = fast(data)
            if isinstance(found, dict):
                return Body(found, data, careful, quotes, exact=False)
    return Body(_read_json(data), data, careful, quotes)


@lru_cache(maxsize=1)
def _fast_reader() -> Callable[[bytes], Any] | None:
    """orjson's reader, if it is installed: Python's own takes most of the time of a request."""
    try:
        import orjson
    except ImportError:
        return None
    reader: Callable[[bytes], Any] = orjson.loads
    return reader


def _read_json(data: bytes, **options: Any) -> dict[str, Any]:
    try:
        found = json.loads(data, **options)
    except RecursionError:
        raise invalid("the body is not JSON: it is nested too deep") from None
    except ValueError as error:  # also of an integer with too many digits
        raise invalid(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise invalid(f"the body must be a JSON object, got {type(found).__name__}")
    return found


def read_inputs(body: Body, types: Types) -> tuple[dict[str, Array], int | None]:
    """The inputs of a predict request.

    Args:
        types: name -> type of the inputs of the signature.

    Returns:
        name -> array; and the number of rows, or None for columns.

    Raises:
        Failure: INVALID_ARGUMENT: the body has neither `instances` nor `inputs`, or both; an input
            is missing or unknown; a value is not one of its input.
    """
    if body.table is not None:
        found = _from_table(body.table, types)
        if found is not None:
            return found, len(body.table.values) if body.table.key == "instances" else None
        body = _read_any(body.data)
    try:
        return _read_inputs(body, types)
    except Failure:
        if body.exact:
            raise
    exact = body._replace(value=_read_json(body.data), exact=True)
    return _read_inputs(exact, types)  # the failure again, with the number as it was written


def _from_table(table: Table, types: Types) -> dict[str, Array] | None:
    """The only input of the signature; None if the table may not be right for it."""
    if len(types) != 1:
        return None
    ((name, type),) = types.items()
    found = table.cast(type.dtype)
    return None if found is None else {name: found}


def _read_inputs(body: Body, types: Types) -> tuple[dict[str, Array], int | None]:
    rows, columns = "instances" in body.value, "inputs" in body.value
    if rows == columns:
        both = "both" if rows else "neither"
        raise invalid(f"the body must have 'instances' (rows) or 'inputs' (columns), it has {both}")
    found = _from_rows(body, types) if rows else _from_columns(body, types)
    _check_finite(body, found)
    return found, len(body.value["instances"]) if rows else None


def _from_rows(body: Body, types: Types) -> dict[str, Array]:
    rows = body.value["instances"]
    if not isinstance(rows, list) or not rows:
        raise invalid("instances must be a list with at least one row")
    if not _is_named(rows[0]):
        name = _only(types, "instances")
        return {name: to_array(rows, types[name].dtype, "instances", careful=_careful(body, 0))}
    for number, row in enumerate(rows):
        if not _is_named(row):
            raise invalid(f"instances[{number}]: expected an object as in the first row")
        check_names(row, types, f"instances[{number}]")
    careful = _careful(body, len(rows) * len(types))
    return {name: _column(rows, name, type, careful) for name, type in types.items()}


def _column(rows: list[Any], name: str, type: TensorType, careful: bool) -> Array:
    """One input of all rows."""
    try:
        values = [row[name] for row in rows]
        return to_array(values, type.dtype, f"instances[*].{name}", careful=careful)
    except Failure:
        for number, row in enumerate(rows):  # the exact place, if one row alone is wrong
            to_array(row[name], type.dtype, f"instances[{number}].{name}")
        raise


def _from_columns(body: Body, types: Types) -> dict[str, Array]:
    value = body.value["inputs"]
    careful = _careful(body, len(types) if _is_named(value) else 0)
    if not _is_named(value):
        value = {_only(types, "inputs"): value}
    check_names(value, types, "inputs")
    return {
        name: to_array(value[name], type.dtype, f"inputs.{name}", careful=careful)
        for name, type in types.items()
    }


def _careful(body: Body, keys: int) -> bool:
    """Whether the values may contain bools, which NumPy takes for numbers, or texts, of which it
    makes arrays with the size of the longest one.

    Args:
        keys: the number of keys with names of inputs.
    """
    signature = isinstance(body.value.get("signature_name"), str)
    return body.careful or body.quotes > 2 * (len(body.value) + signature + keys)


def _is_named(value: Any) -> bool:
    """Whether it is an object with a value for each input."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def _only(types: Types, where: str) -> str:
    if len(types) != 1:
        raise invalid(
            f"{where}: the signature has {len(types)} inputs ({', '.join(types)}): "
            'write an object {"name": value}'
        )
    return next(iter(types))


def _check_finite(body: Body, arrays: Mapping[str, Array]) -> None:
    """Rejects numbers that overflow, such as 1e999. NaN and Infinity, written so, are values."""
    if not body.exact:
        return  # orjson reads neither
    for array in arrays.values():
        floats = array.dtype != STRING and is_floating(array.dtype)
        if floats and not np.isfinite(array.astype(np.float64, copy=False)).all():
            _read_json(body.data, parse_float=_finite)
            return


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is not in the range of a float64")
    return value


def read_examples(body: Body, types: Types) -> dict[str, Array]:
    """The inputs of a classify or regress request: `examples`, each an object with the values of
    its features, and `context`, features of all examples.

    As in a tf.train.Example, the values of a feature are a flat list, or one value.

    Raises:
        Failure: INVALID_ARGUMENT: as for `read_inputs`; a feature has another number of values.
    """
    examples = body.value.get("examples")
    context = body.value.get("context", {})
    if not isinstance(examples, list) or not examples:
        raise invalid("examples must be a list with at least one example")
    if not isinstance(context, dict):
        raise invalid("context must be an object")
    rows = []
    for number, example in enumerate(examples):
        if not isinstance(example, dict):
            raise invalid(f"examples[{number}] must be an object")
        row = {**context, **example}
        missing = next((name for name in types if name not in row), None)
        if missing is not None:
            raise invalid(
                f"examples[{number}]: feature {missing!r} is missing; it takes {listed(types)}"
            )
        rows.append(row)
    found = {}
    for name, type in types.items():
        shape = row_shape(name, type)
        parts = [
            _feature(row[name], type, shape, f"examples[{number}].{name}")
            for number, row in enumerate(rows)
        ]
        found[name] = np.stack(parts)
    _check_finite(body, found)
    return found


def row_shape(name: str, type: TensorType) -> tuple[int, ...]:
    """The shape of one example of an input, whose first axis counts the examples.

    Raises:
        Failure: INVALID_ARGUMENT: the signature does not take examples, because this input has no
            axis for them or sizes that are not fixed.
    """
    shape = type.shape[1:]
    sizes = tuple([size for size in shape if isinstance(size, int)])
    if not type.shape or len(sizes) != len(shape):
        raise invalid(
            f"the signature does not take examples: input {name!r} is "
            f"{shown_types({name: type})[name]}; use predict"
        )
    return sizes


def _feature(value: Any, type: TensorType, shape: tuple[int, ...], where: str) -> Array:
    flat = to_array(value if isinstance(value, list) else [value], type.dtype, where)
    if flat.ndim != 1 or flat.size != math.prod(shape):
        raise invalid(f"{where}: expected {math.prod(shape)} values, got shape {list(flat.shape)}")
    return flat.reshape(shape)


def write_outputs(outputs: Mapping[str, Array], rows: int | None) -> bytes:
    """The body of a predict response: `predictions` for rows, `outputs` for columns.

    One output is a bare value; several are objects.

    Args:
        rows: the number of rows of the request, or None for columns.

    Raises:
        Failure: INVALID_ARGUMENT: an output does not have one entry for each row.
    """
    values = {
        name: from_array(array, b64=name.endswith("_bytes")) for name, array in outputs.items()
    }
    single = next(iter(values.values())) if len(values) == 1 else None
    if rows is None:
        return _write("outputs", values if single is None else single, outputs)
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != rows:
            raise invalid(
                f"output {name!r} has shape {list(array.shape)}, not an entry for each of the "
                f"{rows} rows: send columns ('inputs')"
            )
    if len(values) == 1:
        return _write("predictions", single, outputs)
    names = list(values)
    objects = [dict(zip(names, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return write_json({"predictions": objects})


def _write(key: str, value: Any, outputs: Mapping[str, Array]) -> bytes:
    """The object with one key. Python writes lists of finite numbers as JSON does, and faster."""
    if len(outputs) == 1 and all(array.dtype.kind in "iuf" for array in outputs.values()):
        text = repr(value)
        if "n" not in text:  # nan, inf
            return f'{{"{key}": {text}}}'.encode()
    return write_json({key: value})
