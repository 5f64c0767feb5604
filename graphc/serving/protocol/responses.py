"""Answers as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from graphc.ir.dtypes import Array
from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.tensors import encode
from graphc.web.failures import Failure


class Answer(Protocol):
    """The result of a call."""

    @property
    def version(self) -> int: ...
    @property
    def signature(self) -> str: ...
    @property
    def outputs(self) -> Mapping[str, Array]: ...


def fill_spec(message: Any, name: str, answer: Answer) -> None:
    """Fills a ModelSpec with what ran."""
    message.name = name
    message.version.value = answer.version
    message.signature_name = answer.signature


def packed_response(name: str, answer: Answer, filter: Sequence[str]) -> bytes:
    """The bytes of a PredictResponse with the outputs in `filter`; all if it is empty.

    Raises:
        Failure: INVALID_ARGUMENT: there is no such output, or one is named twice.
    """
    message = messages().PackedResponse()
    fill_spec(message.model_spec, name, answer)
    for output in filter:
        if output not in answer.outputs:
            known = ", ".join(answer.outputs)
            raise _wrong(f"output_filter: no output {output!r:.80}; there are: {known}")
    if len(set(filter)) != len(filter):
        raise _wrong("output_filter names an output twice")
    for output in filter or answer.outputs:
        encode(answer.outputs[output], message.outputs[output])
    data: bytes = message.SerializeToString()
    return data


def fill_classes(message: Any, classes: Sequence[Sequence[tuple[str, float]]]) -> None:
    """Fills a ClassificationResult."""
    for row in classes:
        found = message.classifications.add()
        for label, score in row:
            found.classes.add(label=label, score=score)


def fill_values(message: Any, values: Sequence[float]) -> None:
    """Fills a RegressionResult."""
    for value in values:
        message.regressions.add(value=value)


def _wrong(what: str) -> Failure:
    return Failure("INVALID_ARGUMENT", what)
