"""Frozen option records. No environment variable changes what they mean."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NoReturn

from graphc.errors import AttributeValueError, nearest


class Default(enum.Enum):
    """Stands for a value that is found where it is needed."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT
PIPELINES: Final = ("default", "unrolled", "none")  # what they hold stands in passes/pipelines.py


@dataclass(frozen=True)
class CompileOptions:
    """How `gc.compile` and a Session make executables. Immutable; equal options are equal.

    Attributes:
        pipeline: the passes that run: "default"; "unrolled" for the same without rolling repeated
            blocks into loops; "none" for the program as it was built.
        verify: check the rules of the IR after each pass that changed something.
        validate: run the program before and after each pass on random inputs, and fail where
            the results differ. Slow: for finding a wrong pass.
        dump: a folder for the text of the program before and after each pass; None for none.
        donate: give the state's buffers to the step, which then needs no second copy of them.
        max_in_flight: how many steps may be dispatched and not finished; at least 1.
        xla_options: options of XLA's compiler by name, for this program only.
        cache: the folder where compiled programs are kept for later processes, or None for
            none. By default `graphc/executables` in the user's cache folder, which on Linux is
            `$XDG_CACHE_HOME` or `~/.cache`. It must be the user's alone (mode 0700): what is
            loaded from it runs.
        cache_limit: how many bytes that folder may hold; the least recently used go first.

    Raises:
        AttributeValueError: an option has a value it cannot have.

    >>> CompileOptions(pipeline="none").verify
    True
    """

    pipeline: str = "default"
    verify: bool = True
    validate: bool = False
    dump: str | None = None
    donate: bool = True
    max_in_flight: int = 4
    xla_options: Mapping[str, str | int | bool | float] = field(default_factory=dict, hash=False)
    cache: str | os.PathLike[str] | Default | None = DEFAULT
    cache_limit: int = 2 * 2**30

    def __post_init__(self) -> None:
        given: object = self.pipeline
        if given not in PIPELINES:
            known = nearest(given, PIPELINES) if isinstance(given, str) else None
            _refuse(
                "pipeline",
                f"be one of {', '.join(map(repr, PIPELINES))}",
                self.pipeline,
                known or 'pass a name: pipeline="default"',
            )
        for name in ("verify", "validate", "donate"):
            if type(getattr(self, name)) is not bool:
                _refuse(name, "be True or False", getattr(self, name), f"pass {name}=True")
        self._set("dump", _folder("dump", self.dump, "passes.out"))
        if self.cache is not DEFAULT:
            folder = _folder("cache", self.cache, "compiled")
            self._set("cache", folder and os.path.abspath(os.path.expanduser(folder)))
        if type(self.cache_limit) is not int or self.cache_limit < 1:
            _refuse(
                "cache_limit",
                "be an int of at least 1",
                self.cache_limit,
                "pass bytes, such as 2 * 2**30; cache=None for no cache",
            )
        if type(self.max_in_flight) is not int or self.max_in_flight < 1:
            _refuse(
                "max_in_flight",
                "be an int of at least 1",
                self.max_in_flight,
                "pass 1 to wait for each step before the next is dispatched",
            )
        self._set("xla_options", _xla_options(self.xla_options))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _folder(name: str, given: Any, example: str) -> str | None:
    if given is None:
        return None
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path:
        mend = f'pass a path: {name}="{example}"'
        _refuse(name, "be the path of a folder, or None", given, mend)
    if os.path.exists(path) and not os.path.isdir(path):
        _refuse(name, "be a folder", given, "a file stands there: pass another path")
    return path


def _xla_options(options: Any) -> Mapping[str, str | int | bool | float]:
    if not isinstance(options, Mapping):
        _refuse(
            "xla_options",
            "map names to values",
            options,
            'pass a dict: {"xla_cpu_enable_fast_math": False}',
        )
    for name, value in options.items():
        if type(name) is not str or not name or name.startswith("-"):
            mend = "write the name as in XLA_FLAGS, without the leading dashes"
            _refuse("xla_options", "have names of XLA's options", name, mend)
        if type(value) not in (str, int, bool, float):
            mend = "pass a str, int, bool or float"
            _refuse(f"xla_options[{name!r}]", "be a plain value", value, mend)
    return MappingProxyType(dict(options))


def _refuse(name: str, must: str, got: object, mend: str) -> NoReturn:
    raise AttributeValueError(f"CompileOptions: {name} must {must}, got {got!r}", mend=mend)
