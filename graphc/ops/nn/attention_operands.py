"""What attention takes: its operands, and how it is computed."""

from __future__ import annotations

from typing import Any, NamedTuple

from graphc.ir.dtypes import BOOL


class How(NamedTuple):
    """What to compute and in which steps: attributes of the operator.

    Attributes:
        rows: the number of queries to compute at a time; 0 for all.
        each_entry: whether to compute one entry of the batch at a time.
        flash: whether to use cuDNN.
        alone: whether no adjoint of this call is computed.
        mean_if_blind: whether a query that sees no key gives the mean of all values instead of 0.
    """

    scale: float
    causal: bool
    dropout: float
    mean_if_blind: bool = False
    rows: int = 0
    each_entry: bool = False
    flash: bool = False
    alone: bool = False


class Operands(NamedTuple):
    """The operands of attention.

    Attributes:
        query, key, value: [batch, time or source, heads, depth].
        masks: bool and floating masks, which broadcast to [batch, heads, time, source].
        kept: bool [batch, heads, time, source], the weights that dropout keeps; or None.
        dy: the adjoint of the result, or None.
    """

    query: Any
    key: Any
    value: Any
    masks: tuple[Any, ...]
    kept: Any = None
    dy: Any = None


def biases(of: Operands) -> list[Any]:
    """The floating masks."""
    return [mask for mask in of.masks if mask.dtype != BOOL]
