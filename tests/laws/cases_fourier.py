"""Cases of graphc/ops/scipy_api/fourier.py and the functions of graphc/ops/fft.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError
from graphc.ops import fft as ops
from graphc.ops.core.emit import emit
from graphc.ops.elementwise.complex_parts import imag, make_complex, real
from graphc.ops.reductions.reduction import reduce_sum
from graphc.ops.scipy_api.fourier import FFT
from tests.laws.case import Bad, Case, In

X = In((4, 6), batch_axis=0)
IMAGES = In((4, 3, 5), batch_axis=0)
ALL = ("int32", "float16", "float32", "float64", "complex64", "complex128")
REAL = ("int32", "bfloat16", "float32", "float64")


def parts(z):
    """Combines real and imaginary parts with different weights."""
    return real(z) + 2.0 * imag(z * z)


def parts_array(z):
    return np.real(z) + 2.0 * np.imag(z * z)


def through(name, label, inputs, *args):
    """A transform of complex numbers with real inputs and outputs."""
    function, oracle = getattr(ops, name), getattr(np.fft, name)
    return Case(
        "FFT",
        lambda a, b: parts(function(make_complex(a, b), *args)),
        inputs,
        lambda a, b: parts_array(oracle(a + 1j * b, *args)),
        ("float64",),
        label=f"{name} {label}",
    )


def of_real(name, label, x, *args, dtypes=("float64",)):
    function, oracle = getattr(ops, name), getattr(np.fft, name)
    return Case(
        "FFT",
        lambda a: function(a, *args),
        [x],
        lambda a: oracle(a, *args),
        dtypes,
        rtol=1e-4,
        atol=1e-5,
        label=f"{name} {label}",
    )


CASES = (
    Case("FFT", ops.fft, [X], np.fft.fft, ALL, rtol=1e-4, atol=1e-5, gradient=False, bad=[
        Bad(lambda x: ops.fft(x, axis=2), [In((2, 3))], AttributeValueError, "axis 2 is out of"),
        Bad(lambda x: ops.fft(x, norm="no"), [In((2,))], AttributeValueError, "norm must be"),
        Bad(lambda x: ops.fftn(x, (2, 2)), [In((4,))], AttributeValueError, "axis -2 is out of"),
        Bad(lambda x: ops.fftn(x, (2,), (0, 1)), [In((4, 4))], AttributeValueError, "1 sizes for"),
        Bad(ops.fftn, [In(())], AttributeValueError, "no axis to transform"),
        Bad(ops.rfft, [In((4,), "complex64")], DTypeError, "must be float32 or float64"),
        Bad(lambda x: emit(FFT, (x,), kind="DCT", lengths=(4,)), [In((4,))], AttributeValueError,
            "kind must be one of"),
        Bad(lambda _: ops.fftfreq(0), [In(())], AttributeValueError, "a positive int"),
    ]),
    of_real("rfft", "", X, dtypes=REAL),
    of_real("rfft", "odd", IMAGES),
    of_real("rfft", "cut", X, 4, 1),
    of_real("rfft", "along the batch", X, None, 0),
    of_real("rfftn", "", IMAGES, None, (1, 2)),
    of_real("ihfft", "", X),
    of_real("irfft", "of real numbers", X, None, -1, "forward", dtypes=("float32", "float64")),
    of_real("fft", "filled up", X, 8, -1, "ortho"),
    of_real("fftn", "of four axes", In((2, 2, 3, 2))),
    of_real("rfftn", "of four axes", In((2, 2, 3, 2)), None, None, "ortho"),
    through("fft", "forward", [X, X], None, -1, "forward"),
    through("ifft", "", [X, X], None, 0),
    through("ifft", "ortho", [X, X], None, -1, "ortho"),
    through("fft2", "", [IMAGES, IMAGES]),
    through("ifftn", "in order", [IMAGES, IMAGES], (3, 4), (2, 1)),
    through("irfft", "", [X, X]),
    through("irfft", "odd", [X, X], 7),
    through("irfft2", "", [IMAGES, IMAGES]),
    through("irfftn", "of four axes", [In((2, 2, 3, 2))] * 2),
    through("hfft", "", [X, X]),
    Case("FFT", lambda a: parts(ops.fft(reduce_sum(a, 0))), [IMAGES],
         lambda a: parts_array(np.fft.fft(a.sum(0))), label="partial"),
    *[
        Case("Concatenate", getattr(ops, name), [IMAGES], getattr(np.fft, name), label=name)
        for name in ("fftshift", "ifftshift")
    ],
    Case("Concatenate", lambda a: ops.fftshift(a, -1), [IMAGES],
         lambda a: np.fft.fftshift(a, -1), label="fftshift of one axis"),
    *[
        Case("Constant", lambda n=n: (ops.fftfreq(n, 0.5), ops.rfftfreq(n)), [],
             lambda n=n: (np.fft.fftfreq(n, 0.5), np.fft.rfftfreq(n)), ("float32",),
             gradient=False, label=f"frequencies {n}")
        for n in (4, 5)
    ],
)  # fmt: skip
