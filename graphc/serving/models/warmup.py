"""Requests that run on a version before it takes others: recorded ones, examples that were saved
with it, or zeros."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from graphc.artifacts.signature import MOST_EXAMPLES
from graphc.data.records.reader import read_tfrecords
from graphc.errors import DataError
from graphc.serving.failures import no_such_signature
from graphc.serving.models.servable import Arrays, Servable
from graphc.serving.protocol.checks import Types, check_inputs
from graphc.serving.protocol.examples import read_input
from graphc.serving.protocol.messages import parse
from graphc.serving.protocol.results import CLASSIFY, classes_of, values_of
from graphc.serving.protocol.tensors import decode_all
from graphc.web.failures import Failure

FILES = ("assets.extra/tf_serving_warmup_requests", "assets/warmup")
"""TFRecords of PredictionLog, relative to the folder of a version."""


class Request(NamedTuple):
    """One recorded request.

    Attributes:
        where: the file and the number of its record, for errors.
        signature: None for the default one.
        method: "predict", "classify" or "regress".
        message: the PredictRequest, or the Input of the others.
    """

    where: str
    signature: str | None
    method: str
    message: Any

    def inputs(self, types: Types) -> Mapping[str, np.ndarray[Any, Any]]:
        """The arrays of the request.

        Raises:
            Failure: INVALID_ARGUMENT: they do not fit the signature.
        """
        if self.method != "predict":
            return read_input(self.message, types)
        found = decode_all(self.message.inputs)
        check_inputs(found, types)
        return found


def warm_up(servable: Servable, folder: str) -> None:
    """Runs all requests on all replicas, at each size in which batches run. Signatures that update
    variables run on variables that are then forgotten, and only if a request or an example of
    theirs is given: they may be there for training alone.

    Args:
        folder: the folder of the version, which may hold recorded requests; "" for none.

    Raises:
        DataError: a file of requests is damaged, too long, or outside the folder.
        Failure: a request failed. As in TensorFlow Serving, the version is then not served.
    """
    points = servable.signatures
    requests: dict[str, list[Arrays]] = {name: [] for name in points}
    methods: dict[str, set[str]] = {name: set() for name in points}
    for request in recorded(folder):
        name = request.signature or servable.default
        try:
            if name not in points:
                raise no_such_signature(name, points)
            inputs = request.inputs(points[name].inputs)
            requests[name].append(servable.numbers(name, inputs))
        except Failure as failure:
            raise Failure(failure.code, f"{request.where}: {failure.message}") from failure
        methods[name].add(request.method)
    for name, point in points.items():
        given = [*requests[name], *point.examples]
        point.strings.vocabularies()  # they are read, and checked
        of_sessions = servable.refusal(name) is not None
        for inputs in given if of_sessions else servable.inputs_of_all_sizes(name, given):
            outputs = servable.run_everywhere(name, inputs)
            if methods[name]:
                outputs = servable.strings(name, outputs)
                _check_methods(methods[name], inputs, outputs)


def _check_methods(methods: set[str], inputs: Arrays, outputs: Arrays) -> None:
    """Checks that the signature suits the methods that were recorded."""
    for method in methods - {"predict"}:
        rows = len(next(iter(inputs.values())))
        (classes_of if method == "classify" else values_of)(outputs, rows)


def recorded(folder: str) -> Iterator[Request]:
    """The requests in the files of a version's folder. A record without a request is ignored.

    Raises:
        DataError: a file has more than 1000 records, is damaged, or is outside the folder.
        Failure: INVALID_ARGUMENT: a record is not a PredictionLog. UNIMPLEMENTED: it is one of a
            method that this server does not have.
        MissingExtraError: the libraries for records are not installed.
    """
    for name in FILES if folder else ():
        path = os.path.realpath(os.path.join(folder, name))
        if not os.path.isfile(path):
            continue
        if os.path.commonpath([path, folder]) != folder:
            raise DataError(f"{name!r} is outside the folder of the version, through a link")
        for number, record in enumerate(read_tfrecords(path)):
            if number >= MOST_EXAMPLES:
                raise DataError(f"{name!r} has more than {MOST_EXAMPLES} records")
            yield from _requests(record, f"{name}, record {number}")


def _requests(record: Any, where: str) -> Iterator[Request]:
    try:
        log = parse("PredictionLog", record)
    except Failure as failure:
        raise Failure(failure.code, f"{where}: {failure.message}") from failure
    kind = log.WhichOneof("log_type")
    if kind in ("session_run_log", "predict_streamed_log"):
        raise Failure("UNIMPLEMENTED", f"{where}: unsupported log_type for warm-up: {kind}")
    if kind is None:
        return
    request = getattr(log, kind).request
    if kind == "multi_inference_log":
        for task in request.tasks:
            method = "classify" if task.method_name == CLASSIFY else "regress"
            yield Request(where, task.model_spec.signature_name or None, method, request.input)
        return
    method = kind.removesuffix("_log")
    message = request if method == "predict" else request.input
    yield Request(where, request.model_spec.signature_name or None, method, message)
