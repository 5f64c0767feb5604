"""What a program means, in NumPy: node by node, by the `fold` of each operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.program import Program

Array = np.ndarray[Any, Any]


def evaluate(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a program without named sizes. Every operator needs a `fold`."""
    values = dict(zip(program.input_tensors(), inputs, strict=True))
    for node in program.nodes:
        assert node.op.fold is not None, f"{node.op.name} has no fold"
        with np.errstate(all="ignore"):
            result = node.op.fold(*[values[t] for t in node.inputs], **node.attrs)
        assert result is not None, f"the fold of {node.op.name} declined {node.attrs}"
        results = result if isinstance(result, tuple) else (result,)
        for tensor, value in zip(node.outputs, results, strict=True):
            values[tensor] = np.asarray(value, tensor.type.dtype)
            assert values[tensor].shape == tensor.type.shape, f"{node.op.name}: {tensor.type}"
    return [values[t] for t in program.output_tensors()]
