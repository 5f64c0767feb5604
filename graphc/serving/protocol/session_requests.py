"""Requests of sessions, from JSON and from messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from graphc.ir.dtypes import Array
from graphc.serving.protocol import rows
from graphc.serving.protocol.checks import Types
from graphc.serving.protocol.generation import Plan, check_output
from graphc.serving.protocol.messages import parse
from graphc.serving.protocol.responses import Answer, packed_response
from graphc.serving.protocol.tensors import decode_all
from graphc.serving.protocol.values import invalid, to_array
from graphc.web.failures import Failure

T = TypeVar("T")


@dataclass(frozen=True)
class SessionRequest:
    """A request to run a signature in a session.

    Attributes:
        model, id: the session, if the body names it.
        signature: "" if it names none.
        filter: the outputs to send; all if it is empty.
        number: of the request in its session; 0 if it has none.
        content: equal for requests with equal bodies.
        read: decodes the inputs of a signature.
        plan: decodes the plan of several steps, for the outputs of a signature.
        write: encodes an answer.
    """

    model: str
    id: str
    signature: str
    filter: Sequence[str]
    number: int
    content: int
    read: Callable[[Types], dict[str, Array]]
    plan: Callable[[Types], Plan]
    write: Callable[[Answer], bytes]

    def sent(self, outputs: Mapping[str, T]) -> dict[str, T]:
        """The outputs that the client asked for.

        Raises:
            Failure: INVALID_ARGUMENT: there is no such output.
        """
        for name in self.filter:
            check_output("output_filter", name, outputs)
        return {name: outputs[name] for name in self.filter or outputs}


def from_json(data: bytes) -> SessionRequest:
    """A request in JSON.

    Raises:
        Failure: INVALID_ARGUMENT: the body is not JSON, or a value has another type. `read` and
            `plan` raise such failures too.
    """
    body = rows.read_body(data)
    count: int | None = None

    def read(types: Types) -> dict[str, Array]:
        nonlocal count
        arrays, count = rows.read_inputs(body, types)
        return arrays

    def write(answer: Answer) -> bytes:
        return rows.write_outputs(answer.outputs, count)

    filter = body.value.get("output_filter", [])
    if not isinstance(filter, list) or not all(isinstance(each, str) for each in filter):
        raise invalid("output_filter must be a list of strings")
    signature = body.text("signature_name")
    return SessionRequest(
        "",
        "",
        signature,
        filter,
        _number(body.value.get("number", 0)),
        hash(data),
        read,
        lambda outputs: _plan(body.value, outputs),
        write,
    )


def _number(value: Any) -> int:
    """The number of a request in a session."""
    if type(value) is int and 0 <= value < 2**63:
        return value
    raise invalid(f"number must be an integer from 1 to 2**63 - 1, got {value!r:.40}")


def _plan(value: dict[str, Any], outputs: Types) -> Plan:
    steps, feedback, stop = value.get("steps"), value.get("feedback", {}), value.get("stop", {})
    if type(steps) is not int:
        raise invalid(f"steps must be an integer, got {steps!r:.40}")
    if not isinstance(feedback, dict) or not all(isinstance(v, str) for v in feedback.values()):
        raise invalid('feedback must map inputs to outputs: {"token": "next_token"}')
    if not isinstance(stop, dict):
        raise invalid('stop must map outputs to values: {"next_token": [0]}')
    values = {}
    for output, given in stop.items():
        check_output("stop", output, outputs)
        values[output] = to_array(given, outputs[output].dtype, f"stop.{output:.60}")
    return Plan(steps, feedback, values)


def from_message(data: bytes, model: str = "") -> SessionRequest:
    """A request that is a SessionRequest.

    Args:
        model: by default that of the message.

    Raises:
        Failure: INVALID_ARGUMENT: the bytes are no such message. `read` and `plan` raise such
            failures too.
    """
    message = parse("SessionRequest", data)
    spec = message.session
    name = model or spec.model
    return SessionRequest(
        name,
        spec.session_id,
        spec.signature_name,
        list(message.output_filter),
        _number(message.number),
        hash(data),
        lambda types: decode_all(message.inputs),
        lambda outputs: Plan(message.steps, dict(message.feedback), decode_all(message.stop)),
        lambda answer: packed_response(name, answer, ()),
    )


def seed_of(value: Any) -> int | None:
    """The seed in a JSON body or message.

    Raises:
        Failure: INVALID_ARGUMENT: it is not an integer of 64 bits.
    """
    if value is None or (type(value) is int and -(2**63) <= value < 2**64):
        return value
    raise Failure("INVALID_ARGUMENT", f"seed must be an integer of 64 bits, got {value!r:.40}")
