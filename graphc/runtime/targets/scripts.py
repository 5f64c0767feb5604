"""How the host runs a program over several devices: it starts executables and copies in order."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from graphc.errors import CacheError
from graphc.runtime.hlo.hlo_cost import HloCost, hlo_cost, summed
from graphc.runtime.targets.loading import Code, from_bytes, to_bytes
from graphc.runtime.targets.narrow_arguments import from_host, narrow_places

_IN_FLIGHT = 4  # steps of one call that are dispatched and not finished


class Step(NamedTuple):
    """One action of the host in a run.

    Attributes:
        executable: the index of the executable that it starts; None if it copies values to a
            device.
        device: the number of the device.
        takes, gives: the places of the operands and results.
        frees: the places of values that no later step uses.
    """

    executable: int | None
    device: int
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True)
class Script:
    """The actions of the host in a run. The arguments have the first places.

    Attributes:
        steps: the actions, in order.
        places: the total number of values.
        results: the places of the results.
        sizes: for each executable, the number of arrays that it takes, the number that it returns,
            and the number of its device.
        tokens: the number of results at the end that only serve for waiting: one per device,
            returned by the last executable that runs there.
        waited: the executables that call back. The host waits for each, so that they call in order.
        turns: None, or for a call that makes several steps: the number of steps, and the number of
            state buffers that a step writes, only reads, and assigns.
    """

    steps: tuple[Step, ...]
    places: int
    results: tuple[int, ...]
    sizes: tuple[tuple[int, int, int], ...]
    tokens: int = 0
    waited: tuple[int, ...] = ()
    turns: tuple[int, int, int, int] | None = None

    def to_json(self) -> list[Any]:
        """As plain values."""
        steps = [list(step) for step in self.steps]
        return [steps, self.places, self.results, self.sizes, self.tokens, self.waited, self.turns]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Script:
        """The script that `to_json` wrote."""
        steps, places, results, sizes, tokens, waited, turns = data
        rows = [(exe, dev, tuple(t), tuple(g), tuple(f)) for exe, dev, t, g, f in steps]
        return Script(
            tuple(Step(*row) for row in rows),
            places,
            tuple(results),
            tuple((a, b, c) for a, b, c in sizes),
            tokens,
            tuple(waited),
            None if turns is None else tuple(turns),
        )


def in_parts(stages: Sequence[Any]) -> str:
    """The texts of several stages, concatenated."""
    rows = [f"// executable {i}\n{stage.as_text()}" for i, stage in enumerate(stages)]
    return "\n".join(rows)


class CompiledPartition:
    """Executables and the script that runs them. It takes and returns flat lists, as one executable
    does."""

    def __init__(
        self, script: Script, executables: Sequence[Any], devices: Sequence[jax.Device]
    ) -> None:
        self.script, self.executables, self.devices = script, list(executables), devices
        self._shardings = [jax.sharding.SingleDeviceSharding(device) for device in devices]
        self._narrow: dict[int, tuple[int, ...]] = {}  # executable -> see `narrow_places`

    def __call__(self, *arguments: Any) -> list[Any]:
        return self.step(arguments) if self.script.turns is None else self._steps(arguments)

    def _steps(self, arguments: Sequence[Any]) -> list[Any]:
        """Several steps. Feeds and fetched values have a leading axis for the steps."""
        turns, written, read, assigned = self.script.turns or (1, 0, 0, 0)
        state, constant = list(arguments[:written]), arguments[written : written + read]
        feeds, rows = arguments[written + read :], []
        new: list[Any] = []
        waiting: deque[Any] = deque()
        for turn in range(turns):
            if len(waiting) >= _IN_FLIGHT:
                jax.block_until_ready(waiting.popleft())
            results = self.step([*state, *constant, *[feed[turn] for feed in feeds]])
            end = len(results) - self.script.tokens
            new, row = results[:assigned], results[assigned:end]
            waiting.append(results[end:])
            state = new[:written]
            rows.append(row)
        fetched = [jnp.stack(column) for column in zip(*rows, strict=True)]
        return [*new, *fetched, *waiting[-1]]

    def step(
        self, arguments: Sequence[Any], started: Callable[[Callable[[], Any]], Any] | None = None
    ) -> list[Any]:
        """One step.

        Args:
            started: starts an executable and returns its results; by default, the executable is
                called.
        """
        script = self.script
        values: list[Any] = [*arguments, *[None] * (script.places - len(arguments))]
        for executable, device, takes, gives, frees in script.steps:
            operands = [values[i] for i in takes]
            if executable is None:
                results = jax.device_put(operands, self._shardings[device])
            else:
                # An executable that calls back runs alone. If it raised an error after its
                # dispatch, the error would invalidate JAX's token for ordered effects, and with it
                # all programs that call back.
                calls = executable in script.waited
                if calls:
                    jax.block_until_ready(operands)
                if narrow := self._narrow_places(executable, device, operands):
                    operands = from_host(operands, narrow)
                run = self.executables[executable]
                results = run(*operands) if started is None else started(partial(run, *operands))
                if calls:
                    jax.block_until_ready(results)
            for place, result in zip(gives, results, strict=True):
                values[place] = result
            del operands
            for place in frees:
                values[place] = None
        return [values[i] for i in script.results]

    def _narrow_places(
        self, executable: int, device: int, operands: Sequence[Any]
    ) -> tuple[int, ...]:
        """The operands that an executable takes from the host. They are the same in each step."""
        found = self._narrow.get(executable)
        if found is None:
            dtypes = [operand.dtype for operand in operands]
            found = self._narrow[executable] = narrow_places(dtypes, self.devices[device].platform)
        return found

    def as_text(self) -> str:
        """The HLO of all executables, concatenated."""
        return in_parts(self.executables)

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimates for one run, summed over all executables that are started."""
        found: Counter[str] = Counter()
        runs = Counter(step.executable for step in self.script.steps)
        for number, executable in enumerate(self.executables):
            analysis = executable.cost_analysis()
            first = analysis[0] if isinstance(analysis, list) else analysis
            for name, value in (first or {}).items():
                found[name] += value * runs[number]
        return dict(found)

    def hlo_cost(self) -> HloCost:
        """The cost of one run on all devices together, computed from the HLO text. Copies between
        devices do not count."""
        turns = 1 if self.script.turns is None else self.script.turns[0]
        runs = Counter(step.executable for step in self.script.steps)
        return summed(
            (hlo_cost(executable.as_text()), turns * runs[number])
            for number, executable in enumerate(self.executables)
        )

    def memory_analysis(self) -> Memory:
        """The bytes on the device that needs most. They are summed over its executables, except for
        temporaries: those of the executable with the most count."""
        on: dict[int, Memory] = {}
        for executable, (_, _, device) in zip(self.executables, self.script.sizes, strict=True):
            own = Memory(*[getattr(executable.memory_analysis(), name) for name in Memory._fields])
            so_far = on.get(device, Memory(0, 0, 0, 0, 0))
            most = max(own.temp_size_in_bytes, so_far.temp_size_in_bytes)
            summed = Memory(*[a + b for a, b in zip(so_far, own, strict=True)])
            on[device] = summed._replace(temp_size_in_bytes=most)
        return max(on.values(), key=sum)

    def host_bytes(self) -> int:
        """The approximate number of bytes that a run allocates if all devices use the host's
        memory. Copies between devices count as arguments of the executable that takes them."""
        analyses = [executable.memory_analysis() for executable in self.executables]
        return sum(
            int(a.temp_size_in_bytes + a.output_size_in_bytes + a.argument_size_in_bytes)
            for a in analyses
        )

    def to_bytes(self) -> Code:
        """The executables as `from_bytes` reads them. The targets are one list per executable.

        Raises:
            CacheError: an executable cannot be stored.
        """
        rows = zip(self.executables, self.script.sizes, strict=True)
        codes = [to_bytes(one, self.devices[device]) for one, (_, _, device) in rows]
        parts = [json.dumps(self.script.to_json()).encode(), *[code.payload for code in codes]]
        payload = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
        return Code(payload, [code.targets for code in codes])

    @staticmethod
    def from_bytes(code: Code, devices: Sequence[jax.Device]) -> CompiledPartition:
        """The stored executables, loaded on the same devices.

        Raises:
            CacheError: they cannot be loaded here, or they call an unknown function.
        """
        script_text, *parts = _framed(code.payload)
        script, targets = Script.from_json(json.loads(script_text)), code.targets
        if not isinstance(targets, list) or len(targets) != len(parts):
            raise CacheError("a stored program does not record the functions its parts call")
        executables = [
            from_bytes(Code(part, called), arguments, results, [devices[device]])
            for part, called, (arguments, results, device) in zip(
                parts, targets, script.sizes, strict=True
            )
        ]
        return CompiledPartition(script, executables, devices)


class Memory(NamedTuple):
    """XLA's memory figures for one executable, under XLA's names."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int
    generated_code_size_in_bytes: int


def _framed(payload: bytes) -> Iterator[bytes]:
    stream = io.BytesIO(payload)
    while head := stream.read(8):
        yield stream.read(struct.unpack("<Q", head)[0])
