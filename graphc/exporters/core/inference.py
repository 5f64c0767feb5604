"""Refusals that all formats of models for inference share."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.artifacts.signature import Signature
from graphc.errors import AttributeValueError, ModelExportError
from graphc.passes.simplify.functionalize import RNG_KEY


def check_signature(function: str, kind: str, signature: object) -> None:
    """Raises AttributeValueError unless `signature` is one without updates.

    Args:
        function: the public function, for errors.
        kind: what is written, such as "ONNX models".
    """
    if not isinstance(signature, Signature):
        raise AttributeValueError.here(
            f"{function}: signature must be a gc.Signature, got {type(signature).__name__}",
            hint='gc.Signature({"x": x}, {"y": y})',
        )
    if signature.updates:
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
