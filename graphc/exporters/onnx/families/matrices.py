"""Products of matrices and tensors."""

from __future__ import annotations

from string import ascii_letters
from typing import Final

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import Writer
from graphc.ir.dtypes import is_floating


def transposed(w: Writer, x: Value) -> Value:
    """`x` with its last two axes exchanged."""
    return w.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _mat_mul(c: Call) -> Value:
    a, b = c.narrow or c.xs
    if c.attrs["transpose_a"]:
        a = transposed(c.w, a)
    if c.attrs["transpose_b"]:
        b = transposed(c.w, b)
    if c.narrow:
        return c.w.op("MatMulInteger", a, b, dtype="int32")
    return c.w.op("MatMul", a, b)


def _dot_general(c: Call) -> Value:
    dtype = c.xs[0].dtype
    exact = "float32" if is_floating(dtype) else "int32"
    # Runtimes multiply these dtypes alone; narrower ones lose nothing.
    kept = dtype.name in ("float32", "float64", "int32", "int64") or dtype.itemsize > 4
    a, b = c.xs if kept else (c.w.cast(x, exact) for x in c.xs)
    names = iter(ascii_letters)
    left, right = ([""] * x.rank for x in c.xs)
    for kind in ("batch", "contract"):
        for i, j in zip(c.attrs[f"lhs_{kind}"], c.attrs[f"rhs_{kind}"], strict=True):
            left[i] = right[j] = next(names)
    left = [name or next(names) for name in left]
    right = [name or next(names) for name in right]
    shared = [left[i] for i in c.attrs["lhs_batch"]]
    gone = {left[i] for i in c.attrs["lhs_contract"]}
    free = [n for n in (*left, *right) if n not in gone and n not in shared]
    equation = f"{''.join(left)},{''.join(right)}->{''.join([*shared, *free])}"
    return c.w.op("Einsum", a, b, rank=len(shared) + len(free), equation=equation)


def _convolve(c: Call) -> Value:
    """A correlation with the reversed shorter vector."""
    x, y = c.xs
    (n,), (m,) = c.shape(0), c.shape(1)
    if isinstance(n, int) and isinstance(m, int) and m > n:
        x, y, n, m = y, x, m, n
    w = c.w
    last, before = w.ints([-1]), w.ints([-(2**62)])
    kernel = w.slice(y, last, before, [0], [-1])
    images, kernels = (w.unsqueeze(v, [0, 1]) for v in (x, kernel))
    if not isinstance(m, int):
        raise Refused(f"has the unknown size {m}")
    half = (m - 1) // 2
    pads = {"full": [m - 1, m - 1], "same": [m - 1 - half, half], "valid": [0, 0]}
    z = w.op("Conv", images, kernels, rank=3, pads=pads[c.attrs["mode"]])
    return w.squeeze(z, [0, 1])


RULES: Final[dict[str, Rule]] = {
    "Convolve": _convolve,
    "Determinant": lambda c: c.w.op("Det", c.xs[0], rank=c.xs[0].rank - 2),
    "DotGeneral": _dot_general,
    "MatMul": _mat_mul,
}
