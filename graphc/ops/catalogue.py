"""The operator catalogue: one explicit table of the families."""

from __future__ import annotations

from types import ModuleType

from graphc.ir.opdef import Catalogue
from graphc.ops import (
    activation,
    along_axis,
    arithmetic,
    axiswise,
    bits,
    collective,
    comparison,
    complex_parts,
    contraction,
    control,
    conv,
    creation,
    custom_gradient,
    indexing,
    joining,
    linalg,
    loss,
    mapping,
    math,
    normalization,
    pooling,
    powers,
    random,
    random_keys,
    reduction,
    shape,
    slicing,
    sorting,
    stacking,
    state,
)
from graphc.ops.functions import collect

# One line a family; each lists its operators in `OPS`.
FAMILIES: tuple[ModuleType, ...] = (
    state,
    arithmetic,
    powers,
    comparison,
    math,
    bits,
    complex_parts,
    reduction,
    axiswise,
    along_axis,
    sorting,
    control,
    custom_gradient,
    activation,
    loss,
    mapping,
    normalization,
    conv,
    pooling,
    random_keys,
    random,
    collective,
    shape,
    creation,
    joining,
    stacking,
    slicing,
    indexing,
    contraction,
    linalg,
)

CATALOGUE = Catalogue(op for family in FAMILIES for op in family.OPS)

# The functions that build nodes, under one name: what gradient rules call as `ctx.ops`.
FUNCTIONS = collect(FAMILIES)
