"""Failures that only a model server has."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.web.failures import Failure


def no_such_signature(name: str, known: Iterable[str]) -> Failure:
    """FAILED_PRECONDITION: a request names a signature that the model does not have.

    Args:
        known: the signatures of the model.

    Examples:
        >>> from graphc.serving.failures import no_such_signature
        >>> str(no_such_signature("x", ["predict"]))
        'FAILED_PRECONDITION: Serving signature key "x" not found; there are: predict'
    """
    text = f'Serving signature key "{name:.80}" not found; there are: {", ".join(known)}'
    return Failure("FAILED_PRECONDITION", text)
