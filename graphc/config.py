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
    """Stands for a value that is determined where it is used."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT
PIPELINES: Final = ("O0", "O1", "O2", "O3")  # defined in passes/pipelines.py
STATE_BUFFERS: Final = ("packed", "stacked", "separate")


@dataclass(frozen=True)
class CompileOptions:
    """How `gc.compile` and a Session make executables. Immutable; equal options are equal.

    Attributes:
        pipeline: the passes that run. "O0" runs none and keeps the program as it was built. "O1"
            runs passes that make the program smaller. "O2" adds all passes that pay on any device,
            such as rolling repeated blocks into loops, and exact passes for CPUs if the program has
            many convolutions. "O3" adds all passes for the device in use.
        verify: check the rules of the IR after each pass that changed something.
        validate: run the program before and after each pass on random inputs, and fail where the
            results differ. This is slow; it serves to find a pass with a bug.
        dump: a folder to which the text of the program before and after each pass is written, or
            None.
        donate: donate the state's buffers to the step, which then needs no second copy of them.
        max_in_flight: how many steps may be dispatched but not yet finished; at least 1.
        xla_options: options of the XLA compiler by name. They apply to this program only.
        cache: the folder in which compiled programs are kept for later processes, or None for no
            cache. The default is `graphc/executables` in the user's cache folder, which on Linux is
            `$XDG_CACHE_HOME` or `~/.cache`. No other user may have access to it (mode 0700),
            because code that is loaded from it is executed.
        cache_limit: how many bytes that folder may hold. The least recently used programs are
            deleted first.
        tuned: compile with the settings that `gc.tune` found to be the fastest for this program and
            these options, if the cache holds such a result. False ignores it, because tuned
            settings may round differently.
        without_passes: names of passes that do not run, such as ("roll-repeats",).
        precision: "bf16" or "f16" to compute matrix products, convolutions, attention and the
            elementwise operators around them in 16 bits. Variables, sums, norms, losses and updates
            stay in float32. "f16" uses a loss scale that adapts. None keeps the dtypes of the
            graph.
        unroll: how many iterations of a loop that was rolled from repeated blocks are compiled as
            one; None for an estimate. On GPUs, blocks are not rolled into a loop if they repeat at
            most this many times, or at most 24 times.
        sparse_updates: which embedding tables are updated only in the rows that a step looks up.
            "exact": only where the result is the same (sgd, adagrad). "lazy": also where the
            optimizer would change all rows in each step (momentum, adam, adamw). The other rows and
            their slots then do not change, which is a different method. If tied weights have
            another gradient too, only the rows that are looked up are applied. "off": none.
        fuse_attention: find `softmax(scale * q @ k^T + masks) @ v` in its usual forms, and its
            gradient. Long sequences are computed one block of queries at a time (narrow ones on
            GPUs by cuDNN), so that memory grows linearly with the length. Results differ only by
            rounding, because sums are taken in another order: by about 1e-6 of the largest value in
            float32, and 1e-2 in bfloat16. A query for which the masks hide every key is an
            exception: it gets some mean of the values.
        check_numerics: fail a run that produces a NaN from operands without NaN, or an infinity
            from finite operands, or that receives an index, a label or a length that is out of
            range (docs/guide/indexing.md lists them). The error names the first such node and the
            user's line. This option is for debugging: it waits for each run, donates no state, and
            checks each result. With precision "f16" it also fails on an overflow that the loss
            scale would have handled.
        memory_limit: how many bytes a run may use on each device, including arguments and results,
            as an int or as text such as "4GiB" or "800 MB"; None for no limit. If the values that
            loops keep for their backward pass do not fit, some of them are recomputed. If the
            program still does not fit, compilation fails and the error states how many bytes it
            needs.
        state_buffers: how variables share arrays on the device. "stacked": the variables that a
            loop of repeated blocks iterates over are stacked. "packed": in addition, small
            variables with the same update are joined. "separate": no sharing, so that such a loop
            copies its variables in each step. The default is "stacked" for `gc.jit` and "packed"
            elsewhere.

    Raises:
        AttributeValueError: an option has an invalid value.

    Examples:
        >>> x = gc.placeholder((2,), name="x")
        >>> session = gc.Session(graph, options=gc.CompileOptions(check_numerics=True))
        >>> session.run(gc.log(x), {x: [1.0, -1.0]})
        Traceback (most recent call last):
        graphc.errors.NumericsError: Log 'Log' made a NaN from operands without NaN...
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
    state_buffers: str | None = None

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
        if self.state_buffers is not None and not _is_one_of(self.state_buffers, *STATE_BUFFERS):
            must = "be 'packed', 'stacked', 'separate' or None"
            _refuse("state_buffers", must, self.state_buffers, 'pass state_buffers="stacked"')
        self._check_sparse()
        self._set("without_passes", _names("without_passes", self.without_passes))
        self._set("memory_limit", _bytes("memory_limit", self.memory_limit))
        if self.unroll is not None and (type(self.unroll) is not int or self.unroll < 1):
            _refuse("unroll", "be an int of at least 1, or None", self.unroll, "pass unroll=4")

    def _check_sparse(self) -> None:
        given = self.sparse_updates
        if not _is_one_of(given, "exact", "lazy", "off"):
            hint = 'pass "lazy" to leave rows that are not used unchanged'
            _refuse("sparse_updates", "be 'exact', 'lazy' or 'off'", given, hint)
        if given == "lazy" and self.pipeline in ("O0", "O1"):
            hint = 'pass pipeline="O2"'
            _refuse("sparse_updates", f"not be 'lazy' with pipeline {self.pipeline}", given, hint)

    def meaning(self) -> dict[str, str]:
        """The options that determine the compiled program, as text for a cache key. Options for
        folders and for the number of steps in flight are left out."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("validate", "dump", "max_in_flight", "cache", "cache_limit", "tuned"):
            del found[name]
        found["xla_options"] = sorted(self.xla_options.items())
        found["state_buffers"] = self.state_buffers or "packed"
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
        _refuse(name, "be a folder", given, "this path is a file; pass another path")
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
    """The names, sorted and without duplicates, so that equal sets of names give equal options."""
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
