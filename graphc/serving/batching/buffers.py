"""The arrays into which the rows of a batch are copied, and the rows that come back."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from graphc.ir.dims import substitute
from graphc.ir.dtypes import Array
from graphc.serving.batching.requests import Arrays, Form, Piece
from graphc.web.failures import Failure

_MOST_KEPT = 64  # the number of different sizes for which buffers are kept
_LARGEST_KEPT = 1 << 20  # bytes of an array; allocating a larger one takes less than filling it


class Buffers:
    """Arrays for the inputs of batches. They are used again for batches of the same size.

    Each row of a request is copied once. A request that fills its batch is not copied.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._free: dict[Hashable, list[dict[str, Array]]] = {}
        self._lock = threading.Lock()

    def take(self, pieces: Sequence[Piece], rows: int) -> tuple[Arrays, dict[str, Array] | None]:
        """The inputs of a batch of `rows` rows, padding included, and the buffers to give back."""
        first = pieces[0]
        if len(pieces) == 1 and first.rows == rows and not self._is_padded(first):
            values = first.request.inputs.items()
            return {name: self._rows(name, value, first) for name, value in values}, None
        key = (first.request.sizes.shapes, rows)
        with self._lock:
            free = self._free.get(key)
            buffers = free.pop() if free else None
        if buffers is None:
            buffers = self._new(first, rows)
        inputs = {
            name: first.request.inputs[name] if buffer is None else buffer
            for name, buffer in ((n, buffers.get(n)) for n in first.request.inputs)
        }
        for name, buffer in buffers.items():
            self._fill(name, buffer, pieces)
        return inputs, buffers

    def give_back(self, pieces: Sequence[Piece], rows: int, buffers: dict[str, Array]) -> None:
        """Allows other batches to use the buffers, if they are not large: clients choose sizes."""
        if max((buffer.nbytes for buffer in buffers.values()), default=0) > _LARGEST_KEPT:
            return
        key = (pieces[0].request.sizes.shapes, rows)
        with self._lock:
            if key not in self._free and len(self._free) >= _MOST_KEPT:
                del self._free[next(iter(self._free))]
            self._free.setdefault(key, []).append(buffers)

    def _is_padded(self, piece: Piece) -> bool:
        sizes = piece.request.sizes
        return any(sizes.real[size.name] != sizes.run[size.name] for size in self._form.padded)

    def _rows(self, name: str, value: Array, piece: Piece) -> Array:
        axis = self._form.batch_axis(name)
        if axis is None or len(piece.request.bounds) == 1:
            return value
        return value[(slice(None),) * axis + (slice(piece.start, piece.stop),)]

    def _new(self, piece: Piece, rows: int) -> dict[str, Array]:
        """New buffers, for the inputs that have rows or are padded."""
        batch, run = self._form.batch, dict(piece.request.sizes.run)
        if batch is not None:
            run[batch.name] = rows
        padded = {name for size in self._form.padded for name in size.inputs}
        return {
            name: np.zeros([substitute(dim, run) for dim in type.shape], type.dtype)
            for name, type in self._form.axes.inputs.items()
            if name in padded or self._form.batch_axis(name) is not None
        }

    def _fill(self, name: str, buffer: Array, pieces: Sequence[Piece]) -> None:
        """Copies the rows of all pieces. The rest is zero."""
        values = [self._rows(name, piece.request.inputs[name], piece) for piece in pieces]
        axis = self._form.batch_axis(name)
        if axis is None:  # padded along another axis: equal in all requests
            buffer[...] = 0
            buffer[tuple(map(slice, values[0].shape))] = values[0]
            return
        rows = sum(piece.rows for piece in pieces)
        before = (slice(None),) * axis
        buffer[(*before, slice(rows, None))] = 0
        if not self._form.padded:
            np.concatenate(values, axis, out=buffer[(*before, slice(rows))])
            return
        row = 0
        for piece, value in zip(pieces, values, strict=True):
            part = buffer[(*before, slice(row, row + piece.rows))]
            if value.shape != part.shape:
                part[...] = 0
            part[tuple(map(slice, value.shape))] = value
            row += piece.rows


def results_of(
    outputs: Arrays,
    pieces: Sequence[Piece],
    rows: int,
    buffers: dict[str, Array] | None,
    form: Form,
) -> list[dict[str, Array]]:
    """The results of each piece, without padding.

    Raises:
        Failure: INTERNAL: an output does not have the rows of the batch.
    """
    found: list[dict[str, Array]] = [{} for _ in pieces]
    sizes = pieces[0].request.sizes
    for name, output in outputs.items():
        value = np.asarray(output)
        if any(np.may_share_memory(value, buffer) for buffer in (buffers or {}).values()):
            value = value.copy()  # the next batch overwrites the buffer
        place = None if form.batch is None else form.batch.outputs.get(name)
        row = 0
        for piece, result in zip(pieces, found, strict=True):
            cut = value
            if place is not None:
                each: Any = substitute(place.elements, sizes.run)
                if value.shape[place.axis] != rows * each:
                    raise Failure(
                        "INTERNAL",
                        f"output {name!r} must have {rows * each} elements along axis "
                        f"{place.axis}, got {value.shape[place.axis]}",
                    )
                part = slice(row * each, (row + piece.rows) * each)
                cut = value[(slice(None),) * place.axis + (part,)]
                row += piece.rows
            result[name] = _without_padding(name, cut, piece, form)
    return found


def _without_padding(name: str, value: Array, piece: Piece, form: Form) -> Array:
    """The elements along the other padded sizes that belong to the request."""
    for size in form.padded:
        place = size.outputs.get(name)
        if place is not None:
            real = piece.request.sizes.real
            stop: Any = substitute(place.elements, real) * real[size.name]
            value = value[(slice(None),) * place.axis + (slice(0, stop),)]
    return value
