"""Requests that run on a version before it takes others: recorded ones, or zeros of each size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.artifacts.entry_point import EntryPoint
from graphc.data.records.reader import read_tfrecords
from graphc.errors import DataError
from graphc.ir.dims import as_symbol, symbols_of
from graphc.serving.protocol.messages import parse
from graphc.serving.protocol.tensors import decode_all

FILES = ("assets.extra/tf_serving_warmup_requests", "assets/warmup")
"""TFRecords of PredictionLog, relative to the folder of a version."""
MOST_RECORDS = 1000


class Request(NamedTuple):
    """One request for warm-up.

    Attributes:
        signature: None for the default one.
    """

    signature: str | None
    inputs: Mapping[str, np.ndarray[Any, Any]]


def recorded(folder: str) -> Iterator[Request]:
    """The requests in the files of a version's folder. Logs of other methods are ignored.

    Raises:
        DataError: a file has more than 1000 records, is damaged, or is outside the folder.
        Failure: a record is not a PredictionLog.
        MissingExtraError: the libraries for records are not installed.
    """
    for name in FILES if folder else ():
        path = os.path.realpath(os.path.join(folder, name))
        if not os.path.isfile(path):
            continue
        if os.path.commonpath([path, folder]) != folder:
            raise DataError(f"{name!r} is outside the folder of the version, through a link")
        for number, record in enumerate(read_tfrecords(path)):
            if number >= MOST_RECORDS:
                raise DataError(f"{name!r} has more than {MOST_RECORDS} records")
            log = parse("PredictionLog", record)
            if log.WhichOneof("log_type") == "predict_log":
                request = log.predict_log.request
                signature = request.model_spec.signature_name or None
                yield Request(signature, decode_all(request.inputs))


def zeros(point: EntryPoint, sizes: Sequence[int]) -> Iterator[Request]:
    """Inputs of zeros for an entry point: one request for each batch size.

    Args:
        sizes: the batch sizes. Other open sizes are 1, which every artifact allows. If no size is
            open, there is one request.
    """
    batch = {as_symbol(t.shape[0]) for t in point.inputs.values() if t.shape}
    batch.discard(None)
    names = {name for t in point.inputs.values() for dim in t.shape for name in symbols_of(dim)}
    for size in sizes if batch else (1,):
        bindings = {name: size if name in batch else 1 for name in names}
        yield Request(
            point.name,
            {
                name: np.zeros(type.bind(bindings).sizes, type.dtype)
                for name, type in point.inputs.items()
            },
        )
