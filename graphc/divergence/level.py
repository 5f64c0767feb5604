"""Compares the values of runs with the reference, in program order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from graphc.divergence.probing import Probe
from graphc.divergence.rounding import Deviation, deviation
from graphc.divergence.segments import Block, Segment, blocks_of, segments_of
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ir.program import Program


class Side(Protocol):
    """One of the runs that are compared.

    Attributes:
        label: what it is called in reports.
        least: the least rounding unit of its values: 0 for that of their dtypes.
        least_of_products: that of the operands of its products.
    """

    label: str
    least: float
    least_of_products: float

    def known(self, program: Program) -> set[Tensor]:
        """The tensors of the reference program whose values it gives."""

    def values(self, wanted: Sequence[Tensor]) -> Iterator[Mapping[Tensor, Array]]:
        """The values of the tensors of the reference program, some at a time."""


class ProgramSide:
    """A run of a program that passes made from the reference program.

    Args:
        program: with ints for all sizes.
        inputs: the values of its inputs, which may be set before each run.
        device: where it runs.
        label, least, least_of_products: see `Side`.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Any],
        device: Any = None,
        label: str = "",
        least: float = 0.0,
        least_of_products: float = 0.0,
    ) -> None:
        self.program, self.inputs, self.device, self.label = program, inputs, device, label
        self.least, self.least_of_products = least, least_of_products
        self._probes: dict[tuple[Tensor, ...], Probe] = {}
        self._own: dict[Tensor, Tensor] = {}  # tensor of the reference -> tensor of this program

    def known(self, program: Program) -> set[Tensor]:
        """Passes keep the tensors of results, so most tensors are the same objects."""
        mine = [*self.program.input_tensors()]
        mine += [t for node in self.program.nodes for t in node.outputs]
        self._own = counterparts(program, mine)
        inputs = {*program.input_tensors()}
        return {t for t in self._own if t not in inputs}

    def own(self, tensor: Tensor) -> Tensor:
        """The tensor of this program for one of the reference program."""
        return self._own[tensor]

    def values(self, wanted: Sequence[Tensor]) -> Iterator[Mapping[Tensor, Array]]:
        own = [self._own[t] for t in wanted]
        given = dict(zip(self.program.input_tensors(), map(np.asarray, self.inputs), strict=True))
        theirs: dict[Tensor, list[Tensor]] = {}
        for tensor, mine in zip(wanted, own, strict=True):
            theirs.setdefault(mine, []).append(tensor)
        yield {t: given[mine] for mine in theirs if mine in given for t in theirs[mine]}
        probe = self._probes.get(tuple(own))
        if probe is None:
            probe = Probe(self.program, [t for t in own if t not in given], self.device)
            self._probes[tuple(own)] = probe
        for some in probe.values(self.inputs):
            yield {t: value for mine, value in some.items() for t in theirs.get(mine, ())}


def counterparts(program: Program, mine: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Tensor of `program` -> the same one among `mine`, or one of its name and type."""
    same = set(mine)
    names: dict[str, list[Tensor]] = {}
    for tensor in mine:
        names.setdefault(tensor.name, []).append(tensor)
    theirs = [*program.input_tensors(), *(t for n in program.nodes for t in n.outputs)]
    counts = Counter(tensor.name for tensor in theirs)
    found: dict[Tensor, Tensor] = {}
    for tensor in theirs:
        if tensor in same:
            found[tensor] = tensor
            continue
        named = names.get(tensor.name, [])
        if tensor.name and len(named) == 1 == counts[tensor.name] and named[0].type == tensor.type:
            found[tensor] = named[0]
    return found


class Seen(NamedTuple):
    """One compared value.

    Attributes:
        segment: what computes it.
        tensor: of the reference program.
        values: that of each run.
        local: the distance of each from the exact result of the run's own values.
    """

    segment: Segment
    tensor: Tensor
    values: tuple[Array, ...]
    local: tuple[Deviation, ...]

    @property
    def ratio(self) -> float:
        return max(each.ratio for each in self.local)


class Level:
    """The comparison of runs of one program, or of one body.

    Args:
        program: what is to be computed. Its sizes are ints.
        sides: the runs. They may be run again with other inputs.
    """

    def __init__(self, program: Program, sides: Sequence[Side]) -> None:
        self.program, self.sides = program, sides
        known = set.intersection(*[side.known(program) for side in sides])
        self.segments = segments_of(program, known)
        self.blocks = blocks_of(program, self.segments)

    def compare(self, inputs: Sequence[Mapping[Tensor, Array]]) -> Iterator[Seen]:
        """The compared values in program order.

        Args:
            inputs: for each run, the values of the inputs of the reference program.
        """
        wanted = list(dict.fromkeys(t for block in self.blocks for t in block.needs))
        wanted = [t for t in wanted if t not in inputs[0]]
        last = {t: i for i, block in enumerate(self.blocks) for t in block.needs}
        streams = [side.values(wanted) for side in self.sides]
        values = [dict(each) for each in inputs]
        for number, block in enumerate(self.blocks):
            for known, stream in zip(values, streams, strict=True):
                while not known.keys() >= {*block.needs}:
                    known.update(next(stream))
            yield from self._block(block, values)
            for known in values:
                for tensor in [t for t in known if last.get(t, -1) <= number]:
                    del known[tensor]

    def _block(self, block: Block, values: Sequence[Mapping[Tensor, Array]]) -> Iterator[Seen]:
        results = [
            block.results(known, side.least, side.least_of_products)
            for known, side in zip(values, self.sides, strict=True)
        ]
        for segment in block.segments:
            for tensor in segment.tensors:
                local = tuple(
                    deviation(
                        known[tensor],
                        found.exact[tensor],
                        [each[tensor] for each in found.noisy],
                        segment.terms,
                    )
                    for known, found in zip(values, results, strict=True)
                )
                yield Seen(segment, tensor, tuple(known[tensor] for known in values), local)
