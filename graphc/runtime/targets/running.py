"""One run of a compiled step on buffers of state. A failed run loses no more state than it must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from graphc.errors import ExecutionError, StateError
from graphc.interrupts import uninterrupted
from graphc.runtime.core.across import on_host
from graphc.runtime.core.failures import RUN_FAILED, in_words, what_was_lost
from graphc.runtime.targets.executors import Executor, Places
from graphc.runtime.targets.interface import Interface
from graphc.runtime.targets.numerics import complaint


def run_step(executor: Executor, buffers: list[Any], places: Places, feeds: Sequence[Any]) -> Any:
    """Runs a step, puts the new buffers into their places, and returns the fetched values.

    An exception that a signal handler raises passes through.

    Raises:
        StateError: the run failed after it had consumed state.
        ExecutionError: the run failed, and the buffers are unchanged.
        NumericsError: the run made a NaN or an infinity, and the buffers are unchanged.
    """
    try:
        if executor.interface.consumes:
            if executor.may_be_refused:
                return _update_in_short_memory(executor, buffers, places, feeds)
            return executor.update(buffers, places, feeds)
        if not places.assigned:
            return _run_beside(executor, buffers, places, feeds)
        # A signal handler may run a step of its own. That step must run before or after this one,
        # because this one computes its results from the buffers that it finds when it begins.
        executor.wait()
        return uninterrupted(_run_beside, executor, buffers, places, feeds)
    except RUN_FAILED as error:
        what, details = in_words(error)
        if what_was_lost([buffers[i] for i in (*places.written, *places.assigned)]):
            raise StateError(
                f"the run failed after it had consumed state: {what}",
                details=details,
                hint="restore the variables from a checkpoint, or start a new session",
            ) from error
        raise ExecutionError(f"the run failed: {what}", details=details) from error


def _run_beside(
    executor: Executor, buffers: list[Any], places: Places, feeds: Sequence[Any]
) -> Any:
    """One run that does not consume its input buffers. If it succeeds, it puts all new buffers into
    their places at once."""
    written, read, assigned = places
    fetched, new = executor([buffers[i] for i in written], [buffers[i] for i in read], feeds)
    if executor.may_be_refused or (assigned and executor.need.large):
        try:
            jax.block_until_ready((fetched, new))
        except RUN_FAILED:
            executor.forget()
            raise
    fetched = without_faults(executor.interface, fetched)
    if assigned:
        after = list(buffers)
        for i, buffer in zip(assigned, new, strict=True):
            after[i] = buffer
        buffers[:] = after
    return fetched


def without_faults(interface: Interface, fetched: Any) -> Any:
    """The fetched values of a run, without the result of its checks.

    Raises:
        NumericsError: the checks have found something.
    """
    if interface.checks is None:
        return fetched
    *fetched, faults = fetched
    wrong = complaint(on_host(faults), interface.checks)
    if wrong is not None:
        raise wrong
    return fetched


def _update_in_short_memory(
    executor: Executor, buffers: list[Any], places: Places, feeds: Sequence[Any]
) -> Any:
    """One run that assigns state, in a process that the system may refuse memory.

    The call waits for the run, so that it reports a failure itself. If the memory is probably too
    small, the run consumes a copy of the state, so that a failure leaves the state unchanged.
    """
    if not executor.has_room():
        return uninterrupted(_run_on_copies, executor, buffers, places, feeds)
    fetched = executor.update(buffers, places, feeds)
    try:
        jax.block_until_ready((fetched, [buffers[i] for i in places.assigned]))
    except RUN_FAILED:
        executor.forget()
        raise
    return fetched


def _run_on_copies(
    executor: Executor, buffers: list[Any], places: Places, feeds: Sequence[Any]
) -> Any:
    """One run that consumes copies of the buffers. If it succeeds, the results replace the old
    buffers."""
    after = list(buffers)
    copies = executor.copies([buffers[i] for i in places.written])
    for i, copy in zip(places.written, copies, strict=True):
        after[i] = copy
    fetched = _run_beside(executor, after, places, feeds)
    buffers[:] = after
    return fetched
