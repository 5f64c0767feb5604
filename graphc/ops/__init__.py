"""The operator catalogue, with one file for each family, and the functions that build nodes.

A family lists its public functions in its `__all__`. `gc` has the public functions of the families
below, under the same names.
"""

# Type checkers treat every name here without an underscore as a name of `gc`.
import typing as _typing

from graphc import exports as _exports
from graphc.ir.calls import explain_all as _explain_all
from graphc.ops import fft as fft
from graphc.ops import linalg as linalg
from graphc.ops import methods as _methods
from graphc.ops import random as random
from graphc.ops.arrays.along_axis import *
from graphc.ops.arrays.creation import *
from graphc.ops.arrays.diagonals import *
from graphc.ops.arrays.dynamic_slicing import *
from graphc.ops.arrays.gathering_nd import *
from graphc.ops.arrays.index_pairs import *
from graphc.ops.arrays.indexing import *
from graphc.ops.arrays.joining import *
from graphc.ops.arrays.padding import *
from graphc.ops.arrays.repeating import *
from graphc.ops.arrays.scattering import *
from graphc.ops.arrays.scattering_nd import *
from graphc.ops.arrays.shape import *
from graphc.ops.arrays.slicing import *
from graphc.ops.arrays.stacking import *
from graphc.ops.control.associative import *
from graphc.ops.control.branching import *
from graphc.ops.control.calling import *
from graphc.ops.control.scan import *
from graphc.ops.control.while_loops import *
from graphc.ops.core.emit import *
from graphc.ops.elementwise.activation import log_softmax as log_softmax
from graphc.ops.elementwise.activation import softmax as softmax
from graphc.ops.elementwise.arithmetic import *
from graphc.ops.elementwise.binary_floats import *
from graphc.ops.elementwise.bits import *
from graphc.ops.elementwise.comparison import *
from graphc.ops.elementwise.complex_parts import *
from graphc.ops.elementwise.floats import *
from graphc.ops.elementwise.integers import *
from graphc.ops.elementwise.powers import *
from graphc.ops.elementwise.rounding import *
from graphc.ops.elementwise.transcendental import *
from graphc.ops.matrices.contraction import *
from graphc.ops.matrices.einsum import *
from graphc.ops.matrices.matrix_product import *
from graphc.ops.matrices.ragged import *
from graphc.ops.matrices.vector_products import *
from graphc.ops.nn.fake_quantizing import *
from graphc.ops.nn.quantizing import *
from graphc.ops.numpy_api.correlations import *
from graphc.ops.numpy_api.differences import *
from graphc.ops.numpy_api.grids import *
from graphc.ops.numpy_api.nan_reductions import *
from graphc.ops.numpy_api.other_graph_names import *
from graphc.ops.numpy_api.other_names import *
from graphc.ops.numpy_api.partitions import *
from graphc.ops.numpy_api.pieces import *
from graphc.ops.numpy_api.polynomials import *
from graphc.ops.numpy_api.predicates import *
from graphc.ops.numpy_api.rearranging import *
from graphc.ops.numpy_api.searching import *
from graphc.ops.numpy_api.segments import *
from graphc.ops.numpy_api.select import *
from graphc.ops.numpy_api.sized import *
from graphc.ops.numpy_api.statistics import *
from graphc.ops.numpy_api.ufuncs import *
from graphc.ops.reductions.approximate import *
from graphc.ops.reductions.axiswise import *
from graphc.ops.reductions.reduction import *
from graphc.ops.reductions.sorting import *
from graphc.ops.scipy_api.convolving import *
from graphc.ops.scipy_api.hypergeometric import *
from graphc.ops.scipy_api.integrals import *
from graphc.ops.scipy_api.special import *
from graphc.ops.scipy_api.special_expressions import *
from graphc.ops.structure.host import *
from graphc.ops.structure.sharding import *
from graphc.ops.structure.state import *

_explain_all(globals(), __name__)
_methods.bind(globals())

if not _typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = _exports.names(globals())

    def __dir__() -> list[str]:
        return __all__
