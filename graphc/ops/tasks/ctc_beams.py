"""The likeliest labels of sequences under CTC, by a search with a beam of prefixes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, dims_of
from graphc.ir.dims import Dim
from graphc.ir.dtypes import INT32, is_floating, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import broadcast_to
from graphc.ops.core.cost_rules import comparisons
from graphc.ops.core.defining import at_least, without_gradient
from graphc.ops.core.emit import convert, dim_value, emit, promote_inexact
from graphc.ops.core.layout_rules import same_axis
from graphc.ops.core.precision import summed
from graphc.ops.core.ranges import in_range
from graphc.typing import TensorLike

__all__ = ["ctc_beam_search"]


def _infer(
    ctx: InferContext,
    logits: TensorType,
    lengths: TensorType,
    *,
    beams: int,
    paths: int,
    blank: int,
) -> tuple[TensorType, TensorType, TensorType]:
    ctx.require_dtype([logits], is_floating, "floating")
    if not is_integer(lengths.dtype):
        ctx.require(False, f"lengths must be integers, got {lengths.dtype.name}", dtype=True)
    ctx.require(
        logits.rank == 3 and lengths.rank == 1,
        f"logits must be [batch, time, classes] and lengths [batch], got {logits} and {lengths}",
    )
    batch: Dim = ctx.unify(logits.shape[0], lengths.shape[0], "numbers of sequences")
    time, classes = logits.shape[1:]
    ctx.require(time != 0, "there are no steps")
    ctx.require(isinstance(classes, int), f"the number of classes must be known, got {logits}")
    ctx.require(0 <= blank < classes, f"blank must be one of {classes} classes, got {blank}")  # type: ignore[operator]
    ctx.require(paths <= beams, f"{paths} paths cannot come from {beams} beams")
    return (
        TensorType(INT32, (batch, paths, time)),
        TensorType(INT32, (batch, paths)),
        TensorType(logits.dtype, (batch, paths)),
    )


def _lower(
    ctx: LowerContext, logits: Any, lengths: Any, *, beams: int, paths: int, blank: int
) -> tuple[Any, Any, Any]:
    log_p = jax.nn.log_softmax(logits)

    def search(log_p: Any, length: Any) -> tuple[Any, Any, Any]:
        def step(beam: tuple[Any, ...], at: tuple[Any, Any]) -> tuple[Any, None]:
            after = _advanced(beam, at[1], blank)
            goes_on = at[0] < length
            return tuple(jnp.where(goes_on, a, b) for a, b in zip(after, beam, strict=True)), None

        times = lax.iota(np.int32, log_p.shape[0])
        beam, _ = lax.scan(step, _start(log_p, beams), (times, log_p))
        prefixes, sizes, *ends = beam
        best, order = lax.top_k(jnp.logaddexp(*ends), paths)
        is_path = best > -np.inf
        labels = jnp.where(is_path[:, None], prefixes[order], -1)
        return labels, jnp.where(is_path, sizes[order], 0), best

    return jax.vmap(search)(log_p, lengths)


def _start(log_p: Any, beams: int) -> tuple[Any, ...]:
    """The initial beam: the empty prefix, as if it had ended in a blank, and unused entries.

    Returns:
        The prefixes [beams, time], padded with -1; their lengths [beams]; and the log probabilities
        of their alignments that end in a blank and of those that end in a label, [beams].
    """
    never = jnp.full((beams,), -np.inf, log_p.dtype)
    prefixes = jnp.full((beams, log_p.shape[0]), -1, np.int32)
    return prefixes, jnp.zeros((beams,), np.int32), never.at[0].set(0), never


def _advanced(beam: tuple[Any, ...], log_p: Any, blank: int) -> tuple[Any, ...]:
    """The beam after one more step, which has the log probabilities `log_p` [classes]."""
    prefixes, sizes, in_blank, in_label = beam
    beams, classes = sizes.shape[0], log_p.shape[0]
    rows = lax.iota(np.int32, beams)
    total = jnp.logaddexp(in_blank, in_label)
    last = jnp.where(sizes > 0, prefixes[rows, jnp.maximum(sizes - 1, 0)], -1)
    label = jnp.maximum(last, 0)  # arbitrary for the empty prefix, which has no last label

    # Prefixes with one more label. To repeat the last label, a blank must separate the two.
    again = last[:, None] == lax.iota(np.int32, classes)
    longer = jnp.where(again, in_blank[:, None], total[:, None]) + log_p
    longer = longer.at[:, blank].set(-np.inf)

    # Unchanged prefixes, merged with extended prefixes that are equal to them.
    equal = _is_parent(prefixes, sizes, last) & (total > -np.inf)
    joined = jnp.max(jnp.where(equal, longer[:, label], -np.inf), 0)
    stay_label = jnp.logaddexp(in_label + log_p[label], joined)
    stay_blank = total + log_p[blank]
    gone = jnp.zeros((beams, classes), bool).at[rows[:, None], label[None, :]].max(equal)
    longer = jnp.where(gone, -np.inf, longer)

    # The column of the blank represents the unchanged prefixes.
    stay = jnp.logaddexp(stay_blank, stay_label)
    best, chosen = lax.top_k(longer.at[:, blank].set(stay).ravel(), beams)
    origin, added = chosen // classes, chosen % classes
    stays = added == blank
    end = (lax.iota(np.int32, prefixes.shape[1]) == sizes[origin][:, None]) & ~stays[:, None]
    return (
        jnp.where(end, added[:, None], prefixes[origin]),
        sizes[origin] + ~stays,
        jnp.where(stays, stay_blank[origin], -np.inf),
        jnp.where(stays, stay_label[origin], best),
    )


def _is_parent(prefixes: Any, sizes: Any, last: Any) -> Any:
    """Whether prefix i (rows) is prefix j (columns) without its last label: [beams, beams].

    All used prefixes are different, so each has at most one parent.
    """
    steps = lax.iota(np.int32, prefixes.shape[1])
    without = jnp.where(steps == sizes[:, None] - 1, -1, prefixes)
    same = jnp.all(prefixes[:, None] == without[None], -1)
    return same & (sizes[:, None] + 1 == sizes[None])


def _cost(ctx: CostContext, node: Node) -> int:
    """For each step: comparing prefixes in pairs, extending each by each class, and finding the
    best."""
    batch, time, classes = dims_of(node.inputs[0])
    beams = int(node.attrs["beams"])
    longer = beams * classes * 4 + comparisons(beams * classes, beams)
    return batch * time * (longer + beams**2 * time)


CTC_BEAM_SEARCH = without_gradient(
    "CTCBeamSearch(logits, lengths) -> labels, label_lengths, log_probability",
    attrs={
        "beams": at_least(1, "be positive", doc="how many prefixes are kept at each step"),
        "paths": at_least(1, "be positive", doc="how many of them are returned"),
        "blank": Attr("int", default=0, doc="the class that is not a label"),
    },
    infer=_infer,
    lower=summed(_lower),
    layout=same_axis(lambda node, axis: axis == 0),
    cost=_cost,
    doc="The likeliest labels of logits [batch, time, classes], of which the first `lengths` "
    "[batch] steps are valid: [batch, paths, time] (int32), the likeliest path first, each padded "
    "with -1; their lengths; and their log probabilities, summed over all alignments in the beam. "
    "Floating dtypes, lengths integers. Source: Graves, 2012, doi:10.1007/978-3-642-24797-2.",
)


def ctc_beam_search(
    logits: TensorLike,
    lengths: TensorLike | None = None,
    beams: int = 100,
    paths: int = 1,
    blank: int = 0,
    *,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest labels of sequences, by a search with a beam of prefixes.

    Alignments of the same labels are summed, as in `ctc_loss`, as long as their prefix is among
    the likeliest `beams`.

    Args:
        logits: [batch, time, classes], floating; integers give float32.
        lengths: [batch], integers: the numbers of valid steps; all by default. Too large values
            mean all steps, and negative values mean none. Both raise errors in runs with
            `CompileOptions(check_numerics=True)`.
        beams: how many prefixes are kept at each step.
        paths: how many of them are returned, at most `beams`.
        blank: the class that is not a label.
        name: of the node.

    Returns:
        The labels [batch, paths, time], int32, the likeliest path first, each padded with -1; their
        lengths [batch, paths], int32; and their log probabilities [batch, paths], -inf for paths
        that do not exist.

    Raises:
        ShapeError: wrong ranks, an unknown number of classes, a blank that is not a class, or more
            paths than beams.
        AttributeValueError: beams or paths that are not positive.
        DTypeError: complex logits, lengths that are not integers.

    Source: Graves, Supervised sequence labelling with recurrent neural networks, 2012; TensorFlow's
    `tf.nn.ctc_beam_search_decoder`, whose blank is the last class.

    Examples:
        >>> labels, lengths, scores = gc.nn.ctc_beam_search([[[0.0, 5.0, 0.0], [0.0, 0.0, 5.0]]])
        >>> run((labels, lengths))
        (Array([[[1, 2]]], dtype=int32), Array([[2]], dtype=int32))
    """
    (x,) = promote_inexact(logits)
    operands = (x, _steps(x, lengths))
    labels, sizes, scores = emit(
        CTC_BEAM_SEARCH, operands, name=name, beams=beams, paths=paths, blank=blank
    )
    return labels, sizes, scores


def _steps(logits: Tensor, lengths: TensorLike | None) -> Tensor:
    """The number of valid steps of each sequence. The operator rejects logits of other ranks."""
    if lengths is None and logits.ndim == 3:
        return broadcast_to(dim_value(logits.shape[1]), logits.shape[:1])
    steps = convert(0 if lengths is None else lengths)
    if logits.ndim != 3:
        return steps
    return in_range(steps, 0, logits.shape[1] + 1, "lengths", of="ctc_beam_search")


OPS: tuple[OpDef, ...] = (CTC_BEAM_SEARCH,)
