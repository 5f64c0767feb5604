"""Frozen option records. No environment variable changes what they mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NoReturn

from graphc.errors import AttributeValueError, nearest

PIPELINES: Final = ("default", "none")  # what they hold stands in passes/pipelines.py


@dataclass(frozen=True)
class CompileOptions:
    """How `gc.compile` and a Session make executables. Immutable; equal options are equal.

    Attributes:
        pipeline: the passes that run: "default", or "none" for the program as it was built.
        verify: check the rules of the IR after each pass that changed something.
        validate: run the program before and after each pass on random inputs, and fail where
            the results differ. Slow: for finding a wrong pass.
        dump: a folder for the text of the program before and after each pass; None for none.
        donate: give the state's buffers to the step, which then needs no second copy of them.
        max_in_flight: how many steps may be dispatched and not finished; at least 1.
        xla_options: options of XLA's compiler by name, for this program only.

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
        self._set("dump", _folder(self.dump))
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


def _folder(dump: Any) -> str | None:
    if dump is None:
        return None
    path = os.fspath(dump) if isinstance(dump, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path:
        _refuse("dump", "be the path of a folder, or None", dump, 'pass a path: dump="passes.out"')
    if os.path.exists(path) and not os.path.isdir(path):
        _refuse("dump", "be a folder", dump, "a file stands there: pass another path")
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
