"""Every public exception of graphc, one family under `GraphcError`.

A message has one shape everywhere: what went wrong, the operands with the lines that made them,
the user's line, and how to fix it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ArgumentError",
    "ArtifactCorruptError",
    "ArtifactError",
    "ArtifactVersionError",
    "AttributeValueError",
    "CacheError",
    "CheckpointCorruptError",
    "CheckpointError",
    "CheckpointWarning",
    "ClusterError",
    "CopyError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "ExecutionError",
    "FeedError",
    "FeedWarning",
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
    "ModelExportError",
    "ModelFileError",
    "ModelImportError",
    "NumericsError",
    "PassError",
    "PromotionWarning",
    "SerialError",
    "ShapeError",
    "StateError",
    "TextError",
    "UnknownAttributeError",
    "UnknownNameError",
    "VerifyError",
]


def __dir__() -> list[str]:
    return __all__


def _find_line() -> object | None:
    """The user's current line, once `graphc.ir` is loaded, which knows whose a line is."""
    return None


def find_line_by(function: Callable[[], object | None]) -> None:
    """Sets what finds the user's line for `GraphcError.here`. `graphc.ir.source` calls it."""
    global _find_line
    _find_line = function


class GraphcError(Exception):
    """Base of every error that graphc raises for a user's mistake.

    Args:
        what: one sentence that starts with the name of the operator or function.
        details: further lines, one fact each: the operands, the expected and the actual value.
        source: the user's line that caused the error; any object whose `str` is `file.py:12`.
        hint: how to fix the mistake, without the leading "hint:".
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

    @classmethod
    def here(cls, what: str, *, details: Sequence[str] = (), hint: str | None = None) -> Self:
        """The error whose source is the user's current line: `raise ShapeError.here(...)`."""
        return cls(what, details=details, source=_find_line(), hint=hint)

    def __reduce__(self) -> Any:
        """Pickles all attributes. Unpickling does not call `__init__`, whose parameters differ from
        class to class."""
        return _restored, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        lines = [_named(self.what), *(f"  {_named(detail)}" for detail in self.details)]
        if self.source is not None:
            code = getattr(self.source, "code", "")
            lines.append(f"  at {self.source}" + (f"     {code}" if code else ""))
        if self.hint:
            lines.append(f"  hint: {_named(self.hint)}")
        return "\n".join(lines)


# The sizes of placeholders without a name (see `graphc.build.specs`): `Placeholder_0` and the like.
# In quotes, or before a colon and the number of a result, such a text is the name of a node.
_UNNAMED = re.compile(r"(?<![\w'\"/])Placeholder(_\d+)?_\d+\b(?![:'\"/])")


def _named(text: str) -> str:
    """The text with `?` for sizes that the user has not named."""
    return _UNNAMED.sub("?", text)


class ShapeError(GraphcError, ValueError):
    """The operands' shapes do not fit the operator or each other."""


class DTypeError(GraphcError, TypeError):
    """The operator does not accept an operand's dtype."""


class AttributeValueError(GraphcError, ValueError):
    """An operator's attribute or a function's option has an invalid value."""


class GraphError(GraphcError, RuntimeError):
    """The graph is used in an invalid way: with another graph's tensor, without a graph, ..."""


class GraphFinalizedError(GraphError):
    """A node was added after the first run, outside `with graph.extend():`."""


class UnknownNameError(GraphcError, KeyError):
    """The graph, the state or the artifact has no such name."""

    __str__ = GraphcError.__str__  # KeyError's own prints the repr of its argument


class UnknownAttributeError(GraphcError, AttributeError):
    """A module, a tensor or a layer has no such attribute. The hint says what graphc calls it."""

    def __init__(self, what: str, **options: Any) -> None:
        super().__init__(what, **options)
        self.obj = None  # otherwise Python adds its own guess of a similar name


class ArgumentError(GraphcError, TypeError):
    """A function is called with an argument that it does not have, or without one that it needs."""


class FeedError(GraphcError, ValueError):
    """A feed is invalid, missing or not needed."""


class FetchError(GraphcError, ValueError):
    """A fetch cannot be computed: wrong graph, wrong kind of object."""


class GradientError(GraphcError, ValueError):
    """There is no gradient path, or an operator cannot be differentiated."""


class VerifyError(GraphcError):
    """A program breaks the rules of the IR. The cause is a bug in a pass or in a hand-written
    program."""


class PassError(GraphcError):
    """A pass failed, or changed the meaning of the program."""


class LoweringError(GraphcError):
    """JAX rejected the result of an operator's lowering. The cause is a bug in the operator's
    record."""


class TextError(GraphcError, ValueError):
    """The text form of a program or graph does not parse."""


class SerialError(GraphcError, ValueError):
    """Serialised IR is malformed, or of a version that this graphc does not read."""


class JaxImportError(GraphcError, NotImplementedError):
    """A JAX function contains something that `from_jax` cannot convert to graph nodes."""


class LayoutError(GraphcError):
    """A program cannot be replicated as requested: the batch does not divide, no feed has a batch
    axis, ..."""


class DeviceError(GraphcError, ValueError):
    """A device name does not parse, or more devices are requested than there are."""


class ClusterError(GraphcError, RuntimeError):
    """The processes of a cluster do not do the same, or one of them does not answer."""


class StateError(GraphcError, RuntimeError):
    """The state has already been consumed, or a run that failed after it had consumed the state has
    left the session unusable."""


class ExecutionError(GraphcError, RuntimeError):
    """XLA did not compile a program, or a run failed. The state is unchanged."""


class MemoryLimitError(ExecutionError):
    """A program does not fit into `CompileOptions.memory_limit`.

    Args:
        least: the smallest limit into which the program fits, in bytes. Also an attribute.
    """

    def __init__(self, what: str, *, least: int, details: Sequence[str], hint: str) -> None:
        super().__init__(what, details=details, hint=hint)
        self.least = least


class NumericsError(ExecutionError, ArithmeticError):
    """A run produced a NaN or an infinity, or received an index, a label or a length that is out of
    range (`CompileOptions(check_numerics=True)`). The state is unchanged."""


class CacheError(GraphcError, RuntimeError):
    """The folder of compiled programs cannot be trusted because other users may have access to
    it."""


class ArtifactError(GraphcError):
    """An artifact cannot be written or read."""


class ArtifactCorruptError(ArtifactError):
    """An artifact is truncated or altered: a checksum or an offset does not match."""


class ArtifactVersionError(ArtifactError):
    """An artifact was written by a newer graphc or needs a platform that this process does not
    have."""


class CheckpointError(GraphcError):
    """A checkpoint cannot be written or read, or does not fit the session."""


class CheckpointCorruptError(CheckpointError):
    """A checkpoint is truncated or altered: a checksum does not match."""


class CopyError(GraphcError, TypeError):
    """An object cannot be pickled or copied because it belongs to a graph, a device or a file."""


class DataError(GraphcError, ValueError):
    """A pipeline cannot read a file or a record, or a process that worked on one has died."""


class ModelImportError(GraphcError, NotImplementedError):
    """A model of another framework contains something that cannot be imported. The error names all
    of it."""


class ModelFileError(GraphcError, ValueError):
    """A file of another framework is truncated, altered or not of its format."""


class ModelExportError(GraphcError, NotImplementedError):
    """A graph contains something that the format of another framework cannot express. Nothing has
    been written."""


class MissingExtraError(GraphcError, ImportError):
    """A feature needs an optional dependency; the message names the extra to install."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged, and an earlier one is used."""


class FeedWarning(UserWarning):
    """A feed of a session is not needed by what is fetched, and is ignored."""


class PromotionWarning(UserWarning):
    """An array or a variable widened the result of an operator: from float32 to float64."""


def _restored(
    kind: type[GraphcError], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> GraphcError:
    """Restores a pickled error."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def nearest(name: str, known: Iterable[str], listing: str | None = None) -> str | None:
    """A `hint` line that suggests the known name closest to `name`, or None.

    Args:
        listing: an expression that lists the names, for the hint if no name is close.
    """
    candidates = list(known)
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if candidates:
        shown = ", ".join(repr(c) for c in candidates[:5])
        where = f"{listing} has the names" if listing else "known names:"
        return f"{where} {shown}" + (", ..." if len(candidates) > 5 else "")
    return None
