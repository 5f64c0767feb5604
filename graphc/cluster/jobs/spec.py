"""`JobSpec`: what a job is. It is read from a job file, a form or the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, NamedTuple

from graphc.cluster.jobs.quantities import bytes_of, seconds_of
from graphc.cluster.jobs.reading import read_keys
from graphc.errors import AttributeValueError, nearest

KINDS: Final = ("script", "train", "artifact")
"""The keys of a job file that name its program, of which it has one."""

_EXAMPLE: Final = "the smallest job file is\n    script: train.py\n    processes: 2"
_MOST: Final = 1024  # processes, devices of each, arguments
_LONGEST: Final = 4096  # characters of a text
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")

Value = str | int | float | bool


class Need(NamedTuple):
    """What a job takes while it runs: all of it, or it does not start.

    Examples:
        >>> from graphc.cluster.jobs.spec import Need
        >>> Need(2, 4, 0) + Need(1, 1, 10)
        Need(processes=3, devices=5, memory=10)
        >>> Need(2, 4, 0).fits(Need(2, 3, 100))
        False
    """

    processes: int
    devices: int
    memory: int  # bytes

    def __add__(self, other: Any) -> Need:
        return Need(*(a + b for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: Any) -> Need:
        return Need(*(a - b for a, b in zip(self, other, strict=True)))

    def fits(self, room: Need) -> bool:
        """Whether there is room for all of it."""
        return all(a <= b for a, b in zip(self, room, strict=True))


NOTHING: Final = Need(0, 0, 0)


@dataclass(frozen=True)
class JobSpec:
    """A job: its program, what it needs, and how long it may take.

    Attributes:
        kind: "script" (a script that calls `gc.cluster.join()`, in `processes` processes), "train"
            (a script with `build()`, run by `graphc train`) or "artifact" (run by `graphc run`).
        program: the file.
        name: for people; also the name in Kubernetes.
        parameters: become arguments: `rate: 0.1` is --rate=0.1, `fast: true` is --fast.
        arguments: further arguments, as they are.
        signature, inputs: of an artifact.
        save: whether to save the trained model (for "train").
        processes: how many.
        devices: of each process.
        memory: of each process, in bytes; None is no limit.
        priority: jobs with a higher one start earlier.
        restarts: how often the job may start again after a failure.
        grace: seconds that it gets to end after SIGTERM.
        silence: seconds without a step of `fit` after which it has failed.
        time_limit: seconds for which it may run.
        deadline: seconds from its submission by which it must have ended.
        kubernetes: what only Kubernetes needs; see `graphc.cluster.jobs.kubernetes`.

    Examples:
        >>> from graphc.cluster.jobs.spec import JobSpec
        >>> job = JobSpec.of({"script": "train.py", "processes": 2, "parameters": {"rate": 0.1}})
        >>> job.name, job.need, job.command_arguments
        ('train', Need(processes=2, devices=2, memory=0), ['--rate=0.1'])
    """

    kind: str
    program: str
    name: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    signature: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    save: bool = False
    processes: int = 1
    devices: int = 1
    memory: int | None = None
    priority: int = 0
    restarts: int = 0
    grace: float = 10.0
    silence: float | None = None
    time_limit: float | None = None
    deadline: float | None = None
    kubernetes: Mapping[str, Any] | None = None

    @staticmethod
    def of(value: object, where: str = "the job") -> JobSpec:
        """A job from what a job file contains.

        Args:
            where: the file, for errors.

        Raises:
            AttributeValueError: it is not valid. The error lists all mistakes.
        """
        if not isinstance(value, Mapping):
            raise AttributeValueError(
                f"{where} must be a mapping of keys, got {type(value).__name__}", hint=_EXAMPLE
            )
        found, mistakes = _read(value)
        if mistakes:
            count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
            raise AttributeValueError(f"{where} has {count}", details=mistakes, hint=_EXAMPLE)
        return JobSpec(**found)

    def as_dict(self) -> dict[str, Any]:
        """The job as `of` reads it, without what has its default."""
        found: dict[str, Any] = {self.kind: self.program, "name": self.name}
        for each in fields(self):
            value = getattr(self, each.name)
            default = each.default if each.default is not MISSING else {}
            if each.name not in ("kind", "program", "name") and value != default:
                found[each.name] = list(value) if isinstance(value, tuple) else value
        return found

    @property
    def need(self) -> Need:
        """What all processes take together."""
        memory = self.processes * (self.memory or 0)
        return Need(self.processes, self.processes * self.devices, memory)

    @property
    def command_arguments(self) -> list[str]:
        """The parameters and the arguments, for the command line of the program."""
        found = []
        for name, value in self.parameters.items():
            if value is True:
                found.append(f"--{name}")
            elif value is not False:
                found.append(f"--{name}={value}")
        return [*found, *self.arguments]


# -- reading: each reader raises a ValueError that says what is allowed ----------------------------


def _read(value: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    """The attributes, and the mistakes."""
    # A key of a job without a value is as if it were not there.
    found, mistakes = read_keys(
        {key: each for key, each in value.items() if each is not None or key not in _READERS},
        _READERS,
        lambda key: f"{str(key)[:60]!r} is not a key of a job; {nearest(str(key)[:60], _READERS)}",
        lambda key, each, why: f"{key}: must be {why}; got {_shown(each)}",
    )
    mistakes += _contradictions(value)
    if not mistakes:
        (found["kind"],) = [kind for kind in KINDS if kind in found]
        found["program"] = found.pop(found["kind"])
        found.setdefault("name", name_of(found["program"]))
    return found, mistakes


def _contradictions(value: Mapping[Any, Any]) -> list[str]:
    """Mistakes that several keys make together."""
    given = [key for key, each in value.items() if each is not None]
    kinds = [kind for kind in KINDS if kind in given]
    if not kinds:
        return ["one of script, train and artifact must name the program"]
    if len(kinds) > 1:
        return [f"{' and '.join(kinds)}: give one of them"]
    (kind,) = kinds
    only = {"signature": "artifact", "inputs": "artifact", "save": "train"}
    found = [
        f"{key}: is only for `{of}`" for key, of in only.items() if key in given and of != kind
    ]
    if kind != "script" and value.get("processes") not in (None, 1):
        found.append(f"processes: `{kind}` runs in one process; a script can run in several")
    if kind == "artifact":
        found += [f"{key}: an artifact takes none" for key in ("parameters", "arguments")
                  if key in given]  # fmt: skip
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def name_of(program: str) -> str:
    """A name for a job from the name of its file."""
    stem = program.replace("\\", "/").rpartition("/")[2].rpartition(".")[0] or program
    name = re.sub("[^a-z0-9]+", "-", stem.lower()).strip("-")[:40].strip("-")
    return name if _NAME.fullmatch(name) else "job"


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or "\0" in value:
        raise ValueError("a text")
    return value


def text_like(pattern: re.Pattern[str], what: str) -> Callable[[object], str]:
    """A reader of texts that match a pattern; `what` says which these are."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(what)
        return value

    return read


def _program(*endings: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value.endswith(endings):
            raise ValueError(f"the path of a {' or '.join(endings)} file")
        return _text(value)

    return read


def _number(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return read


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _arguments(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > _MOST:
        raise ValueError(f"a list of at most {_MOST} texts and numbers")
    return tuple(_scalar(each) for each in value)


def _scalar(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("a list of texts and numbers")
    text = str(value)
    if len(text) > _LONGEST or "\0" in text:
        raise ValueError(f"texts of at most {_LONGEST} characters")
    return text


def _parameters(value: object) -> dict[str, Value]:
    if not isinstance(value, Mapping) or len(value) > _MOST:
        raise ValueError("a mapping of names to texts, numbers, true or false")
    for name, each in value.items():
        if not isinstance(name, str) or not _PARAMETER.fullmatch(name):
            raise ValueError("a mapping whose names have letters, digits, _, . and -")
        if not isinstance(each, (str, int, float)) or len(str(each)) > _LONGEST:
            raise ValueError("a mapping of names to texts, numbers, true or false")
        if "\0" in str(each):
            raise ValueError("a mapping of names to texts without the character 0")
    return dict(value)


def _inputs(value: object) -> dict[str, str]:
    right = isinstance(value, Mapping) and all(
        isinstance(name, str) and name and "=" not in name and isinstance(path, str)
        for name, path in value.items()
    )
    if not right or not isinstance(value, Mapping):
        raise ValueError("a mapping of names to .npy files")
    return {_text(name): _program(".npy")(path) for name, path in value.items()}


def _kubernetes(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("a mapping; docs/jobs.md lists its keys")
    return dict(value)


_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "script": _program(".py"),
    "train": _program(".py"),
    "artifact": _program(".gcx"),
    "name": text_like(
        _NAME,
        "1 to 40 lower-case letters, digits and hyphens, which begin with a letter and end without "
        "a hyphen",
    ),
    "parameters": _parameters,
    "arguments": _arguments,
    "signature": _text,
    "inputs": _inputs,
    "save": _truth,
    "processes": _number(1, _MOST),
    "devices": _number(1, _MOST),
    "memory": bytes_of,
    "priority": _number(-100, 100),
    "restarts": _number(0, 1000),
    "grace": seconds_of,
    "silence": seconds_of,
    "time_limit": seconds_of,
    "deadline": seconds_of,
    "kubernetes": _kubernetes,
}
