"""Several steps as one program: a loop on the device around the program of one step."""

from __future__ import annotations

from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program, region
from graphc.ir.types import TensorType
from graphc.ops.control.scan import SCAN
from graphc.passes.core.building import node_of
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.buffers.state_buffers import physical


def physical_steps(program: Program, layout: StateLayout, count: int) -> Program:
    """The program of `count` steps with its state in the buffers of `layout`. The loop carries
    the buffers themselves.

    Raises:
        StateError: see `physical`.
    """
    return looped(physical(program, layout), count)


def looped(program: Program, count: int) -> Program:
    """A program that runs a bound program `count` times. Each run uses the state of the previous
    run.

    Feeds have a leading axis of size `count`, and each step takes its slice. Fetched values are
    stacked in the same way. Draws differ between steps as they do between runs, because the run
    counter is part of the state.
    """
    read = {port.name: port.tensor for port in program.ports("state")}
    new = {port.name: port.tensor for port in program.new_state()}
    taken = {n: read[n] if n in read else Tensor(t.type, n) for n, t in new.items()}
    consts = {name: tensor for name, tensor in read.items() if name not in new}
    feeds, fetches = program.ports("feed"), program.ports("fetch")
    body = region(
        "step",
        [*consts.values(), *taken.values(), *(port.tensor for port in feeds)],
        program.nodes,
        [*new.values(), *(port.tensor for port in fetches)],
    )
    state = {n: Tensor(t.type, n) for n, t in {**consts, **taken}.items()}
    stacked = [Tensor(_times(count, port.tensor.type), port.name) for port in feeds]
    loop = node_of(
        SCAN,
        (*state.values(), *stacked),
        regions=(body,),
        name="steps",
        consts=len(consts),
        carries=len(new),
        length=count,
    )
    results = loop.outputs
    return program.replace(
        inputs=(
            *(Port(port.name, "feed", t) for port, t in zip(feeds, stacked, strict=True)),
            *(Port(name, "state", tensor) for name, tensor in state.items()),
        ),
        nodes=(loop,),
        outputs=(
            *(Port(p.name, "fetch", t) for p, t in zip(fetches, results[len(new) :], strict=True)),
            *(Port(name, "state", t) for name, t in zip(new, results, strict=False)),
        ),
        batch_axes={name: axis + 1 for name, axis in program.batch_axes.items()},
    )


def _times(count: int, type: TensorType) -> TensorType:
    return TensorType(type.dtype, (count, *type.shape))
