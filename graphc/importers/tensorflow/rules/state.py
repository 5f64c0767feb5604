"""Variables of both versions, and what assigns them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import Value, VariableRef, WeightValue
from graphc.ir.node import Tensor
from graphc.ir.variable import Variable

FAMILY = Family()


@FAMILY.rule("VariableV2", "Variable", "VarHandleOp", kinds="")
def reference(call: Call) -> Value:
    name = call.scope.build.variables.get(call.node.name)
    if name is None:
        call.refuse("is a variable without a value: give the checkpoint")
    return VariableRef(name)


def variable_of(call: Call, value: Value) -> Variable:
    """The variable that an input refers to."""
    if not isinstance(value, VariableRef):
        call.refuse("does not take a variable that the graph defines")
    return call.scope.build.variable(value.name)


@FAMILY.rule("ReadVariableOp", kinds="v")
def read(call: Call, value: Value) -> Value:
    if isinstance(value, WeightValue):
        return value
    return variable_of(call, value).read()


@FAMILY.rule("ResourceGather", kinds="vt")
def resource_gather(call: Call, value: Value, indices: Tensor) -> Tensor:
    table = variable_of(call, value).read()
    batch = call.attr("batch_dims", 0)
    return ops.gather(table, indices, batch, batch) if batch else ops.take(table, indices, 0)


@FAMILY.rule("ResourceGatherNd", kinds="vt")
def resource_gather_nd(call: Call, value: Value, indices: Tensor) -> Tensor:
    return ops.gather_nd(variable_of(call, value).read(), indices)


@FAMILY.rule("VariableShape", kinds="v")
def variable_shape(call: Call, value: Value) -> Value:
    return np.array(variable_of(call, value).type.shape, call.dtype("out_type", "int32"))


@FAMILY.rule("IsVariableInitialized", "VarIsInitializedOp", kinds="v")
def is_initialized(call: Call, value: Value) -> Value:
    return np.array(True)


_CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda old, new: new, "Add": ops.add, "Sub": ops.subtract,
}  # fmt: skip


def assigned(call: Call, variable: Variable, value: Tensor) -> Tensor:
    """Assigns, and notes it for the collection of updates."""
    result = variable.assign(ops.cast(value, variable.dtype))
    call.scope.build.note_update(result)
    return result


@FAMILY.rule(
    "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "Assign", "AssignAdd",
    "AssignSub",
    kinds="vt",
)  # fmt: skip
def assign(call: Call, target: Value, value: Tensor) -> Value:
    variable = variable_of(call, target)
    kind = call.node.op.removeprefix("Assign").removesuffix("VariableOp")
    return assigned(call, variable, _CHANGES[kind](variable.read() if kind else None, value))


Scatter = Callable[[Tensor, Tensor, str], Tensor]  # (old value, updates, how to combine them)


def _scattered(call: Call, target: Value, updates: Tensor, prefix: str, scatter: Scatter) -> Value:
    variable = variable_of(call, target)
    kind = call.node.op.removeprefix("Resource").removeprefix(prefix)
    if kind == "Sub":
        updates, kind = ops.negative(updates), "Add"
    return assigned(call, variable, scatter(variable.read(), updates, _SCATTERS[kind]))


_SCATTERS = {"Update": "set", "Add": "add", "Max": "max", "Min": "min", "Mul": "mul"}


def _both(name: str, kinds: str) -> list[str]:
    """The operators of these kinds, on old variables and on resources."""
    return [f"{of}{name}{kind}" for of in ("", "Resource") for kind in kinds.split()]


@FAMILY.rule(*_both("Scatter", "Update Add Sub Max Min Mul"), kinds="vtt")
def scatter(call: Call, target: Value, indices: Tensor, updates: Tensor) -> Value:
    def write(old: Tensor, updates: Tensor, how: str) -> Tensor:
        return ops.scatter(old, indices, updates, 0, how)

    return _scattered(call, target, updates, "Scatter", write)


@FAMILY.rule(*_both("ScatterNd", "Update Add Sub"), kinds="vtt")
def scatter_nd(call: Call, target: Value, indices: Tensor, updates: Tensor) -> Value:
    def write(old: Tensor, updates: Tensor, how: str) -> Tensor:
        return ops.scatter_nd(old, indices, updates, how)

    return _scattered(call, target, updates, "ScatterNd", write)


WRITES: Sequence[str] = tuple(
    name for name in FAMILY.rules if name.startswith(("Assign", "Scatter", "ResourceScatter"))
)
"""The operators that change a variable."""
