"""Which variables of a session a checkpoint restores, from which names, and what is left over."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from graphc.errors import AttributeValueError, CheckpointError, nearest
from graphc.ir.dtypes import Array, kind_of, short_name
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.runtime.session import Session

Pattern = str | re.Pattern[str] | Variable
Patterns = Pattern | Iterable[Pattern] | None
Renaming = Mapping[str, str] | Callable[[str], str] | None

_SHOWN = 10  # names in an error or in the text of a report


@dataclass(frozen=True)
class RestoreReport:
    """What was restored. `print(report)` shows it.

    Attributes:
        taken: name of a variable -> the name in the checkpoint whose value it has now.
        missing: selected variables that the checkpoint does not have. They kept their values.
        extra: names in the checkpoint that no variable took.
        unselected: variables that `include` or `exclude` left out.
        mismatched: variable -> why its value was not taken: another shape, or a dtype of another
            kind.
        cast: variables whose stored value had another dtype of the same kind.

    Examples:
        >>> import tempfile
        >>> w, b = gc.variable([1.0, 2.0], name="w"), gc.variable(0.0, name="b")
        >>> session = gc.Session(graph)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gc.save(session, folder)
        ...     report = gc.train.restore(session, folder, include="w")
        >>> print(report)
        took 1 of 2 variables
          not selected: b
          in the checkpoint only: b
    """

    taken: Mapping[str, str]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    unselected: tuple[str, ...]
    mismatched: Mapping[str, str]
    cast: tuple[str, ...]

    def __str__(self) -> str:
        total = len(self.taken) + len(self.missing) + len(self.unselected) + len(self.mismatched)
        renamed = [f"{name} (from {old})" for name, old in self.taken.items() if name != old]
        lines = [f"took {len(self.taken)} of {total} variables"]
        for label, names in (
            ("under another name", renamed),
            ("cast to the variable's dtype", self.cast),
            ("not in the checkpoint", self.missing),
            ("do not fit", [f"{name} ({why})" for name, why in self.mismatched.items()]),
            ("not selected", self.unselected),
            ("in the checkpoint only", self.extra),
        ):
            if names:
                lines.append(f"  {label}: {listed(names)}")
        return "\n".join(lines)


def listed(names: Iterable[str]) -> str:
    """Some names for a line of text."""
    names = list(names)
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class Stored(Protocol):
    """An array in a checkpoint."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class Source(Protocol):
    """A checkpoint in any form."""

    @property
    def folder(self) -> Path:
        """Where it is, for errors."""

    @property
    def variables(self) -> Mapping[str, Stored]:
        """Name -> what is stored of it."""

    def values(self, names: list[str]) -> Mapping[str, Array]:
        """Values of variables, by name."""

    def hidden(self) -> Mapping[str, Array]:
        """The stored state that users do not see, as far as it fits."""


class Choice(NamedTuple):
    """What a user asks for: the arguments of `gc.train.restore`."""

    include: Patterns = None
    exclude: Patterns = None
    rename: Renaming = None
    strict: bool = True


_ALL = Choice()


class Selection:
    """Which stored value each variable of a session takes.

    Args:
        exact: whether both must have the same variables, with the same dtypes.

    Raises:
        CheckpointError: `exact` or `strict`, and they do not fit.
        AttributeValueError: a pattern is of another type, or matches nothing.
    """

    def __init__(
        self, session: Session, saved: Source, choice: Choice = _ALL, *, exact: bool = False
    ) -> None:
        types = {name: v.type for name, v in session.graph.variables.items()}
        stored = _renamed(saved, choice.rename)
        wanted = _selected(types, choice.include, choice.exclude)
        self.taken: dict[str, str] = {}
        mismatched, cast = dict[str, str](), []
        for name in wanted:
            if name in stored:
                entry = saved.variables[stored[name]]
                why = _difference(types[name], entry, exact)
                if why is not None:
                    mismatched[name] = why
                    continue
                self.taken[name] = entry.name
                if entry.dtype != types[name].dtype:
                    cast.append(name)
        used = {*self.taken.values(), *(stored[name] for name in mismatched)}
        self.report = RestoreReport(
            taken=self.taken,
            missing=tuple(name for name in wanted if name not in stored),
            extra=tuple(name for name in saved.variables if name not in used),
            unselected=tuple(name for name in types if name not in set(wanted)),
            mismatched=mismatched,
            cast=tuple(cast),
        )
        if exact or choice.strict:
            self._check(saved, stored, exact)

    def _check(self, saved: Source, stored: Mapping[str, str], exact: bool) -> None:
        report = self.report
        extra = report.extra if exact else ()
        if not (report.missing or report.mismatched or extra):
            return
        details = []
        for name in report.missing[:_SHOWN]:
            near = nearest(name, stored) if len(stored) < 10_000 else None
            near = near if near and near.startswith("did") else None
            details.append(f"{name!r} is not in the checkpoint" + (f"; {near}" if near else ""))
        details += [f"{n!r}: {why}" for n, why in list(report.mismatched.items())[:_SHOWN]]
        details += [f"{name!r} is only in the checkpoint" for name in extra[:_SHOWN]]
        left = len(report.missing) + len(report.mismatched) + len(extra) - len(details)
        raise CheckpointError.here(
            f"the checkpoint {str(saved.folder)!r} does not fit the graph",
            details=[*details, *([f"and {left} more"] if left > 0 else [])],
            hint="gc.train.restore(session, folder, include=..., rename=..., strict=False) takes "
            "what fits",
        )


def put(session: Session, selection: Selection, saved: Source, *, hidden: bool) -> None:
    """Gives the session the selected values: all of them or, if one cannot be read, none.

    Args:
        hidden: the state of random numbers and of the scale of the loss too.
    """
    old = selection.taken
    values = saved.values(list(dict.fromkeys(old.values())))
    found: dict[str, Array] = {name: values[old[name]] for name in old}
    if hidden:
        found.update(saved.hidden())
    session.set_all(found, copy=False)  # nobody else has the arrays


def restored(session: Session, saved: Source, choice: Choice) -> RestoreReport:
    """Gives the session the values that a user chooses: without any pattern also the state of
    random numbers and of the scale of the loss."""
    selection = Selection(session, saved, choice)
    all_of_it = choice.include is choice.exclude is choice.rename is None
    put(session, selection, saved, hidden=all_of_it)
    return selection.report


def check_session(session: object, function: str) -> None:
    """Raises AttributeValueError for what is no session."""
    if not isinstance(session, Session):
        raise AttributeValueError.here(
            f"{function}: the first argument must be a session, got {type(session).__name__}"
        )


def _difference(type: TensorType, entry: Stored, exact: bool) -> str | None:
    """Why a stored value does not fit a variable, or None."""
    if entry.shape != type.shape:
        return f"expected shape {type.shape}, the checkpoint has {entry.shape}"
    same = entry.dtype == type.dtype
    if not same and (exact or kind_of(entry.dtype) != kind_of(type.dtype)):
        return f"expected {short_name(type.dtype)}, the checkpoint has {short_name(entry.dtype)}"
    return None


# -- names ----------------------------------------------------------------------------------


def _selected(types: Mapping[str, Any], include: Patterns, exclude: Patterns) -> list[str]:
    chosen = list(types) if include is None else _matching(types, include, "include")
    left = set() if exclude is None else set(_matching(types, exclude, "exclude"))
    return [name for name in chosen if name not in left]


def _matching(types: Mapping[str, Any], patterns: Patterns, where: str) -> list[str]:
    """The names that one of the patterns matches; each must match one."""
    given = [patterns] if isinstance(patterns, (str, re.Pattern, Variable)) else patterns
    if not isinstance(given, Iterable):
        raise _no_pattern(where, given)
    matched: set[str] = set()
    for pattern in given:
        found = [name for name in types if _matches(name, pattern, where)]
        if not found:
            shown = pattern.pattern if isinstance(pattern, re.Pattern) else str(pattern)
            raise AttributeValueError.here(
                f"restore: {where}={shown!r} matches no variable of the graph",
                hint=nearest(shown, types, "graph.variables"),
            )
        matched.update(found)
    return [name for name in types if name in matched]


def _matches(name: str, pattern: object, where: str) -> bool:
    if isinstance(pattern, str):
        return fnmatch.fnmatchcase(name, pattern)
    if isinstance(pattern, re.Pattern):
        return pattern.search(name) is not None
    if isinstance(pattern, Variable):
        return pattern.name == name
    raise _no_pattern(where, pattern)


def _no_pattern(where: str, got: object) -> AttributeValueError:
    return AttributeValueError.here(
        f"restore: {where} must be names, patterns or variables, got {type(got).__name__}",
        hint='include="encoder/*", or include=["embedding", re.compile("layer_[0-3]/")]',
    )


def _renamed(saved: Source, rename: Renaming) -> dict[str, str]:
    """The name that a variable of the graph must have -> the name in the checkpoint."""
    new: Callable[[str], str] = (
        _by_mapping(rename, saved)
        if isinstance(rename, Mapping)
        else (rename or (lambda name: name))
    )
    if not callable(new):
        raise AttributeValueError.here(
            f"restore: rename must be a dict or a function, got {type(rename).__name__}",
            hint='rename={"encoder/*": "backbone/*"}',
        )
    found: dict[str, str] = {}
    for old in saved.variables:
        name = new(old)
        if not isinstance(name, str):
            raise AttributeValueError.here(
                f"restore: rename must return a name, got {name!r:.80} for {old!r}",
                hint="return the old name where it stays",
            )
        other = found.get(name)
        if other is not None and name not in (old, other):
            raise AttributeValueError.here(
                f"restore: rename gives {other!r} and {old!r} the same name {name!r}",
                hint="let it give another name to the one that is not restored",
            )
        if other is None or other == name:  # a name that was given wins over one that stayed
            found[name] = old
    return found


def _by_mapping(rename: Mapping[str, str], saved: Source) -> Callable[[str], str]:
    """A function that renames: `*` in a name stands for any text, the same on both sides."""
    rules = []
    for old, new in rename.items():
        pair: tuple[object, object] = old, new
        texts = all(isinstance(name, str) for name in pair)
        if not texts or old.count("*") > 1 or old.count("*") != new.count("*"):
            raise AttributeValueError.here(
                f"restore: rename={{{old!r}: {new!r}}} is no pair of names, or of patterns with "
                "one * each",
                hint='rename={"encoder/*": "backbone/*"}: old name -> new name',
            )
        before, star, after = old.partition("*")
        rule = re.compile(re.escape(before) + ("(.*)" if star else "()") + re.escape(after), re.S)
        if not any(rule.fullmatch(name) for name in saved.variables):
            raise AttributeValueError.here(
                f"restore: rename={old!r} matches no name in the checkpoint",
                hint=nearest(old, saved.variables, "the checkpoint"),
            )
        rules.append((rule, new))

    def renamed(name: str) -> str:
        for rule, new in rules:
            match = rule.fullmatch(name)
            if match:
                return new.replace("*", match[1])
        return name

    return renamed
