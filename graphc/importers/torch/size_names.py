"""The names that the user gave the sizes of a program, by its symbols."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphc.importers.torch.dtypes import torch


def size_names(
    program: Any,
    parameters: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> dict[str, str]:
    """Symbol of the program -> the name of the user's `Dim`.

    Args:
        program: the exported program.
        parameters: those of the function that was exported for `args` and `kwargs`.
        dynamic_shapes: as `torch.export.export` takes them, with which it accepted the inputs.
    """
    signature = program.graph_signature
    names = [s.arg.name for s in signature.input_specs if s.kind.name == "USER_INPUT"]
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    paths = torch().utils._pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]
    places = _arguments(parameters, args, kwargs)
    found: dict[str, str] = {}
    for name, (path, _) in zip(names, paths, strict=True):
        shape = getattr(nodes[name].meta.get("val"), "shape", None)
        spec = _spec(path, places, dynamic_shapes)
        for size, dim in _sizes(shape, spec):
            label = getattr(dim, "__name__", None)
            if label is not None and str(size).isidentifier() and str(label).isidentifier():
                found.setdefault(str(size), str(label))
    return found


def _arguments(
    parameters: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Where an argument stands in `(args, kwargs)` -> the keys that lead to it in a dict of shapes:
    the name of its parameter, and its key in `*args` or `**kwargs`."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    place = 0
    bound = parameters.bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        match bound.signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                found |= {(0, place + i): (name, i) for i in range(len(value))}
                place += len(value)
            case inspect.Parameter.VAR_KEYWORD:
                found |= {(1, key): (name, key) for key in value}
            case _ if name in kwargs:
                found[1, name] = (name,)
            case _:
                found[0, place] = (name,)
                place += 1
    return found


def _spec(path: Sequence[Any], arguments: Mapping[Any, Any], dynamic_shapes: Any) -> Any:
    """What `dynamic_shapes` says of the input at a path; None if it says nothing."""
    first, second, *rest = map(_key, path)
    keys = [*arguments[first, second], *rest]
    if not isinstance(dynamic_shapes, Mapping):  # by the order of the parameters
        parameters = list(dict.fromkeys(name for name, *_ in arguments.values()))
        keys[0] = parameters.index(keys[0])
    spec = dynamic_shapes
    for key in keys:
        try:
            spec = spec[key]
        except (KeyError, IndexError, TypeError):  # None for all that is below
            return None
    return spec


def _key(step: Any) -> Any:
    """The key or index of one step of a path of PyTorch's pytrees."""
    return next(getattr(step, name) for name in ("key", "idx", "name") if hasattr(step, name))


def _sizes(shape: Any, spec: Any) -> Iterator[tuple[Any, Any]]:
    """The sizes of a tensor with what is said of each."""
    if shape is not None and isinstance(spec, Mapping):
        yield from ((shape[axis], dim) for axis, dim in spec.items())
    elif shape is not None and isinstance(spec, (tuple, list)):
        yield from zip(shape, spec, strict=True)
