"""`read_archive`: a .pt2 file as an exported program."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from graphc.errors import ModelFileError
from graphc.importers.torch.archive.container import Archive, broken
from graphc.importers.torch.archive.graphs import GraphModule, Value, graph_of
from graphc.importers.torch.archive.mutations import make_functional
from graphc.importers.torch.archive.tensors import stored
from graphc.importers.torch.call import Refused
from graphc.importers.torch.exported import Exported, Result, Stored

_VERSION: Final = 8  # the major number of the file's schema
_OUTPUTS: Final[Mapping[str, str]] = {
    "buffer_mutation": "BUFFER_MUTATION",
    "parameter_mutation": "PARAMETER_MUTATION",
    "user_input_mutation": "USER_INPUT_MUTATION",
    "user_output": "USER_OUTPUT",
}
_MALFORMED: Final = (
    *(ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError),
    ValueError,
)


def read_archive(path: str | os.PathLike[str]) -> Exported:
    """The program in a .pt2 file, functional. Its weights are read when they are asked for.

    Raises:
        ModelFileError: the file cannot be read, is damaged, or of a version that is not known.
    """
    archive = Archive(path)
    try:
        return _program(archive)
    except ModelFileError:
        raise
    except Refused as refused:
        raise broken(f"{archive.name} {refused}", "save it in another form") from refused
    except _MALFORMED as error:
        raise broken(
            f"{archive.name} is malformed ({type(error).__name__}: {str(error)[:200]})"
        ) from error


def _check_alone(archive: Archive, changed: Sequence[str], tensors: Mapping[str, Stored]) -> None:
    """Raises an error if a buffer that changes shares its memory with another tensor, which would
    have to change too."""
    for name in changed:
        own = tensors[name]
        others = [n for n, t in tensors.items() if t.member == own.member and t.key != own.key]
        if others:
            raise broken(
                f"{archive.name} changes {name!r}, which shares its memory with {others[0]!r}",
                "register a copy: self.register_buffer(name, view.clone())",
            )


def _program(archive: Archive) -> Exported:
    data = archive.json(f"models/{archive.model}.json")
    version = data["schema_version"]["major"]
    if version != _VERSION:
        raise broken(
            f"{archive.name} has version {version} of the schema, expected {_VERSION}",
            "save it with torch 2.9 or newer",
        )
    signature = data["graph_module"]["signature"]
    module = graph_of(data["graph_module"]["graph"])
    held, constants = _inputs(signature["input_specs"], module)
    tensors = {**stored(archive, "weights"), **stored(archive, "constants")}
    missing = next((n for n in (*held.values(), *constants.values()) if n not in tensors), None)
    if missing is not None:
        raise broken(f"{archive.name} has no value for {missing!r}")
    results = _results(signature["output_specs"])
    if len(results) != len(module.graph.nodes[-1].args[0]):
        raise ValueError(f"{len(results)} results are described")
    unknown = {result.weight for result in results} - {*held.values(), ""}
    if unknown:
        raise broken(f"{archive.name} changes {min(unknown)!r}, which it does not use")
    changed = make_functional(module, held)
    _check_alone(archive, changed, tensors)

    for name in constants.values():  # each call of the model needs them
        value = tensors[name].read()
        tensors[name] = tensors[name]._replace(read=lambda value=value: value)  # type: ignore[misc]

    return Exported(
        module=module,
        name=archive.name,
        sizes={},
        held=held,
        constants=constants,
        tensors=tensors.__getitem__,
        results=[*results, *(Result("BUFFER_MUTATION", name) for name in changed)],
        nest=_nest(data["graph_module"]["module_call_graph"]),
        is_file=True,
    )


def _inputs(specs: Sequence[Any], module: GraphModule) -> tuple[dict[str, str], dict[str, str]]:
    """The parameters and buffers, and the constants, by placeholder."""
    held, constants = dict[str, str](), dict[str, str]()
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node in nodes:
        value = node.meta["val"]
        if isinstance(value, Value) and (len(value.shape) > 64 or value.dtype is None):
            raise ValueError("an input has more than 64 dimensions")
    placeholders = [node.name for node in nodes]
    if len(set(placeholders)) != len(placeholders):
        raise ValueError("two inputs have one name")
    for name, spec in zip(placeholders, specs, strict=True):
        (kind, value), *_ = spec.items()
        match kind:
            case "parameter":
                held[name] = str(value["parameter_name"])
            case "buffer":
                held[name] = str(value["buffer_name"])
            case "tensor_constant":
                constants[name] = str(value["tensor_constant_name"])
            case "user_input" if "as_sym_int" in value["arg"]:
                raise Refused("takes a size as an argument, which is not supported")
            case "user_input" | "constant_input":
                pass
            case _:
                raise Refused(f"has an input of the kind {kind!r}, which is not supported")
    return held, constants


def _results(specs: Sequence[Any]) -> list[Result]:
    found = []
    for spec in specs:
        (kind, value), *_ = spec.items()
        if kind not in _OUTPUTS:
            raise Refused(f"has a result of the kind {kind!r}, which is not supported")
        weight = value.get("buffer_name", value.get("parameter_name", ""))
        found.append(Result(_OUTPUTS[kind], str(weight)))
    return found


def _nest(calls: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Makes the nest that the module returned, of tuples, lists and dicts. Objects of other classes
    that have keys, such as the outputs of transformers, become dicts."""
    (signature,) = (call["signature"] for call in calls if call["fqn"] == "")
    _, tree = json.loads(signature["out_spec"])

    def nest(values: Sequence[Any]) -> Any:
        rest = iter(values)
        made = _nested(tree, rest)
        if next(rest, None) is not None:
            raise ValueError("the nest has fewer leaves than there are results")
        return made

    return nest


def _nested(tree: Mapping[str, Any], values: Any) -> Any:
    kind = tree["type"]
    if kind is None:
        return next(values)
    parts = [_nested(child, values) for child in tree["children_spec"]]
    match kind:
        case "builtins.tuple" | "collections.namedtuple":
            return tuple(parts)
        case "builtins.list":
            return parts
        case "builtins.dict" | "collections.OrderedDict":
            keys = json.loads(tree["context"])
            made = zip(keys, parts, strict=True)
            return OrderedDict(made) if kind.startswith("collections") else dict(made)
    keys = json.loads(tree["context"] or "null")
    if isinstance(keys, list) and len(keys) == len(parts) and all(isinstance(k, str) for k in keys):
        return dict(zip(keys, parts, strict=True))
    raise ValueError(f"a result is a {kind}")
