"""`EntryPoint`: one signature of a loaded artifact, ready to be called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax

from graphc.artifacts.manifest import Entry, Value, corrupt
from graphc.errors import ArtifactCorruptError, ArtifactVersionError, FeedError, StateError, nearest
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.runtime.feeds import FeedSpec, bind_feeds
from graphc.runtime.state import State, StateLayout

# JAX's custom calls that enter Python. graphc never exports them, and a file must not have them.
_CALLS_PYTHON = re.compile(rb"xla_\w*python\w*callback")


class EntryPoint:
    """One signature of a loaded artifact.

    An entry point that assigns no variable is `f(x=...) -> {name: array}` (a state may be given
    first). One that does is `f(state, x=...) -> ({name: array}, new state)`, and consumes the
    state it is given; so does one that draws random numbers, whose stream is state too.

    The program is read by the first call, and compiled once for each set of input sizes.

    Attributes:
        name: that of the signature.
        inputs: argument name -> type; sizes that are open stand by name.
        outputs: result name -> type.
        updates_state: whether it takes a state and gives a new one.
    """

    def __init__(
        self,
        name: str,
        entry: Entry,
        data: memoryview,
        *,
        layout: StateLayout,
        saved_state: Callable[[], State],
        device: jax.Device,
        written_by: str,
    ) -> None:
        self.name = name
        self.inputs = {value.name: value.type for value in entry.inputs}
        self.outputs = {output.value.name: output.value.type for output in entry.outputs}
        self.updates_state = bool(entry.assigned)
        self._entry = entry
        self._data = data
        self._layout = layout
        self._saved_state = saved_state
        self._device = device
        self._written_by = written_by
        self._call: Any = None
        ports = [Port(v.name, "feed", Tensor(v.type, v.name)) for v in entry.inputs]
        self._specs = [FeedSpec(port, None, copy=device.platform == "cpu") for port in ports]
        # A program of ports alone: what the rules for feeds need to know.
        self._ports = Program(name, tuple(ports), (), ())
        self._taken = [layout.slot(n).buffer for n in (*entry.written, *entry.read)]
        self._assigned = [layout.slot(n).buffer for n in entry.assigned]

    def __call__(self, state: State | None = None, /, **inputs: Any) -> Any:
        """Runs it once.

        Raises:
            FeedError: a wrong, missing or superfluous input; the state stays valid.
            StateError: a training entry point without a state, or with a consumed one; or a
                state of another model.
            ArtifactError: the program cannot be read by this JAX, or is not as the file says.
        """
        call = self._call or self._read_program()
        state = self._checked_state(state)
        values = self._feeds(inputs)
        buffers = list(state.buffers)
        with jax.enable_x64(True) if self._entry.wide else nullcontext():
            results = call(*[buffers[i] for i in self._taken], *values)
        count = len(self._assigned)
        outputs = {o.value.name: results[count + o.index] for o in self._entry.outputs}
        if not self.updates_state:
            return outputs
        for i, buffer in zip(self._assigned, results[:count], strict=True):
            buffers[i] = buffer
        state.consume(f"the entry point {self.name!r}")
        return outputs, State(self._layout, buffers)

    def _checked_state(self, state: Any) -> State:
        if state is None:
            if not self.updates_state:
                return self._saved_state()
            call = f"model.signatures[{self.name!r}](state, ...)"
            raise StateError(
                f"{self.name!r} updates variables: it takes a state first",
                mend=f"state = model.state(); outputs, state = {call}",
            )
        if not isinstance(state, State):
            raise StateError(
                f"{self.name!r} takes a state first, got {type(state).__name__}",
                mend="inputs go by name: " + self._example(),
            )
        own, given = self._layout, state.layout
        if given is not own and [*given.types.items()] != [*own.types.items()]:
            raise StateError(
                f"{self.name!r} takes a state of its own model, and this one has other variables",
                mend="start from model.state()",
            )
        return state

    def _example(self) -> str:
        return f"{self.name}({', '.join(f'{name}=...' for name in self.inputs)})"

    def _feeds(self, inputs: Mapping[str, Any]) -> list[Any]:
        for argument in inputs:
            if argument not in self.inputs:
                raise FeedError(
                    f"{self.name!r} has no input {argument!r}",
                    mend=nearest(argument, self.inputs) or f"it takes none: {self._example()}",
                )
        missing = [argument for argument in self.inputs if argument not in inputs]
        if missing:
            raise FeedError(
                f"{self.name!r}: input {missing[0]!r} is missing",
                mend="inputs: " + ", ".join(f"{n}: {t}" for n, t in self.inputs.items()),
            )
        values = [spec.convert(inputs[spec.label]) for spec in self._specs]
        bindings = bind_feeds(self._ports, [value.shape for value in values], {})
        if 0 in bindings.values():
            name = next(name for name, size in bindings.items() if size == 0)
            raise FeedError(
                f"{self.name!r}: size {name!r} is 0; open sizes of an artifact start at 1",
                mend="do not call it with nothing in a batch",
            )
        return values

    def _read_program(self) -> Any:
        exported = deserialize(self.name, self._data, self._written_by)
        self._check(exported)
        device = jax.sharding.SingleDeviceSharding(self._device)
        donated = tuple(range(len(self._entry.written)))
        self._call = jax.jit(
            exported.call, in_shardings=device, donate_argnums=donated, keep_unused=True
        )
        return self._call

    def _check(self, exported: Any) -> None:
        """The program takes and gives what the manifest says."""
        entry, types = self._entry, self._layout.types
        if _CALLS_PYTHON.search(exported.mlir_module_serialized):
            raise ArtifactCorruptError(
                f"program {self.name!r} calls back into Python, which no artifact may",
                mend="do not trust this file",
            )
        state = [Value(n, types[n]) for n in (*entry.written, *entry.read)]
        _match(f"program {self.name!r}", "take", [*state, *entry.inputs], exported.in_avals)
        results = exported.out_avals
        count = len(entry.assigned)
        if len(results) != count + (entry.fetches or 1):  # see `with_token`
            raise corrupt(f"program {self.name!r}", f"give {count + entry.fetches} values")
        assigned = [Value(n, types[n]) for n in entry.assigned]
        fetched = [results[count + output.index] for output in entry.outputs]
        values = [*assigned, *(output.value for output in entry.outputs)]
        _match(f"program {self.name!r}", "give", values, [*results[:count], *fetched])

    def __repr__(self) -> str:
        takes = ", ".join(f"{n}: {t}" for n, t in self.inputs.items())
        gives = ", ".join(f"{n}: {t}" for n, t in self.outputs.items())
        return f"<EntryPoint {self.name}({takes}) -> {gives}>"


def deserialize(name: str, data: memoryview, written_by: str) -> Any:
    """The `jax.export.Exported` of a program; flat lists and flatbuffers, never pickles.

    Args:
        written_by: the version of JAX that the artifact names, for the error.

    Raises:
        ArtifactVersionError: this JAX cannot read it.
    """
    try:
        exported = jax.export.deserialize(bytearray(data))
        exported.mlir_module()  # JAX itself would parse the StableHLO at the first call only
        return exported
    except Exception as error:  # whatever the parser of another version may raise
        raise ArtifactVersionError(
            f"program {name!r} cannot be read by jax {jax.__version__}",
            details=[f"{type(error).__name__}: {error}", f"written by jax {written_by}"],
            mend="install the jax it was written with or a newer one, or save it again",
        ) from error


def _match(where: str, verb: str, values: Sequence[Value], avals: Sequence[Any]) -> None:
    if len(values) != len(avals):
        raise corrupt(where, f"{verb} {len(values)} values, not {len(avals)}")
    for value, aval in zip(values, avals, strict=True):
        if not _fits(value.type, aval):
            raise corrupt(where, f"{verb} {value}, not {aval.str_short()}")


def _fits(type: TensorType, aval: Any) -> bool:
    """Whether dtype, rank and the sizes that both know agree."""
    return (
        aval.dtype == type.dtype
        and len(aval.shape) == len(type.shape)
        and all(
            a == b
            for a, b in zip(aval.shape, type.shape, strict=True)
            if isinstance(a, int) and isinstance(b, int)
        )
    )
