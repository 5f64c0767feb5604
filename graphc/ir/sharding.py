"""A spec states how a tensor is split over the axes of a mesh of devices. It has one entry for each
axis of the tensor.

An entry is None (whole), the name of a mesh axis, or a tuple of names (split along all of them, the
first one outermost). The notation follows GSPMD (Xu et al. 2021), `jax.sharding.PartitionSpec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphc.errors import AttributeValueError, LayoutError, ShapeError
from graphc.ir.source import Source
from graphc.ir.types import TensorType

Entry = str | tuple[str, ...] | None
Spec = tuple[Entry, ...]


def is_spec(value: Any) -> bool:
    """Whether `value` is a valid `Spec`, in which each mesh axis occurs at most once."""
    if type(value) is not tuple or not all(map(_is_entry, value)):
        return False
    names = names_in(value)
    return len(set(names)) == len(names)


def _is_entry(value: Any) -> bool:
    if type(value) is tuple:
        return bool(value) and all(map(is_axis_name, value))
    return value is None or is_axis_name(value)


def is_axis_name(value: Any) -> bool:
    """Whether `value` is a valid name for a mesh axis."""
    return type(value) is str and value.isidentifier()


def names_of(entry: Entry) -> tuple[str, ...]:
    """The mesh axes along which one axis is split, the outermost first."""
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else entry


def names_in(spec: Spec) -> list[str]:
    """All mesh axes of a spec, in order."""
    return [name for entry in spec for name in names_of(entry)]


def as_spec(given: Any, type: TensorType, what: str, source: Source | None) -> Spec:
    """Converts a user's spec to one with an entry for each axis of `type`.

    Raises:
        AttributeValueError: `given` is not a valid spec, or contains a mesh axis twice.
        ShapeError: the spec has more entries than there are axes.
    """
    spec = _tuples(given)
    if not is_spec(spec):
        twice = spec is not None and all(map(_is_entry, spec))
        problem = "has an axis of the mesh twice"
        if not twice:
            problem = "does not give the mesh axes to split along"
        raise AttributeValueError(
            f"{what}: {given!r} {problem}",
            source=source,
            hint='pass an entry for each axis, each mesh axis once: ("data", None, "model"), or '
            '(("data", "model"), None)',
        )
    assert spec is not None
    if len(spec) > type.rank:
        raise ShapeError(
            f"{what}: {len(spec)} entries for {type}, which has {type.rank} axes",
            source=source,
            hint="pass one entry for each axis; those left out at the end are None",
        )
    return (*spec, *[None] * (type.rank - len(spec)))


def _tuples(given: Any) -> tuple[Any, ...] | None:
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        return None
    return tuple([tuple(entry) if isinstance(entry, list) else entry for entry in given])


def trimmed(spec: Sequence[Entry]) -> Spec:
    """The spec without trailing entries that split nothing."""
    count = max((i + 1 for i, entry in enumerate(spec) if entry is not None), default=0)
    return tuple(spec[:count])


def check_on_mesh(
    spec: Spec, type: TensorType, axes: Mapping[str, int], what: str, source: Source | None
) -> None:
    """Rejects a spec that does not fit a mesh.

    Args:
        axes: the axes of the mesh, with their sizes.

    Raises:
        LayoutError: the mesh has no such axis, or an axis of the tensor does not divide by its
            size.
    """
    for axis, (entry, size) in enumerate(zip(spec, type.shape, strict=False)):
        parts = 1
        for name in names_of(entry):
            if name not in axes:
                raise LayoutError(
                    f"{what}: the mesh has no axis {name!r}",
                    details=[f"spec {spec}", f"mesh {dict(axes)}"],
                    source=source,
                    hint=f"name one of its axes ({', '.join(axes)}), or give the mesh that axis",
                )
            parts *= axes[name]
        if isinstance(size, int) and size % parts:
            of = " x ".join(f"{name}={axes[name]}" for name in names_of(entry))
            raise LayoutError(
                f"{what}: axis {axis} of {type} has {size} elements, which do not divide by the "
                f"mesh's {of}",
                details=[f"spec {spec}", f"mesh {dict(axes)}"],
                source=source,
                hint=f"choose a size that divides by {parts}, or None for that axis",
            )
