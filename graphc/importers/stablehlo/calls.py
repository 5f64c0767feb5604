"""A StableHLO program as a function of tensors, inside the graph of another importer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import numpy as jnp

from graphc.importers.core.refusals import Refusal
from graphc.importers.stablehlo.evaluate import Module
from graphc.importers.stablehlo.operation import NotKnownError
from graphc.importers.stablehlo.reading import read_call
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax
from graphc.runtime.targets.jax_program import x64


class NotImportedError(Exception):
    """A program cannot be imported. The text is the reason."""


def call_program(
    program: bytes, operands: Sequence[Tensor], platform: int | None = None
) -> list[Tensor]:
    """The results of a program for these operands, as visible nodes. Its constants are constants.

    Args:
        program: portable bytecode. It may have open sizes: those of the operands replace them.
        platform: see `read_call`.

    Raises:
        NotImportedError: a size of an operand is not a number, or an operation has no rule.
        ModelFileError, ModelImportError: see `read_call`.
    """
    shapes = []
    for operand in operands:
        sizes = [dim for dim in operand.type.shape if isinstance(dim, int)]
        if len(sizes) < len(operand.type.shape):
            raise NotImportedError(
                f"has an operand of the open sizes {list(operand.type.shape)}, and its program is "
                "for known sizes: import it with sizes={'batch': 8} (--size batch=8)"
            )
        shapes.append(sizes)
    found = read_call(program, shapes, platform)
    try:
        module = Module(found.module)
    except NotKnownError as error:
        raise NotImportedError(f"has {error}, which graphc does not have") from None
    own = [shape for shape, _ in module.inputs]
    if own != [tuple(shape) for shape in shapes]:
        raise NotImportedError(f"has operands of {shapes}, but its program takes {own}")
    weights = {name: each.array for name, each in module.weights.items()}
    refusals: list[Refusal] = []

    def function(xs: Sequence[Any]) -> list[Any]:
        return [jnp.asarray(value) for value in module.evaluate(xs, weights, refusals)]

    with x64(found.wide):
        results: list[Tensor] = from_jax(function)(list(operands))
    if refusals:
        raise NotImportedError(f"has {refusals[0]}")
    return results
