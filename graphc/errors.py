"""Every public exception of graphc, one family under `GraphcError`.

A message has one shape everywhere: what went wrong, the operands with the lines that made them,
the user's line, and how to fix it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "ArtifactCorruptError",
    "ArtifactError",
    "ArtifactVersionError",
    "AttributeValueError",
    "CacheError",
    "CopyError",
    "DTypeError",
    "DeviceError",
    "ExecutionError",
    "FeedError",
    "FetchError",
    "GradientError",
    "GraphError",
    "GraphFinalizedError",
    "GraphcError",
    "JaxImportError",
    "LayoutError",
    "LoweringError",
    "MemoryLimitError",
    "MissingExtraError",
    "NumericsError",
    "PassError",
    "PromotionWarning",
    "SerialError",
    "ShapeError",
    "StateError",
    "TextError",
    "UnknownNameError",
    "VerifyError",
]


def __dir__() -> list[str]:
    return __all__


class GraphcError(Exception):
    """Base of every error that graphc raises for a user's mistake.

    Args:
        what: one sentence, starting with the operator or the function concerned.
        details: further lines, one fact each (operands, expected against got).
        source: the user's line concerned; anything whose `str` is `file.py:12`.
        hint: how to put it right, without the leading "hint:".
    """

    def __init__(
        self,
        what: str,
        *,
        details: Sequence[str] = (),
        source: object | None = None,
        hint: str | None = None,
    ) -> None:
        self.what = what
        self.details = tuple(details)
        self.source = source
        self.hint = hint
        super().__init__(what)

    def __reduce__(self) -> Any:
        """Pickles all attributes. Unpickling does not call `__init__`, whose parameters differ from
        class to class."""
        return _restored, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        lines = [self.what, *(f"  {detail}" for detail in self.details)]
        if self.source is not None:
            code = getattr(self.source, "code", "")
            lines.append(f"  at {self.source}" + (f"     {code}" if code else ""))
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class ShapeError(GraphcError, ValueError):
    """Shapes of operands do not fit the operator or each other."""


class DTypeError(GraphcError, TypeError):
    """An operand's dtype is not one the operator takes."""


class AttributeValueError(GraphcError, ValueError):
    """An operator's attribute, or a function's option, has a value it cannot have."""


class GraphError(GraphcError, RuntimeError):
    """The graph is used in a way it does not allow: another graph's tensor, no graph, ..."""


class GraphFinalizedError(GraphError):
    """A node was added after the first run, outside `with graph.extend():`."""


class UnknownNameError(GraphcError, KeyError):
    """A name that the graph, the state or the artifact does not have."""

    __str__ = GraphcError.__str__  # KeyError's own prints the repr of its argument


class FeedError(GraphcError, ValueError):
    """A feed is wrong, missing or superfluous."""


class FetchError(GraphcError, ValueError):
    """A fetch cannot be computed: wrong graph, wrong kind of object."""


class GradientError(GraphcError, ValueError):
    """No gradient path, or an operator that cannot be differentiated."""


class VerifyError(GraphcError):
    """A program breaks the rules of the IR; a fault of a pass or of a hand-written program."""


class PassError(GraphcError):
    """A pass failed, or changed the meaning of the program."""


class LoweringError(GraphcError):
    """JAX refused what an operator's lowering gave it: a fault of the operator's record."""


class TextError(GraphcError, ValueError):
    """The text form of a program or graph does not parse."""


class SerialError(GraphcError, ValueError):
    """Serialised IR is malformed, or of a version this graphc does not read."""


class JaxImportError(GraphcError, NotImplementedError):
    """A JAX function holds something `from_jax` cannot turn into graph nodes."""


class LayoutError(GraphcError):
    """A program cannot be replicated as asked: batch not divisible, no batch feed, ..."""


class DeviceError(GraphcError, ValueError):
    """A device name that does not parse, or more devices asked for than there are."""


class StateError(GraphcError, RuntimeError):
    """State that was consumed already, or a session broken by a run that failed after it had taken
    the state."""


class ExecutionError(GraphcError, RuntimeError):
    """XLA did not compile a program, or a run failed; the state is as it was before."""


class MemoryLimitError(ExecutionError):
    """A program does not fit into `CompileOptions.memory_limit`.

    Args:
        least: the smallest limit that it would fit into, in bytes; an attribute too.
    """

    def __init__(self, what: str, *, least: int, details: Sequence[str], hint: str) -> None:
        super().__init__(what, details=details, hint=hint)
        self.least = least


class NumericsError(ExecutionError, ArithmeticError):
    """A run made a NaN or an infinity, or got an index, a label or a length out of range
    (`CompileOptions(check_numerics=True)`); the state is as it was before."""


class CacheError(GraphcError, RuntimeError):
    """The folder of compiled programs cannot be trusted: other users may reach into it."""


class ArtifactError(GraphcError):
    """An artifact cannot be written or read."""


class ArtifactCorruptError(ArtifactError):
    """An artifact is truncated or altered: a checksum or an offset does not fit."""


class ArtifactVersionError(ArtifactError):
    """An artifact was written by a newer graphc or needs a platform this process lacks."""


class CopyError(GraphcError, TypeError):
    """An object that cannot be pickled or copied: it belongs to a graph, a device or a file."""


class MissingExtraError(GraphcError, ImportError):
    """A feature needs an optional dependency; the message names the extra to install."""


class PromotionWarning(UserWarning):
    """An array of a wider dtype widened the result of an operator: from float32 to float64."""


def _restored(
    kind: type[GraphcError], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> GraphcError:
    """Restores a pickled error."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A `hint` line that suggests the known name closest to `name`, or None."""
    candidates = list(known)
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if candidates:
        shown = ", ".join(repr(c) for c in candidates[:5])
        return f"known names: {shown}" + (", ..." if len(candidates) > 5 else "")
    return None
