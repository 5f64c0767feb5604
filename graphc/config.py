"""Frozen option records. No environment variable changes what they mean."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, NoReturn

from graphc.errors import AttributeValueError, nearest


class Default(enum.Enum):
    """Stands for a value that is found where it is needed."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT
PIPELINES: Final = ("O0", "O1", "O2", "O3")  # what they hold stands in passes/pipelines.py


@dataclass(frozen=True)
class CompileOptions:
    """How `gc.compile` and a Session make executables. Immutable; equal options are equal.

    Attributes:
        pipeline: the passes that run: "O0" none, the program as it was built; "O1" those that
            make the program smaller; "O2" all that pay on any device, such as rolling repeated
            blocks into loops; "O3" those for the device at hand too.
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
        tuned: compile as `gc.tune` found fastest for this program and these options, where it did
            and that is kept in the cache. False for the options as they are: what tuning finds
            rounds otherwise.
        without_passes: names of passes that do not run, such as ("roll-repeats",).
        precision: "bf16" or "f16" to compute matrix products, convolutions, attention and what is
            elementwise around them in 16 bits, with variables, sums, norms, losses and updates in
            float32; "f16" with a loss scale that adapts. None computes as the graph says.
        unroll: how many turns of a loop that was made of repeated blocks are compiled as one;
            None for an estimate. On GPUs, no loop is made of blocks that repeat at most so many
            times, nor at most 24 times.
        sparse_updates: which tables of embeddings are updated only in the rows that a step looks
            up. "exact": those where this means the same (sgd, adagrad); "lazy": those too where
            the optimizer would move all rows in each step (momentum, adam, adamw), and then
            whatever is kept row by row stands still in the others, which is another method (of
            tied weights the other gradient counts in the rows looked up only); "off": none.
        fuse_attention: find `softmax(scale * q @ k^T + masks) @ v`, in its usual spellings, and
            its gradient, and compute long ones some queries at a time (on GPUs narrow ones by
            cuDNN), so that memory is linear in the length. Results are the same but for rounding,
            as of sums in another order: about 1e-6 of the greatest in float32, 1e-2 in bfloat16;
            and but for queries from which masks hide every key, which give some mean of values.
        check_numerics: fail a run that makes a NaN of operands without, or an infinity of finite
            ones, or that gets an index, a label or a length out of range (docs/guide.md lists
            them), and name the first node that did, with the user's line. For finding it: each run
            is waited for, no state is donated, and each result is looked through. Of precision
            "f16" it fails at overflow too, which the loss scale would have caught.
        memory_limit: how many bytes a run may take on each device, arguments and results among
            them, as an int or as text such as "4GiB" or "800 MB"; None for no limit. Where it is
            too few for all that loops keep for their backward pass, part of that is computed
            again; where they are too few even so, compiling fails and says how many it takes.

    Raises:
        AttributeValueError: an option has a value it cannot have.

    >>> CompileOptions(pipeline="O0").verify
    True
    """

    pipeline: str = "O2"
    verify: bool = True
    validate: bool = False
    dump: str | None = None
    donate: bool = True
    max_in_flight: int = 4
    xla_options: Mapping[str, str | int | bool | float] = field(default_factory=dict, hash=False)
    cache: str | os.PathLike[str] | Default | None = DEFAULT
    cache_limit: int = 2 * 2**30
    tuned: bool = True
    without_passes: Sequence[str] = ()
    unroll: int | None = None
    precision: str | None = None
    sparse_updates: str = "exact"
    fuse_attention: bool = True
    check_numerics: bool = False
    memory_limit: int | str | None = None

    def __reduce__(self) -> Any:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        # Python cannot pickle the read-only mapping.
        return _options, ({**values, "xla_options": dict(self.xla_options)},)

    def __post_init__(self) -> None:
        given: object = self.pipeline
        if not _is_one_of(given, *PIPELINES):
            known = nearest(given, PIPELINES) if isinstance(given, str) else None
            _refuse(
                "pipeline",
                f"be one of {', '.join(map(repr, PIPELINES))}",
                self.pipeline,
                known or 'pass a name: pipeline="O2"',
            )
        for name in ("verify", "validate", "donate", "tuned", "fuse_attention", "check_numerics"):
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
        if self.precision is not None and not _is_one_of(self.precision, "bf16", "f16"):
            hint = 'pass precision="bf16"; "f16" for devices without it'
            _refuse("precision", "be 'bf16', 'f16' or None", self.precision, hint)
        self._check_sparse()
        self._set("without_passes", _names("without_passes", self.without_passes))
        self._set("memory_limit", _bytes("memory_limit", self.memory_limit))
        if self.unroll is not None and (type(self.unroll) is not int or self.unroll < 1):
            _refuse("unroll", "be an int of at least 1, or None", self.unroll, "pass unroll=4")

    def _check_sparse(self) -> None:
        given = self.sparse_updates
        if not _is_one_of(given, "exact", "lazy", "off"):
            hint = 'pass "lazy" to let rows that are not used stand still'
            _refuse("sparse_updates", "be 'exact', 'lazy' or 'off'", given, hint)
        if given == "lazy" and self.pipeline in ("O0", "O1"):
            hint = 'pass pipeline="O2"'
            _refuse("sparse_updates", f"not be 'lazy' with pipeline {self.pipeline}", given, hint)

    def meaning(self) -> dict[str, str]:
        """What decides which program is made, as text: what a cache key needs. Where things are
        kept and written to, and how many steps may be in flight, is not among it."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("validate", "dump", "max_in_flight", "cache", "cache_limit", "tuned"):
            del found[name]
        found["xla_options"] = sorted(self.xla_options.items())
        return {name: repr(value) for name, value in found.items()}

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _is_one_of(given: Any, *texts: str) -> bool:
    return type(given) is str and given in texts


def _folder(name: str, given: Any, example: str) -> str | None:
    if given is None:
        return None
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path:
        hint = f'pass a path: {name}="{example}"'
        _refuse(name, "be the path of a folder, or None", given, hint)
    if os.path.exists(path) and not os.path.isdir(path):
        _refuse(name, "be a folder", given, "a file stands there: pass another path")
    return path


_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def _bytes(name: str, given: Any) -> int | None:
    """A number of bytes, from an int or from text with a unit."""
    if given is None or (type(given) is int and given > 0):
        return given
    text = given.upper() if type(given) is str else ""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMG]I?)?B)?\s*", text, re.ASCII)
    count = 0 if found is None else int(Fraction(found[1]) * _UNITS[found[2] or ""])
    if count < 1:
        _refuse(name, "be a number of bytes, or None", given, f'pass {name}="4GiB"')
    return count


def _names(name: str, given: Any) -> tuple[str, ...]:
    """In order and each once: the same names are the same option."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        _refuse(name, "be a tuple of names", given, 'pass ("roll-repeats",)')
    if not all(type(each) is str for each in given):
        _refuse(name, "be a tuple of names", given, 'pass ("roll-repeats",)')
    return tuple(sorted(set(given)))


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
            hint = "write the name as in XLA_FLAGS, without the leading dashes"
            _refuse("xla_options", "have names of XLA's options", name, hint)
        if type(value) not in (str, int, bool, float):
            hint = "pass a str, int, bool or float"
            _refuse(f"xla_options[{name!r}]", "be a plain value", value, hint)
    return MappingProxyType(dict(options))


def _refuse(name: str, must: str, got: object, hint: str) -> NoReturn:
    raise AttributeValueError(f"CompileOptions: {name} must {must}, got {got!r}", hint=hint)


def _options(values: Mapping[str, Any]) -> CompileOptions:
    """Restores pickled options."""
    return CompileOptions(**values)
