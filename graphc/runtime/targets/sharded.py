"""One program over a mesh of devices, compiled by `jax.jit` with shardings.

The program keeps its global types and its meaning. `Shard` nodes and the shardings of state and
feeds determine the sharding of a few tensors. XLA's partitioner determines all others and inserts
the collectives: GSPMD, Xu et al. 2021, "General and scalable parallelization for ML computation
graphs".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from graphc.config import CompileOptions
from graphc.devices.mesh import Mesh, jax_mesh
from graphc.errors import AttributeValueError, LayoutError
from graphc.ir.fingerprint import calls_back
from graphc.ir.node import EMPTY
from graphc.ir.program import Port, Program
from graphc.ir.sharding import Spec, check_on_mesh, trimmed
from graphc.ir.source import Source
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.lowering.even_shards import with_even_shards
from graphc.ops.structure.sharding import SHARD
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.annotated import buffer_spec
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.across import spans_processes
from graphc.runtime.targets.interface import SHARDED, Home
from graphc.runtime.targets.jax_program import (
    JaxProgram,
    PortOrder,
    arguments_of,
    donated,
    interface_of,
    with_token,
)
from graphc.runtime.targets.mesh_notes import gathered_notes, uneven_notes
from graphc.runtime.targets.numerics import checked

Lines = Mapping[str, Source | None]


def on_mesh(
    program: Program,
    layout: StateLayout,
    options: CompileOptions,
    mesh: Mesh,
    feeds: Mapping[str, Spec] = EMPTY,
    lines: Lines = EMPTY,
) -> JaxProgram:
    """A physical program over a mesh; compare `jax_program.on_one_device`.

    Passes for the program of one device do not run: this is the program of all devices together.

    Args:
        program: has global types, and the annotations of its variables.
        feeds: the shardings that the user sets; other feeds are split along their batch axes.
        lines: variable -> the source line of its annotation, for errors.

    Raises:
        LayoutError: an annotation names an axis that the mesh does not have, or that does not
            divide a size; or the program calls back into Python.
        AttributeValueError: a memory limit is given. It applies to the program of one device.
        DeviceError: a device does not exist.
    """
    _check(program, layout, options, mesh, lines)
    program, checks = checked(PortOrder.of(program).reorder(program), options)
    order = PortOrder.of(program)
    program = order.reorder(program)
    devices, axes = mesh.resolve(), tuple(mesh.axes.items())
    grid = jax_mesh(axes, devices)
    wide, notes = needs_x64(program), list[str]()
    interface = interface_of(
        program, order, layout, options,
        kind=SHARDED, wide=wide, replicas=len(devices), checks=checks,
    )  # fmt: skip
    specs = [_feed_spec(port, program, mesh, feeds, notes) for port in order.feeds]
    notes += [*uneven_notes(program, mesh.axes), *gathered_notes(program, grid)]
    homes = [Home(spec=trimmed(buffer_spec(b, program.shards))) for b in interface.buffers]
    rows = zip(interface.feeds, specs, strict=True)
    interface = replace(
        interface,
        feeds=tuple([replace(v, spec=s, axis=program.batch_axes.get(v.name)) for v, s in rows]),
        homes=tuple(homes),
        mesh=axes,
        notes=tuple(notes),
    )
    by_name = {b.name: home.spec for b, home in zip(interface.buffers, homes, strict=True)}
    jitted, arguments = _jitted(program, order, options, grid, by_name, specs)
    return JaxProgram(interface, devices, program, jitted, arguments, program, PassReport(()))


def _jitted(
    program: Program,
    order: PortOrder,
    options: CompileOptions,
    grid: jax.sharding.Mesh,
    buffers: Mapping[str, Any],
    feeds: Sequence[Spec],
) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
    """The jitted step on global values with these shardings, and its arguments."""
    taken = [*(buffers[port.name] for port in (*order.written, *order.read)), *feeds]
    given = [buffers[port.name] for port in order.assigned]
    places = [NamedSharding(grid, PartitionSpec(*spec)) for spec in taken]
    results = [NamedSharding(grid, PartitionSpec(*spec)) for spec in given]
    whole = NamedSharding(grid, PartitionSpec())
    fetched = whole if spans_processes(grid.devices.flat) else None
    jitted = jax.jit(
        with_even_shards(with_token(program, to_function(program, mesh=grid)), grid),
        in_shardings=tuple(places),
        # XLA chooses the sharding of fetches, and a reader moves them if necessary. A process that
        # does not hold all pieces cannot do so.
        out_shardings=[*results, *[fetched] * (len(order.fetches) or 1)],
        donate_argnums=donated(order, options),
    )
    return jitted, arguments_of(program, places)


def feed_spec(
    shape: Sequence[int], axis: int | None, mesh: Mesh, annotation: Spec | None, leading: int = 0
) -> Spec:
    """The sharding of a feed: its annotation. Without one, the feed is split along its batch axis
    if the size is divisible.

    Args:
        shape: the global shape.
        axis: the batch axis, if the feed has one.
        annotation: for the axes after the first `leading` ones, which are not split.
    """
    if annotation is not None:
        return trimmed((*[None] * leading, *annotation))
    if axis is None or mesh.batch_axis is None or shape[axis] % mesh.replicas:
        return ()
    return (*[None] * axis, mesh.batch_axis)


def feed_places(
    mesh: Mesh,
    shapes: Sequence[Sequence[int]],
    said: Sequence[tuple[int | None, Spec | None]],
    leading: int,
) -> list[NamedSharding]:
    """The shardings of the feeds of a step that is not compiled yet.

    Args:
        shapes: the global shapes for all steps.
        said: for each feed, its batch axis in one step and its annotation.
        leading: the number of axes before those of one step.
    """
    grid = jax_mesh(tuple(mesh.axes.items()), mesh.resolve())
    rows = zip(shapes, said, strict=True)
    specs = [
        feed_spec(shape, None if axis is None else axis + leading, mesh, annotation, leading)
        for shape, (axis, annotation) in rows
    ]
    return [NamedSharding(grid, PartitionSpec(*spec)) for spec in specs]


def _feed_spec(
    port: Port, program: Program, mesh: Mesh, feeds: Mapping[str, Spec], notes: list[str]
) -> Spec:
    axis, annotation = program.batch_axes.get(port.name), feeds.get(port.name)
    shape: Any = port.tensor.type.shape
    leading = 0 if annotation is None else len(shape) - len(annotation)  # of several steps
    spec = feed_spec(shape, axis, mesh, annotation, leading)
    if axis is not None and mesh.batch_axis is not None and annotation is None and not spec:
        notes.append(
            f"feed {port.name!r} is whole on each device: its batch of {shape[axis]} does not "
            f"divide by the mesh axis {mesh.batch_axis}={mesh.replicas}"
        )
    return spec


def _check(
    program: Program, layout: StateLayout, options: CompileOptions, mesh: Mesh, lines: Lines
) -> None:
    """Raises an error for a program that cannot run on the mesh."""
    if options.memory_limit is not None:
        raise AttributeValueError(
            "memory_limit applies to the program of one device; on a mesh its memory use is only "
            "known after XLA has partitioned it",
            hint="remove memory_limit, or split more tensors with gc.shard",
        )
    for name, spec in program.shards.items():
        type = layout.types[name]
        check_on_mesh(spec, type, mesh.axes, f"variable {name!r}", lines.get(name))
    for node in program.walk():
        if node.op is SHARD:
            what = f"shard {node.name!r}"
            check_on_mesh(node.attrs["spec"], node.outputs[0].type, mesh.axes, what, node.source)
    if calls_back(program):
        raise _calls_back(program)


def _calls_back(program: Program) -> LayoutError:
    node = next(n for n in program.walk() if calls_back(program.replace(nodes=(n,))))
    return LayoutError(
        f"{node.op.name} {node.name!r} calls back into Python, which no program on a mesh can do",
        source=node.source,
        hint="fetch the value instead, or run these fetches without the mesh",
    )
