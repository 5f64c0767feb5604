"""The table of rules: operator -> rule. A file for each family of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphc.exporters.onnx.call import Rule
from graphc.exporters.onnx.families import (
    arrays,
    control,
    elementwise,
    indexing,
    losses,
    matrices,
    networks,
    quantized,
    reductions,
)

_FAMILIES: Final = (
    *(arrays, control, elementwise, indexing, losses, matrices, networks, quantized),
    reductions,
)
RULES: Final[Mapping[str, Rule]] = {
    name: rule for family in _FAMILIES for name, rule in family.RULES.items()
}

_REASONS: Final = {
    "is a marker that no program for inference has": """
        Group LossAdjoint Updated
    """,
    "reads or assigns a variable, and ONNX models have no state": """
        Assign ReadVariable
    """,
    "is part of a gradient": """
        AttentionGradient AvgPoolGradient Dilation2DGradient
        Gradients IgammaGradA LayerNormGradient LocalBatchNormGradient
        LocalResponseNormGradient MaxPoolGradient RandomGammaGrad
        SparseSoftmaxCrossEntropyGradient VJP
    """,
    "needs complex numbers, which ONNX's operators do not take": """
        Complex Conj Eig FFT Imag Real Schur
    """,
    "draws random numbers": """
        Dropout FoldIn RandomBernoulli RandomBinomial RandomBits RandomGamma RandomKey
        RandomMultinomial RandomNormal RandomPermutation RandomPoisson RandomUniform
        SplitKey TruncatedNormal
    """,
    "is a decomposition of a matrix, which ONNX has none of": """
        Cholesky CholeskyUpdate Eigh EighTridiagonal Hessenberg HouseholderProduct LU
        Polar QR SVD SingularValues
    """,
    "needs to solve equations, which ONNX cannot": """
        Inverse LogDeterminant MatrixExponential MatrixSquareRoot PseudoInverse Solve
        Sylvester TriangularSolve TridiagonalSolve
    """,
    "is a special function that ONNX does not have": """
        BesselI0e BesselI1e Betainc Digamma ErfInv ExpN Expi Fresnel Hyp1f1 Hyp2f1
        Igamma Igammac Lgamma LogNdtr Ndtri Polygamma Sici Spence Zeta
    """,
    "works on bits in a way that ONNX cannot express": """
        Bitcast Frexp LeadingZeros NextAfter PopulationCount ReducePrecision
    """,
    "is for several devices": """
        AllGather AllReduce FillPadding OnReplicaZero PaddedPiece ReduceScatter
        ReplicaIndex ShardSlice Whole
    """,
    "checks numbers while a step runs": """
        FirstFault KeepFault NonFinite OutOfRange
    """,
    "calls a Python function, which no file can hold": """
        Print PureCallback PyCallback
    """,
    "is code of JAX that ONNX has no operator for": """
        Lowered Primitive
    """,
    "has no counterpart in ONNX": """
        CTCBeamSearch CropAndResize Dilation2D EditDistance Gcd Lcm MapCoordinates
        Placeholder RaggedDot RaggedOuter UniqueRows UpdateByRows
    """,
}

WITHOUT_RULE: Final[Mapping[str, str]] = {
    name: reason for reason, names in _REASONS.items() for name in names.split()
}
"""Operators without a rule, and why they have none: texts that follow the operator's name."""
