"""`Plan`: what a request for several steps asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphc.ir.dtypes import Array
from graphc.serving.protocol.checks import Types, listed
from graphc.web.failures import Failure

_MOST_STEPS = 2**31 - 1
_MOST_VALUES = 64  # each is compared with each element of the output


@dataclass(frozen=True)
class Plan:
    """Several steps of a signature, each with outputs of the one before it as inputs.

    Attributes:
        steps: how many steps there are at most.
        feedback: input -> the output that is fed there in the next step. The other inputs are the
            same in all steps.
        stop: output -> values. A step is the last one if such an output consists of these values.
    """

    steps: int
    feedback: Mapping[str, str] = field(default_factory=dict)
    stop: Mapping[str, Array] = field(default_factory=dict)

    def check(self, inputs: Types, outputs: Types) -> None:
        """Checks it against the inputs and outputs of a signature.

        Raises:
            Failure: INVALID_ARGUMENT: the signature has no such input or output, or an output has
                another dtype or rank than the input that it is fed to; there are no steps.
        """
        if not 1 <= self.steps <= _MOST_STEPS:
            raise _wrong(f"steps must be from 1 to {_MOST_STEPS}, got {self.steps}")
        for name, output in self.feedback.items():
            if name not in inputs:
                raise _wrong(f"feedback: no input {name!r:.60}; it takes {listed(inputs)}")
            check_output("feedback", output, outputs)
            found, taken = outputs[output], inputs[name]
            if (found.dtype, found.rank) != (taken.dtype, taken.rank):
                raise _wrong(
                    f"feedback: output {output!r} is {found.shown()}, but input {name!r} is "
                    f"{taken.shown()}"
                )
        for output, values in self.stop.items():
            check_output("stop", output, outputs)
            if values.size > _MOST_VALUES:
                raise _wrong(f"stop: at most {_MOST_VALUES} values, got {values.size}")

    def is_last(self, outputs: Mapping[str, Array]) -> bool:
        """Whether a step with these outputs is the last one because of `stop`."""
        return any(
            (outputs[name].reshape(-1, 1) == values.reshape(1, -1)).any(axis=1).all()
            for name, values in self.stop.items()
        )


def check_output(where: str, name: str, outputs: Mapping[str, Any]) -> None:
    """Checks that a signature has an output.

    Raises:
        Failure: INVALID_ARGUMENT: it has not.
    """
    if name not in outputs:
        known = ", ".join(outputs)
        raise _wrong(f"{where}: no output {name!r:.60}; there are: {known}")


def _wrong(what: str) -> Failure:
    return Failure("INVALID_ARGUMENT", what)
