"""Products of matrices, decompositions, spectra."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

from graphc import ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.ops import fft, linalg

FAMILY = Family()
FAMILY.plain(
    {
        "BatchCholesky": linalg.cholesky, "Cholesky": linalg.cholesky, "Cross": linalg.cross,
        "MatrixDeterminant": linalg.det,
    }
)  # fmt: skip


@FAMILY.rule("MatMul", "SparseMatMul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return ops.matmul(
        a,
        b,
        transpose_a=bool(call.attr("transpose_a", False)),
        transpose_b=bool(call.attr("transpose_b", False)),
    )


@FAMILY.rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a = _adjoint(a) if call.attr("adj_x", False) else a
    b = _adjoint(b) if call.attr("adj_y", False) else b
    wanted = call.node.attr("Tout")
    y = ops.matmul(a, b)
    return y if wanted is None else ops.cast(y, wanted.dtype)


@FAMILY.rule("Einsum")
def einsum(call: Call, *operands: Tensor) -> Tensor:
    equation = call.text("equation")
    if "..." in equation:
        equation = _without_ellipsis(call, equation, operands)
    return ops.einsum(equation, *operands)


def _without_ellipsis(call: Call, equation: str, operands: Sequence[Tensor]) -> str:
    """The equation with letters in the place of "...", which aligns axes from the right."""
    left, _, right = equation.replace(" ", "").partition("->")
    free = [c for c in string.ascii_letters if c not in equation]
    terms = left.split(",")
    ranks = [
        x.ndim - len(term.replace("...", ""))
        for term, x in zip(terms, operands, strict=True)
        if "..." in term
    ]
    if len(set(ranks)) != 1:
        call.refuse("has an ellipsis for different numbers of axes")
    return f"{left}->{right}".replace("...", "".join(free[: ranks[0]]))


@FAMILY.rule("LogMatrixDeterminant", outputs=("sign", "log_abs_determinant"))
def log_determinant(call: Call, a: Tensor) -> Sequence[Tensor]:
    return linalg.slogdet(a)


def _adjoint(a: Tensor) -> Tensor:
    return linalg.matrix_transpose(ops.conj(a) if a.dtype.kind == "c" else a)


@FAMILY.rule("MatrixInverse")
def inverse(call: Call, a: Tensor) -> Tensor:
    return linalg.inv(_adjoint(a) if call.attr("adjoint", False) else a)


@FAMILY.rule("MatrixSolve")
def solve(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return linalg.solve(_adjoint(a) if call.attr("adjoint", False) else a, b)


@FAMILY.rule("MatrixSolveLs")
def solve_least_squares(call: Call, a: Tensor, b: Tensor, l2: Tensor) -> Tensor:
    if a.ndim != 2:
        call.refuse("solves several systems")
    return linalg.solve(
        ops.matmul(_adjoint(a), a) + ops.cast(l2, a.dtype) * ops.eye(a.shape[1], dtype=a.dtype),
        ops.matmul(_adjoint(a), b),
    )


@FAMILY.rule("MatrixTriangularSolve", "BatchMatrixTriangularSolve")
def triangular_solve(call: Call, a: Tensor, b: Tensor) -> Tensor:
    transposed = bool(call.attr("adjoint", False))
    a = ops.conj(a) if transposed and a.dtype.kind == "c" else a
    batch = ops.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (
        ops.broadcast_to(a, (*batch, *a.shape[-2:])),
        ops.broadcast_to(b, (*batch, *b.shape[-2:])),
    )
    return linalg.triangular_solve(a, b, lower=bool(call.attr("lower", True)), transpose=transposed)


@FAMILY.rule("MatrixSquareRoot")
def square_root(call: Call, a: Tensor) -> Tensor:
    root = linalg.sqrtm(a)
    return root if a.dtype.kind == "c" else ops.real(root)


@FAMILY.rule("Qr", outputs=("q", "r"))
def qr(call: Call, a: Tensor) -> Sequence[Tensor]:
    found: Sequence[Tensor] = linalg.qr(a, "complete" if call.attr("full_matrices") else "reduced")
    return found


@FAMILY.rule("Svd", "BatchSvd", outputs=("s", "u", "v"))
def svd(call: Call, a: Tensor) -> Sequence[Tensor]:
    if not call.attr("compute_uv", True):
        s = linalg.svdvals(a)
        return [s, ops.zeros((0,), a.dtype), ops.zeros((0,), a.dtype)]
    u, s, vh = linalg.svd(a, bool(call.attr("full_matrices", False)))
    return [s, u, _adjoint(vh)]


@FAMILY.rule("SelfAdjointEigV2", outputs=("e", "v"))
def eigh(call: Call, a: Tensor) -> Sequence[Tensor]:
    values, vectors = linalg.eigh(a)
    return [values, vectors]


_FFT: dict[str, tuple[Callable[..., Tensor], int]] = {
    "FFT": (fft.fftn, 1), "FFT2D": (fft.fftn, 2), "FFT3D": (fft.fftn, 3),
    "IFFT": (fft.ifftn, 1), "IFFT2D": (fft.ifftn, 2), "IFFT3D": (fft.ifftn, 3),
}  # fmt: skip


@FAMILY.rule(*_FFT)
def fourier(call: Call, x: Tensor) -> Tensor:
    function, rank = _FFT[call.node.op]
    return ops.cast(function(x, axes=tuple(range(-rank, 0))), x.dtype)


_REAL_FFT: dict[str, tuple[Callable[..., Tensor], int]] = {
    "RFFT": (fft.rfftn, 1), "RFFT2D": (fft.rfftn, 2), "IRFFT": (fft.irfft, 1),
    "IRFFT2D": (fft.irfft2, 2),
}  # fmt: skip


@FAMILY.rule(*_REAL_FFT, kinds="td")
def real_fourier(call: Call, x: Tensor, sizes: Sequence[Dim]) -> Tensor:
    function, rank = _REAL_FFT[call.node.op]
    lengths = tuple(sizes)
    if function is fft.irfft:
        return function(x, lengths[0])
    return function(x, lengths, tuple(range(-rank, 0)))


@FAMILY.rule("Lu", outputs=("lu", "p"))
def lu(call: Call, a: Tensor) -> Sequence[Tensor]:
    if a.ndim != 2:
        call.refuse("decomposes several matrices")
    p, lower, upper = linalg.lu(a)
    packed = lower + upper - ops.eye(a.shape[0], a.shape[1], dtype=a.dtype)
    order = ops.argmax(p, 0)
    return [packed, ops.cast(order, call.dtype("output_idx_type", "int32"))]
