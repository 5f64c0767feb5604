"""The arguments of a jitted function: which are static, which are donated, and their leaves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax import numpy as jnp
from jax.tree_util import keystr, tree_flatten

from graphc.errors import AttributeValueError
from graphc.jaxpr.tracing import NO_VALUE
from graphc.jitted.failures import NotAnArrayError, TooLargeError
from graphc.jitted.packed import Packing, is_packed, packing_of, unpack
from graphc.jitted.parts import Parts
from graphc.runtime.feeds.feeds import FeedSpec

Label: TypeAlias = int | str
"""The position of an argument, or its name if it is passed by name."""


class Call(NamedTuple):
    """The arguments of one call.

    Attributes:
        labels: the traced arguments.
        values: their values.
        statics: the other arguments, with the types of their values, because `1` and `1.0` differ.
    """

    labels: tuple[Label, ...]
    values: Sequence[Any]
    statics: tuple[tuple[Label, type, Any], ...]

    def arguments(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments, with these values for the traced arguments."""
        given: dict[Label, Any] = dict(zip(self.labels, values, strict=True))
        given.update({label: value for label, _, value in self.statics})
        named = {label: value for label, value in given.items() if isinstance(label, str)}
        return [given[i] for i in range(len(given) - len(named))], named


class Roles:
    """Which arguments of a function are static, and which are donated.

    Args:
        function: the function; its signature relates positions to names.
        static, donated: positions and names, as for `jax.jit`.

    Attributes:
        names: of the parameters that have positions.
        key: a hashable value; equal roles of one function have equal keys.

    Raises:
        AttributeValueError: an argument does not exist, or is static and donated.
    """

    def __init__(
        self, function: Callable[..., Any], static: tuple[Any, Any], donated: tuple[Any, Any]
    ) -> None:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # some builtin functions have no signature
            parameters = None
        self.names = [] if parameters is None else [p.name for p in parameters if _is_positional(p)]
        self._parameters = parameters
        self._static = frozenset(self.labels("static", static))
        self._donated = frozenset(self.labels("donate", donated))
        self.key = self._static, self._donated
        both = [label for label in self._static if label in self._donated]
        if both:
            raise AttributeValueError.here(
                f"jit: argument {both[0]!r} is static and donated",
                hint="donate only arguments that hold arrays",
            )

    def labels(self, role: str, given: tuple[Any, Any]) -> list[Label]:
        """All labels of the arguments with these positions and names, in a fixed order. If only
        positions or only names are given, the arguments may be passed in both ways.

        Raises:
            AttributeValueError: an argument does not exist.
        """
        return sorted(_labels(role, given, self._parameters), key=str)

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """The arguments of one call.

        Raises:
            AttributeValueError: the value of a static argument is not hashable.
        """
        if not kwargs and not self._static:
            return Call(_positions(len(args)), args, ())
        given: list[tuple[Label, Any]] = [*enumerate(args), *sorted(kwargs.items())]
        traced = [(label, value) for label, value in given if label not in self._static]
        statics = [
            (label, type(value), self._hashable(label, value))
            for label, value in given
            if label in self._static
        ]
        return Call(
            tuple([label for label, _ in traced]), [value for _, value in traced], tuple(statics)
        )

    def is_donated(self, label: Label) -> bool:
        """Whether an argument is donated."""
        return label in self._donated

    def name(self, label: Label) -> str:
        """The name of an argument: that of its parameter, or else its position."""
        if isinstance(label, str):
            return label
        return self.names[label] if label < len(self.names) else f"arg{label}"

    def _hashable(self, label: Label, value: Any) -> Any:
        try:
            hash(value)
        except TypeError:
            raise AttributeValueError.here(
                f"jit: the static argument {self.name(label)!r} must be hashable, "
                f"got {type(value).__name__}",
                hint="pass a tuple instead of a list, or do not make the argument static",
            ) from None
        return value


@cache
def _positions(count: int) -> tuple[Label, ...]:
    return tuple(range(count))


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _labels(
    role: str, given: tuple[Any, Any], parameters: list[inspect.Parameter] | None
) -> frozenset[Label]:
    """All labels of the arguments in a role. If only positions or only names are given, these
    arguments may be passed in both ways."""
    argnums, argnames = given
    infers = argnums is None or argnames is None  # as `jax.jit`
    words = f"{role}_argnums", f"{role}_argnames"
    numbers = _listed(argnums, int, words[0])
    names = _listed(argnames, str, words[1])
    found: set[Label] = {*names}
    if parameters is None:
        return frozenset({*found, *numbers})
    positional = [p.name for p in parameters if _is_positional(p)]
    open_ended = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    known = {p.name for p in parameters}
    takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters)
    for name in names:
        if name not in known and not takes_any:
            _refuse(words[1], name, sorted(known))
        if infers and name in positional:
            found.add(positional.index(name))
    for number in numbers:
        at = number + len(positional) if number < 0 else number
        if number < 0 and open_ended:
            raise AttributeValueError.here(
                f"jit: {words[0]} has {number}, but the function takes any number of arguments",
                hint="count from the start",
            )
        if at < 0 or (at >= len(positional) and not open_ended):
            _refuse(words[0], number, positional)
        found.add(at)
        if infers and at < len(positional):
            found.add(positional[at])
    return frozenset(found)


def _listed(given: Any, kind: type, what: str) -> list[Any]:
    if given is None:
        return []
    listed = [given] if isinstance(given, kind) else given
    fits = isinstance(listed, Iterable) and not isinstance(listed, str)
    listed = list(listed) if fits else [listed]
    if not all(isinstance(each, kind) and not isinstance(each, bool) for each in listed):
        raise AttributeValueError.here(
            f"jit: {what} must be {'positions' if kind is int else 'names'}, got {given!r}",
            hint=f"pass {what}={'0' if kind is int else repr('params')}, or a tuple of them",
        )
    return listed


def _refuse(what: str, given: Any, known: Sequence[str]) -> None:
    raise AttributeValueError.here(
        f"jit: {what} has {given!r}, which is not an argument of the function",
        hint=f"its arguments are {', '.join(known) or 'none'}",
    )


class Form:
    """The structure of the value of one argument, on which a compiled program depends.

    Attributes:
        tree: its pytree.
        avals: the abstract values of its leaves.
        types: the Python types of its leaves in the last call.
        key: a hashable value; equal structures have equal keys.
    """

    __slots__ = ("_parts", "avals", "key", "tree", "types")

    def __init__(self, tree: Any, avals: list[Any], types: list[type]) -> None:
        self.tree, self.avals, self.types = tree, avals, types
        self.key = tree, tuple(map(kind_of_leaf, avals))
        self._parts: Parts | None = None

    @property
    def parts(self) -> Parts:
        """The parts at the top of the pytree."""
        if self._parts is None:
            self._parts = Parts(self.tree)
        return self._parts

    def paths(self, name: str) -> list[str]:
        """The name of each leaf: the name of the argument, and the path in it."""
        example = example_of(self.tree, self.avals)
        if example is None:
            return [f"{name}/{number}" for number in range(len(self.avals))]
        return _paths(example, name)


def _paths(value: Any, name: str) -> list[str]:
    """The name of each leaf of a value: the value's name, and the path in it."""
    rows, _ = jax.tree_util.tree_flatten_with_path(value)
    paths = [keystr(path, simple=True, separator="/") for path, _ in rows]
    return [f"{name}/{path}" if path else name for path in paths]


def example_of(tree: Any, avals: Sequence[Any]) -> Any:
    """A nest of this structure, with a `jax.ShapeDtypeStruct` of its own for each leaf; None if a
    class of the user's refuses them.

    Constructors of pytrees should take any objects as leaves, but many look at the shapes of
    arrays.
    """
    try:
        return tree.unflatten([jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals])
    except Exception:
        return None


def kind_of_leaf(aval: Any) -> tuple[Any, ...]:
    """The properties of an abstract value on which a program depends.

    In JAX 0.12, abstract values of the results of a program that was loaded from a file differ from
    others.
    """
    return aval.shape, aval.dtype, is_weak(aval)


def is_weak(aval: Any) -> bool:
    """Whether a type gives way to those of other operands.

    Booleans give way to all types, so whether they are weak makes no difference. Those that come
    from comparisons of weakly typed numbers are.
    """
    return bool(aval.weak_type) and aval.dtype != bool


def flatten(value: Any, form: Form | None) -> tuple[list[Any], Form | None]:
    """The leaves of an argument, and `form` if they still have this form; otherwise None.

    This is in the hot path: for arrays, it compares objects that JAX shares between them.
    """
    leaves, tree = tree_flatten(value)
    if form is None or tree != form.tree or list(map(type, leaves)) != form.types:
        return leaves, None
    array = array_type()
    try:
        avals = [leaf.aval if isinstance(leaf, array) else jax.typeof(leaf) for leaf in leaves]
    except NO_VALUE:
        return leaves, None
    if avals != form.avals:
        if tuple(map(kind_of_leaf, avals)) != form.key[1]:
            return leaves, None
        form.avals = avals  # the next call then compares identical objects
    return leaves, form


def current(values: Sequence[Any]) -> Sequence[Any]:
    """The values of arguments, where packed trees have what the user has replaced in them.

    Other arrays of the same types go into the state of a packed tree. A tree with another structure
    or other types takes the place of the packed tree.
    """
    if not any(map(is_packed, values)):
        return values
    return [_current(value, packing_of(value)) for value in values]


def _current(value: Any, packing: Packing | None) -> Any:
    changes = {} if packing is None else packing.changes()
    if packing is None or changes == {}:
        return value
    where = packing.buffers()[0].sharding.device_set
    if changes is None or not all(
        type(leaf) is array_type()
        and not leaf.is_deleted()
        and kind_of_leaf(leaf.aval) == kind_of_leaf(packing.form.avals[number])
        and (leaf.sharding.device_set == where or not leaf.committed)
        for number, leaf in changes.items()
    ):
        return unpack(value)
    packing.put_back(changes)
    return value


def form_of(value: Any, name: str) -> Form:
    """The structure of an argument.

    Raises:
        ArgumentError: a leaf is not an array.
        AttributeValueError: JAX cannot take an array or an integer.
    """
    packing = packing_of(value)
    if packing is not None:
        return packing.form
    leaves, tree = tree_flatten(value)
    avals = [_abstract(leaf, value, number, name) for number, leaf in enumerate(leaves)]
    return Form(tree, avals, list(map(type, leaves)))


def _abstract(leaf: Any, value: Any, number: int, name: str) -> Any:
    try:
        return jax.typeof(leaf)
    except NO_VALUE as error:
        path = _paths(value, name)[number]
        if isinstance(leaf, (int, np.ndarray)):  # a large int, words, objects, a masked array
            kind = TooLargeError if isinstance(error, OverflowError) else NotAnArrayError
            raise kind.here(f"jit: argument {path!r}: {error}") from error
        raise NotAnArrayError.here(
            f"jit: argument {path!r} is not an array: {leaf!r}",
            hint="pass it as a static argument: gc.jit(f, static_argnames=...)",
        ) from error


@cache
def array_type() -> Any:
    """The type of JAX's arrays that hold numbers."""
    with jax.ensure_compile_time_eval():
        return type(jax.device_put(np.zeros(())))


def is_keys(leaf: Any) -> bool:
    """Whether a leaf is a typed key, or an array of them; not a tracer."""
    return (
        isinstance(leaf, jax.Array)
        and not isinstance(leaf, jax.core.Tracer)
        and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )


def converted(value: Any, spec: FeedSpec) -> Any:
    """Converts a leaf for a program: keys to words; numbers and NumPy arrays as JAX does.

    In 32-bit mode JAX wraps integers, and rounds numbers to infinity with a NumPy warning. It
    rejects only Python integers that do not fit.
    """
    if isinstance(value, jax.Array):
        return spec.convert(value)
    array = np.asarray(value)
    if array.dtype == spec.dtype:
        return spec.convert(array)
    if array.dtype == object:  # JAX knows its shape and dtype, but it has no values
        raise AttributeValueError.here(
            f"jit: an argument is {value!r}, which is not an array",
            hint="`compile` of the function takes shapes in place of arrays",
        )
    return array.astype(spec.dtype)
