"""`gc.from_stablehlo`: a StableHLO file or an exported JAX program as a layer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.build.specs import TensorSpec
from graphc.errors import ModelImportError
from graphc.importers.core.model import ImportedModel, ModelSource
from graphc.importers.core.refusals import Refusal, refuse_all
from graphc.importers.core.weights import Trainable, with_trainable
from graphc.importers.stablehlo.evaluate import Module
from graphc.importers.stablehlo.operation import NotKnownError
from graphc.importers.stablehlo.reading import Read, read
from graphc.ir.node import Tensor
from graphc.ir.types import TensorType
from graphc.jaxpr.function import from_jax
from graphc.ops.core.declared import declare
from graphc.ops.core.emit import emit_node
from graphc.ops.structure.lowered import LOWERED, accept
from graphc.runtime.targets.jax_program import x64
from graphc.untrusted.reader import write_module


def from_stablehlo(
    program: str | os.PathLike[str] | bytes | jax.export.Exported,
    *,
    sizes: Mapping[str, int] | None = None,
    trainable: Trainable | None = None,
    opaque: bool | None = None,
    max_trip_count: int | None = None,
    name: str | None = None,
) -> ImportedModel:
    """A StableHLO program, or a JAX program that `jax.export` has written, as a layer.

    Each operation becomes visible nodes, which passes optimise and `gc.gradients` differentiates.
    Floating constants with at least 16 different elements are variables, named "constant_0" and so
    on. If there is an operation for which graphc has no rule, the whole program is one `Lowered`
    node, without variables and without a gradient.

    Another process reads a file first, so that a damaged file does not crash this one. A program
    that calls anything but XLA and its own libraries is refused.

    Args:
        program: a path; the text of a module; the bytes of a portable artifact, or of what
            `jax.export.Exported.serialize` returns; or a `jax.export.Exported`.
        sizes: the values of the program's named sizes.
        trainable: which constants `gc.minimize` updates; by default all. See `gc.ImportedModel`.
        opaque: True for one node in every case, False for an error if an operation has no rule.
        max_trip_count: each loop ends after at most this many iterations, and has a gradient: see
            `gc.while_loop`.
        name: the name scope of the variables.

    Raises:
        ModelFileError: it is not StableHLO, is damaged, or is of another version of JAX.
        ModelImportError: it contains something that is not imported, or open sizes. The error lists
            all of it.
        UnknownNameError: `trainable` matches no constant.

    Examples:
        >>> import jax
        >>> spec = jax.ShapeDtypeStruct((2,), "float32")
        >>> exported = jax.export.export(jax.jit(lambda x: {"twice": x * 2.0}))(spec)
        >>> model = gc.from_stablehlo(exported)
        >>> model.outputs, run(model([1.0, 2.0]))
        (('twice',), Array([2., 4.], dtype=float32))
    """
    found = read(program, {} if sizes is None else sizes)
    try:
        module = Module(found.module)
    except NotKnownError as error:
        raise ModelImportError.here(
            f"from_stablehlo: {found.name} has {error}, which graphc does not have"
        ) from None
    refusals = [] if opaque else _refusals(module, found)
    if refusals and opaque is False:
        refuse_all("from_stablehlo", refusals, "leave opaque out: the program is then one node")
    if opaque or refusals:
        weights, build = {}, _opaque(module, found)
    else:
        weights = with_trainable("from_stablehlo", module.weights, trainable)
        build = partial(_visible, module, found.wide, max_trip_count)
    source = ModelSource(
        importer="from_stablehlo",
        name=found.name,
        inputs=tuple(_inputs(module)),
        outputs=tuple(_outputs(module)),
        weights=weights,
        build=build,
    )
    return ImportedModel(source, name)


def _inputs(module: Module) -> list[TensorSpec]:
    """The arguments, by the names that the program gives them."""
    block = module.main.regions[0].blocks[0]
    names: list[str] = []
    for number, argument in enumerate(block.arguments):
        name = _name_in(str(argument.location), f"x{number}")
        names.append(name if name not in names else f"{name}_{number}")
    return [
        TensorSpec(shape, dtype, name)
        for (shape, dtype), name in zip(module.inputs, names, strict=True)
    ]


def _name_in(location: str, default: str) -> str:
    """The name in a location such as `loc("x")`; JAX gives those of arguments."""
    text = location.removeprefix('loc("').partition('"')[0]
    return text if text.isidentifier() else default


def _outputs(module: Module) -> list[str]:
    """The results, by the names that JAX gives them: "result['logits']" is "logits"."""
    count = len(module.outputs)
    names = []
    rows = (
        module.main.attributes["res_attrs"]
        if "res_attrs" in module.main.attributes
        else [{}] * count
    )
    for number in range(count):
        row = rows[number]
        text = str(row["jax.result_info"].value) if "jax.result_info" in row else ""
        parts = text.split("'")
        name = parts[1] if len(parts) == 3 else f"output_{number}"
        names.append(name if name not in names else f"{name}_{number}")
    return names


def _refusals(module: Module, found: Read) -> list[Refusal]:
    """What no rule covers."""
    refusals: list[Refusal] = []
    structs = [jax.ShapeDtypeStruct(*each) for each in module.inputs]
    weights = {
        name: jax.ShapeDtypeStruct(each.array.shape, each.array.dtype)
        for name, each in module.weights.items()
    }
    with jax.enable_x64(found.wide):
        try:
            jax.eval_shape(lambda xs, ws: module.evaluate(xs, ws, refusals), structs, weights)
        except Exception as error:  # zeros instead of results may not fit
            if not refusals:
                refusals.append(Refusal("the program", f"is not imported: {error}"[:300]))
    return refusals


def _visible(
    module: Module,
    wide: bool,
    max_trips: int | None,
    model: ImportedModel,
    inputs: Sequence[Tensor],
) -> Sequence[Tensor]:
    """The program as visible nodes."""
    names = list(module.weights)
    weights = [model.weight(name) for name in names]

    def function(xs: Sequence[Any], ws: Sequence[Any]) -> list[Any]:
        results = module.evaluate(xs, dict(zip(names, ws, strict=True)))
        return [jnp.asarray(value) for value in results]

    call = from_jax(function, name=model.name, max_trip_count=max_trips)
    with x64(wide):
        results: Sequence[Tensor] = call(list(inputs), weights)
    return results


def _opaque(module: Module, found: Read) -> Any:
    """Adds one node for the whole program."""
    data = np.frombuffer(bytes(_as_exported(module, found).serialize()), np.uint8)
    accept(data)  # `read` has checked it
    types = [TensorType(dtype, shape) for shape, dtype in module.outputs]

    def build(model: ImportedModel, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        node = emit_node(LOWERED, list(inputs), name=model.name, program=data, **declare(types))
        return node.outputs

    return build


def _as_exported(module: Module, found: Read) -> Any:
    """The program in the form of `jax.export`: a program of the same types, with other code."""

    def same_types(*xs: Any) -> list[Any]:
        return [jnp.zeros(*each) for each in module.outputs]

    structs = [jax.ShapeDtypeStruct(*each) for each in module.inputs]
    with jax.enable_x64(found.wide):
        template = jax.export.export(jax.jit(same_types, keep_unused=True), platforms=("cpu",))(
            *structs
        )
    return replace(template, mlir_module_serialized=write_module(found.module))
