"""Reads StableHLO and exported JAX programs, and checks them before MLIR does.

MLIR's parsers are C++ code that trusts its input. So another process reads a program first (see
`untrusted.safe_reading`), and the program may contain only what the rules for artifacts allow:
operations that compute, and calls of libraries that are known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.extend import mlir
from jax.extend.mlir import ir

from graphc.artifacts.stablehlo import check_convention, refined_module
from graphc.errors import ArtifactCorruptError, ModelFileError, ModelImportError
from graphc.ir.dim_parser import parse_dim
from graphc.ir.dims import substitute
from graphc.untrusted.findings import findings
from graphc.untrusted.reader import parse_module
from graphc.untrusted.rules import NotAllowedError, check_rules
from graphc.untrusted.safe_reading import UnreadableError, read_program

_BYTECODE = b"ML\xefR"
_MOST_BYTES = 1 << 31
_WIDE = {"i64", "ui64", "f64", "complex<f64>"}


class Read(NamedTuple):
    """A program that was read and checked.

    Attributes:
        name: of the file or the function.
        module: MLIR's; all sizes are known.
        wide: whether it has values of 64 bits.
    """

    name: str
    module: Any
    wide: bool


def read(source: Any, sizes: Mapping[str, int]) -> Read:
    """A program from a path, text, bytes, or a `jax.export.Exported`.

    Args:
        sizes: the values of named sizes.

    Raises:
        ModelFileError: it is not StableHLO, or is damaged.
        ModelImportError: it contains what is not allowed, or sizes that `sizes` does not give.
    """
    name, data, exported = _data_of(source)
    if exported is None:
        found = _findings(name, data)
        if not _is_stablehlo(data):
            exported = _deserialized(name, data)
    else:
        with ir.Context():
            found = findings(mlir.deserialize_portable_artifact(exported.mlir_module_serialized))
    if exported is None:
        if found["open"]:
            raise ModelImportError.here(
                f"from_stablehlo: {name} has open sizes",
                hint="write it with fixed sizes, or pass what jax.export serialises",
            )
        module = parse_module(data)
    else:
        module = _module_of(name, exported, sizes)
    found = findings(module)
    _check(name, found)
    return Read(name, module, bool(_WIDE & {*found["types"]}))


def read_call(data: bytes, shapes: Sequence[Sequence[int]], platform: int | None = None) -> Read:
    """A program of portable bytecode, for arguments of these shapes.

    Args:
        platform: the value of its first argument, the number of the platform, if it has one.

    Raises:
        ModelFileError, ModelImportError: see `read`.
    """
    name = "the program"
    found = _findings(name, data)
    module = parse_module(data)
    if found["open"] or platform is not None:
        try:
            module = _specialised(module, shapes, platform)
        except Exception as error:  # it has no main function, or one of another form
            raise ModelImportError.here(
                f"from_stablehlo: {name} does not take arguments of {[*map(list, shapes)]}",
                details=[str(error)[:300]],
            ) from None
        module = _refined(module)
        found = findings(module)
    _check(name, found)
    return Read(name, module, bool(_WIDE & {*found["types"]}))


def _specialised(module: Any, shapes: Sequence[Sequence[int]], platform: int | None) -> Any:
    """The module with a main function of these shapes, which calls the one that it has."""
    with module.context, ir.Location.unknown():
        (main,) = [f for f in module.body.operations if f.attributes["sym_name"].value == "main"]
        main.attributes["sym_name"] = ir.StringAttr.get("given_main")
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
        block = main.regions[0].blocks[0]
        given = [str(argument.type) for argument in block.arguments]
        results = [str(value.type) for value in list(block.operations)[-1].operands]
        lines, operands = [], []
        if platform is not None:
            lines.append(f"%p = stablehlo.constant dense<{platform}> : {given[0]}")
            operands.append("%p")
        own = []
        for i, (shape, there) in enumerate(zip(shapes, given[len(operands) :], strict=True)):
            element = there.rpartition("x")[2] if "x" in there else there.removeprefix("tensor<")
            here = f"tensor<{''.join(f'{dim}x' for dim in shape)}{element}"
            own.append(f"%a{i}: {here}")
            lines.append(f"%c{i} = stablehlo.convert %a{i} : ({here}) -> {there}")
            operands.append(f"%c{i}")
        many = ", ".join(results)
        names = ", ".join(f"%r#{i}" for i in range(len(results)))
        lines.append(
            f"%r:{len(results)} = func.call @given_main({', '.join(operands)}) : "
            f"({', '.join(given)}) -> ({many})"
        )
        lines.append(f"func.return {names} : {many}")
        text = str(module).rstrip().removesuffix("}")
        text += f"func.func public @main({', '.join(own)}) -> ({many}) {{" + "\n".join(lines) + "}}"
        return ir.Module.parse(text)


def _data_of(source: Any) -> tuple[str, bytes, Any]:
    """The name, the bytes and the `Exported` (if it is one) of what was given."""
    if hasattr(source, "mlir_module_serialized"):
        return str(getattr(source, "fun_name", "program")), b"", source
    if isinstance(source, bytes | bytearray | memoryview):
        return "the program", bytes(source), None
    if isinstance(source, str) and "\n" in source:
        return "the program", source.encode(), None
    if not isinstance(source, str | os.PathLike):
        raise ModelFileError.here(
            f"from_stablehlo: {type(source).__name__} is not a program",
            hint="pass a path, the text or bytes of a program, or a jax.export.Exported",
        )
    path = Path(source)
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= _MOST_BYTES else b""
    except OSError as error:
        raise ModelFileError.here(
            f"from_stablehlo: {str(path)!r} cannot be read: {error.strerror}", hint="check the path"
        ) from None
    return path.name, data, None


def _is_stablehlo(data: bytes) -> bool:
    if data.startswith(_BYTECODE):
        return True
    try:
        return "func" in data.decode()
    except UnicodeDecodeError:
        return False


def _findings(name: str, data: bytes) -> dict[str, Any]:
    try:
        return read_program(data, hashlib.sha256(data).hexdigest(), written=True)
    except UnreadableError as error:
        raise ModelFileError.here(
            f"from_stablehlo: {name} is not a program that this version of JAX reads",
            details=[str(error)[:300]],
            hint="pass StableHLO as text or portable bytecode, or what jax.export serialises",
        ) from None
    except ArtifactCorruptError as error:
        raise ModelImportError.here(
            f"from_stablehlo: {name}: {error.what}",
            hint="only operations of XLA and its own libraries may be called",
        ) from None


def _deserialized(name: str, data: bytes) -> Any:
    try:
        exported = jax.export.deserialize(bytearray(data))
        check_convention(exported.calling_convention_version)
        return exported
    except Exception as error:  # the parser of another version may raise any error
        raise ModelFileError.here(
            f"from_stablehlo: {name} is not a program that this version of JAX reads",
            details=[f"{type(error).__name__}: {error}"[:300]],
        ) from None


def _module_of(name: str, exported: Any, sizes: Mapping[str, int]) -> Any:
    """The module of an exported program, for the CPU and with values for its named sizes."""
    if exported.nr_devices != 1:
        raise ModelImportError.here(
            f"from_stablehlo: {name} is for {exported.nr_devices} devices",
            hint="export it for one device",
        )
    is_open = any(not isinstance(dim, int) for aval in exported.in_avals for dim in aval.shape)
    if len(exported.platforms) > 1 or is_open:
        return _lowered(exported, sizes)
    with ir.Context():
        return mlir.deserialize_portable_artifact(exported.mlir_module_serialized)


def _value(dim: Any, sizes: Mapping[str, int]) -> int:
    """A size: a number, a name, or an expression of names."""
    if isinstance(dim, int):
        return dim
    found = substitute(parse_dim(str(dim)), sizes)
    if not isinstance(found, int):
        raise ModelImportError.here(
            f"from_stablehlo: the size {dim} is not known",
            hint=f"give it: sizes={{{str(found)!r}: 8}}",
        )
    return found


def _lowered(exported: Any, sizes: Mapping[str, int]) -> Any:
    """The module of a program for given sizes and the CPU."""
    structs = [
        jax.ShapeDtypeStruct([_value(dim, sizes) for dim in aval.shape], aval.dtype)
        for aval in exported.in_avals
    ]
    args, kwargs = jax.tree.unflatten(exported.in_tree, structs)
    with jax.enable_x64(True):
        lowered = jax.jit(exported.call, keep_unused=True).lower(*args, **kwargs)
    return _refined(lowered.compiler_ir("stablehlo"))


def _refined(module: Any) -> Any:
    """The module with all sizes that follow from those of the main function's arguments.

    Raises:
        ModelImportError: they do not fit.
    """
    try:
        return refined_module(module)
    except Exception as error:  # MLIR raises errors of many kinds
        raise ModelImportError.here(
            "from_stablehlo: the program does not fit these sizes", details=[str(error)[:300]]
        ) from None


def _check(name: str, found: Mapping[str, Any]) -> None:
    try:
        again = check_rules(found, 1, refined=True)
    except NotAllowedError as error:
        raise ModelImportError.here(f"from_stablehlo: {name} is not imported: {error}") from None
    if again:
        raise ModelImportError.here(f"from_stablehlo: {name} has open sizes")
