"""Saves a jitted function to a file, and loads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax

from graphc.artifacts.entry_point import EntryPoint
from graphc.artifacts.limits import Limits
from graphc.artifacts.loading import Model, load
from graphc.artifacts.saving import write
from graphc.artifacts.signature import Signature
from graphc.config import CompileOptions
from graphc.copying import Uncopied
from graphc.devices.mesh import Strategy
from graphc.devices.strategy import DataParallel
from graphc.errors import ArtifactError, AttributeValueError, SerialError
from graphc.ir.dtypes import UINT32
from graphc.ir.names import Names
from graphc.jaxpr.keys import is_key
from graphc.jitted.arguments import Call, Form, Roles, is_weak
from graphc.jitted.importing import import_function, trace_forms
from graphc.jitted.packed import unpack
from graphc.jitted.results import finisher, wrap_key
from graphc.jitted.trees import decoded, described, encoded, is_shallow, leaves_of
from graphc.runtime.session import Session
from graphc.typing import ArrayTree

_NAME = "call"

Description: TypeAlias = Mapping[str, Any]
"""How the function in a file is called, in the form of the manifest."""


@dataclass(frozen=True)
class Callee:
    """The function to save, and how it is called."""

    function: Callable[..., Any]
    roles: Roles
    call: Call
    forms: Sequence[Form]
    options: CompileOptions
    strategy: Strategy | None
    batched: Iterable[int | str] | None


def save_function(
    callee: Callee, path: str | os.PathLike[str], platforms: Sequence[str], native: bool
) -> None:
    """Writes an artifact with one signature, "call", and the structures of its pytrees.

    Raises:
        ArtifactError: the result has a structure that no file can hold; or as for `gc.save`.
    """
    strategy = callee.strategy
    if strategy is not None and not isinstance(strategy, DataParallel):
        raise AttributeValueError.here(
            f"save: a function under {type(strategy).__name__} cannot be saved",
            hint="save it without the strategy",
        )
    imported = import_function(
        trace_forms(callee.function, callee.call, callee.forms),
        getattr(callee.function, "__name__", "function"),
        callee.roles,
        callee.call,
        callee.forms,
        strategy,
        callee.batched,
        for_file=True,
    )
    labels = callee.call.labels
    try:
        result = encoded(imported.out_tree, [form.tree for form in callee.forms])
    except SerialError as error:
        raise ArtifactError(f"save: {error.what}", hint=error.hint) from error
    leaves = [
        path
        for label, form in zip(labels, callee.forms, strict=True)
        for path in form.paths(callee.roles.name(label))
    ]
    unique = Names().unique
    names = [unique(re.sub(r"\W+", "_", path)) for path in leaves]
    inputs = dict(zip(names, imported.feeds.values(), strict=True))
    outputs = {f"result_{i}": tensor for i, tensor in enumerate(imported.fetched())}
    used = _used(imported.graph.nodes, outputs.values())
    call = {
        "labels": list(labels),
        "names": [callee.roles.name(label) for label in labels],
        "arguments": [described(form.tree) for form in callee.forms],
        "inputs": [name if tensor in used else None for name, tensor in inputs.items()],
        "result": result,
        "kinds": [_kind(aval) for aval in imported.out_avals],
    }
    inputs = {name: tensor for name, tensor in inputs.items() if tensor in used}
    signature = Signature(inputs, outputs, replicated=strategy is not None)
    session = Session(imported.graph, strategy=strategy, options=callee.options)
    write(session, path, {_NAME: signature}, platforms=platforms, native=native, call=call)


def _used(nodes: Iterable[Any], results: Iterable[Any]) -> set[Any]:
    """The tensors that results depend on, and a few more: the operands of all nodes."""
    return {t for node in nodes for t in node.inputs} | set(results)


def _kind(aval: Any) -> str:
    return "key" if is_key(aval.dtype) else "weak" if is_weak(aval) else "array"


class SavedFunction(Uncopied):
    """The function in a file that `JittedFunction.save` wrote. `gc.load_function` returns it.

    It takes pytrees of the structures with which the function was called, and returns its result.
    Static arguments are part of the program, and are not passed.

    Attributes:
        model: the file.

    Examples:
        >>> import tempfile, jax.numpy as jnp
        >>> double = gc.jit(lambda x: 2 * x)
        >>> y = double(jnp.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     double.save(f"{folder}/double.gcx", platforms=["cpu"])
        ...     loaded = gc.load_function(f"{folder}/double.gcx")
        ...     loaded, loaded(jnp.array([1.0, 3.0]))
        (<SavedFunction lambda(x)>, Array([2., 6.], dtype=float32))
    """

    instead = "send the path of the file: gc.load_function(path)"

    def __init__(self, model: Model, call: Description) -> None:
        self.model = model
        self._point: EntryPoint = model.signatures[_NAME]
        self._call = call
        self._labels, self._names = call["labels"], call["names"]
        self._positional = [label for label in self._labels if isinstance(label, int)]

    def __call__(self, *args: ArrayTree, **kwargs: ArrayTree) -> ArrayTree:
        """The result of the function.

        Raises:
            AttributeValueError: the arguments do not match the function, or a pytree has another
                structure.
            FeedError: an array has another shape or dtype.
            ArtifactError, SerialError: the file was changed: its result has another structure.
        """
        values = self._values(args, kwargs)
        trees, leaves = [], []
        for name, wanted, value in zip(self._names, self._call["arguments"], values, strict=True):
            found, tree = jax.tree.flatten(unpack(value))
            if described(tree) != wanted:
                raise AttributeValueError.here(
                    f"{self._point.name}: argument {name!r} has another structure than the one "
                    "that was saved",
                    details=[f"given {tree}", f"saved {wanted}"],
                    hint="pass a pytree of the same structure",
                )
            trees.append(tree)
            leaves += found
        rows = zip(self._call["inputs"], leaves, strict=True)
        outputs = self._point(**{name: leaf for name, leaf in rows if name is not None})
        results = [
            _FINISH[kind](outputs[f"result_{i}"]) for i, kind in enumerate(self._call["kinds"])
        ]
        return decoded(self._call["result"], trees, results)

    def _values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments in the order of the file."""
        named = [label for label in self._labels if isinstance(label, str)]
        if len(args) != len(self._positional) or kwargs.keys() != set(named):
            given = f"{len(args)} by position, {sorted(kwargs) or 'none'} by name"
            raise AttributeValueError.here(
                f"{self._point.name}: the saved function takes {', '.join(self._names)}",
                details=[f"given {given}"],
                hint="pass arguments by position or by name as in the call that was saved; static "
                "arguments are left out",
            )
        return [*args, *[kwargs[name] for name in named]]

    def __repr__(self) -> str:
        return f"<SavedFunction {self.model.manifest.graph}({', '.join(self._names)})>"


_FINISH: dict[str, Callable[[Any], Any]] = {
    "array": lambda value: value,
    "key": wrap_key,
    "weak": finisher(jax.ShapeDtypeStruct((), "float32", weak_type=True)),  # type: ignore[dict-item]
}


def load_function(
    path: str | os.PathLike[str],
    *,
    device: jax.Device | None = None,
    strategy: DataParallel | None = None,
    trust_native: bool = False,
    limits: Limits | None = None,
) -> SavedFunction:
    """Loads the function that `gc.jit(f).save(path)` wrote, without the code of `f`.

    Args:
        device, strategy, trust_native, limits: as for `gc.load`.

    Raises:
        ArtifactError: the file does not exist, is not an artifact, or has signatures of `gc.save`.
        ArtifactCorruptError, ArtifactVersionError: as for `gc.load`.

    Examples:
        >>> import tempfile, jax.numpy as jnp
        >>> step = gc.jit(lambda state, x: {"total": state["total"] + x})
        >>> state = step({"total": jnp.zeros(2)}, jnp.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     step.save(f"{folder}/step.gcx", platforms=["cpu"])
        ...     loaded = gc.load_function(f"{folder}/step.gcx")
        ...     loaded(state, jnp.ones(2))
        {'total': Array([2., 2.], dtype=float32)}
    """
    model = load(path, device=device, strategy=strategy, trust_native=trust_native, limits=limits)
    call = model.manifest.call
    if call is None:
        raise ArtifactError(
            f"{str(path)!r} holds {', '.join(model.signatures)}, and no function of gc.jit",
            hint="open it with gc.load",
        )
    return SavedFunction(model, _checked(call, model))


def _checked(call: Description, model: Model) -> Description:
    """The description of the call in a file.

    Raises:
        ArtifactError: the description does not match the signature.
    """
    point = model.signatures.get(_NAME)
    try:
        named = [name for name in call["inputs"] if name is not None]
        fits = (
            point is not None
            and named == list(point.inputs)
            and [f"result_{i}" for i in range(len(call["kinds"]))] == list(point.outputs)
            and all(map(_may_be, call["kinds"], point.outputs.values()))
            and len(call["labels"]) == len(call["names"]) == len(call["arguments"])
            and all(type(label) in (int, str) for label in call["labels"])
            and all(type(name) is str for name in call["names"])
            and len(call["inputs"]) == leaves_of(call["arguments"])
            and is_shallow([call["result"], call["arguments"]])
        )
    except (KeyError, TypeError, IndexError):
        fits = False
    if not fits:
        raise _misfit()
    return call


def _may_be(kind: str, output: Any) -> bool:
    """Whether an output may be a leaf of this kind."""
    if kind == "key":
        return bool(output.dtype == UINT32 and output.shape[-1:] == (2,))
    return kind in _FINISH


def _misfit() -> ArtifactError:
    return ArtifactError("the file's function does not fit its signature", hint="save it again")
