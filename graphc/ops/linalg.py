"""`gc.linalg`: linear algebra, under NumPy's names."""

from graphc.ops.contraction import tensordot as tensordot
from graphc.ops.factorization import cholesky as cholesky
from graphc.ops.factorization import eigh as eigh
from graphc.ops.factorization import eigvalsh as eigvalsh
from graphc.ops.factorization import qr as qr
from graphc.ops.factorization import svd as svd
from graphc.ops.factorization import svdvals as svdvals
from graphc.ops.general_matrices import eig as eig
from graphc.ops.general_matrices import eigvals as eigvals
from graphc.ops.general_matrices import lu as lu
from graphc.ops.general_matrices import lu_factor as lu_factor
from graphc.ops.general_matrices import lu_solve as lu_solve
from graphc.ops.general_matrices import schur as schur
from graphc.ops.general_matrices import tridiagonal_solve as tridiagonal_solve
from graphc.ops.matrices import matrix_transpose as matrix_transpose
from graphc.ops.matrix_functions import det as det
from graphc.ops.matrix_functions import expm as expm
from graphc.ops.matrix_functions import matrix_power as matrix_power
from graphc.ops.matrix_functions import slogdet as slogdet
from graphc.ops.matrix_functions import trace as trace
from graphc.ops.matrix_product import matmul as matmul
from graphc.ops.matrix_product import outer as outer
from graphc.ops.norms import cond as cond
from graphc.ops.norms import lstsq as lstsq
from graphc.ops.norms import matrix_norm as matrix_norm
from graphc.ops.norms import matrix_rank as matrix_rank
from graphc.ops.norms import norm as norm
from graphc.ops.norms import vector_norm as vector_norm
from graphc.ops.solving import cholesky_solve as cholesky_solve
from graphc.ops.solving import inv as inv
from graphc.ops.solving import pinv as pinv
from graphc.ops.solving import solve as solve
from graphc.ops.solving import triangular_solve as triangular_solve
from graphc.ops.vector_products import cross as cross
from graphc.ops.vector_products import multi_dot as multi_dot
from graphc.ops.vector_products import vecdot as vecdot

__all__ = [
    "cholesky",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
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
    "qr",
    "schur",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "triangular_solve",
    "tridiagonal_solve",
    "vecdot",
    "vector_norm",
]
