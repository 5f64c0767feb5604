"""Refusals that all formats of models for inference share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphc.artifacts.exporting import SignatureProgram
from graphc.artifacts.signature import Signature
from graphc.errors import AttributeValueError, ModelExportError
from graphc.ir.fingerprint import calls_back
from graphc.ir.program import Program
from graphc.passes.simplify.functionalize import RNG_KEY
from graphc.runtime.session import Session


def check_is_signature(function: str, signature: object) -> Signature:
    """Raises AttributeValueError unless `signature` is one. `function` is named in errors."""
    if not isinstance(signature, Signature):
        raise AttributeValueError.here(
            f"{function}: signature must be a gc.Signature, got {type(signature).__name__}",
            hint='gc.Signature({"x": x}, {"y": y})',
        )
    return signature


def check_signature(function: str, kind: str, signature: object) -> None:
    """Raises AttributeValueError unless `signature` is one without updates.

    Args:
        function: the public function, for errors.
        kind: what is written, such as "ONNX models".
    """
    if check_is_signature(function, signature).updates:
        raise AttributeValueError.here(
            f"{function}: the signature has updates, and {kind} have no state",
            hint="leave them out, or save it with gc.save",
        )


def check_effects(function: str, state: Iterable[str], assigned: Iterable[str]) -> None:
    """Raises ModelExportError if a program draws random numbers or assigns variables.

    Args:
        state: the names of the state that it reads.
        assigned: the names of the state that it assigns.
    """
    if RNG_KEY in state:
        raise ModelExportError.here(
            f"{function}: the outputs depend on random numbers",
            hint="gc.Signature(..., freeze=True, given={training: False}) removes dropout",
        )
    for name in assigned:
        raise ModelExportError.here(
            f"{function}: the outputs assign the variable {name!r}",
            hint="give the signature outputs that assign nothing, or freeze=True",
        )


def check_calls(function: str, program: Program) -> None:
    """Raises ModelExportError if a program calls Python."""
    if calls_back(program):
        raise ModelExportError.here(
            f"{function}: the program prints or calls a Python function, which no file can hold",
            hint="give the signature outputs that do not depend on it",
        )


def state_values(function: str, session: Session, taken: SignatureProgram) -> dict[str, Any]:
    """The values of the state of a program, which has no effects: see `check_effects`."""
    state = [port.name for port in taken.program.ports("state")]
    check_effects(function, state, [port.name for port in taken.program.new_state()])
    variables = [name for name in state if name not in taken.values]
    return {**taken.values, **session.values(variables)}
