"""Writes the nodes of a fused attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import reshaped, transpose
from graphc.ops.core.emit import cast, emit, emit_one
from graphc.ops.elementwise.comparison import logical_not
from graphc.ops.nn.attention import ATTENTION, ATTENTION_GRADIENT
from graphc.passes.attention.attention_algebra import Slope
from graphc.passes.attention.attention_logits import Finder, Mask, View
from graphc.passes.attention.attention_match import Found
from graphc.passes.attention.attention_terms import End, NoMatch
from graphc.passes.attention.attention_views import Label

Groups = Sequence[Sequence[Label]]  # the labels that make up each axis


class Fused:
    """Writes the nodes of one attention with the active builder.

    Raises:
        NoMatch: the operator cannot express it.

    Attributes:
        operands: query, key, value and masks, in the form of the operator.
        attrs: the attributes of the operator.
    """

    def __init__(self, found: Found, finder: Finder) -> None:
        self._found, self._finder = found, finder
        logits = found.logits
        self._sizes: dict[Label, int] = {}
        for view in (logits.query, logits.key, found.value, *found.slopes.values()):
            for label, dim in zip(view.labels, view.root.type.shape, strict=True):
                if label is not None and isinstance(dim, int):
                    self._sizes[label] = dim
        entries = 0 if _after(logits.query, logits.batch, logits.time) else 1
        self._batch, self._shared = logits.batch[:entries], logits.batch[entries:]
        self._time = logits.time
        self._heads = (*self._shared, *logits.queries[:-1])
        self._depth = _inner(logits.query, "depth")
        self._width = _inner(found.value, "value")
        causal = [m for m in logits.masks if finder.is_causal(m, logits)]
        self._masks = [m for m in logits.masks if m not in causal]
        fills = {mask.fill for mask in logits.masks if not mask.bias}
        if len(fills) > 1:
            raise NoMatch  # a query that sees no key would be averaged over only some keys
        self.operands = [
            self._arranged(logits.query, self._of_queries(self._depth)),
            self._arranged(logits.key, self._of_keys(self._depth)),
            self._arranged(found.value, self._of_keys(self._width)),
            *map(self._mask, self._masks),
        ]
        if len({t.type.dtype for t in self.operands[:3]}) > 1:
            raise NoMatch
        if not is_floating(self.operands[0].type.dtype):
            raise NoMatch
        self.attrs = ATTENTION.complete(
            {"scale": logits.scale, "causal": bool(causal), "mean_if_blind": bool(fills)}
        )

    def write(self) -> dict[Tensor, Tensor]:
        """Writes the nodes and returns the replacements of the ends."""
        result = emit_one(ATTENTION, self.operands, **self.attrs)
        axes = self._of_queries(self._width)
        instead = {end.tensor: self._end(end, result, axes) for end in self._of(None)}
        for slope, view in self._found.slopes.items():
            if not self._of(slope):
                continue
            adjoint = self._arranged(view, self._of_queries(self._width))
            if adjoint.type != result.type:
                raise NoMatch
            operands = [*self.operands[:3], adjoint, *self.operands[3:]]
            gradients = emit(ATTENTION_GRADIENT, operands, name="Gradient", **self.attrs)
            query, key, value, *biases = gradients
            for end in self._of(slope):
                tensor, groups = {
                    "query": (query, self._of_queries(self._depth)),
                    "key": (key, self._of_keys(self._depth)),
                    "value": (value, self._of_keys(self._width)),
                    "bias": (value, ()),
                }[end.kind]
                if end.kind == "bias":
                    tensor, groups = self._bias(end, biases)
                instead[end.tensor] = self._end(end, tensor, groups)
        return instead

    def _of(self, slope: Slope | None) -> list[End]:
        return [end for end in self._found.ends if end.slope == slope]

    # -- axes -------------------------------------------------------------------------------

    def _of_queries(self, last: Sequence[Label]) -> Groups:
        return (self._batch, (self._time,), self._heads, last)

    def _of_keys(self, last: Sequence[Label]) -> Groups:
        return (self._batch, (self._found.logits.source,), self._shared, last)

    def _of_pairs(self) -> Groups:
        return (self._batch, self._heads, (self._time,), (self._found.logits.source,))

    def _arranged(self, view: View, groups: Groups) -> Tensor:
        """The view's tensor with one axis for each group of labels; the axis has size 1 if the view
        has none of them."""
        order = [label for group in groups for label in group]
        own = [label for label in view.labels if label is not None]
        if not set(own) <= set(order):
            raise NoMatch
        if any(0 < len(set(own) & set(group)) < len(set(group)) for group in groups):
            raise NoMatch  # broadcast along a part of an axis
        there = [label for label in order if label in own]
        perm = [view.labels.index(label) for label in there]
        units = [i for i, label in enumerate(view.labels) if label is None]
        shape = tuple(
            math.prod(self._sizes[label] for label in group if label in own) for group in groups
        )
        tensor = view.root
        if perm != sorted(perm):
            perm += units
            tensor = transpose(tensor, perm)
        return reshaped(tensor, shape)

    def _end(self, end: End, tensor: Tensor, groups: Groups) -> Tensor:
        """`tensor`, whose axes are `groups`, with the axes of `end`, times its factor."""
        want = end.tensor.type
        if end.kind == "result" and tensor.type.dtype.itemsize < want.dtype.itemsize:
            raise NoMatch  # operands were widened to avoid this rounding
        own = [label for group in groups for label in group]
        order = [label for label in end.labels if label is not None]
        if sorted(map(str, own)) != sorted(map(str, order)):
            raise NoMatch
        tensor = reshaped(tensor, tuple(self._sizes[label] for label in own))
        perm = [own.index(label) for label in order]
        if perm != sorted(perm):
            tensor = transpose(tensor, perm)
        factor = end.factor
        if end.kind in ("query", "key"):
            factor /= self._found.logits.scale
        tensor = reshaped(tensor, want.shape)
        if not math.isclose(factor, 1, rel_tol=1e-5):
            tensor = tensor * factor
        return cast(tensor, want.dtype)

    # -- masks ------------------------------------------------------------------------------

    def _mask(self, mask: Mask) -> Tensor:
        tensor = self._arranged(self._finder.plain(mask.tensor, mask.labels), self._of_pairs())
        if not mask.inverted:
            return tensor
        return -tensor if mask.bias else logical_not(tensor)

    def _bias(self, end: End, biases: Sequence[Tensor]) -> tuple[Tensor, Groups]:
        """The adjoint of the bias whose axes are those of `end`."""
        there = {label for label in end.labels if label is not None}
        own = [mask for mask in self._masks if mask.bias]
        for mask, tensor in zip(own, biases, strict=True):
            if set(mask.labels) - {None} == there:
                groups = [[name for name in group if name in there] for group in self._of_pairs()]
                return tensor, groups
        raise NoMatch


def _after(view: View, batch: tuple[Label, ...], time: Label) -> bool:
    """Whether the only axis of a batch follows the queries, as heads do. The other axis of the
    batch then has size 1. Heads that became the batch would have to be moved in memory."""
    labels = view.labels
    return len(batch) == 1 and labels.index(batch[0]) > labels.index(time)


def _inner(view: View, kind: str) -> tuple[Label, ...]:
    """The labels of the axes that are contracted, or that only the values have."""
    own = [label for label in view.labels if isinstance(label, tuple) and label[0] == kind]
    return tuple(sorted(own))
