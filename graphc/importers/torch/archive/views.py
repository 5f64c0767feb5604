"""Which operators give views, and how a changed view is put back into its tensor."""

from __future__ import annotations

from typing import Any, Final

from graphc.importers.torch.archive.graphs import Node, Value

NONE: Final = 0  # the result has its own memory
VIEW: Final = 1  # the result is a view of the first argument
UNSURE: Final = 2  # it may share memory with an argument

_SHAPES: Final = {
    *("_unsafe_view", "squeeze", "unflatten", "unsqueeze", "view", "view_as"),
}
_SAME: Final = {"alias", "contiguous", "detach", "dropout", "feature_dropout", "lift_fresh", "to"}
_SOMETIMES: Final = {
    *("contiguous", "dropout", "feature_dropout", "flatten", "ravel", "reshape", "reshape_as"),
    *("resolve_conj", "resolve_neg", "to", "type_as"),
}
_SWAPS: Final = {
    "mT",
    "numpy_T",
    "swapaxes",
    "swapdims",
    "t",
    "transpose",
}  # each is its own inverse
_VIEWS: Final = {
    *_SHAPES,
    *_SWAPS,
    *("_conj", "adjoint", "alias", "as_strided", "broadcast_to", "chunk", "conj", "detach"),
    *("diagonal", "expand", "expand_as", "linalg_diagonal", "mH", "moveaxis"),
    *("imag", "lift_fresh", "matrix_H", "movedim", "narrow", "permute", "positive", "real"),
    *("select", "slice", "split", "split_with_sizes", "tensor_split", "unbind", "unfold"),
    *("view_as_complex", "view_as_real"),
}
_MANY: Final = {  # of lists of tensors, or of tensors of a low rank only
    *("alpha_dropout", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "einsum"),
    "meshgrid",
    "sum_to_size",
}
_BODIES: Final = {
    *("tag_activation_checkpoint", "wrap", "wrap_with_autocast", "wrap_with_set_grad_enabled"),
}


def has_alias(node: Node) -> int:
    """Whether the result of a node shares memory with its arguments."""
    namespace, _, rest = node.target.partition(".")
    operand = node.args[0] if node.args else None
    if node.target in _BODIES:
        return NONE if node.meta.get("fresh") else UNSURE
    if node.target == "getitem" and isinstance(operand, Node):
        return has_alias(operand)
    name = rest.partition(".")[0]
    if name in _MANY:
        return UNSURE
    if namespace != "aten" or not isinstance(operand, Node):
        return NONE
    if name in _VIEWS:
        return VIEW
    if name not in _SOMETIMES:
        return NONE
    value, own = operand.meta.get("val"), node.meta.get("val")
    if not isinstance(value, Value) or not isinstance(own, Value):
        return UNSURE
    if name in ("dropout", "feature_dropout"):
        return NONE if node.args[1] and node.args[2] else VIEW
    if name in ("to", "type_as"):
        if value.dtype != own.dtype or value.meta["device"] != own.meta["device"]:
            return NONE
        return UNSURE if len(node.args) > 2 or node.kwargs else VIEW
    if name.startswith("resolve"):
        return UNSURE
    if name == "contiguous" and (node.kwargs or len(node.args) > 1):
        return UNSURE  # another order in memory
    return _of_strides(value.is_contiguous, own.is_contiguous)


def _of_strides(before: bool | None, after: bool | None) -> int:
    """The result of `contiguous`, `reshape` or `flatten`, which copy if they must: a copy has its
    elements in order, a view of elements that are not in order does not."""
    if before is None or after is None:
        return UNSURE
    return VIEW if before or not after else NONE


def put_back(view: Node, source: Node, value: Node) -> tuple[str, list[Any]] | None:
    """The operator and arguments that give the source with the view's elements replaced.

    Args:
        view: a node that gives a view of `source`.
        value: the new value of the view.

    Returns:
        None if that is not supported.
    """
    name = view.target.partition(".")[2].partition(".")[0]
    rest = list(view.args[1:])
    if view.target == "aten.view.dtype" or view.kwargs:
        return None
    if name in _SHAPES or name in ("flatten", "ravel", "reshape", "reshape_as"):
        return "aten.view_as.default", [value, source]
    if name in _SWAPS:
        return view.target, [value, *rest]
    if name in _SAME:
        return "aten.alias.default", [value]
    if name == "permute":
        axes = [axis % len(rest[0]) for axis in rest[0]]
        return view.target, [value, [axes.index(i) for i in range(len(axes))]]
    if name in ("diagonal", "select", "slice"):
        return f"aten.{name}_scatter.default", [source, value, *rest]
    return None
