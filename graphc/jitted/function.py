"""`JittedFunction`: finds or creates the program for the arguments of a call, and runs it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import jax
from jax.tree_util import tree_leaves

from graphc.config import CompileOptions
from graphc.copying import Uncopied
from graphc.devices.mesh import Strategy
from graphc.errors import DTypeError, GraphError, JaxImportError, SerialError
from graphc.jaxpr.concretization import NEEDS_VALUE
from graphc.jitted.arguments import Call, Form, Roles, current, form_of
from graphc.jitted.direct import BY_JAX, OTHER
from graphc.jitted.importing import import_function, trace_call
from graphc.jitted.last import LastCall, LeftToJax
from graphc.jitted.packed import is_packed, packing_of, unpack
from graphc.jitted.program import JitProgram, compiled
from graphc.jitted.remembered import Remembered
from graphc.jitted.saving import Callee, save_function
from graphc.jitted.shared import Programs, programs_of
from graphc.jitted.stored import StoredCall
from graphc.jitted.surroundings import Place, place_for, settings, why_by_jax, why_by_places
from graphc.passes.manager import PassReport
from graphc.runtime.core.forking import FORKING
from graphc.runtime.step.executable import Executable
from graphc.typing import ArrayTree

_OF_FUNCTIONS = {*functools.WRAPPER_ASSIGNMENTS, "__dict__", "__wrapped__"}


class JittedFunction(Uncopied):
    """A function that `gc.jit` returned. It is called like the original function.

    Attributes:
        notes: the reasons why calls were left to `jax.jit`, or why `cache_key` was not used, one
            line each.

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
        batched: Sequence[int | str] | None,
        cache_key: str | None,
        by_jax: jax.stages.Wrapped,
        left: str | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        for name in vars(self).keys() & vars(JittedFunction).keys() - _OF_FUNCTIONS:
            del vars(self)[name]  # an attribute of the function with the name of a method here
        self._function, self._roles = function, roles
        self._by_jax: Any = by_jax
        self._options, self._strategy, self._batched = options, strategy, batched
        self._cache_key = cache_key
        self._left = left
        self.notes: list[str] = []
        self._remembered = Remembered()
        way = roles.key, options, strategy, None if batched is None else tuple(batched)
        # With a `cache_key`, each jitted function looks for its programs in the cache.
        self._programs = Programs() if cache_key is not None else programs_of(function, way)

    def __call__(self, *args: ArrayTree, **kwargs: ArrayTree) -> ArrayTree:
        """The result of the function, as `jax.jit` would return it.

        Raises:
            ArgumentError: an argument is not an array.
            AttributeValueError: a static argument is not hashable, or an integer is too large.
            StateError: a donated argument was passed to an earlier call.
            ExecutionError: the run failed.
        """
        call = self._call(args, kwargs)
        key = call.labels, call.statics, settings()
        found = self._remembered.call(key, call.values)
        if found is BY_JAX:
            return self._by_jax(*args, **kwargs)
        if found is not OTHER:
            return found
        program = self._program(call)
        if program is None:
            args, kwargs = unpack((args, kwargs))
            return self._by_jax(*args, **kwargs)
        return program([v if is_packed(v) else tree_leaves(v) for v in call.values])

    def __copy__(self) -> JittedFunction:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> JittedFunction:
        return self  # as functions, and those of JAX

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        call = self._roles.call(args, kwargs)
        values = current(call.values)
        return call if values is call.values else call._replace(values=values)

    def _program(self, call: Call) -> JitProgram | None:
        """The program for a call; None if JAX must run it."""
        leaves, held = _arrays(call.values)
        before, has_strategy = settings(), self._strategy is not None
        last = call.labels, call.statics, before
        reason = self._left or why_by_jax(leaves, has_strategy)
        if reason is not None:
            self._note(reason)
            self._leave(last, call.values)
            return None
        reason = None if has_strategy else why_by_places(leaves)
        if reason is not None:
            self._note(reason)
            return None
        names = [self._roles.name(label) for label in call.labels]
        forms = [form_of(value, name) for value, name in zip(call.values, names, strict=True)]
        place = None if has_strategy else place_for(leaves, held)
        key = (*last, place, tuple([form.key for form in forms]))
        found = self._programs.get(key, lambda: self._made(call, forms, place))
        if isinstance(found, str):
            self._note(found)
            self._leave(last, call.values)
            return None
        self._remembered.add(LastCall(last, found, forms, call.values, place), call.values)
        return found

    def _leave(self, key: Any, values: Sequence[Any]) -> None:
        """Remembers that JAX runs all calls like this one."""
        entry = LeftToJax.of(key, values)
        if entry is not None:
            self._remembered.add(entry, values)

    def _made(self, call: Call, forms: Sequence[Form], place: Place | None) -> JitProgram | str:
        """The program for a call; the reason if JAX must run it."""
        FORKING.use_devices()
        stored = self._stored(call, forms, place)
        found = None if stored is None else stored.find(self._programs.layouts)
        if found is not None:
            return found
        try:
            traced = trace_call(self._by_jax, call, forms)
            imported = import_function(
                traced, self._name, self._roles, call, forms, self._strategy, self._batched
            )
            if not imported.results:
                return "the function returns no array"
            program = compiled(
                imported, forms, self._options, self._strategy, place, self._programs.layouts
            )
            if stored is not None:
                stored.keep(program)
            return program
        except (JaxImportError, DTypeError) as error:
            if isinstance(error.__cause__, NEEDS_VALUE):
                raise
            return "; ".join((error.what, *error.details))

    def _stored(self, call: Call, forms: Sequence[Form], place: Place | None) -> StoredCall | None:
        """The record of a call in the cache, if the user passed a `cache_key`."""
        if self._cache_key is None:
            return None
        donated = [label for label in call.labels if self._roles.is_donated(label)]
        given = self._options, self._strategy, place, (donated, self._batched)
        try:
            return StoredCall(self._cache_key, self._name, call, forms, *given)
        except SerialError as error:
            self._note(f"not left to JAX, but traced in each process: {error.what}")
            return None

    def _note(self, reason: str) -> None:
        if reason not in self.notes:
            self.notes.append(reason)

    # -- looking inside ---------------------------------------------------------------------

    def compile(self, *args: ArrayTree, **kwargs: ArrayTree) -> Executable:
        """Compiles the executable for arguments of these forms now, without running it.

        Args:
            args, kwargs: arrays, or `jax.ShapeDtypeStruct`s instead of arrays.

        Raises:
            GraphError: graphc leaves this function to JAX. The error states the reason.

        Examples:
            >>> import jax
            >>> gc.jit(lambda x: x * 2).compile(jax.ShapeDtypeStruct((3,), "float32"))
            <Executable lambda: 2 nodes, 1 feeds, 1 fetches, 0 variables assigned>
        """
        call = self._call(args, kwargs)
        program = self._program(call)
        if program is None:
            raise GraphError.here(
                f"jit: {self._name} runs by jax.jit: {'; '.join(self.notes)}",
                hint="use its lower(...).compile(), which is JAX's",
            )
        return program.executable

    @property
    def executable(self) -> Executable:
        """The executable of the last call.

        Raises:
            GraphError: the function was not called yet, or graphc leaves it to JAX.

        Examples:
            >>> double = gc.jit(lambda x: x * 2)
            >>> double(np.ones(3, "float32"))
            Array([2., 2., 2.], dtype=float32)
            >>> double.executable
            <Executable lambda: 2 nodes, 1 feeds, 1 fetches, 0 variables assigned>
        """
        return self._checked_last().program.executable

    def _checked_last(self) -> LastCall:
        last = self._remembered.last
        if last is None:
            why = "; ".join(self.notes) or "it was not called yet"
            raise GraphError.here(
                f"jit: {self._name} has no compiled program: {why}",
                hint="call it, or compile(...) it, first",
            )
        return last

    def report(self) -> PassReport:
        """The effect of each pass on the program of the last call.

        Examples:
            >>> double = gc.jit(lambda x: x * 1 + 0)
            >>> double(np.ones(3, "float32"))
            Array([1., 1., 1.], dtype=float32)
            >>> type(double.report()).__name__
            'PassReport'
        """
        return self.executable.pass_report()

    def memory(self) -> dict[str, int]:
        """The bytes of one run of the program of the last call: see `Executable.memory`.

        Examples:
            >>> double = gc.jit(lambda x: x * 2)
            >>> double(np.ones(3, "float32"))
            Array([2., 2., 2.], dtype=float32)
            >>> double.memory()["arguments"]
            12
        """
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

        Arrays that the function holds are saved with it. Arguments are not saved, and the function
        in the file donates none of them.

        Args:
            platforms, native: as for `gc.save`.

        Raises:
            GraphError: the function was not called yet, or graphc leaves it to JAX.
            ArtifactError: the result has a structure that no file can hold; or as for `gc.save`.

        Examples:
            >>> import os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "double.gcx")
            >>> double = gc.jit(lambda x: x * 2)
            >>> double(np.ones(3, "float32"))
            Array([2., 2., 2.], dtype=float32)
            >>> double.save(path, platforms=["cpu"])
            >>> gc.load_function(path)(np.ones(3, "float32"))
            Array([2., 2., 2.], dtype=float32)
        """
        last = self._checked_last()
        labels, statics, _ = last.key
        callee = Callee(
            self._function,
            self._roles,
            Call(labels, [], statics),
            last.forms,
            self._options,
            self._strategy,
            self._batched,
        )
        save_function(callee, path, platforms, native)

    def lower(self, *args: ArrayTree, **kwargs: ArrayTree) -> jax.stages.Lowered:
        """As `jax.jit(f).lower`: JAX's own stages of compilation, without graphc.

        Examples:
            >>> gc.jit(lambda x: x * 2).lower(np.ones(3, "float32")).out_info.shape
            (3,)
        """
        found: jax.stages.Lowered = self._by_jax.lower(*args, **kwargs)
        return found

    def trace(self, *args: ArrayTree, **kwargs: ArrayTree) -> jax.stages.Traced:
        """As `jax.jit(f).trace`.

        Examples:
            >>> gc.jit(lambda x: x * 2).trace(np.ones(3, "float32")).jaxpr.eqns[0].primitive
            mul
        """
        found: jax.stages.Traced = self._by_jax.trace(*args, **kwargs)
        return found

    def eval_shape(self, *args: ArrayTree, **kwargs: ArrayTree) -> ArrayTree:
        """As `jax.jit(f).eval_shape`: the result, with a `jax.ShapeDtypeStruct` for each array.

        Examples:
            >>> gc.jit(lambda x: x.sum()).eval_shape(np.ones(3, "float32"))
            ShapeDtypeStruct(shape=(), dtype=float32)
        """
        return self._by_jax.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Removes all programs of this function, also those of other jitted functions of the same
        Python function and with the same options.

        Examples:
            >>> double = gc.jit(lambda x: x * 2)
            >>> double(np.ones(2, "float32"))
            Array([2., 2.], dtype=float32)
            >>> double.clear_cache()
            >>> double
            <JittedFunction <lambda>: 0 programs>
        """
        self._programs.clear()
        self._remembered.clear()
        self._by_jax.clear_cache()

    @property
    def _name(self) -> str:
        return str(getattr(self._function, "__name__", "the function"))

    def __repr__(self) -> str:
        return f"<JittedFunction {self._name}: {len(self._programs)} programs>"


def _arrays(values: Sequence[Any]) -> tuple[list[Any], list[jax.Array]]:
    """The leaves of arguments, and the buffers that hold the leaves of packed trees."""
    packed = [packing for value in values if (packing := packing_of(value)) is not None]
    leaves = tree_leaves([value for value in values if not is_packed(value)])
    return leaves, [buffer for packing in packed for buffer in packing.buffers()]
