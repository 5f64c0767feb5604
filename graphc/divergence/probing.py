"""Runs a program piece by piece, so that every value in it can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from graphc.ir.costs import bytes_of
from graphc.ir.dtypes import Array
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import used_from
from graphc.lowering.emit_jax import needs_x64, to_function

_NODES = 48  # that are compiled at once
_BYTES = 1 << 28  # of results of such a piece


class Probe:
    """A program whose values are taken out while it runs, in pieces.

    Args:
        wanted: the tensors whose values are taken.
        device: where it runs; None for the default device.
    """

    def __init__(
        self, program: Program, wanted: Sequence[Tensor], device: jax.Device | None = None
    ) -> None:
        self._program, self._device = program, device
        self._wide = needs_x64(program)
        self._wanted = dict.fromkeys(wanted)
        nodes = used_from(program.nodes, wanted)
        self._last = {t: i for i, node in enumerate(nodes) for t in node.inputs}
        self._pieces = [
            _Piece(nodes[start:end], end, self._wanted, self._last) for start, end in _cut(nodes)
        ]

    def values(self, inputs: Sequence[Any]) -> Iterator[dict[Tensor, Array]]:
        """The wanted values, piece after piece. The inputs are not among them."""
        with jax.enable_x64(self._wide):
            placed = jax.device_put([np.asarray(x) for x in inputs], self._device)
        known = dict(zip(self._program.input_tensors(), placed, strict=True))
        for piece in self._pieces:
            with jax.enable_x64(self._wide):
                results = piece.function(*[known[t] for t in piece.inputs])
            known.update(zip(piece.outputs, results, strict=True))
            yield {t: np.asarray(known[t]) for t in piece.outputs if t in self._wanted}
            for tensor in [t for t in known if self._last.get(t, -1) < piece.end]:
                del known[tensor]

    def all_values(self, inputs: Sequence[Any]) -> dict[Tensor, Array]:
        """All wanted values, also of inputs."""
        found = dict(zip(self._program.input_tensors(), map(np.asarray, inputs), strict=True))
        for some in self.values(inputs):
            found.update(some)
        return found


class _Piece:
    """Consecutive nodes that are compiled together."""

    def __init__(
        self,
        nodes: Sequence[Node],
        end: int,
        wanted: Mapping[Tensor, None],
        last: Mapping[Tensor, int],
    ) -> None:
        made = dict.fromkeys(t for node in nodes for t in node.outputs)
        self.end = end
        self.inputs = list(dict.fromkeys(t for node in nodes for t in node.inputs if t not in made))
        self.outputs = [t for t in made if t in wanted or last.get(t, -1) >= end]
        self._nodes = nodes

    @cached_property
    def function(self) -> Callable[..., list[Any]]:
        return jax.jit(to_function(region("piece", self.inputs, self._nodes, self.outputs)))


def _cut(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """The first node of each piece, and that after its last."""
    start = taken = 0
    for i, node in enumerate(nodes):
        taken += bytes_of(*node.outputs)
        if i + 1 - start >= _NODES or taken >= _BYTES or i + 1 == len(nodes):
            yield start, i + 1
            start, taken = i + 1, 0
