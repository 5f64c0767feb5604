"""`gc.linalg`: linear algebra, under NumPy's names."""

from graphc.ops.matrices.contraction import tensordot as tensordot
from graphc.ops.matrices.factorization import cholesky as cholesky
from graphc.ops.matrices.factorization import eigh as eigh
from graphc.ops.matrices.factorization import eigvalsh as eigvalsh
from graphc.ops.matrices.factorization import qr as qr
from graphc.ops.matrices.factorization import svd as svd
from graphc.ops.matrices.factorization import svdvals as svdvals
from graphc.ops.matrices.general_matrices import eig as eig
from graphc.ops.matrices.general_matrices import eigvals as eigvals
from graphc.ops.matrices.general_matrices import lu as lu
from graphc.ops.matrices.general_matrices import lu_factor as lu_factor
from graphc.ops.matrices.general_matrices import lu_solve as lu_solve
from graphc.ops.matrices.general_matrices import schur as schur
from graphc.ops.matrices.general_matrices import tridiagonal_solve as tridiagonal_solve
from graphc.ops.matrices.matrix_checks import matrix_transpose as matrix_transpose
from graphc.ops.matrices.matrix_functions import det as det
from graphc.ops.matrices.matrix_functions import expm as expm
from graphc.ops.matrices.matrix_functions import matrix_power as matrix_power
from graphc.ops.matrices.matrix_functions import slogdet as slogdet
from graphc.ops.matrices.matrix_functions import trace as trace
from graphc.ops.matrices.matrix_product import matmul as matmul
from graphc.ops.matrices.matrix_product import outer as outer
from graphc.ops.matrices.matrix_roots import polar as polar
from graphc.ops.matrices.matrix_roots import solve_sylvester as solve_sylvester
from graphc.ops.matrices.matrix_roots import sqrtm as sqrtm
from graphc.ops.matrices.norms import cond as cond
from graphc.ops.matrices.norms import lstsq as lstsq
from graphc.ops.matrices.norms import matrix_norm as matrix_norm
from graphc.ops.matrices.norms import matrix_rank as matrix_rank
from graphc.ops.matrices.norms import norm as norm
from graphc.ops.matrices.norms import vector_norm as vector_norm
from graphc.ops.matrices.reflections import hessenberg as hessenberg
from graphc.ops.matrices.reflections import householder_product as householder_product
from graphc.ops.matrices.solving import cholesky_solve as cholesky_solve
from graphc.ops.matrices.solving import inv as inv
from graphc.ops.matrices.solving import pinv as pinv
from graphc.ops.matrices.solving import solve as solve
from graphc.ops.matrices.solving import triangular_solve as triangular_solve
from graphc.ops.matrices.structured_matrices import block_diag as block_diag
from graphc.ops.matrices.structured_matrices import circulant as circulant
from graphc.ops.matrices.structured_matrices import hadamard as hadamard
from graphc.ops.matrices.structured_matrices import hankel as hankel
from graphc.ops.matrices.structured_matrices import hilbert as hilbert
from graphc.ops.matrices.structured_matrices import khatri_rao as khatri_rao
from graphc.ops.matrices.structured_matrices import toeplitz as toeplitz
from graphc.ops.matrices.symmetric_matrices import cholesky_update as cholesky_update
from graphc.ops.matrices.symmetric_matrices import eigh_tridiagonal as eigh_tridiagonal
from graphc.ops.matrices.tensor_equations import tensorinv as tensorinv
from graphc.ops.matrices.tensor_equations import tensorsolve as tensorsolve
from graphc.ops.matrices.vector_products import cross as cross
from graphc.ops.matrices.vector_products import multi_dot as multi_dot
from graphc.ops.matrices.vector_products import vecdot as vecdot

__all__ = [
    "block_diag",
    "cholesky",
    "cholesky_solve",
    "cholesky_update",
    "circulant",
    "cond",
    "cross",
    "det",
    "eig",
    "eigh",
    "eigh_tridiagonal",
    "eigvals",
    "eigvalsh",
    "expm",
    "hadamard",
    "hankel",
    "hessenberg",
    "hilbert",
    "householder_product",
    "inv",
    "khatri_rao",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "polar",
    "qr",
    "schur",
    "slogdet",
    "solve",
    "solve_sylvester",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "toeplitz",
    "trace",
    "triangular_solve",
    "tridiagonal_solve",
    "vecdot",
    "vector_norm",
]
