"""The fast path for calling a small program: from the leaves of all arguments to XLA and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

from graphc.ir.variable import Variable
from graphc.jaxpr.keys import is_key
from graphc.jitted.arguments import Form, converted
from graphc.jitted.failures import LostArgumentsError, RunFailedError
from graphc.jitted.importing import Imported, Leaf
from graphc.jitted.results import finisher
from graphc.runtime.buffers.layout import OWN
from graphc.runtime.core.failures import RUN_FAILED, in_words
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.interface import SINGLE

OTHER: Any = object()
"""The result of the fast paths for arguments that they do not support."""

BY_JAX: Any = object()
"""The result of the fast paths for arguments that `jax.jit` must take."""

_IS_DELETED = methodcaller("is_deleted")


class DirectCall:
    """Calls XLA's executable with the leaves of the arguments as they are, and words for keys.

    It omits work that a small program on one device does not need: the check for large blocks of
    memory, transfers to other devices, and the limit on steps in flight. Calls that do not fit must
    take the general path, which also creates the error messages.

    Args:
        feeds: the source of each feed (a leaf, or an array that the function holds), and its spec.
        array: the type of JAX's arrays.
    """

    def __init__(
        self,
        imported: Imported,
        forms: Sequence[Form],
        executable: Executable,
        feeds: Sequence[tuple[Any, FeedSpec]],
        array: type,
    ) -> None:
        interface = executable.interface
        starts = [0]
        for form in forms:
            starts.append(starts[-1] + len(form.avals))
        types = [kind for form in forms for kind in form.types]
        avals = [aval for form in forms for aval in form.avals]

        def flat(leaf: Leaf) -> int:
            return starts[leaf.argument] + leaf.number

        variables = {v.name: flat(leaf) for leaf, v in imported.variables.items()}
        held = [source for source, _ in feeds if type(source) is not Leaf]
        count, at = starts[-1], iter(range(starts[-1], starts[-1] + len(held)))
        numbers = [flat(s) if type(s) is Leaf else next(at) for s, _ in feeds]
        taken = [variables[b.members[0]] for b in (*interface.written, *interface.read)]
        self._held = held
        self._convert = [
            (number, partial(converted, spec=spec))
            for number, (_, spec) in zip(numbers, feeds, strict=True)
            if number < count and types[number] is not array and not is_key(avals[number].dtype)
        ]
        self._take = _getter([*taken, *numbers], count + len(held))
        made = {buffer.members[0]: i for i, buffer in enumerate(interface.assigned)}
        distinct = {t: i for i, t in enumerate(dict.fromkeys(imported.fetched()))}
        results = len(made) + (len(distinct) or 1)
        given = [
            len(made) + distinct[r]
            if not isinstance(r, Variable)
            else made.get(r.name, results + variables[r.name])
            for r in imported.results
        ]
        self._returns_arguments = any(number >= results for number in given)
        self._give = _getter(given, results)
        rows = enumerate(map(finisher, imported.out_avals))
        self._finish = [(number, finish) for number, finish in rows if finish is not None]
        self._tree = imported.out_tree
        self._compiled = executable.compiled
        self._donated = taken[: len(interface.written)] if interface.consumes else []
        # NumPy's arrays and numbers cannot be deleted; keys of random numbers can.
        can_be = [number for number, kind in enumerate(types) if hasattr(kind, "is_deleted")]
        self._can_be_deleted = _getter(can_be, count)

    def __call__(self, leaves: list[Any]) -> Any:
        """The result for the leaves of all arguments, which have the forms of the program, and for
        keys are their words; `OTHER`, before anything has run, if the general path must take the
        call.

        Raises:
            StateError: a donated argument was passed to an earlier call, or the run failed after it
                had consumed the donated arguments.
            ExecutionError: the run failed.
        """
        FORKING.check()
        given = leaves
        if self._convert:
            if self._is_one_deleted(leaves):
                return OTHER
            given = leaves.copy()
            for number, convert in self._convert:
                given[number] = convert(given[number])
        if self._held:
            given = given + self._held
        try:
            outputs = self._compiled(*self._take(given))
        except (TypeError, ValueError):  # a tracer, or an array on another device
            return OTHER
        except RUN_FAILED as error:
            raise self._failed(leaves, error) from error
        except RuntimeError:  # JAX raises it before the run if an array was deleted
            if self._is_one_deleted(leaves):
                return OTHER
            raise
        results = self._give([*outputs, *given] if self._returns_arguments else outputs)
        if self._finish:
            results = list(results)
            for number, finish in self._finish:
                results[number] = finish(results[number])
        return self._tree.unflatten(results)

    def _is_one_deleted(self, leaves: list[Any]) -> bool:
        return any(map(_IS_DELETED, [*self._can_be_deleted(leaves), *self._held]))

    def _failed(self, leaves: list[Any], error: Exception) -> Exception:
        what, details = in_words(error)
        if any(leaves[number].is_deleted() for number in self._donated):
            return LostArgumentsError(
                f"the run failed after it had taken the donated arguments: {what}",
                details=details,
                hint="restore them from a checkpoint",
            )
        return RunFailedError(f"the run failed: {what}", details=details)


def is_direct(executable: Executable) -> bool:
    """Whether a `DirectCall` can run it: it uses one device and does not stack its variables."""
    interface, executor = executable.interface, executable.executor
    return (
        interface.kind == SINGLE
        and not interface.wide
        and interface.checks is None
        and all(buffer.kind == OWN for buffer in interface.buffers)
        and not executor.need.large
        and not executor.may_be_refused
    )


def _getter(numbers: Sequence[int], count: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that returns the items at these positions of `count` items or more."""
    if numbers == list(range(count)):
        return _all
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda items: [items[number] for number in numbers]


def _all(items: Sequence[Any]) -> Sequence[Any]:
    return items
