"""`vmap`: applies a function of tensors to many values of its arguments at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from graphc.errors import AttributeValueError, GraphError, ShapeError
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Program, effects_of
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.jaxpr.function import from_jax
from graphc.lowering.emit_jax import to_function
from graphc.ops.control.bodies import numbered, trace
from graphc.ops.control.while_loops import WHILE
from graphc.ops.core.emit import convert, graph_of
from graphc.typing import TensorTree

Axes = int | Sequence[int | None] | None

_REFUSED = {
    Effects.WRITE: ("assigns a variable", "assign what vmap returns"),
    Effects.RANDOM: (
        "draws random numbers",
        "draw them outside, with a leading axis, and pass them as an argument",
    ),
    Effects.HOST: ("calls Python", "use gc.map_fn, which runs one slice after the other"),
}


def vmap(
    f: Callable[..., TensorTree], in_axes: Axes = 0, out_axes: int = 0, *, name: str | None = None
) -> Callable[..., TensorTree]:
    """Turns `f`, written for one example, into a function of a whole batch.

    `f` is called once, with tensors that lack the mapped axis, and becomes nodes that compute all
    slices together, without a loop. They have gradients of any order. `gc.map_fn` runs one slice
    after the other, and needs the memory of one slice only.

    Args:
        f: a function of tensors, or of nests (tuples, lists, dicts) of them. It may use outer
            tensors and variables.
        in_axes: the axis to map over: one for all arguments, or one for each. An argument with
            None is the same for all slices.
        out_axes: the axis of the results along which the slices are stacked.
        name: the name scope of the nodes.

    Returns:
        A function of the arguments of `f`, each with one more axis. Its results are those of `f`
        with the additional axis `out_axes`.

    Raises:
        ShapeError: the mapped axes have different sizes, or do not exist.
        AttributeValueError: the number of axes differs from the number of arguments.
        GraphError: `f` assigns, draws random numbers or calls Python.

    Source: jax.vmap, torch.func.vmap.

    Examples:
        >>> distance = gc.vmap(lambda a, b: gc.linalg.norm(a - b), in_axes=(0, None))
        >>> run(distance(gc.constant([[3.0, 4.0], [0.0, 1.0]]), gc.zeros(2)))
        Array([5., 1.], dtype=float32)
    """

    if not callable(f):
        raise AttributeValueError.here(
            f"vmap: the first argument must be a function of tensors, got {f!r}",
            hint="gc.vmap(lambda x: ...)(xs)",
        )

    def mapped(*args: TensorTree) -> TensorTree:
        leaves, tree = jax.tree.flatten(args)
        outer = [convert(leaf) for leaf in leaves]
        axes = list(_axes_of_leaves(in_axes, args, outer))
        _check_lengths(outer, axes)
        types = [_slice(t, axis) for t, axis in zip(outer, axes, strict=True)]
        trees: list[Any] = []

        def one(taken: Sequence[Tensor]) -> list[Any]:
            results, result_tree = jax.tree.flatten(f(*jax.tree.unflatten(tree, taken)))
            trees.append(result_tree)
            return results

        results = _vectorized(one, outer, types, axes, out_axes, name or "vmap")
        return jax.tree.unflatten(trees[0], results)

    return mapped


def _vectorized(
    one: Callable[[Sequence[Tensor]], list[Any]],
    operands: Sequence[Tensor],
    types: Sequence[TensorType],
    axes: Sequence[int | None],
    out_axes: int,
    name: str,
) -> Any:
    """The nodes of `one`, a function of slices with these types, applied to all slices at once."""
    with building(graph_of(operands)):
        body = trace(name, numbered("x", types), one)
        program = body.region([*body.parameters, *body.inner])
        for node in program.walk():
            for effect, (what, hint) in _REFUSED.items():
                if effects_of(node) & effect:
                    raise GraphError(f"vmap: the function {what}", source=node.source, hint=hint)
        in_axes = (*axes, *[None] * len(body.captured))
        every = jax.vmap(_lowered(program), in_axes=in_axes, out_axes=out_axes)
        function = from_jax(every, name=name, max_trip_count=_most_trips(program))
        return function(*operands, *body.captured)


def _most_trips(program: Program) -> int | None:
    """The maximum number of iterations of any loop that ends by a condition; None if one of them
    has no limit. Where sizes are named, operators have such loops of their own, without a limit."""
    lengths = {node.attrs["length"] for node in program.walk() if node.op is WHILE}
    known = {length for length in lengths if isinstance(length, int)}
    if len(known) < len(lengths) or not all(t.type.is_static for t in program.input_tensors()):
        return None
    return max(known, default=None)


def _axes_of_leaves(
    in_axes: Axes, args: Sequence[TensorTree], outer: Sequence[Tensor]
) -> Iterator[int | None]:
    """The mapped axis of each tensor, counted from 0."""
    if in_axes is not None and not isinstance(in_axes, int) and len(in_axes) != len(args):
        raise AttributeValueError.here(
            f"vmap: {len(in_axes)} axes in in_axes for {len(args)} arguments",
            hint="one axis for all arguments, or one for each; None for one that is not mapped",
        )
    tensors = iter(outer)
    for i, arg in enumerate(args):
        axis = in_axes if in_axes is None or isinstance(in_axes, int) else in_axes[i]
        for _ in jax.tree.leaves(arg):
            tensor = next(tensors)
            if axis is None:
                yield None
            elif -tensor.ndim <= axis < tensor.ndim:
                yield axis % tensor.ndim
            else:
                raise ShapeError.here(
                    f"vmap: {tensor!r} has no axis {axis}",
                    hint="in_axes=None for an argument that is the same for all slices",
                )


def _check_lengths(outer: Sequence[Tensor], axes: Sequence[int | None]) -> None:
    mapped = [t.shape[axis] for t, axis in zip(outer, axes, strict=True) if axis is not None]
    if not mapped:
        raise AttributeValueError.here(
            "vmap: no argument is mapped", hint="in_axes must name an axis of one argument at least"
        )
    constraints = graph_of(outer).constraints
    for length in mapped[1:]:
        if not constraints.unify(mapped[0], length):
            raise ShapeError.here(
                f"vmap: the mapped axes have different sizes, {mapped[0]} and {length}"
            )


def _slice(tensor: Tensor, axis: int | None) -> TensorType:
    """The type of a tensor without its mapped axis."""
    if axis is None:
        return tensor.type
    shape = tensor.type.shape
    return TensorType(tensor.type.dtype, (*shape[:axis], *shape[axis + 1 :]))


def _lowered(program: Program) -> Callable[..., list[Any]]:
    """The program as a JAX function of one slice, whose sizes may be symbolic."""

    def one(*values: Any) -> list[Any]:
        sizes: Mapping[str, Dim] = {
            str(dim): size
            for tensor, value in zip(program.input_tensors(), values, strict=True)
            for dim, size in zip(tensor.type.shape, value.shape, strict=True)
            if not isinstance(dim, int) and str(dim).isidentifier()
        }
        return to_function(program, sizes=sizes)(*values)

    return one
