"""einsum: sums of products by axis labels, composed of products of pairs. No operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim
from graphc.ir.dtypes import BOOL
from graphc.ir.node import Tensor
from graphc.ops.arrays.diagonals import diagonal
from graphc.ops.arrays.shape import moveaxis, squeeze, transpose
from graphc.ops.core.checks import refuse, same_shape
from graphc.ops.core.emit import cast, promote_operands
from graphc.ops.matrices.contraction import dot_general
from graphc.ops.reductions.reduction import reduce_any, reduce_sum
from graphc.ops.structure.state import identity
from graphc.typing import TensorLike

__all__ = ["einsum"]

Label = Hashable  # a letter, or -1, -2, ... for the axes of "...", counted from the last

# The value of a named size when the order of the products is chosen.
_GUESS = 64


class _Term(NamedTuple):
    """A tensor with a distinct label for each axis."""

    labels: tuple[Label, ...]
    tensor: Tensor


def einsum(subscripts: str, *operands: TensorLike, name: str | None = None) -> Tensor:
    """Products of the operands, summed over axes according to labels.

    Args:
        subscripts: a letter for each axis, as in "bij,bjk->bik": axes with the same letter share an
            index. The result is summed over letters that do not occur after the arrow. Without an
            arrow, the result has the letters that occur once, in alphabetical order. "..."
            represents axes that broadcast.
        operands: one for each list of letters; dtypes promote. An axis of size 1 broadcasts to any
            size.
        name: of the node.

    Returns:
        A tensor with its axes in the order of the letters. More than two operands are multiplied in
        pairs, in the cheapest order.

    Raises:
        AttributeValueError: subscripts that do not fit the operands.
        ShapeError: sizes under one letter differ.

    Source: numpy.einsum; the order of pairs is numpy.einsum_path's.

    Examples:
        >>> run(gc.einsum("ij,j->i", [[1, 2], [3, 4]], [1, 1]))
        Array([3, 7], dtype=int32)
    """
    if not isinstance(subscripts, str):
        refuse(
            f"einsum: the subscripts must be a string, got {type(subscripts).__name__}",
            error=AttributeValueError,
            hint='put them first, as in einsum("ij,jk->ik", a, b)',
        )
    if not operands:
        refuse("einsum: there are no operands", error=AttributeValueError)
    tensors = promote_operands(*operands)
    labels, result = _parse(subscripts, tensors)
    sizes = _sizes(labels, tensors)
    given = [_distinct(own, x, sizes) for own, x in zip(labels, tensors, strict=True)]
    term = _contracted(given, result, sizes)
    order = [term.labels.index(label) for label in result]
    if order != sorted(order):
        return transpose(term.tensor, order, name=name)
    return term.tensor if name is None else identity(term.tensor, name=name)


def _contracted(given: list[_Term], result: Sequence[Label], sizes: Mapping[Label, Dim]) -> _Term:
    """The product of the terms, summed over all labels that the result lacks."""
    terms = []
    for i, term in enumerate(given):
        others = given[:i] + given[i + 1 :]
        elsewhere = {*result, *(label for other in others for label in other.labels)}
        terms.append(_without_lone(term, elsewhere))
    for step in _path(terms, result, sizes):
        group = [terms.pop(i) for i in sorted(step, reverse=True)]
        product = group.pop()
        while group:
            other = group.pop()
            needed = {*result, *(label for term in terms + group for label in term.labels)}
            product = _multiplied(product, other, needed)
        terms.append(product)
    (term,) = terms
    return term


# -- reading subscripts ----------------------------------------------------------------------


def _parse(subscripts: str, tensors: Sequence[Tensor]) -> tuple[list[list[Label]], list[Label]]:
    """The labels of each operand's axes, and those of the result."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(tensors):
        _refuse(f"{len(parts)} lists of letters for {len(tensors)} operands", subscripts)
    labels = [_labels(part, x.ndim, subscripts) for part, x in zip(parts, tensors, strict=True)]
    counts = Counter(label for own in labels for label in own)
    dots = sorted(label for label in counts if isinstance(label, int))
    if not arrow:
        letters = (label for label, n in counts.items() if n == 1 and isinstance(label, str))
        return labels, [*dots, *sorted(letters)]
    if dots and "..." not in right:
        _refuse("the result needs '...' because the operands have it", subscripts)
    result = _labels(right, len(right.replace("...", "")) + len(dots), subscripts)
    for label, n in Counter(result).items():
        if n > 1 or label not in counts:
            _refuse(f"{label!r} of the result must occur once, and in an operand", subscripts)
    return labels, result


def _labels(part: str, rank: int, subscripts: str) -> list[Label]:
    """A label for each axis: the letters of `part`, with "..." for the remaining axes."""
    before, dots, after = part.partition("...")
    letters = before + after
    if letters and not (letters.isascii() and letters.isalpha()):
        _refuse(f"{part!r} must be letters and at most one '...'", subscripts)
    spare = rank - len(letters)
    if spare < 0 or (spare and not dots):
        _refuse(f"{part!r} names {len(letters)} axes of an operand of rank {rank}", subscripts)
    return [*before, *range(-spare, 0), *after]


def _sizes(labels: Sequence[Sequence[Label]], tensors: Sequence[Tensor]) -> dict[Label, Dim]:
    """The size of each label. Other sizes take precedence over 1."""
    sizes: dict[Label, Dim] = {}
    for own, tensor in zip(labels, tensors, strict=True):
        for label, dim in zip(own, tensor.shape, strict=True):
            known = sizes.setdefault(label, dim)
            if known == 1:
                sizes[label] = dim
            elif isinstance(dim, int) and isinstance(known, int) and dim not in (1, known):
                under = f"{label!r}" if isinstance(label, str) else "'...'"
                rows: dict[str, Any] = {f"operand {i}": x for i, x in enumerate(tensors)}
                refuse(
                    f"einsum: sizes under {under} differ, {known} and {dim}",
                    hint="one letter names axes of one size: give the axes other letters, or "
                    "transpose an operand",
                    **rows,
                )
    return sizes


def _refuse(what: str, subscripts: str) -> NoReturn:
    refuse(
        f"einsum: {what}, in {subscripts!r}",
        error=AttributeValueError,
        hint='a letter for each axis of each operand, as in "bij,bjk->bik"; "..." is for others',
    )


# -- computing -------------------------------------------------------------------------------


def _distinct(labels: Sequence[Label], x: Tensor, sizes: Mapping[Label, Dim]) -> _Term:
    """An operand with each label once, without axes that broadcast."""
    own = list(labels)
    for label in dict.fromkeys(labels):
        while own.count(label) > 1:
            first = own.index(label)
            second = own.index(label, first + 1)
            if not same_shape((x.shape[first],), (x.shape[second],), x):
                refuse(f"einsum: axes {first} and {second} of one letter differ in size", x=x)
            # The elements with equal indices along the two axes, along the first of them.
            x = moveaxis(diagonal(x, 0, first, second), -1, first)
            del own[second]
    repeated = [i for i, label in enumerate(own) if x.shape[i] == 1 != sizes[label]]
    x = squeeze(x, repeated) if repeated else x
    return _Term(tuple(label for i, label in enumerate(own) if i not in repeated), x)


def _without_lone(term: _Term, elsewhere: set[Label]) -> _Term:
    """A term, summed over the axes whose labels no other term has."""
    alone = [i for i, label in enumerate(term.labels) if label not in elsewhere]
    x = term.tensor
    if alone:  # of bools: whether any is true
        x = reduce_any(x, alone) if x.dtype == BOOL else cast(reduce_sum(x, alone), x.dtype)
    return _Term(tuple(label for label in term.labels if label in elsewhere), x)


def _path(
    terms: Sequence[_Term], result: Sequence[Label], sizes: Mapping[Label, Dim]
) -> list[tuple[int, ...]]:
    """Which terms to multiply in each step. Their product is appended to the list."""
    if len(terms) <= 2:
        return [tuple(range(len(terms)))]
    number = {label: i for i, label in enumerate(sizes)}
    known = {label: dim if isinstance(dim, int) else _GUESS for label, dim in sizes.items()}
    arguments: list[Any] = []
    for term in terms:
        shape = tuple(known[label] for label in term.labels)
        arguments += [np.broadcast_to(np.float32(0), shape), [number[x] for x in term.labels]]
    strategy = "optimal" if len(terms) <= 4 else "greedy"
    no_limit = 2**62
    path, _ = np.einsum_path(
        *arguments, [number[label] for label in result], optimize=(strategy, no_limit)
    )
    return path[1:]


def _multiplied(a: _Term, b: _Term, needed: set[Label]) -> _Term:
    """The product of two terms, summed over shared labels that nothing else needs."""
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in needed]
    summed = [label for label in shared if label not in needed]
    tensor = dot_general(
        a.tensor,
        b.tensor,
        ([a.labels.index(x) for x in summed], [b.labels.index(x) for x in summed]),
        ([a.labels.index(x) for x in batch], [b.labels.index(x) for x in batch]),
    )
    free = [label for term in (a, b) for label in term.labels if label not in shared]
    return _Term((*batch, *free), tensor)
