"""`Machine`: a machine with GPUs for which a program is compiled. The machine need not be present.

The models that graphc knows are in `machines.toml`; `graphc devices --describe` writes a file of
the same format for the GPUs of the machine it runs on. `devices.topology` creates JAX devices from
it.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from graphc.errors import AttributeValueError, nearest

_MODELS = Path(__file__).with_name("machines.toml")
_COUNTED = re.compile(r"(\d{1,6})\s*x\s*(\S.*)", re.ASCII | re.IGNORECASE)
_CAPABILITY = re.compile(r"(\d+)\.(\d)(a?)", re.ASCII)
_MOST = 4096  # the maximum number of GPUs of one machine; a larger count is a mistake


@dataclass(frozen=True)
class Gpu:
    """A model of GPUs.

    Attributes:
        name: the name that its driver reports.
        compute_capability: such as "9.0"; "9.0a" includes the instructions that only this
            generation has.
        cores: multiprocessors.
        fpus_per_core, threads_per_core: the numbers for one multiprocessor.
        clock_ghz: the clock rate of the multiprocessors.
        shared_memory_per_core, shared_memory_per_block_optin: bytes.
        l2_cache, memory: bytes.
        memory_bandwidth: bytes/s.
        link_bandwidth: bytes/s from one GPU to the others, in one direction; None if not known.
        link_latency: seconds of one message between GPUs of a machine; None if not known.
        network_bandwidth: bytes/s from one GPU to those of other machines, in one direction, in the
            usual server of this GPU; None if not known.
        network_latency: seconds of one message between machines; None if not known.
        matrix_flops: peak FLOP/s of matrix units by dtype ("f64", "tf32", "f16", "bf16", "f8").
        vector_flops: peak FLOP/s in float32 without matrix units; None if not known.
        target_config: XLA's own description of the GPU, as text; "" if the description is generated
            from the other attributes.

    Examples:
        >>> gpu = gc.devices.Machine("h100").model
        >>> gpu.compute_capability, gpu.cores, gpu.matrix_flops["bf16"]
        ('9.0a', 132, 989400000000000.0)
    """

    name: str
    compute_capability: str
    cores: int
    fpus_per_core: int
    threads_per_core: int
    clock_ghz: float
    shared_memory_per_core: int
    shared_memory_per_block_optin: int
    l2_cache: int
    memory: int
    memory_bandwidth: int
    link_bandwidth: int | None = None
    link_latency: float | None = None
    network_bandwidth: int | None = None
    network_latency: float | None = None
    matrix_flops: Mapping[str, float] = field(default_factory=dict, hash=False)
    vector_flops: float | None = None
    target_config: str = field(default="", repr=False)

    @property
    def capability(self) -> tuple[int, int, str]:
        """The compute capability in parts: 9, 0 and "a" for "9.0a"."""
        found = _CAPABILITY.fullmatch(self.compute_capability)
        if found is None:
            raise AttributeValueError(f"{self.compute_capability!r} is not a compute capability")
        return int(found[1]), int(found[2]), found[3]


@dataclass(frozen=True, init=False)
class Machine:
    """A machine with one or more GPUs of one model, to compile for: `gc.compile(machine=...)`.

    The machine need not be present. Compiling needs JAX's CUDA plugin (`pip install
    'graphc[cuda]'`), but no GPU.

    Args:
        gpu: the short name of a model: "a100-40gb", "a100-80gb", "h100", "h200", "b200", "l4",
            "l40s"; or with a count: "8xh100"; or the path of a file that `graphc devices
            --describe` wrote, which ends in ".toml".
        count: the number of GPUs; by default one, or the number in the file.
        memory_fraction: the fraction of each GPU's memory that JAX uses on that machine: the value
            of XLA_PYTHON_CLIENT_MEM_FRACTION there, which is 0.75 by default.

    Attributes:
        model: the GPU model.

    Raises:
        AttributeValueError: there is no such model, the file is not a valid description, or the
            count is not positive.

    Examples:
        >>> machine = gc.devices.Machine("8xh100")
        >>> machine, machine.count, machine.model.memory
        (Machine(gpu='h100', count=8), 8, 84942979072)
    """

    gpu: str = field(compare=False)
    count: int
    memory_fraction: float = field(repr=False)
    model: Gpu = field(repr=False)

    def __init__(
        self,
        gpu: str | os.PathLike[str],
        count: int | None = None,
        *,
        memory_fraction: float = 0.75,
    ) -> None:
        name: Any = os.fspath(gpu) if isinstance(gpu, os.PathLike) else gpu
        if not isinstance(name, str) or not name.strip():
            raise _refusal(f"{gpu!r} is not the name of a GPU")
        name = name.strip()
        counted = _COUNTED.fullmatch(name)
        if counted is not None and not os.path.exists(name):
            name = counted[2]
            if count not in (None, int(counted[1])):
                raise _refusal(f"{gpu!r} means {counted[1]} GPUs, but count is {count!r}")
            count = int(counted[1])
        if name.lower().endswith(".toml"):
            model, described = _read(name)
        else:
            model, described, name = _known(name), 1, name.lower()
        count = described if count is None else count
        if type(count) is not int or not 1 <= count <= _MOST:
            raise _refusal(f"{count!r} is not a number of GPUs")
        if type(memory_fraction) not in (int, float) or not 0 < memory_fraction <= 1:
            raise _refusal(
                f"memory_fraction must be more than 0 and at most 1, got {memory_fraction!r}"
            )
        self._set(gpu=name, count=count, memory_fraction=float(memory_fraction), model=model)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, model: Gpu, count: int = 1) -> Machine:
        """A machine with GPUs of a model that has no short name.

        Raises:
            AttributeValueError: `model` is not a `Gpu`, or `count` is not a positive number.

        Examples:
            >>> model = gc.devices.Machine("h100").model
            >>> gc.devices.Machine.of(model, 4).count
            4
        """
        if not isinstance(model, Gpu):
            raise _refusal(f"{model!r} is not a gc.devices.Gpu")
        if type(count) is not int or not 1 <= count <= _MOST:
            raise _refusal(f"{count!r} is not a number of GPUs")
        machine = object.__new__(cls)
        machine._set(gpu=model.name, count=count, memory_fraction=0.75, model=model)
        return machine

    @property
    def usable_memory(self) -> int:
        """How many bytes of each GPU's memory JAX uses.

        Examples:
            >>> gc.devices.Machine("h100").usable_memory / 1e9
            63.707234304
        """
        return int(self.model.memory * self.memory_fraction)

    def memory_in_words(self) -> str:
        """How much of each GPU's memory JAX uses, as text for errors.

        Examples:
            >>> gc.devices.Machine("h100").memory_in_words()
            '63707234304 bytes of an NVIDIA H100 80GB HBM3 (75% of its 84.9 GB)'
        """
        part = f"{100 * self.memory_fraction:.3g}% of its {self.model.memory / 1e9:.1f} GB"
        return f"{self.usable_memory} bytes of an {self.model.name} ({part})"

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of its devices: "/device:GPU:0" and so on.

        Examples:
            >>> gc.devices.Machine("2xh100").device_names
            ('/device:GPU:0', '/device:GPU:1')
        """
        return tuple(f"/device:GPU:{index}" for index in range(self.count))

    def __str__(self) -> str:
        return f"{self.count} x {self.model.name}"

    def to_toml(self) -> str:
        """The text of a file that `Machine` reads.

        Raises:
            AttributeValueError: a name cannot be written to a file, because it is not valid Unicode
                text.

        Examples:
            >>> gc.devices.Machine("2xh100").to_toml().splitlines()[0]
            'count = 2'
        """
        lines = [f"count = {self.count}", "", "[gpu]"]
        lines += [
            f"{f.name} = {_toml(value)}"
            for f in fields(Gpu)
            if (value := getattr(self.model, f.name)) is not None
            and (value != "" or f.name not in _OPTIONAL)
        ]
        return "\n".join(lines) + "\n"


def model_names() -> tuple[str, ...]:
    """The short names of the GPUs that graphc knows."""
    return tuple(_models())


def model_named(name: str) -> Gpu | None:
    """The GPU whose driver reports this name, if graphc knows it."""
    return next((gpu for gpu in _models().values() if gpu.name == name), None)


@cache
def _models() -> Mapping[str, Gpu]:
    tables = tomllib.loads(_MODELS.read_text(encoding="utf-8"))
    return {name: Gpu(**table) for name, table in tables.items()}


def _known(name: str) -> Gpu:
    found = _models().get(name.lower())
    if found is not None:
        return found
    hint = nearest(name.lower(), model_names())
    names = ", ".join(model_names())
    raise _refusal(
        f"no GPU {name!r}", hint or "give one of these names, or a description file", [names]
    )


def _read(path: str) -> tuple[Gpu, int]:
    """The model and the count that a file describes."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except (OSError, ValueError) as error:  # the file is missing, not UTF-8 or not TOML
        raise _refusal(f"{path!r} cannot be read: {error}") from None
    count, table = found.get("count", 1), found.get("gpu")
    wrong = None if isinstance(table, dict) else "the file has no table [gpu]"
    if wrong is None and (type(count) is not int or not 1 <= count <= _MOST):
        wrong = f"count = {count!r} is not a number of GPUs"
    wrong = wrong or _wrong_field(table or {})
    if wrong is not None:
        raise _refusal(
            f"{path!r} does not describe a machine: {wrong}",
            "write it with: graphc devices --describe machine.toml",
        )
    return Gpu(**(table or {})), count


# The types of the values in a table [gpu], as in the `Gpu` record.
_FIELDS: Mapping[str, tuple[type, ...]] = {
    f.name: {
        "str": (str,),
        "int": (int,),
        "int | None": (int,),
        "float": (float, int),
        "float | None": (float, int),
    }.get(str(f.type), (dict,))
    for f in fields(Gpu)
}
_IN_TARGET_CONFIG = (
    "threads_per_block_limit",
    "threads_per_warp",
    "shared_memory_per_block",
    "shared_memory_per_core",
    "threads_per_core_limit",
    "core_count",
    "fpus_per_core",
    "memory_bandwidth",
    "l2_cache_size",
    "clock_rate_ghz",
    "device_memory_size",
    "cuda_compute_capability",
    "registers_per_core_limit",
)
_OPTIONAL = (
    *("link_bandwidth", "link_latency", "network_bandwidth", "network_latency"),
    *("matrix_flops", "vector_flops", "target_config"),
)


def _wrong_field(table: Mapping[str, Any]) -> str | None:
    """A description of the first mistake in a table [gpu], or None."""
    for name in table:
        if name not in _FIELDS:
            return f"unknown field {name!r}; {nearest(name, _FIELDS) or 'remove it'}"
    for name, types in _FIELDS.items():
        if name not in table and name not in _OPTIONAL:
            return f"{name!r} is missing"
        value = table.get(name)
        if name not in table:
            continue
        if type(value) not in types or (isinstance(value, (int, float)) and not value > 0):
            return f"{name} = {value!r} is not {_described(types)}"
    rates = table.get("matrix_flops", {}).values()
    if any(type(rate) not in (int, float) or not rate > 0 for rate in rates):
        return "matrix_flops must be rates by dtype"
    if _CAPABILITY.fullmatch(table["compute_capability"]) is None:
        return f"compute_capability = {table['compute_capability']!r} is not like '9.0'"
    text = table.get("target_config", "")
    # XLA terminates the process if one of these is missing.
    missing = [name for name in _IN_TARGET_CONFIG if text and not re.search(rf"\b{name}\b", text)]
    return f"target_config has no {missing[0]}" if missing else None


def _described(types: tuple[type, ...]) -> str:
    return "text" if str in types else "a table" if dict in types else "a positive number"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        rates = (f"{_key(name)} = {rate!r}" for name, rate in value.items())
        return "{ " + ", ".join(rates) + " }"
    if isinstance(value, str):
        lines = value.split("\n")
        if len(lines) > 1 and "'''" not in value and all(map(str.isprintable, lines)):
            return f"'''\n{value}'''"
        return _quoted(value)
    return repr(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _quoted(name)


def _quoted(text: str) -> str:
    """A TOML basic string: with JSON's escapes, and an escape for the control character that JSON
    allows."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _refusal(f"{text!r} cannot be written to a file: {error.reason}") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _refusal(what: str, hint: str | None = None, details: Any = ()) -> AttributeValueError:
    return AttributeValueError.here(
        f"Machine: {what}",
        details=details,
        hint=hint or 'Machine("h100", 8), or "8xh100", or a file of graphc devices --describe',
    )
