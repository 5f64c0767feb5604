"""`JittedFunction`: finds or makes the program for the arguments of a call, and runs it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from threading import RLock
from types import MethodType
from typing import Any

import jax
from jax.core import Tracer
from jax.tree_util import tree_flatten, tree_leaves, tree_structure

from graphc.config import CompileOptions
from graphc.copying import Uncopied
from graphc.devices.discovery import default_device
from graphc.devices.mesh import Strategy
from graphc.errors import DTypeError, GraphError, JaxImportError
from graphc.ir.source import current_source
from graphc.jitted.arguments import Call, Form, Roles, array_type, flatten, form_of, kind_of_leaf
from graphc.jitted.importing import import_function
from graphc.jitted.packed import PackedTree, unpack
from graphc.jitted.program import Given, JitProgram, compiled
from graphc.jitted.saving import Callee, save_function
from graphc.jitted.stored import StoredCall
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.forking import FORKING
from graphc.runtime.step.executable import Executable
from graphc.typing import ArrayTree


class JittedFunction(Uncopied):
    """A function that `gc.jit` compiles: see there.

    Attributes:
        notes: why calls were left to `jax.jit`, one line for each reason.

    Examples:
        >>> import jax.numpy as jnp
        >>> total = gc.jit(lambda x: x.sum())
        >>> total(jnp.ones(3)), total, total.executable.interface.name
        (Array(3., dtype=float32), <JittedFunction <lambda>: 1 programs>, 'lambda')
    """

    instead = "pickle the function itself, and call gc.jit in the other process"

    def __init__(
        self,
        function: Callable[..., Any],
        roles: Roles,
        options: CompileOptions,
        strategy: Strategy | None,
        batched: Iterable[int | str] | None,
        cache_key: str | None,
        by_jax: jax.stages.Wrapped,
    ) -> None:
        functools.update_wrapper(self, function)
        self.notes: list[str] = []
        self._function, self._roles = function, roles
        self._by_jax: Any = by_jax
        self._options, self._strategy, self._batched = options, strategy, batched
        self._cache_key = cache_key
        self._programs: dict[Any, JitProgram | None] = {}  # None: JAX compiles it
        self._layouts: dict[Any, StateLayout] = {}
        self._lock = RLock()
        self._last: _Last | None = None

    def __call__(self, *args: ArrayTree, **kwargs: ArrayTree) -> ArrayTree:
        """The result of the function, as `jax.jit` of it gives it.

        Raises:
            AttributeValueError: an argument is not an array, or a static one is not hashable.
            StateError: a donated argument was given to an earlier call.
            ExecutionError: the run failed.
        """
        call = self._roles.call(args, kwargs)
        last = self._last
        if last is not None and last.key == (call.labels, call.statics, _settings()):
            found = last.call(call.values)
            if found is not _OTHER:
                return found
        program = self._program(call)
        if program is None:
            args, kwargs = unpack((args, kwargs))
            return self._by_jax(*args, **kwargs)
        return program([v if type(v) is PackedTree else tree_leaves(v) for v in call.values])

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _program(self, call: Call) -> JitProgram | None:
        """The program for a call; None if JAX must run it."""
        leaves = _leaves(call.values)
        reason = self._why_by_jax(leaves)
        if reason is not None:
            self._note(reason)
            return None
        settings = _settings()
        names = [self._roles.name(label) for label in call.labels]
        forms = [form_of(value, name) for value, name in zip(call.values, names, strict=True)]
        device = None if self._strategy is not None else _device(leaves)
        key = (call.labels, call.statics, settings, device, tuple([form.key for form in forms]))
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._made(call, forms, device)
            program = self._programs[key]
        if program is not None:
            program.forms = forms  # with the types of these leaves
            self._last = _Last((call.labels, call.statics, settings), program, call.values, device)
        return program

    def _made(
        self, call: Call, forms: Sequence[Form], device: jax.Device | None
    ) -> JitProgram | None:
        FORKING.use_devices()
        stored = self._stored(call, forms, device)
        found = None if stored is None else stored.find(self._layouts)
        if found is not None:
            return found
        try:
            imported = import_function(
                self._function, self._roles, call, forms, self._strategy, self._batched
            )
            if not imported.results:
                self._note("the function returns no array")
                return None
            program = compiled(
                imported, forms, self._options, self._strategy, device, self._layouts
            )
            if stored is not None:
                stored.keep(program)
            return program
        except (JaxImportError, DTypeError) as error:
            if isinstance(error.__cause__, jax.errors.ConcretizationTypeError):
                raise
            self._note(error.what)
            return None

    def _stored(
        self, call: Call, forms: Sequence[Form], device: jax.Device | None
    ) -> StoredCall | None:
        """The record of a call in the cache, if the user gave the function a key."""
        if self._cache_key is None:
            return None
        donated = [label for label in call.labels if self._roles.is_donated(label)]
        more = donated, self._batched
        return StoredCall(
            self._cache_key, self._name, call, forms, self._options, self._strategy, device, more
        )

    def _why_by_jax(self, leaves: Sequence[Any]) -> str | None:
        """Why a call is left to `jax.jit`, whatever the function is; None if it is not."""
        if _CONFIG.jax_disable_jit or _CONFIG.jax_debug_nans:
            return "jax_disable_jit or jax_debug_nans is set"
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return "it was called inside jax.grad, jax.vmap or jax.jit"
        if self._strategy is None and any(map(_is_spread, leaves)):
            return "arrays among the arguments are on several devices: pass strategy="
        return None

    def _note(self, reason: str) -> None:
        if reason not in self.notes:
            self.notes.append(reason)

    # -- looking inside ---------------------------------------------------------------------

    def compile(self, *args: ArrayTree, **kwargs: ArrayTree) -> Executable:
        """The executable for arguments of these forms, compiled now; nothing runs.

        Args:
            args, kwargs: arrays, or `jax.ShapeDtypeStruct`s in their place.

        Raises:
            GraphError: graphc leaves this function to JAX; the error says why.
        """
        call = self._roles.call(args, kwargs)
        program = self._program(call)
        if program is None:
            raise GraphError(
                f"jit: {self._name} runs by jax.jit: {'; '.join(self.notes)}",
                source=current_source(),
                hint="use its lower(...).compile(), which is JAX's",
            )
        return program.executable

    @property
    def executable(self) -> Executable:
        """The executable of the last call.

        Raises:
            GraphError: the function was not called yet, or graphc leaves it to JAX.
        """
        return self._checked_last().program.executable

    def _checked_last(self) -> _Last:
        if self._last is None:
            why = "; ".join(self.notes) or "it was not called yet"
            raise GraphError(
                f"jit: {self._name} has no compiled program: {why}",
                source=current_source(),
                hint="call it, or compile(...) it, first",
            )
        return self._last

    def report(self) -> PassReport:
        """What each pass did to the program of the last call."""
        return self.executable.pass_report()

    def memory(self) -> dict[str, int]:
        """The bytes of one run of the program of the last call: see `Executable.memory`."""
        return self.executable.memory()

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        platforms: Sequence[str] = ("cpu", "cuda"),
        native: bool = False,
    ) -> None:
        """Writes the function, for arguments of the forms of the last call, to a file that
        `gc.load_function` opens without the code of the function.

        Arrays that the function holds are saved with it. Arguments are not, and the function in the
        file donates none of them.

        Args:
            platforms, native: as for `gc.save`.

        Raises:
            GraphError: the function was not called yet, or graphc leaves it to JAX.
            ArtifactError: its result has a structure that no file can hold, or see `gc.save`.
        """
        last = self._checked_last()
        labels, statics, _ = last.key
        callee = Callee(
            self._function,
            self._roles,
            Call(labels, [], statics),
            last.program.forms,
            self._options,
            self._strategy,
            self._batched,
        )
        save_function(callee, path, platforms, native)

    def lower(self, *args: ArrayTree, **kwargs: ArrayTree) -> jax.stages.Lowered:
        """As `jax.jit(f).lower`: JAX's own stages of compilation, without graphc."""
        found: jax.stages.Lowered = self._by_jax.lower(*args, **kwargs)
        return found

    def trace(self, *args: ArrayTree, **kwargs: ArrayTree) -> jax.stages.Traced:
        """As `jax.jit(f).trace`."""
        found: jax.stages.Traced = self._by_jax.trace(*args, **kwargs)
        return found

    def eval_shape(self, *args: ArrayTree, **kwargs: ArrayTree) -> ArrayTree:
        """As `jax.jit(f).eval_shape`: the result, with a `jax.ShapeDtypeStruct` for each array."""
        return self._by_jax.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets all programs of this function."""
        with self._lock:
            self._programs.clear()
            self._layouts.clear()
            self._last = None
        self._by_jax.clear_cache()

    @property
    def _name(self) -> str:
        return str(getattr(self._function, "__name__", "the function"))

    def __repr__(self) -> str:
        count = sum(1 for program in self._programs.values() if program is not None)
        return f"<JittedFunction {self._name}: {count} programs>"


class _Last:
    """The last program, and how to call it again with arguments of the same forms."""

    def __init__(
        self, key: Any, program: JitProgram, values: Sequence[Any], device: jax.Device | None
    ) -> None:
        self.key, self.program, self._device = key, program, device
        self._direct = program.direct()
        self._tree: Any = tree_structure(list(values)) if self._direct is not None else None
        self._types = [kind for form in program.forms for kind in form.types]
        self._avals = [aval for form in program.forms for aval in form.avals]
        self._kinds = list(map(kind_of_leaf, self._avals))
        array = array_type()
        self._only_arrays = all(kind is array for kind in self._types)
        self._shardings: list[Any] | None = None

    def call(self, values: Sequence[Any]) -> Any:
        """The result; `_OTHER` if the arguments have other forms."""
        if self._direct is None:
            given = _matching(self.program.forms, values)
            return _OTHER if given is None else self.program(given)
        leaves, tree = tree_flatten(list(values))
        if tree != self._tree or list(map(type, leaves)) != self._types:
            return _OTHER
        avals = list(map(_AVAL, leaves)) if self._only_arrays else list(map(jax.typeof, leaves))
        if avals != self._avals:
            if list(map(kind_of_leaf, avals)) != self._kinds:
                return _OTHER
            self._avals = avals  # next time they are the same objects
        arrays = leaves if self._only_arrays else [v for v in leaves if isinstance(v, jax.Array)]
        shardings = list(map(_SHARDING, arrays))
        if shardings != self._shardings:
            if not self._are_here(arrays):
                return _OTHER
            self._shardings = shardings
        return self._direct(leaves)

    def _are_here(self, arrays: Sequence[Any]) -> bool:
        """Whether arrays are on the device of the program."""
        if any(map(_is_spread, arrays)):
            return False
        return self._device is None or _device(arrays) == self._device


_CONFIG: Any = jax.config
_AVAL, _SHARDING = attrgetter("aval"), attrgetter("sharding")
_OTHER: Any = object()


def _matching(forms: Sequence[Form], values: Sequence[Any]) -> list[Given] | None:
    """The leaves of arguments that have these forms; None if one has another."""
    given: list[Given] = []
    for form, value in zip(forms, values, strict=True):
        if type(value) is PackedTree:
            if value.form is not form and value.form.key != form.key:
                return None
            given.append(value)
            continue
        leaves, found = flatten(value, form)
        if found is None:
            return None
        given.append(leaves)
    return given


def _settings() -> tuple[Any, ...]:
    """The settings of JAX in this thread that change what a function means."""
    config = _CONFIG
    return config.jax_enable_x64, config.jax_default_matmul_precision, config.jax_default_device


def _device(arrays: Iterable[Any]) -> jax.Device:
    """The device that one of the arrays is committed to, or the default device."""
    for array in arrays:
        if isinstance(array, jax.Array) and array.committed and not _is_spread(array):
            (device,) = array.devices()
            return device
    return default_device()


def _is_spread(array: Any) -> bool:
    """Whether it is an array on several devices."""
    return isinstance(array, jax.Array) and len(array.sharding.device_set) > 1


def _leaves(values: Sequence[Any]) -> list[Any]:
    return tree_leaves([value for value in values if type(value) is not PackedTree])
