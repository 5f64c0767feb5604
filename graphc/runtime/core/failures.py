"""Describes the failures of runs that JAX reports."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import jax

from graphc.errors import ClusterError
from graphc.ir.source import is_own

# The exceptions of JAX for a failed run. No other exception counts as a failure of a run, because a
# signal handler of the user may raise any exception (such as the TimeoutError of a time limit)
# while graphc waits for a run. FloatingPointError comes from JAX's option `jax_debug_nans`, when a
# step is dispatched. MemoryError comes from C++, if there is no memory for dispatch or compilation.
RUN_FAILED = (jax.errors.JaxRuntimeError, FloatingPointError, MemoryError)

_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)')


# XLA's CPU client reports the failure of an exchange with other processes by a ValueError.
_LOST_PEER = re.compile(r"(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|DEADLINE_EXCEEDED): .*Gloo", re.S)


def raise_lost_peer(error: ValueError) -> None:
    """Raises a `ClusterError` if a run failed because of another process."""
    text = str(error)
    if _LOST_PEER.match(text):
        raise ClusterError.here(
            "the run failed: another process of the cluster has ended, or cannot be reached",
            details=text.splitlines()[:1],
            hint="start all processes again from the last checkpoint; `graphc launch --restarts 3` "
            "does so",
        ) from error


def in_words(error: Exception) -> tuple[str, list[str]]:
    """The reason of the failure, and the user's lines that led to it.

    If a host function raised an error, JAX puts the traceback into its message. The text of the
    error follows the frames, and the innermost frames are the user's.
    """
    text = str(error) or type(error).__name__
    _, found, trace = text.partition(_TRACEBACK)
    if not found:
        return text, []
    lines = trace.splitlines()
    frames = [match for line in lines if (match := _FRAME.fullmatch(line))]
    raised = [line for line in lines if line and not line.startswith("  File ")]
    outer = max((i for i, frame in enumerate(frames) if is_own(frame["file"])), default=-1)
    users = frames[outer + 1 :]
    return "\n".join(raised), [
        f"in {frame['function']}, {os.path.basename(frame['file'])}:{frame['line']}"
        for frame in users
    ]


def what_was_lost(buffers: Iterable[Any]) -> str | None:
    """Why values of the state are lost; None if none is lost. Waits until the values are computed.

    An exception that a signal handler raises meanwhile passes through.

    JAX must not be given a donated buffer. If the buffer is on several devices, JAX ends the
    process (jax 0.10); otherwise it raises its own errors.
    """
    for buffer in buffers:
        if isinstance(buffer, jax.Array):
            if buffer.is_deleted():
                return "a step that was given the state did not return the new state"
            try:
                buffer.block_until_ready()
            except RUN_FAILED as error:
                return f"an earlier run failed: {in_words(error)[0]}"
    return None
