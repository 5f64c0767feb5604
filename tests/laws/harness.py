"""Tools for the laws: inputs with a fixed seed, one graph for many cases, evaluation."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from graphc.build.placeholders import placeholder
from graphc.ir.capture import capture
from graphc.ir.dtypes import as_dtype, is_complex, is_floating, is_inexact, is_integer
from graphc.ir.graph import Graph
from graphc.ir.late import written
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import FUNCTIONS
from graphc.ops.structure.state import READ_VARIABLE
from graphc.passes.simplify.functionalize import Functionalize
from tests.laws.case import Case, In

Array = np.ndarray[Any, Any]


def families() -> dict[str, tuple[Case, ...]]:
    """The cases of every family, by the name of its file."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        module = importlib.import_module(f"tests.laws.{path.stem}")
        found[path.stem.removeprefix("cases_")] = module.CASES
    return found


def make_input(spec: In, dtype: str, seed: int) -> Array:
    """Makes a value for `spec`, whose dtype is set; the same seed makes the same value."""
    kind = as_dtype(dtype if spec.dtype == "T" else spec.dtype)
    if spec.values is not None:
        with np.errstate(invalid="ignore"):  # no integer is NaN or infinite
            return np.asarray(spec.values).astype(kind)
    rng = np.random.default_rng(seed)
    if kind == np.bool_:
        return rng.random(spec.shape) < 0.5
    if spec.distinct:
        count = int(np.prod(spec.shape))
        values = rng.permutation(np.linspace(spec.low, spec.high, count)).reshape(spec.shape)
    else:
        values = rng.uniform(spec.low, spec.high, spec.shape)
    if is_complex(kind):
        values = values + 1j * rng.uniform(spec.low, spec.high, spec.shape)
    if is_integer(kind):
        values = np.rint(values)
        if str(kind.name).startswith("u"):
            values = np.abs(values)
    return np.asarray(values).astype(kind)


@dataclass
class Built:
    """One case with one dtype in a graph: its inputs with values, and its results."""

    case: Case
    dtype: str
    tensors: list[Tensor]
    arrays: list[Array]
    outputs: list[Tensor]

    @property
    def title(self) -> str:
        return f"{self.case.op} {self.case.label} {self.dtype}".replace("  ", " ")


def build_case(case: Case, dtype: str, prefix: str) -> Built:
    """Builds the case in the current graph."""
    tensors, arrays = [], []
    for i, spec in enumerate(case.inputs):
        seed = zlib.crc32(f"{case.op}/{case.label}/{dtype}/{i}".encode())
        array = make_input(spec, dtype, seed)
        axis = spec.batch_axis if spec.batch_axis is not None else None
        tensors.append(placeholder(array.shape, array.dtype, name=f"{prefix}_{i}", batch_axis=axis))
        arrays.append(array)
    return Built(case, dtype, tensors, arrays, as_list(case.build(*tensors)))


def as_list(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def real_parts(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The floating tensors, and the real and imaginary parts of the complex tensors."""
    parts = []
    for tensor in tensors:
        if is_complex(tensor.dtype):
            parts += [FUNCTIONS.real(tensor), FUNCTIONS.imag(tensor)]
        elif is_floating(tensor.dtype):
            parts.append(tensor)
    return parts


def functional(graph: Graph, fetches: Sequence[Tensor], feeds: Sequence[Tensor]) -> Program:
    """The pure program of these fetches."""
    captured = capture(graph, fetches, feeds, READ_VARIABLE)
    captured = captured.replace(nodes=tuple(written(captured.nodes)))
    return Functionalize().run(captured).program


RANDOM_STATE = {
    "__random__/key": np.array([0, 7], np.uint32),
    "__random__/counter": np.zeros((), np.int32),
}


def random_state(program: Program) -> list[Array]:
    """The random state that a program takes after its feeds."""
    return [RANDOM_STATE[port.name] for port in program.ports("state")]


def evaluate(
    program: Program, feeds: Sequence[Array], xla_options: dict[str, Any] | None = None
) -> list[Array]:
    """The fetched values of a program; the random state starts with a fixed key."""
    values = [*feeds, *random_state(program)]
    count = len(program.ports("fetch"))
    with jax.enable_x64(True):
        compiled = jax.jit(to_function(program)).lower(*values).compile(xla_options)
        return [np.asarray(r) for r in compiled(*values)[:count]]


def tolerance(case: Case, dtype: Any) -> dict[str, float]:
    """The tolerance of a result, by its dtype."""
    kind = as_dtype(dtype)
    if not is_inexact(kind):
        return {"rtol": 0.0, "atol": 0.0}
    if kind.itemsize == 1:
        return {"rtol": 0.3, "atol": 0.3}
    if is_floating(kind) and kind.itemsize == 2:
        near = 2e-2 if kind.name == "bfloat16" else 4e-3
        return {"rtol": near, "atol": near}
    return {"rtol": case.rtol, "atol": case.atol}


def widened(array: Array) -> Array:
    """The value in the widest dtype of its kind, for the oracle and for comparisons."""
    if is_complex(array.dtype):
        return array.astype(np.complex128)
    return array.astype(np.float64) if is_floating(array.dtype) else array
