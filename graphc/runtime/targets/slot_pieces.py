"""Chooses the state buffers that are split over the replicas: those that hold optimizer slots, and
parameters if a strategy shards them too."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from graphc.ir.dtypes import is_floating
from graphc.ir.layouts import Sharded
from graphc.runtime.buffers.layout import STACKED, Buffer, StateLayout
from graphc.runtime.feeds.shares import AXIS_NAME
from graphc.runtime.targets.interface import Home


def slot_pieces(
    layout: StateLayout, names: Iterable[str], replicas: int, parameters: bool = False
) -> tuple[dict[str, Sharded], list[str]]:
    """The layouts of the buffers among `names` that are split, and notes on the buffers that hold
    only slots but cannot be split.

    Args:
        parameters: whether variables with floating values are split, too. Stacks are then split
            within each of their members, so that a loop gathers one member at a time.

    The result depends on the layout alone, so all programs of a session agree.
    """
    asked = set(names)
    cut: dict[str, Sharded] = {}
    whole: list[Buffer] = []
    for buffer in layout.buffers:
        slots = all(is_slot(n, layout.types) for n in buffer.members)
        wanted = slots or (parameters and is_floating(buffer.type.dtype))
        if buffer.name not in asked or not wanted:
            continue
        stacked = parameters and buffer.kind == STACKED
        axis = _first_cut(buffer.type.shape, replicas, 1 if stacked else 0)
        if axis is not None:
            cut[buffer.name] = Sharded(axis)
        elif buffer.type.shape:
            whole.append(buffer)
    if not whole:
        return cut, []
    first, *others = [name for buffer in whole for name in buffer.members]
    names = first if not others else f"{first} and {len(others)} more"
    types = ", ".join(str(buffer.type) for buffer in whole[:3]) + ", ..." * (len(whole) > 3)
    why = f"no size divides by {replicas}"
    what = "variables" if parameters else "slots"
    return cut, [f"{what} whole on each replica, since {why}: {names} ({types})"]


def is_slot(name: str, variables: Container[str]) -> bool:
    """Whether the name of a variable is below the name of another one, as for the variables that
    `minimize` creates: `hidden/kernel/train/0/mu` is below `hidden/kernel`."""
    above = name.rpartition("/")[0]
    while above:
        if above in variables:
            return True
        above = above.rpartition("/")[0]
    return False


def homes_of(buffers: Sequence[Buffer], cut: Mapping[str, Sharded]) -> tuple[Home, ...]:
    """The homes of `buffers`, given those that are `cut`; empty if none is cut."""
    if not cut:
        return ()
    return tuple([_home(cut.get(buffer.name)) for buffer in buffers])


def _home(layout: Sharded | None) -> Home:
    return Home() if layout is None else Home(spec=(*[None] * layout.axis, AXIS_NAME))


def _first_cut(shape: Sequence[object], replicas: int, first: int) -> int | None:
    """The first axis, from `first` on, whose size is divisible by the number of replicas."""
    for axis, size in enumerate(shape):
        if axis >= first and isinstance(size, int) and size and size % replicas == 0:
            return axis
    return None
