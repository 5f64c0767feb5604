"""Validation of a pass: evaluates the program before and after it on the same random inputs.

It is for finding bugs in passes, not for every compilation, because both programs are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Any, Final, TypeAlias

import numpy as np

from graphc.errors import PassError
from graphc.ir.dims import Dim, DimExpr, substitute, symbols_of
from graphc.ir.dtypes import BOOL, Array, float_info, is_complex, is_floating, kind_of
from graphc.ir.opdef import PURE
from graphc.ir.program import Program, effects_of
from graphc.ir.rewrite import bind_sizes
from graphc.ir.types import TensorType

Evaluator: TypeAlias = Callable[[Program, Sequence[Array]], Sequence[Any]]
"""`(program, a value per input) -> a value per output`; the program has no named size left."""

_SIZES: Final = (3, 4, 2, 5, 6, 8, 1, 12, 10, 16)  # tried in this order, shifted for other names
_ATTEMPTS: Final = 100_000
# Minimum bits of the significand -> difference, relative to the largest magnitude, due to rounding.
_TOLERANCES: Final = ((50, 1e-8), (20, 1e-4), (7, 5e-2), (0, 0.3))


def check_meaning(before: Program, after: Program, evaluate: Evaluator, seed: int) -> str | None:
    """The difference between the programs on random inputs; None if there is none.

    A program with effects cannot be compared in this way, and is accepted.

    Raises:
        PassError: no small sizes satisfy the equalities of the program.
    """
    if any(effects_of(node) is not PURE for node in before.nodes):
        return None
    ports = _ports(before)
    if _ports(after) != ports:
        return f"the ports are {_ports(after)}, they were {ports}"
    sizes = choose_sizes(before)
    bound, bound_after = bind_sizes(before, sizes), bind_sizes(after, sizes)
    inputs = random_inputs(bound, seed)
    wanted = evaluate(bound, inputs)
    given = evaluate(bound_after, inputs)
    for port, want, got in zip(before.outputs, wanted, given, strict=True):
        difference = _difference(np.asarray(want), np.asarray(got))
        if difference is not None:
            at = f" (sizes {sizes})" if sizes else ""
            return f"output {port.name!r} differs: {difference}{at}, inputs from seed {seed}"
    return None


def _ports(program: Program) -> list[str]:
    """The ports that the caller sees."""
    return [f"{p.kind} {p.name}: {p.tensor.type}" for p in (*program.inputs, *program.outputs)]


def choose_sizes(program: Program) -> dict[str, int]:
    """Small values for the named sizes of the inputs, different ones if possible.

    Raises:
        PassError: no values were found that satisfy the equalities and make every dim positive.
    """
    names = program.symbols()
    dims = {d for n in program.walk() for t in n.outputs for d in t.type.shape}
    dims.update(d for t in program.input_tensors() for d in t.type.shape)
    known = set(names)
    judged = [d for d in dims if isinstance(d, DimExpr) and symbols_of(d) <= known]
    shifted = [_SIZES[i % 4 :] + _SIZES[: i % 4] for i in range(len(names))]
    for values in islice(product(*shifted), _ATTEMPTS):
        sizes = dict(zip(names, values, strict=True))
        if _fit_together(sizes, program.equalities, judged):
            return sizes
    raise PassError(
        f"no small sizes found to validate program {program.name!r} with",
        details=[f"{a} == {b}" for a, b in program.equalities],
        hint="compile without validate=True",
    )


def _fit_together(
    sizes: Mapping[str, int], equalities: Sequence[tuple[Dim, Dim]], dims: Sequence[Dim]
) -> bool:
    return all(substitute(a, sizes) == substitute(b, sizes) for a, b in equalities) and all(
        substitute(dim, sizes) > 0 for dim in dims
    )


def random_inputs(program: Program, seed: int) -> list[Array]:
    """A random value for each input of a program without named sizes.

    Floats are normally distributed. Integers are small and not negative, so that they are valid
    indices and keys.
    """
    rng = np.random.default_rng(seed)
    return [random_value(rng, tensor.type) for tensor in program.input_tensors()]


def random_value(rng: np.random.Generator, type: TensorType) -> Array:
    """A random value of a type without named sizes: see `random_inputs`."""
    shape: Any = type.shape
    value: Array
    if kind_of(type.dtype) in ("bool", "integer"):
        value = rng.integers(0, 2 if type.dtype == BOOL else 4, shape)
    elif is_complex(type.dtype):
        value = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    else:
        value = rng.standard_normal(shape)
    return np.asarray(value).astype(type.dtype)


def _difference(want: Array, got: Array) -> str | None:
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{got.dtype.name}{list(got.shape)} in place of {want.dtype.name}{list(want.shape)}"
    if not (is_floating(want.dtype) or is_complex(want.dtype)):
        wrong = want != got
        return _first(wrong, want, got) if wrong.any() else None
    wide = np.complex128 if is_complex(want.dtype) else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = want.astype(wide), got.astype(wide)
        finite = np.isfinite(a) & np.isfinite(b)
        scale = np.abs(a[finite]).max(initial=1.0)
        near = np.abs(a - b) <= tolerance_of(want.dtype) * scale
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    wrong = ~np.where(finite, near, same)
    return _first(wrong, want, got) if wrong.any() else None


def tolerance_of(dtype: np.dtype[Any]) -> float:
    """The tolerated rounding difference relative to the largest magnitude, for a floating or
    complex dtype."""
    bits = float_info(dtype).nmant
    return next(bound for least, bound in _TOLERANCES if bits >= least)


def _first(wrong: Array, want: Array, got: Array) -> str:
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f" at {list(index)}" if index else ""
    return f"{want[index]} before, {got[index]} after{where}"
