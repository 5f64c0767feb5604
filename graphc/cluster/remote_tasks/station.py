"""`Station`: what the process of one task does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphc.cluster.remote_programs import RemoteProgram
from graphc.cluster.remote_tasks.planning import Call
from graphc.devices.discovery import available
from graphc.ir.device_spec import parse_device


class Station:
    """The variables of a task, and the values of the current step that it will need again."""

    def __init__(self) -> None:
        self._devices = available()
        self._calls: dict[int, Call] = {}
        self._programs: dict[tuple[int, str], RemoteProgram] = {}
        self._state: dict[str, Any] = {}
        self._values: dict[int, Any] = {}
        self._step = -1

    def devices(self) -> list[str]:
        """The names of the devices of this process, without its task."""
        return list(self._devices)

    def process(self) -> int:
        """The number of the process."""
        return os.getpid()

    def install(self, calls: Mapping[int, Call]) -> None:
        """Gives it calls, each with its own number."""
        self._calls.update(calls)

    def set(self, values: Mapping[str, Any]) -> None:
        """Gives variables their values."""
        self._state.update(values)

    def get(self, names: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """The values of variables."""
        return [np.asarray(self._state[name]) for name in names]

    def run(self, step: int, number: int, *received: Any) -> list[np.ndarray[Any, Any]]:
        """Makes a call; see `Call`.

        Args:
            step: the number of the step. Values of other steps are forgotten.
            number: that of the call.

        Raises:
            ExecutionError, NumericsError: the program failed.
        """
        if step != self._step:
            self._step, self._values = step, {}
        call, values = self._calls[number], self._values
        values.update(zip(call.received, received, strict=True))
        for value, name in call.reads.items():
            values[value] = np.asarray(self._state[name])
        if call.sent is not None:
            results = self._program(call).on_device([values[v] for v in call.takes], self._state)
            values.update(zip(call.gives, results, strict=True))
        self._state.update({name: values[value] for name, value in call.assigns.items()})
        returned = [np.asarray(values[value]) for value in call.returned]
        for value in call.frees:
            del values[value]
        return returned

    def _program(self, call: Call) -> RemoteProgram:
        assert call.sent is not None
        key = call.sent.key, call.device
        found = self._programs.get(key)
        if found is None:
            spec = parse_device(call.device)
            here = self._devices[str(replace(spec, job=None, task=None))]
            found = self._programs[key] = RemoteProgram(call.sent, here)
        return found
