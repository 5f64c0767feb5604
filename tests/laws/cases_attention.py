"""Cases of graphc/ops/nn/attention.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.nn import attention as ops
from tests.laws.case import Bad, Case, In
from tests.laws.cases_activation import softmax

FLOATS = ("float16", "bfloat16", "float32", "float64")
QUERY = In((4, 3, 4, 2), batch_axis=0)
KEY = In((4, 5, 2, 2), batch_axis=0)
VALUE = In((4, 5, 2, 3), batch_axis=0)
PADDING = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
MASK = In((4, 1, 1, 5), "bool", values=PADDING[:, None, None], batch_axis=0)
BIAS = In((4, 3, 5))
HEADS = [In((2, 3, 4, 2), batch_axis=2), In((2, 5, 4, 2), batch_axis=2), In((2, 5, 4, 3))]


def weights(query, key, mask=True, bias=0.0, causal=False, scale=None):
    key = np.repeat(key, query.shape[2] // key.shape[2], axis=2)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = np.einsum("bthd,bshd->bhts", query, key) * scale + bias
    seen = np.broadcast_to(mask, logits.shape)
    if causal:
        seen = seen & np.tri(*logits.shape[2:], dtype=bool)
    return softmax(np.where(seen, logits, -1e30)) * seen


def mixed(weights, value):
    value = np.repeat(value, weights.shape[1] // value.shape[2], axis=2)
    return np.einsum("bhts,bshd->bthd", weights, value)


def attention(query, key, value, mask=True, bias=0.0, **options):
    return mixed(weights(query, key, mask, bias, **options), value)


def gradient(query, key, value, dy, mask, bias):
    shared = key.shape[2]
    groups = query.shape[2] // shared
    w = weights(query, key, mask, bias, scale=0.5)
    key, value = np.repeat(key, groups, axis=2), np.repeat(value, groups, axis=2)
    of_weights = np.einsum("bthd,bshd->bhts", dy, value)
    of_logits = w * (of_weights - (of_weights * w).sum(-1, keepdims=True))
    dkey = np.einsum("bhts,bthd->bshd", of_logits, query) * 0.5
    dvalue = np.einsum("bhts,bthd->bshd", w, dy)
    by_group = [d.reshape(*d.shape[:2], shared, groups, -1).sum(3) for d in (dkey, dvalue)]
    return np.einsum("bhts,bshd->bthd", of_logits, key) * 0.5, *by_group, of_logits.sum(0)


CASES = (
    Case(
        "Attention",
        ops.attention,
        [QUERY, In((4, 5, 4, 2), batch_axis=0), In((4, 5, 4, 3), batch_axis=0)],
        attention,
        dtypes=FLOATS,
    ),
    Case(
        "Attention",
        lambda q, k, v, mask, bias: ops.attention(q, k, v, mask=mask, bias=bias),
        [QUERY, KEY, VALUE, MASK, BIAS],
        attention,
        label="shared heads, mask, bias",
    ),
    Case(
        "Attention",
        lambda q, k, v, bias: ops.attention(q, k, v, bias=bias, causal=True, scale=0.5),
        [*HEADS, In((4, 1, 1), batch_axis=0)],
        lambda q, k, v, bias: attention(q, k, v, bias=bias, causal=True, scale=0.5),
        label="causal, heads cut",
    ),
    Case(
        "Attention",
        ops.attention,
        [In((2, 3, 4, 2), batch_axis=2), In((2, 5, 2, 2)), In((2, 5, 2, 3))],
        attention,
        label="heads of queries cut",
    ),
    Case(
        "Attention",
        lambda q, k, v, mask, bias: emit(
            ops.ATTENTION, (q, k, v, mask, bias), scale=0.5, rows=2, each_entry=True
        ),
        [QUERY, KEY, VALUE, MASK, BIAS],
        lambda *operands: attention(*operands, scale=0.5),
        dtypes=FLOATS,
        label="two queries of an entry at a time",
    ),
    Case(
        "Attention",
        lambda q, k, v: emit(ops.ATTENTION, (q, k, v), scale=0.5, rows=1, causal=True),
        [QUERY, KEY, VALUE],
        lambda q, k, v: attention(q, k, v, causal=True, scale=0.5),
        label="a query at a time, causal",
    ),
    Case(
        "Attention",
        lambda q, k, v: ops.attention(q, k, v, dropout=0.5, seed=3),
        [QUERY, KEY, VALUE],
        None,
        layout=False,  # each device draws separate numbers
        label="dropout",
        bad=[
            Bad(ops.attention, [QUERY, KEY, In((4, 5, 2))], ShapeError, "value must be .batch, "),
            Bad(ops.attention, [QUERY, In((4, 5, 2, 3)), VALUE], ShapeError,
                "depths of query and key differ, 2 and 3"),
            Bad(ops.attention, [QUERY, KEY, In((4, 6, 2, 3))], ShapeError,
                "lengths of key and value differ, 5 and 6"),
            Bad(ops.attention, [In((4, 3, 3, 2)), KEY, VALUE], ShapeError,
                "3 heads of query cannot share 2 heads of key"),
            Bad(ops.attention, [In((4, 3, 4, 2), "int32")] * 3, DTypeError,
                "query must be floating"),
            Bad(lambda q, k, v, b: ops.attention(q, k, v, bias=b), [QUERY, KEY, VALUE, In((3, 4))],
                ShapeError, r"may be \[batch, source\] or \[time, source\]"),
            Bad(lambda q, k, v, b: ops.attention(q, k, v, bias=b),
                [QUERY, KEY, VALUE, In((1, 1, 3, 4))], ShapeError, "do not broadcast together"),
            Bad(lambda q, k, v, m: ops.attention(q[:1], k[:1], v[:1], mask=m),
                [QUERY, KEY, VALUE, MASK], ShapeError, r"\(1, 4, 3, 5\), got \(4, 1, 1, 5\)"),
            Bad(lambda q, k, v: ops.attention(q, k, v, mask=np.ones((3, 5), np.int32)),
                [QUERY, KEY, VALUE], DTypeError, "the mask must be bool, got int32"),
            Bad(lambda q, k, v: ops.attention(q, k, v, dropout=1.0), [QUERY, KEY, VALUE],
                AttributeValueError, "dropout must be at least 0 and less than 1"),
        ],
    ),
    Case(
        "AttentionGradient",
        lambda *operands: emit(ops.ATTENTION_GRADIENT, operands, scale=0.5),
        [QUERY, KEY, VALUE, In((4, 3, 4, 3), batch_axis=0), MASK, BIAS],
        gradient,
    ),
    Case(
        "AttentionGradient",
        lambda *operands: emit(
            ops.ATTENTION_GRADIENT, operands, scale=0.5, rows=2, each_entry=True
        ),
        [QUERY, KEY, VALUE, In((4, 3, 4, 3), batch_axis=0), MASK, BIAS],
        gradient,
        label="two queries of an entry at a time",
    ),
)  # fmt: skip
