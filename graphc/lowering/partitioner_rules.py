"""Bugs of XLA's partitioner, by JAX primitive: the axes of operands and results that it must not
split, whatever their sizes are.

`tests/runtime/targets/test_partitioner.py` shows the bugs in plain JAX, and fails when XLA is
fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

_REDUCERS = ("add", "sub", "mul", "min", "max", "apply")

Axes = Sequence[int]
Whole = tuple[Sequence[Axes], Sequence[Axes]]  # for each operand, and for each result


def whole_axes(eqn: Any, mesh: Mesh) -> Whole:
    """The axes of each operand and of each result that must be whole on each device."""
    rule = _RULES.get(eqn.primitive.name)
    if rule is None:
        return [()] * len(eqn.invars), [()] * len(eqn.outvars)
    return rule(eqn, mesh)


def _resized(eqn: Any, mesh: Mesh) -> Whole:
    """Axes whose size changes, if the number of devices does not divide the old or the new size.

    An axis of 8 elements may be cut along both axes of a 2x2 mesh. Its first 6 elements may be cut
    along either of them, but XLA would cut them along both. Operands are whole where the result
    is: XLA confuses two slices of a cut tensor if both become whole.
    """
    shape = eqn.outvars[0].aval.shape
    arrays = [v.aval.shape if len(v.aval.shape) == len(shape) else shape for v in eqn.invars]
    changed = {i for x in arrays for i, (n, m) in enumerate(zip(x, shape, strict=True)) if n != m}
    result = [i for i in sorted(changed) if shape[i] % mesh.size]
    return [[i for i in sorted(changed) if i in result or x[i] % mesh.size] for x in arrays], [
        result
    ]


def _padded(eqn: Any, mesh: Mesh) -> Whole:
    """Axes with negative or interior padding: XLA aborts the process for some of them."""
    config = eqn.params["padding_config"]
    lost = {i for i, (a, b, c) in enumerate(config) if c or a < 0 or b < 0}
    (operand, scalar), (result,) = _resized(eqn, mesh)
    return [sorted({*operand, *lost}), scalar], [sorted({*result, *lost})]


def _convolved(eqn: Any, mesh: Mesh) -> Whole:
    """Spatial axes: if they and the kernel are cut, results are doubled. Channels of groups: if
    they are cut, gradients of kernels are wrong."""
    numbers = eqn.params["dimension_numbers"]
    specs = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    x, kernel, y = (list(spec[2:]) for spec in specs)
    if eqn.params["feature_group_count"] > 1:
        x, kernel, y = [*x, specs[0][1]], [*kernel, *specs[1][:2]], [*y, specs[2][1]]
    if eqn.params["batch_group_count"] > 1:
        x, kernel, y = (list(range(len(spec))) for spec in specs)
    return [x, kernel], [y]


def _indexed(eqn: Any, mesh: Mesh) -> Whole:
    """The axis of an index's coordinates: if it is split, XLA reads and adds at wrong positions."""
    coordinates = len(eqn.invars[1].aval.shape) - 1
    others = [()] * (len(eqn.invars) - 2)
    return [(), (coordinates,), *others], [()] * len(eqn.outvars)


def _selected(eqn: Any, mesh: Mesh) -> Whole:
    """The axes of the windows: XLA compares pieces of different sizes, and rejects the program."""
    axes = [i for i, n in enumerate(eqn.params["window_dimensions"]) if n > 1]
    axes += [i for i, n in enumerate(eqn.params["window_strides"]) if n > 1]
    return [axes] * len(eqn.invars), [axes] * len(eqn.outvars)


def _transformed(eqn: Any, mesh: Mesh) -> Whole:
    """On CPU, all axes: XLA's FFT rejects pieces whose memory layout an exchange has changed."""
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    axes = range(len(eqn.outvars[0].aval.shape)) if on_cpu else ()
    return [axes], [axes]


def _all_whole(eqn: Any, mesh: Mesh) -> Whole:
    """All axes: XLA aborts the process if the result becomes whole and operands are cut."""
    operands, results = eqn.invars, eqn.outvars
    return [range(len(v.aval.shape)) for v in operands], [range(len(v.aval.shape)) for v in results]


_SCATTERS = ("scatter", *(f"scatter{mark}{op}" for mark in "-_" for op in _REDUCERS))

_RULES: Mapping[str, Callable[[Any, Mesh], Whole]] = {
    "concatenate": _resized,
    "conv_general_dilated": _convolved,
    "dynamic_slice": _resized,
    "fft": _transformed,
    "gather": _indexed,
    "pad": _padded,
    "select_and_gather_add": _all_whole,
    "select_and_scatter_add": _selected,
    "slice": _resized,
    **dict.fromkeys(_SCATTERS, _indexed),
}
