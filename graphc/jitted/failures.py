"""Errors of calls that are JAX's classes too: programs written for `jax.jit` may catch these."""

from __future__ import annotations

from typing import Any

from jax.errors import JaxRuntimeError

from graphc.errors import ArgumentError, AttributeValueError, ExecutionError, StateError


class RunFailedError(ExecutionError, JaxRuntimeError):  # type: ignore[misc]
    """A run failed."""


class LostArgumentsError(StateError, JaxRuntimeError):  # type: ignore[misc]
    """A run failed after it had taken the donated arguments."""


class NotAnArrayError(ArgumentError, AttributeValueError):
    """An argument is not an array that JAX can take. For most of these, JAX raises a `TypeError`;
    for the others, a `ValueError`."""


class TooLargeError(AttributeValueError, OverflowError):
    """An argument is an integer that JAX's dtype cannot hold."""


class DeletedArgumentError(StateError, ValueError):
    """An argument was donated to an earlier call, or deleted."""


def as_in_jax(error: ExecutionError | StateError) -> ExecutionError | StateError:
    """An error of a run, as one that is JAX's too."""
    if type(error) is StateError and error.__cause__ is not None:  # a run has failed
        kind: Any = LostArgumentsError
    elif type(error) is ExecutionError:
        kind = RunFailedError
    else:  # one that says more, such as a NumericsError
        return error
    found: ExecutionError | StateError = kind(
        error.what, details=error.details, source=error.source, hint=error.hint
    )
    return found
