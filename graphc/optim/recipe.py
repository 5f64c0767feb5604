"""What tracing an optax transformation gives, as data: it can be kept, and used again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.errors import SerialError
from graphc.ir.dtypes import BY_SHORT, SHORT
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.ir.scopes import AMBIENT, at_source
from graphc.ir.serial import dump_program, from_bytes, load_program, to_bytes
from graphc.ir.source import Source, current_source
from graphc.ir.types import TensorType
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.control.deferred_bodies import with_bodies

Array = np.ndarray[Any, Any]


class NeedsObjective(Exception):
    """An optimizer evaluates the loss at parameters of its own choice, as line searches do."""


@dataclass(frozen=True)
class Slot:
    """One leaf of an optimizer's state.

    Attributes:
        parameter: the number of the parameter that it is kept for; None for what is common.
        path: the rest of its name.
        type: static.
        fill: the number that its initial value is full of; None for a value to calculate.
    """

    parameter: int | None
    path: str
    type: TensorType
    fill: Array | None

    def name(self, parameters: Sequence[str], step: str) -> str:
        """The name of the variable: `<parameter>/<step>/<path>`, or `<step>/<path>`."""
        parts = [step, self.path]
        if self.parameter is not None:
            parts = [parameters[self.parameter], *parts]
        return "/".join(filter(None, parts))


@dataclass(frozen=True)
class Recipe:
    """How an optimizer's state starts, and what one step does.

    Attributes:
        slots: the leaves of the state.
        init: parameters -> the initial values of the slots without a `fill`.
        update: gradients, state, parameters and loss -> new parameters and new state. After the
            loss it takes what the loss is calculated from, if it evaluates the loss.
    """

    slots: tuple[Slot, ...]
    init: Program
    update: Program

    def to_bytes(self) -> bytes:
        """
        Raises:
            SerialError: a constant that cannot be serialised.
        """
        parts = []
        for program in (self.init, self.update):
            data = to_bytes(*dump_program(program))
            parts.append(data)
        head = {"slots": [_slot_fields(slot) for slot in self.slots], "init": len(parts[0])}
        text = json.dumps(head).encode()
        return b"".join([len(text).to_bytes(8, "little"), text, *parts])

    @staticmethod
    def from_bytes(data: bytes) -> Recipe:
        """What `to_bytes` gave.

        Raises:
            SerialError: it is not that.
        """
        try:
            start = 8 + int.from_bytes(data[:8], "little")
            head = json.loads(data[8:start])
            slots = tuple([_slot_of(*fields) for fields in head["slots"]])
            middle = start + head["init"]
        except (ValueError, TypeError, KeyError) as error:
            raise SerialError(f"not the record of an optimizer: {error}") from error
        programs = [
            load_program(*from_bytes(part), CATALOGUE)
            for part in (data[start:middle], data[middle:])
        ]
        return Recipe(slots, *programs)


def _slot_fields(slot: Slot) -> list[Any]:
    fill = None if slot.fill is None else [slot.fill.tobytes().hex(), SHORT[slot.fill.dtype]]
    return [slot.parameter, slot.path, SHORT[slot.type.dtype], list(slot.type.shape), fill]


def _slot_of(parameter: int | None, path: str, dtype: str, shape: list[int], fill: Any) -> Slot:
    value = None if fill is None else np.frombuffer(bytes.fromhex(fill[0]), BY_SHORT[fill[1]])
    type = TensorType(BY_SHORT[dtype], tuple(shape))
    return Slot(parameter, path, type, None if value is None else value.reshape(()))


def paste(
    program: Program, operands: Sequence[Tensor], body: Callable[[str], Program] | None = None
) -> list[Tensor]:
    """Adds the nodes of a recorded program to the graph being built; gives its results.

    Calls of the loss get their bodies from `body`. The nodes are the user's own lines' where
    those are recorded, else the line's that stands now.
    """
    graph = AMBIENT.graphs[-1]
    copies: dict[Tensor, Tensor] = dict(zip(program.input_tensors(), operands, strict=True))
    outer = AMBIENT.source or current_source()
    placed = with_sources(program, {None: outer})
    if body is not None:
        placed = with_bodies(placed, body)
    with at_source(outer):
        for node in placed.nodes:
            AMBIENT.source = node.source
            inputs = [copies[t] for t in node.inputs]
            new = graph.add(node.op, inputs, node.attrs, node.regions, node.op.name)
            copies.update(zip(node.outputs, new.outputs, strict=True))
    return [copies[t] for t in program.output_tensors()]


def with_sources(program: Program, sources: Mapping[Source | None, Source | None]) -> Program:
    """The program with other lines for its nodes, those in bodies too."""
    nodes = [
        node.replace(
            source=sources.get(node.source, node.source),
            regions=tuple([with_sources(body, sources) for body in node.regions]),
        )
        for node in program.nodes
    ]
    return program.replace(nodes=tuple(nodes))
