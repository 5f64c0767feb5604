"""Cases of graphc/ops/scipy_api/hypergeometric.py.

They compile for seconds, so there is one dtype. Other elementwise operators test the layout rule.
"""

from __future__ import annotations

from scipy import special

from graphc.errors import DTypeError
from graphc.ops.scipy_api import hypergeometric as ops
from tests.laws.case import Bad, Case, In

A = In((), "float64", values=1.7)
B = In((), "float64", values=2.4)
C = In((), "float64", values=3.3)
LINE = In((4, 1), "float64", values=[[-120.0], [-20.0], [-0.7], [4.0]])
UNIT = In((4, 1), "float64", values=[[-5.0], [-0.6], [0.1], [0.7]])
COMPLEX = In((2,), "complex64")

CASES = (
    Case("Hyp1f1", ops.hyp1f1, [A, B, LINE], special.hyp1f1, ("float64",), layout=False,
         bad=[Bad(ops.hyp1f1, [COMPLEX] * 3, DTypeError, "a must be floating")]),
    # Derivatives are tested in tests/ops/scipy_api/test_special_gradients.py.
    Case("Hyp2f1", ops.hyp2f1, [A, B, C, UNIT], special.hyp2f1, ("float64",),
         gradient=False, layout=False,
         bad=[Bad(ops.hyp2f1, [COMPLEX] * 4, DTypeError, "a must be floating")]),
)  # fmt: skip
