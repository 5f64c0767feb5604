"""`gc.linalg`: linear algebra, under NumPy's names."""

import typing

from graphc.ir.calls import explain_all as _explain_all
from graphc.ir.namespaces import namespace as _namespace
from graphc.ops.matrices.contraction import tensordot as tensordot
from graphc.ops.matrices.factorization import *
from graphc.ops.matrices.general_matrices import *
from graphc.ops.matrices.matrix_chains import *
from graphc.ops.matrices.matrix_checks import *
from graphc.ops.matrices.matrix_functions import *
from graphc.ops.matrices.matrix_product import matmul as matmul
from graphc.ops.matrices.matrix_product import outer as outer
from graphc.ops.matrices.matrix_roots import *
from graphc.ops.matrices.norms import *
from graphc.ops.matrices.reflections import *
from graphc.ops.matrices.solving import *
from graphc.ops.matrices.structured_matrices import *
from graphc.ops.matrices.symmetric_matrices import *
from graphc.ops.matrices.tensor_equations import *
from graphc.ops.matrices.vector_products import cross as cross
from graphc.ops.matrices.vector_products import vecdot as vecdot

_explain_all(globals(), "graphc")

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.linalg", globals())
