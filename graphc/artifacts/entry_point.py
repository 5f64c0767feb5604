"""`EntryPoint`: one signature of a loaded artifact, ready to be called."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from graphc.artifacts.examples import unpacked
from graphc.artifacts.lowering import Places
from graphc.artifacts.source import Source
from graphc.artifacts.state import ModelState, Saved
from graphc.artifacts.steps import Step
from graphc.artifacts.strings import Strings, with_strings
from graphc.artifacts.ways import Chain
from graphc.copying import Uncopied
from graphc.errors import DeviceError, ExecutionError, FeedError, StateError, nearest
from graphc.interrupts import uninterrupted
from graphc.ir.calls import explained
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import shown_size, shown_types
from graphc.runtime.buffers.layout import public_names
from graphc.runtime.core.failures import RUN_FAILED, in_words
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.feeds import FeedSpec, bind_feeds
from graphc.runtime.targets.executors import ONE_AT_A_TIME, copies_of
from graphc.runtime.targets.jax_program import x64
from graphc.runtime.targets.narrow_arguments import from_host, narrow_places
from graphc.runtime.targets.room import is_limited

_IN_FLIGHT = 4  # steps on several devices: unbounded queues of collectives can abort the process


class EntryPoint(Uncopied):
    """One signature of a loaded artifact.

    An entry point that assigns no variable is `f(x=...) -> {name: array}` (a state may be given
    first). An entry point that assigns variables is `f(state, x=...) -> ({name: array}, new
    state)`, and consumes the given state. The same holds for an entry point that draws random
    numbers, because their stream is state too.

    The program is read by the first call, and compiled once for each set of input sizes.

    Attributes:
        name: the name of the signature.
        inputs: argument name -> type. Open sizes appear by name. An input with a vocabulary takes
            strings (str, bytes or arrays of them), or their numbers.
        outputs: result name -> type. An output with a vocabulary is an array of bytes objects.
        program_inputs, program_outputs: the same for the program, which has numbers only.
        strings: converts between both.
        updates_state: whether it takes a state and returns a new one.
        assigned: the variables that it assigns. It is empty although `updates_state` is True if
            only a random stream advances.
        devices: the number of devices that it was saved for.
        buckets: open size -> the values to which a server pads it.
    """

    instead = "send the path of the file: gc.load(path).signatures[name]"

    def __init__(
        self, source: Source, saved: Saved, *, lacking: Callable[[], DeviceError] | None = None
    ) -> None:
        entry = source.entry
        self.name = source.name
        self.program_inputs = {value.name: value.type for value in entry.inputs}
        self.program_outputs = {o.value.name: o.value.type for o in entry.outputs}
        self.inputs = with_strings(self.program_inputs, entry)
        self.outputs = with_strings(self.program_outputs, entry)
        self.strings = Strings(source.name, entry, source.members)
        self.updates_state = bool(entry.assigned)
        self.assigned = tuple(public_names(entry.assigned))
        self.devices = entry.devices
        self.buckets = dict(entry.buckets)
        self._members = source.members
        self._entry = entry
        self._saved = saved
        self._lacking = lacking  # set if there are too few devices; the first call raises the error
        self._chain = Chain(source)
        self._on_cpu = on_cpu = source.platform == "cpu"
        ports = [Port(v.name, "feed", Tensor(v.type, v.name)) for v in entry.inputs]
        self._specs = [FeedSpec(port, None, copy=on_cpu) for port in ports]
        # A program that contains ports only, which the rules for feeds need.
        self._ports = Program(self.name, tuple(ports), (), ())
        state = [saved.types[name] for name in (*entry.written, *entry.read)]
        taken = [*state, *self.program_inputs.values()]
        self._narrow = narrow_places([t.dtype for t in taken], source.platform)
        self._waiting: deque[Any] = deque()
        self._lock = threading.Lock()
        self._dtypes = [(value.name, value.type.dtype) for value in entry.inputs]
        self._weights: list[jax.Array] | None = None  # what `on_host` passes before the inputs

    # -- the way --------------------------------------------------------------------------------

    @property
    def way(self) -> str:
        """The form of the program that runs: "native", "stablehlo" or "graph".

        Raises:
            ArtifactError: no form can be used.
        """
        self._check_devices()
        return self._chain.way or self._chain.choose()

    @property
    def notes(self) -> list[str]:
        """Why earlier forms were not used, one line each. Available after a call."""
        return list(self._chain.notes)

    @property
    def examples(self) -> list[dict[str, np.ndarray[Any, Any]]]:
        """The examples that the signature was saved with, read from the file. In place of strings
        they have their numbers.

        Raises:
            ArtifactCorruptError: they were altered.
        """
        if self._entry.examples is None:
            return []
        return list(unpacked(self.name, self._entry.inputs, self._entry.examples, self._members))

    def program(self) -> Program | None:
        """The program with open sizes, for analyses. Its fetches are the results, in the order of
        `outputs`. None if the file, of an early version, does not contain it.

        Raises:
            ArtifactError: it cannot be read, or does not match the manifest.
        """
        program = self._chain.program()
        if program is None:
            return None
        count = len(self._entry.assigned)
        fetches = [
            program.outputs[count + output.index]._replace(name=output.value.name)
            for output in self._entry.outputs
        ]
        return program.replace(outputs=(*program.outputs[:count], *fetches))

    def _check_devices(self) -> None:
        if self._lacking is not None:
            raise self._lacking()

    def release(self) -> None:
        """Forgets the compiled programs; the next call compiles again."""
        self._chain.release()
        self._weights = None

    # -- running --------------------------------------------------------------------------------

    @explained
    def __call__(self, state: ModelState | None = None, /, **inputs: Any) -> Any:
        """Runs the entry point once.

        Raises:
            FeedError: an input is invalid, missing or not needed. The state stays valid.
            StateError: a training entry point received no state, a consumed state, or a state of
                another model.
            DeviceError: there are too few devices.
            ArtifactError: the program cannot be read here, does not match the manifest, or a weight
                was altered.
            ExecutionError: the run failed. The state is unchanged.

        After an interrupt (Ctrl-C), the state that was passed has the values from before the run
        or, if the run completed, the values from after it.
        """
        results = self.on_numbers(state, self.strings.ids(inputs))
        if not self.strings:
            return results
        if not self.updates_state:
            return self.strings.strings(results)
        return self.strings.strings(results[0]), results[1]

    def on_numbers(self, state: ModelState | None, inputs: Mapping[str, Any]) -> Any:
        """As a call, with numbers in place of strings in the inputs and outputs."""
        FORKING.use_devices()
        self._check_devices()
        self._chain.choose()  # errors of the file are raised before errors of the inputs
        state = self._checked_state(state)
        values = self._feeds(inputs)
        step = self._chain.step(tuple([value.shape for value in values]))
        # In a frame of its own: JAX's reference cycles keep the frames that are on the stack while
        # a program is read or compiled, with all that their variables refer to.
        return self._run_once(step, state, values)

    def on_host(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The results as NumPy arrays, for an entry point that takes no state. The inputs and
        outputs have numbers in place of strings.

        The inputs are not copied: they must not change until it returns. It is faster than a call
        if the inputs have the dtypes of the signature, and sizes that have run before.

        Raises:
            FeedError, StateError, DeviceError, ArtifactError, ExecutionError: as for a call.
        """
        ready = self._ready(inputs)
        if ready is None:
            results = self.on_numbers(None, inputs)
            return {name: np.asarray(value) for name, value in results.items()}
        compiled, arguments = ready
        FORKING.use_devices()
        try:
            with x64(self._entry.wide):
                results = compiled(*arguments)
            return {o.value.name: np.asarray(results[o.index]) for o in self._entry.outputs}
        except RUN_FAILED as error:
            raise ExecutionError(f"the run failed: {in_words(error)[0]}") from error

    def _ready(self, inputs: Mapping[str, Array]) -> tuple[Any, list[Any]] | None:
        """The program and its arguments, if it has run at these sizes and needs no conversion."""
        if (
            self.updates_state
            or self.devices > 1
            or self._narrow
            or len(inputs) != len(self.inputs)
        ):
            return None
        values = []
        for name, dtype in self._dtypes:
            value = inputs.get(name)
            if type(value) is not np.ndarray or value.dtype != dtype:
                return None
            values.append(value)
        step = self._chain.known(tuple([value.shape for value in values]))
        if step is None:
            return None
        weights = self._weights
        if weights is None:
            home = step.places.home
            weights = [self._saved.shared(name, home) for name in self._entry.read]
            self._weights = weights
        return step.compiled, [*weights, *values]

    def _run_once(self, step: Step, state: ModelState, values: Sequence[Any]) -> Any:
        compiled, places = step
        entry = self._entry
        written = [state.take(name, places.home) for name in entry.written]
        read = [state.look(name, places.home) for name in entry.read]
        feeds = _spread(values, places)
        count = len(entry.assigned)
        results: list[Any] = []

        def run() -> None:
            results.extend(self._run(compiled, state, written, [*written, *read, *feeds]))

        try:
            uninterrupted(run)
            outputs = {o.value.name: results[count + o.index] for o in entry.outputs}
            if not self.updates_state:
                return outputs
            after = state.followed_by(dict(zip(entry.assigned, results[:count], strict=True)))
            state.consume(f"the entry point {self.name!r}")
            return outputs, after
        except BaseException:
            if results:  # the run was interrupted after it had completed
                state.revive(dict(zip(entry.assigned, results[:count], strict=True)))
            raise

    def hlo(self, **inputs: Any) -> str:
        """The HLO text of the program for inputs of these shapes, after XLA's own passes.

        Args:
            inputs: as for a call.

        Raises:
            FeedError, DeviceError, ArtifactError: as for a call.
        """
        FORKING.use_devices()
        self._check_devices()
        self._chain.choose()
        values = self._feeds(self.strings.ids(inputs))
        compiled, _ = self._chain.step(tuple([value.shape for value in values]))
        return str(compiled.as_text())

    def _run(
        self, compiled: Any, state: ModelState, written: Sequence[Any], values: Sequence[Any]
    ) -> Any:
        values = from_host(values, self._narrow)
        short = self._on_cpu and is_limited()  # a run may run out of memory: see `runtime.room`
        try:
            with x64(self._entry.wide):
                if short:  # the run consumes copies, so that a failure leaves the state unchanged
                    values[: len(written)] = copies_of(values[: len(written)])
                if self.devices == 1:
                    results = compiled(*values)
                else:
                    with ONE_AT_A_TIME.lock:
                        self._wait()
                        results = compiled(*values)
                if short:
                    jax.block_until_ready(results)
        except RUN_FAILED as error:
            if any(value.is_deleted() for value in written):
                state.consume("a run that failed")
                raise StateError(
                    f"the run failed after it had consumed state: {in_words(error)[0]}",
                    hint="start again from model.state(), or from a state that was saved",
                ) from error
            raise ExecutionError(f"the run failed: {in_words(error)[0]}") from error
        if self.devices > 1:
            self._waiting.append(results[-1])  # a fetch or the token, which no later step takes
        return results

    def _wait(self) -> None:
        """Waits until one more step may be dispatched."""
        with self._lock:
            while len(self._waiting) >= _IN_FLIGHT:
                first = self._waiting.popleft()
                if not first.is_deleted():
                    first.block_until_ready()

    def _checked_state(self, state: Any) -> ModelState:
        if state is None:
            if not self.updates_state:
                return ModelState(self._saved, {})
            call = f"model.signatures[{self.name!r}](state, ...)"
            raise StateError(
                f"{self.name!r} updates variables, so its first argument must be a state",
                hint=f"state = model.state(); outputs, state = {call}",
            )
        if not isinstance(state, ModelState):
            raise StateError(
                f"the first argument of {self.name!r} must be a state, got {type(state).__name__}",
                hint="pass inputs by name: " + self._example(),
            )
        if [*state.types.items()] != [*self._saved.types.items()]:
            raise StateError(
                f"{self.name!r} takes a state of its own model, but this state has other variables",
                hint="start from model.state()",
            )
        state.check_alive()
        return state

    def _example(self) -> str:
        return f"{self.name}({', '.join(f'{name}=...' for name in self.inputs)})"

    def _feeds(self, inputs: Mapping[str, Any]) -> list[Any]:
        for argument in inputs:
            if argument not in self.inputs:
                raise FeedError(
                    f"{self.name!r} has no input {argument!r}",
                    hint=nearest(argument, self.inputs, repr(self.name))
                    or f"it has no inputs: {self._example()}",
                )
        missing = [argument for argument in self.inputs if argument not in inputs]
        if missing:
            raise FeedError(
                f"{self.name!r}: input {missing[0]!r} is missing",
                hint=f"inputs: {_listed(shown_types(self.inputs))}",
            )
        values = [spec.convert(inputs[spec.label]) for spec in self._specs]
        bindings = bind_feeds(self._ports, [value.shape for value in values], {})
        if 0 in bindings.values():
            name = next(name for name, size in bindings.items() if size == 0)
            raise FeedError(
                f"{self.name!r}: {shown_size(name, self.inputs)} is 0; open sizes of an artifact "
                "start at 1",
                hint="do not call it with an empty batch",
            )
        return values

    def __repr__(self) -> str:
        takes = _listed(shown_types(self.inputs))
        gives = _listed(shown_types(self.outputs, self.inputs))
        return f"<EntryPoint {self.name}({takes}) -> {gives}>"


def _listed(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {type}" for name, type in types.items())


def _spread(values: Sequence[Any], places: Places) -> list[Any]:
    """The inputs, transferred to the devices of the step. On one device, JAX transfers host arrays
    itself."""
    several = len(places.devices) > 1
    placed = []
    for value, where in zip(values, places.feeds, strict=True):
        on_device = isinstance(value, jax.Array)
        if (on_device and value.sharding != where) or (several and not on_device):
            with jax.enable_x64(True):
                value = jax.device_put(value, where)
        placed.append(value)
    return placed
