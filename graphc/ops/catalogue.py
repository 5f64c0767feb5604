"""The operator catalogue: one explicit table of the families."""

from __future__ import annotations

import types
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace

from graphc.ir.catalogue import Catalogue
from graphc.ops.arrays import (
    along_axis,
    creation,
    dynamic_slicing,
    gathering_nd,
    indexing,
    joining,
    padding,
    repeating,
    scattering_nd,
    shape,
    slicing,
    stacking,
    unique_rows,
)
from graphc.ops.control import (
    branching,
    calling,
    custom_gradient,
    mapping,
    platforms,
    scan,
    while_loops,
)
from graphc.ops.core import emit, ranges
from graphc.ops.draws import dropout, location_scale, random_draws, random_keys, random_parametric
from graphc.ops.elementwise import (
    activation,
    arithmetic,
    binary_floats,
    bits,
    comparison,
    complex_parts,
    floats,
    integers,
    powers,
    rounding,
    transcendental,
)
from graphc.ops.matrices import (
    contraction,
    factorization,
    general_matrices,
    matrix_functions,
    matrix_product,
    matrix_roots,
    ragged,
    reflections,
    row_updates,
    solving,
    symmetric_matrices,
)
from graphc.ops.nn import (
    attention,
    conv,
    fake_quantizing,
    local_norm,
    local_response,
    loss,
    normalization,
    pooling,
    quantizing,
)
from graphc.ops.numpy_api import searching
from graphc.ops.reductions import approximate, axiswise, reduction, sorting
from graphc.ops.scipy_api import (
    convolving,
    fourier,
    gamma_slopes,
    hypergeometric,
    integrals,
    special,
)
from graphc.ops.structure import (
    collective,
    host,
    lowered,
    numerics,
    ordering,
    primitive,
    sharding,
    state,
    training,
    uneven,
)
from graphc.ops.tasks import ctc_beams, edit_distance, morphology, sampling, suppression

# One line for each family. A family lists its operators in `OPS`.
FAMILIES: tuple[ModuleType, ...] = (
    state,
    arithmetic,
    rounding,
    powers,
    comparison,
    transcendental,
    bits,
    complex_parts,
    reduction,
    axiswise,
    along_axis,
    sorting,
    approximate,
    scan,
    while_loops,
    branching,
    platforms,
    calling,
    custom_gradient,
    primitive,
    lowered,
    host,
    activation,
    ordering,
    attention,
    loss,
    mapping,
    normalization,
    conv,
    pooling,
    random_keys,
    random_draws,
    dropout,
    random_parametric,
    ranges,
    collective,
    shape,
    sharding,
    creation,
    joining,
    stacking,
    slicing,
    dynamic_slicing,
    indexing,
    contraction,
    matrix_product,
    ragged,
    row_updates,
    factorization,
    solving,
    general_matrices,
    matrix_functions,
    matrix_roots,
    reflections,
    symmetric_matrices,
    fourier,
    gathering_nd,
    scattering_nd,
    special,
    gamma_slopes,
    integrals,
    hypergeometric,
    floats,
    binary_floats,
    quantizing,
    fake_quantizing,
    integers,
    searching,
    convolving,
    numerics,
    uneven,
    unique_rows,
    training,
    local_norm,
    local_response,
    morphology,
    sampling,
    suppression,
    edit_distance,
    ctc_beams,
)


def _collect(families: Iterable[ModuleType]) -> SimpleNamespace:
    """The public functions that the families define, as attributes of one object."""
    found = {}
    for family in families:
        for name, value in vars(family).items():
            own = isinstance(value, types.FunctionType) and value.__module__ == family.__name__
            if own and not name.startswith("_"):
                found[name] = value
    return SimpleNamespace(**found)


CATALOGUE = Catalogue(op for family in FAMILIES for op in family.OPS)

# The functions that build nodes, as one object: gradient rules use it as `ctx.ops`.
FUNCTIONS = _collect((*FAMILIES, location_scale, padding, repeating))
FUNCTIONS.dim_value = emit.dim_value
