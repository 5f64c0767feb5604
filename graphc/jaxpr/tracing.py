"""A JAX function of tensors traced to a jaxpr, then replayed as nodes."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import InconclusiveDimensionOperation, Literal
from jax.tree_util import keystr

from graphc.errors import JaxImportError
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.scopes import AMBIENT, building
from graphc.ir.source import Source, current_source
from graphc.ir.types import TensorType
from graphc.jaxpr.concretization import NEEDS_VALUE, needs_value
from graphc.jaxpr.replay import Replay
from graphc.jaxpr.symbols import Symbols, x64_for
from graphc.jaxpr.table import rule_of

NO_VALUE = (TypeError, ValueError, OverflowError)
"""What `jax.typeof` raises for objects that are no arrays or numbers, for masked arrays, and for
ints that are too large."""


class Traced(NamedTuple):
    """A traced function: its closed jaxpr, the nest of its results, and its named sizes."""

    jaxpr: Any
    out_tree: Any
    symbols: Symbols

    def out_types(self) -> list[TensorType]:
        """The types of the results, in the order of the nest's leaves."""
        replay = Replay(self.symbols, rule_of)
        return [replay.type(aval) for aval in self.jaxpr.out_avals]

    def fills(self) -> list[np.ndarray[Any, Any] | None]:
        """For each result the scalar that fills it, if its equation is a broadcast of one; else
        None."""
        inner = getattr(self.jaxpr, "jaxpr", self.jaxpr)
        filled: dict[Any, Any] = {
            eqn.outvars[0]: eqn.invars[0]
            for eqn in inner.eqns
            if eqn.primitive.name == "broadcast_in_dim"
        }
        found = []
        for atom in inner.outvars:
            source: Any = atom if isinstance(atom, Literal) else filled.get(atom)
            known = isinstance(source, Literal)
            found.append(np.asarray(source.val, source.aval.dtype) if known else None)
        return found

    def replay(
        self,
        operands: Sequence[Tensor],
        used: Sequence[bool] | None = None,
        max_trips: int | None = None,
        whole: bool = False,
        constant: Callable[[Any], Tensor] | None = None,
    ) -> list[Tensor]:
        """Adds the nodes for `operands` to the graph being built; returns the leaves of the
        results.

        Loops of a computed length end after at most `max_trips` iterations, if it is given. With
        `whole`, the nodes of custom derivatives get no gradient of their own. `constant` makes the
        tensor of an array that the function holds; the default makes a constant.

        Raises:
            JaxImportError: an equation cannot be turned into nodes.
        """
        with x64_for(t.type for t in operands):
            try:
                replay = Replay(self.symbols, rule_of, max_trips, whole, constant)
                return replay.run(self.jaxpr, operands, used)
            except JaxImportError as error:  # for the first equation; the user should see them all
                error.details += tuple(self._others([t.type for t in operands], error, whole))
                raise

    def _others(
        self, types: Sequence[TensorType], first: JaxImportError, whole: bool
    ) -> Iterator[str]:
        """A line for each other primitive that cannot be turned into nodes."""
        refusals: dict[str, JaxImportError] = {}
        scratch = Graph()
        with building(scratch), suppress(Exception):  # zeros instead of results may not fit
            operands = [scratch.add_input(type, f"x{i}") for i, type in enumerate(types)]
            replay = Replay(self.symbols, rule_of, max_trips=None, whole=whole, refusals=refusals)
            replay.run(self.jaxpr, operands)
        for error in refusals.values():
            if error.what != first.what:
                yield f"also {error.what}" + (f", at {error.source}" if error.source else "")


def trace(
    fn: Callable[..., Any],
    types: Sequence[TensorType],
    structs: Sequence[jax.ShapeDtypeStruct] | None = None,
    names: Sequence[str] | None = None,
) -> Traced:
    """`fn(*values)` traced for values of `types`, in 64-bit mode if one of them is 64 bits wide.

    Args:
        structs: what JAX traces `fn` with, if types are not enough: weak types, typed keys.
        names: what errors call the values; by default their numbers.

    Raises:
        JaxImportError: `fn` returned a tensor of the graph, or it depends on named sizes in a way
            that JAX cannot decide.
    """
    symbols = Symbols(types)
    source = AMBIENT.source or current_source()
    trees: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        result = fn(*values)
        leaves, tree = jax.tree.flatten(result)
        if not all(map(_is_value, leaves)):
            raise _no_result(result, source)
        trees.append(tree)
        return leaves

    known = _identifiers(names or [f"argument {i}" for i in range(len(types))])
    told: Any = flat  # what JAX's errors say of it: the user's function, and names
    told.__wrapped__ = fn
    told.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in known])
    with x64_for(types), _explaining(symbols, known, source):
        jaxpr = jax.make_jaxpr(flat)(*(structs or [symbols.struct(type) for type in types]))
    return Traced(jaxpr, trees[-1], symbols)


def trace_jitted(
    jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any], types: Sequence[TensorType]
) -> Traced:
    """The trace that a function of `jax.jit` makes and keeps: if JAX must run the function after
    all, it does not call it again.

    Args:
        types: of the leaves of the arguments.

    Raises:
        JaxImportError: the function needs the value of an array, or uses one that JAX is tracing.
    """
    symbols = Symbols(types)
    with _explaining(symbols, {}, AMBIENT.source or current_source()):
        found = jitted.trace(*args, **kwargs)
    if len(found.jaxpr.in_avals) != len(types):  # JAX makes such values arguments
        raise JaxImportError("it uses a value that jax.grad, jax.vmap or jax.jit is tracing")
    return Traced(found.jaxpr, found.out_tree, symbols)


def _identifiers(names: Sequence[str]) -> dict[str, str]:
    """The names by identifiers that are like them: names of parameters must be identifiers."""
    found: dict[str, str] = {}
    for name in names:
        identifier = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII) or "_"
        while identifier in found:
            identifier += "_"
        found[identifier] = name
    return found


def _is_value(leaf: Any) -> bool:
    """Whether a traced function may return a leaf: an array, a tracer or a number."""
    if isinstance(leaf, (Operand, jax.ShapeDtypeStruct)):
        return False
    try:
        jax.typeof(leaf)
    except NO_VALUE:
        return False
    return True


def _no_result(result: Any, source: Source | None) -> JaxImportError:
    """The error about the first leaf of a result that JAX cannot return."""
    rows, _ = jax.tree_util.tree_flatten_with_path(result)
    path, leaf = next((path, leaf) for path, leaf in rows if not _is_value(leaf))
    if isinstance(leaf, Operand):
        return JaxImportError(
            f"the JAX function returned {leaf!r}, which is not one of its arguments",
            source=source,
            hint="pass the tensor as an argument",
        )
    place = keystr(path, simple=True, separator="/")
    why = "is too large for JAX's integers" if isinstance(leaf, int) else "is not an array"
    return JaxImportError(
        f"the JAX function returned {reprlib.repr(leaf)}, which {why}",
        details=[f"in its result at {place}"] if place else [],
        source=source,
        hint="return arrays, numbers and pytrees of them; register other classes as pytrees",
    )


@contextmanager
def _explaining(
    symbols: Symbols, names: Mapping[str, str], source: Source | None
) -> Iterator[None]:
    """Says of an error of the traced function what it means for the graph."""
    try:
        yield
    except InconclusiveDimensionOperation as error:
        raise JaxImportError(
            "the JAX function has a decision that depends on a named size",
            details=[symbols.named(str(error).splitlines()[0])],
            source=source,
            hint="give the placeholders ints instead of named sizes",
        ) from error
    except NEEDS_VALUE as error:
        raise needs_value(error, names, source) from error
    except JaxImportError:
        raise
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        if symbols.named(text) != text:
            error.add_note(f"with the graph's names: {symbols.named(text)}")
            error.add_note(
                "JAX treats different names as different sizes: if they are the same size, give "
                'the placeholders one name for it, as in gc.placeholder(("batch", 4)), or one int'
            )
        if AMBIENT.graphs:
            error.add_note(
                f"while graphc traced the JAX function for {source}; tensors that it uses must be "
                "its arguments"
            )
        raise
