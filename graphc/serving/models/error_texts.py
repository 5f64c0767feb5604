"""Errors of models as clients and states show them."""

from __future__ import annotations

from graphc.errors import ArtifactError, GraphcError
from graphc.web.failures import Failure


def text_of(error: Exception, path: str = "") -> str:
    """The text of an error for clients: without paths and lines of the server.

    Args:
        path: the artifact, whose name is replaced.
    """
    if isinstance(error, Failure):
        return error.message
    if not isinstance(error, GraphcError):
        return str(error).partition("\n")[0] or type(error).__name__
    lines = [error.what, *error.details, *([f"hint: {error.hint}"] if error.hint else [])]
    text = "\n".join(lines)
    return text.replace(path, "the artifact") if path else text


def error_code(error: Exception) -> str:
    """gRPC's canonical name for an error of loading."""
    if isinstance(error, Failure):
        return error.code
    return "FAILED_PRECONDITION" if isinstance(error, ArtifactError) else "INTERNAL"
