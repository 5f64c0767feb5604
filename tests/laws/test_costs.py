"""Every operator states its cost if it is not one operation per result, and agrees with XLA."""

import jax
import pytest

from graphc.ir.costs import one_per_result
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import CATALOGUE, FAMILIES
from graphc.passes.core.costs import program_costs, total
from tests.laws.harness import functional, random_state
from tests.laws.test_laws import BY_OP, build_all

# Operators that are not elementwise, but do about one operation for each element of their results.
ONE_PER_RESULT = {
    "OneHot": "a comparison",
    "AllReduce": "a sum",
    "ReduceScatter": "a sum",
    "Primitive": "nobody knows",
    "Lowered": "nobody knows",
    "PyCallback": "on the host",
    "PureCallback": "on the host",
    "Print": "on the host",
    "FirstFault": "a mark",
    "KeepFault": "a mark",
}
# The factor by which a count may differ from XLA's before fusion.
EXACT, NEAR, FAR = 1.0, 1.6, 4.0
FACTORS = {
    **dict.fromkeys(("MatMul", "DotGeneral", "Conv", "ConvInputGradient", "Convolve"), EXACT),
    **dict.fromkeys(("Variance", "LocalResponseNorm", "SigmoidCrossEntropy", "Gelu"), EXACT),
    **dict.fromkeys(("FFT", "MaxPool", "MaxPoolGradient", "AvgPool", "Attention"), NEAR),
    **dict.fromkeys(("AttentionGradient", "LayerNorm", "LayerNormGradient", "BatchNorm"), NEAR),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LogSumExp", "SoftmaxCrossEntropy"), NEAR),
    **dict.fromkeys(("SparseSoftmaxCrossEntropy", "LocalResponseNormGradient"), NEAR),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"), NEAR),
    **dict.fromkeys(("ReduceAny", "ReduceAll", "Switch", "While", "Call"), NEAR),
    # Routines on tiny matrices, which XLA expands: terms of lower order count.
    **dict.fromkeys(("MatrixExponential", "MatrixSquareRoot", "Hessenberg", "Solve"), NEAR),
    **dict.fromkeys(("Inverse", "EighTridiagonal"), NEAR),
    **dict.fromkeys(("RandomNormal", "RandomUniform", "RandomBits", "Dropout"), 2.0),
    **dict.fromkeys(("CTCBeamSearch", "EditDistance", "NonMaxSuppression"), 2.0),
    # A network or a scan, which does the same comparisons or sums more often.
    **dict.fromkeys(("Sort", "CumSum", "CumProd", "CumMax", "CumMin", "CumLogSumExp"), FAR),
    **dict.fromkeys(("Dilation2D", "Dilation2DGradient", "MapCoordinates"), FAR),
    **dict.fromkeys(("AvgPoolGradient", "ConvKernelGradient"), FAR),  # XLA counts the padding too
}
# Contractions and decompositions that XLA counts differently.
NOT_AS_XLA = {
    **dict.fromkeys(("RaggedDot", "RaggedOuter"), "on CPU it multiplies with every matrix"),
    **dict.fromkeys(("QR", "SVD", "SingularValues", "Eigh", "LU", "Eig"), "LAPACK, not counted"),
    **dict.fromkeys(("Schur", "HouseholderProduct", "TriangularSolve"), "LAPACK, not counted"),
    **dict.fromkeys(("Cholesky", "Polar", "PseudoInverse", "Sylvester"), "LAPACK in part"),
    **dict.fromkeys(("TridiagonalSolve", "CholeskyUpdate"), "a loop or call, not counted"),
    **dict.fromkeys(("Determinant", "LogDeterminant"), "written out for tiny matrices"),
}
LINEAR_ALGEBRA = (
    *("contraction", "matrix_product", "ragged", "factorization", "solving", "general_matrices"),
    *("matrix_functions", "matrix_roots", "reflections", "symmetric_matrices", "fourier", "conv"),
    *("attention", "convolving", "pooling", "sorting"),
)


def test_every_operator_states_its_cost_where_one_operation_a_result_is_not_it() -> None:
    unstated = {
        name
        for name, op in CATALOGUE.items()
        if op.cost is one_per_result and not op.is_elementwise
    }
    assert unstated == set(ONE_PER_RESULT)


def test_narrow_operators_and_linear_algebra_state_their_cost() -> None:
    wanted = {name for name, op in CATALOGUE.items() if op.precision == "narrow"}
    for family in FAMILIES:
        if family.__name__.rpartition(".")[2] in LINEAR_ALGEBRA:
            wanted |= {op.name for op in family.OPS}
    assert not {name for name in wanted if CATALOGUE[name].cost is one_per_result}
    narrow = {name for name, op in CATALOGUE.items() if op.precision == "narrow"}
    assert not narrow - {*FACTORS, *NOT_AS_XLA}


@pytest.mark.parametrize("op", sorted(FACTORS))
def test_as_xla_counts_it(op: str) -> None:
    case = next(case for case in BY_OP[op] if case.dtypes)
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    graph, (built,) = build_all([case], only=dtype)
    program = functional(graph, list(dict.fromkeys(built.outputs)), built.tensors)
    ours = total(cost for _, cost in program_costs(program)).flops
    values = [*built.arrays, *random_state(program)]
    with jax.enable_x64(True):
        counted = jax.jit(to_function(program)).lower(*values).cost_analysis()["flops"]
    assert counted / FACTORS[op] <= ours <= counted * FACTORS[op], (ours, counted)
