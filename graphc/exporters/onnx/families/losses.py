"""Cross-entropies."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.families.elementwise import log1p
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import BOOL, INT64


def _softmax(c: Call) -> Value:
    """-sum(labels log_softmax(logits)). A class of weight 0 adds 0, also if it is ruled out."""
    logits, labels = c.xs
    w = c.w
    logs = w.op("LogSoftmax", logits, axis=-1)
    zero = w.like(labels, 0)
    terms = w.where(w.compare("Equal", labels, zero), zero, w.elementwise("Mul", labels, logs))
    return w.elementwise("Neg", w.reduce("ReduceSum", terms, [logits.rank - 1]))


def _sparse(c: Call) -> Value:
    """NaN for a label that is no class."""
    logits, labels = c.xs
    w, axis = c.w, logits.rank - 1
    classes = c.sizes.scalar(c.shape()[-1])
    logs = w.op("LogSoftmax", logits, axis=-1)
    labels = w.cast(labels, INT64)
    zero = w.constant(0, INT64)
    last = w.elementwise("Sub", classes, w.constant(1, INT64))
    inside = w.elementwise("Max", w.elementwise("Min", labels, last), zero)
    known = w.elementwise("Equal", inside, labels, dtype=BOOL)
    found = w.op("GatherElements", logs, w.unsqueeze(inside, [axis]), rank=logits.rank, axis=axis)
    loss = w.elementwise("Neg", w.squeeze(found, [axis]))
    return w.where(known, loss, w.like(loss, np.nan))


def _sigmoid(c: Call) -> Value:
    logits, labels = c.xs
    w = c.w
    above = w.number("Max", logits, 0)
    product = w.elementwise("Mul", logits, labels)
    small = log1p(w, w.elementwise("Exp", w.elementwise("Neg", w.elementwise("Abs", logits))))
    return w.elementwise("Add", w.elementwise("Sub", above, product), small)


RULES: Final[dict[str, Rule]] = {
    "SigmoidCrossEntropy": _sigmoid,
    "SoftmaxCrossEntropy": _softmax,
    "SparseSoftmaxCrossEntropy": _sparse,
}
