"""The records of reductions over axes; `graphc.ops.reduction` has the functions."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from graphc.ir.opdef import Attr, OpDef
from graphc.ops.broadcasting import infer_floating, infer_inexact, infer_numeric, infer_ordered
from graphc.ops.layout_rules import map_axis
from graphc.ops.narrow import in_wider
from graphc.ops.reduction_rules import (
    AXES,
    extreme_gradient,
    fold_logsumexp,
    fold_mean,
    fold_reduction,
    infer_bool,
    infer_reduction,
    logsumexp_gradient,
    lower_mean,
    lower_reduction,
    lower_wide,
    mean_gradient,
    mean_layout,
    partial_over,
    result_axis,
    spread,
)

REDUCE_SUM = OpDef(
    name="ReduceSum",
    signature="x -> y",
    precision="wide",
    attrs=AXES,
    infer=infer_reduction(infer_numeric),
    lower=lower_wide(lax.reduce_sum),
    gradient=lambda ctx, node, dy: [spread(node, dy)],
    layout=partial_over("sum"),
    fold=fold_reduction(np.sum),
    doc="The sum over `axes`, in x's dtype. Numeric dtypes.",
)

REDUCE_MEAN = OpDef(
    name="ReduceMean",
    signature="x -> y",
    precision="wide",
    attrs={
        **AXES,
        "count": Attr("dim", default=None, doc="what to divide by; None: the reduced elements"),
    },
    infer=infer_reduction(infer_inexact),
    lower=lower_mean,
    gradient=mean_gradient,
    layout=mean_layout,
    fold=fold_mean,
    doc="The sum over `axes` divided by `count`. Floating and complex dtypes.",
)

REDUCE_MAX = OpDef(
    name="ReduceMax",
    signature="x -> y",
    precision="follow",
    attrs=AXES,
    infer=infer_reduction(infer_ordered, nonempty=True),
    lower=lower_reduction(lax.reduce_max),
    gradient=extreme_gradient,
    layout=partial_over("max"),
    fold=fold_reduction(np.max),
    doc="The greatest element over `axes`; equal ones share the adjoint. Real dtypes and bool.",
)

REDUCE_MIN = OpDef(
    name="ReduceMin",
    signature="x -> y",
    precision="follow",
    attrs=AXES,
    infer=infer_reduction(infer_ordered, nonempty=True),
    lower=lower_reduction(lax.reduce_min),
    gradient=extreme_gradient,
    layout=partial_over("min"),
    fold=fold_reduction(np.min),
    doc="The smallest element over `axes`; equal ones share the adjoint. Real dtypes and bool.",
)

REDUCE_PROD = OpDef(
    name="ReduceProd",
    signature="x -> y",
    precision="wide",
    attrs=AXES,
    infer=infer_reduction(infer_numeric),
    lower=lower_wide(lax.reduce_prod),
    # No rule: written with graph operators it needs y / x, which fails at zeros.
    gradient=None,
    layout=map_axis(result_axis),
    fold=fold_reduction(np.prod),
    doc="The product over `axes`, in x's dtype. Numeric dtypes.",
)


REDUCE_ANY = OpDef(
    name="ReduceAny",
    signature="x -> y",
    precision="wide",
    attrs=AXES,
    infer=infer_reduction(infer_bool),
    lower=lower_reduction(lax.reduce_or),
    differentiable=False,
    layout=map_axis(result_axis),
    fold=fold_reduction(np.any),
    doc="Whether any element over `axes` is true. Bool.",
)

REDUCE_ALL = OpDef(
    name="ReduceAll",
    signature="x -> y",
    precision="wide",
    attrs=AXES,
    infer=infer_reduction(infer_bool),
    lower=lower_reduction(lax.reduce_and),
    differentiable=False,
    layout=map_axis(result_axis),
    fold=fold_reduction(np.all),
    doc="Whether all elements over `axes` are true. Bool.",
)

LOG_SUM_EXP = OpDef(
    name="LogSumExp",
    signature="x -> y",
    precision="wide",
    attrs=AXES,
    infer=infer_reduction(infer_floating, nonempty=True),
    lower=in_wider(
        lambda ctx, x, *, axes, keepdims: jax.nn.logsumexp(x, axis=axes, keepdims=keepdims)
    ),
    gradient=logsumexp_gradient,
    layout=map_axis(result_axis),
    fold=fold_logsumexp,
    doc="log(sum(exp(x))) over `axes`, without overflow. Floating dtypes.",
)
