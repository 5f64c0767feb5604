"""The table that `Layer.summary` gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from graphc.errors import GraphError

if TYPE_CHECKING:
    from graphc.ir.variable import Variable
    from graphc.nn.layers.layer import Layer

Row = tuple[str, str, str]


def summary_of(layer: Layer) -> str:
    """The table: a row for the layer and for each inner layer, and the totals."""
    if not layer.built:
        raise GraphError.here(
            f"summary: {layer} has not been called, so it has no variables",
            hint="call it on a placeholder first",
        )
    rows = [("layer", "output", "parameters"), *_rows(layer, "", 0, set())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
    total, trained = _count(layer.variables), _count(layer.trainable_variables)
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join([*lines, lines[1], f"{total:,} parameters, {trained:,} of them trainable"])


def _rows(layer: Layer, scope: str, depth: int, seen: set[Layer]) -> Iterator[Row]:
    name = f"{'  ' * depth}{layer.name.removeprefix(scope)} ({type(layer).__name__})"
    output = str(layer.output_type or "")
    if layer in seen:
        yield name, output, "as above"
        return
    seen.add(layer)
    yield name, output, f"{_count(layer.variables):,}"
    for inner in layer.inner_layers:
        yield from _rows(inner, f"{layer.name}/", depth + 1, seen)


def _count(variables: Iterable[Variable]) -> int:
    """How many numbers the variables hold."""
    return sum(math.prod(d for d in v.type.shape if isinstance(d, int)) for v in variables)
