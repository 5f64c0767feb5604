"""The library kernels that a program may call, with the shapes, dtypes and attributes of each.

XLA passes buffers to these kernels (LAPACK, cuSOLVER, ...) as the program describes them, and many
kernels derive every size from the first operand: if a program gives `getrf` a result for the pivots
that is too short, the kernel writes past its end. So a call is allowed only if it is exactly what
JAX writes for such operands. The table below describes these calls; a kernel that is not in the
table is not called from a file.

A signature names the operands and results of a kernel without its batch dimensions, which all of
them share: `T[m,n] -> T[m,n] i32[min(m,n)] i32[]`. A named size is bound where the
name first occurs. `T` is the dtype of the kernel, `R` the real one of the same precision, `C` the
complex one. `T()` is a scalar without batch dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_FLOATS = ("f32", "f64", "complex<f32>", "complex<f64>")
_REAL = {"f32": "f32", "f64": "f64", "complex<f32>": "f32", "complex<f64>": "f64"}
_COMPLEX = {real: f"complex<{real}>" for real in ("f32", "f64")}
_TENSOR = re.compile(r"tensor<((?:(?:[0-9]{1,18}|\?)x)*)([a-z][a-z0-9]*|complex<f(?:32|64)>)>")
_CONFIG = re.compile(r"\{((?:\w+ = [\w :.+-]+)(?:, \w+ = [\w :.+-]+)*)?\}")

# Characters that LAPACK takes, as JAX writes them.
_N, _V, _A, _S, _L, _U, _R, _T, _C = (f"{ord(c)} : ui8" for c in "NVASLURTC")
_BOOL = ("false", "true")


@dataclass(frozen=True)
class Contract:
    """One way in which a kernel may be called.

    Attributes:
        signature: see the docstring of the module.
        config: attribute of the kernel -> the values that it may have, as MLIR prints them. Sizes
            of the signature are in braces.
        aliases: (result, operand) pairs that share a buffer.
        where: sizes that must be in ascending order.
        columns: whether matrices are stored column by column; None if the call names no layouts.
        backend_config: the texts that the call may have instead of a config.
    """

    signature: str
    config: Mapping[str, Sequence[str]] = field(default_factory=dict)
    aliases: tuple[tuple[int, int], ...] = ()
    where: tuple[str, ...] = ()
    columns: bool | None = True
    backend_config: tuple[str, ...] = ()


class Array(NamedTuple):
    """The type of an operand or result; an open size is None."""

    dtype: str
    shape: tuple[int | None, ...]


class ContractError(Exception):
    """A call does not fit its kernel. The text states the reason."""


# -- the table ------------------------------------------------------------------------------

_SAME = ((0, 0),)
# The kernels that LAPACK and cuSOLVER have alike.
_ANYWHERE: dict[str, tuple[Contract, ...]] = {
    "getrf": (Contract("T[m,n] -> T[m,n] i32[min(m,n)] i32[]", aliases=_SAME),),
    "geqrf": (Contract("T[m,n] -> T[m,n] T[min(m,n)]", aliases=_SAME),),
    "orgqr": (Contract("T[m,n] T[k] -> T[m,n]", aliases=_SAME, where=("k", "n", "m")),),
    "ormqr": (
        Contract(
            "T[m,k] T[k] T[m,p] -> T[m,p]",
            {"left": ["true"], "transpose": _BOOL}, ((0, 2),), ("k", "m"),
        ),
        Contract(
            "T[m,k] T[k] T[p,m] -> T[p,m]",
            {"left": ["false"], "transpose": _BOOL}, ((0, 2),), ("k", "m"),
        ),
    ),
}  # fmt: skip
_GESDD = Contract("T[m,n] -> T[m,n] R[min(m,n)] T[m,m] T[n,n] i32[]", {"mode": [_A, _N]}, _SAME)
_GESDD_THIN = Contract(
    "T[m,n] -> T[m,n] R[min(m,n)] T[m,min(m,n)] T[min(m,n),n] i32[]", {"mode": [_S, _N]}, _SAME
)
_GEEV = {"compute_left": [_N, _V], "compute_right": [_N, _V]}
_GEES = {"mode": [_N, _V], "sort": [_N]}
_TRSM = {"diag": [_N, _U], "trans_x": [_N, _T, _C], "uplo": [_L, _U]}
_SYTRD = "T[n,n] -> T[n,n] R[n] R[n-1] T[n-1] i32[]"

_LAPACK: dict[str, tuple[Contract, ...]] = {  # keys: names without the letter of the dtype
    **_ANYWHERE,
    "geqp3": (Contract("T[m,n] i32[n] -> T[m,n] i32[n] T[min(m,n)]", aliases=((0, 0), (1, 1))),),
    "potrf": (Contract("T[n,n] -> T[n,n] i32[]", {"uplo": [_L, _U]}, _SAME),),
    "trsm": (
        Contract("T[m,m] T[m,n] -> T[m,n]", _TRSM | {"side": [_L]}, ((0, 1),)),
        Contract("T[n,n] T[m,n] -> T[m,n]", _TRSM | {"side": [_R]}, ((0, 1),)),
    ),
    "gesdd": (_GESDD, _GESDD_THIN),
    "syevd": (
        Contract("T[n,n] -> T[n,n] R[n] i32[]", {"mode": [_N, _V], "uplo": [_L, _U]}, _SAME),
    ),
    "geev": (Contract("T[n,n] -> T[n] T[n] C[n,n] C[n,n] i32[]", _GEEV),),
    "gees": (Contract("T[n,n] -> T[n,n] T[n,n] T[n] T[n] i32[] i32[]", _GEES, _SAME),),
    "gehrd": (
        Contract(
            "T[n,n] -> T[n,n] T[n-1] i32[]", {"low": ["1 : i32"], "high": ["{n} : i32"]}, _SAME
        ),
    ),
    "sytrd": (Contract(_SYTRD, {"uplo": [_L, _U]}, _SAME),),
    "gtsv": (
        Contract(
            "T[n] T[n] T[n] T[n,k] -> T[n] T[n] T[n] T[n,k] i32[]",
            aliases=((0, 0), (1, 1), (2, 2), (3, 3)),
        ),
    ),
}
_LAPACK_COMPLEX = {  # kernels for complex numbers that have another name or other results
    "ungqr": _LAPACK["orgqr"],
    "unmqr": _LAPACK["ormqr"],
    "heevd": _LAPACK["syevd"],
    "hetrd": _LAPACK["sytrd"],
    "geev": (Contract("T[n,n] -> T[n] T[n,n] T[n,n] i32[]", _GEEV),),
    "gees": (Contract("T[n,n] -> T[n,n] T[n,n] T[n] i32[] i32[]", _GEES, _SAME),),
}
_REAL_ONLY = ("orgqr", "ormqr", "syevd", "sytrd")

_GESVDJ = {"compute_uv": _BOOL}
_GESVD = "T[m,n] -> T[m,n] R[min(m,n)] "


def _gesvd(left: str, right: str, full: str, uv: str, *, wide: bool = False) -> Contract:
    """A way to call `gesvd`. A wide matrix is stored by rows, so the kernel sees its transpose."""
    config = {"full_matrices": [full], "compute_uv": [uv], "transposed": [_BOOL[wide]]}
    where = ("m", "n") if wide else ("n", "m")
    return Contract(f"{_GESVD}{left} {right} i32[]", config, _SAME, where, columns=not wide)


_SOLVER: dict[str, tuple[Contract, ...]] = {  # cuSOLVER and hipSOLVER
    **_ANYWHERE,
    "potrf": (Contract("T[n,n] -> T[n,n] i32[]", {"lower": _BOOL}, _SAME),),
    "syevd": (
        Contract(
            "T[n,n] -> T[n,n] R[n] i32[]",
            {"algorithm": [f"{i} : ui8" for i in range(3)], "lower": _BOOL},
            _SAME,
        ),
    ),
    "sytrd": (Contract(_SYTRD, {"lower": _BOOL}, _SAME),),
    "gesvdj": (
        Contract(_GESVD + "T[m,m] T[n,n] i32[]", _GESVDJ | {"full_matrices": ["true"]}, _SAME),
        Contract(
            _GESVD + "T[m,min(m,n)] T[n,min(m,n)] i32[]",
            _GESVDJ | {"full_matrices": ["false"]},
            _SAME,
        ),
    ),
    "gesvd": (
        _gesvd("T[m,m]", "T[n,n]", "true", "true"),
        _gesvd("T[m,n]", "T[n,n]", "false", "true"),
        _gesvd("T()", "T()", "true", "false"),
        _gesvd("T()", "T()", "false", "false"),
        _gesvd("T[n,n]", "T[m,m]", "true", "true", wide=True),
        _gesvd("T[m,n]", "T[m,m]", "false", "true", wide=True),
        _gesvd("T()", "T()", "true", "false", wide=True),
        _gesvd("T()", "T()", "false", "false", wide=True),
    ),
}
_OTHERS: dict[str, tuple[Contract, ...]] = {
    "cusparse_gtsv2_ffi": (Contract("T[n] T[n] T[n] T[n,k] -> T[n,k]", aliases=((0, 3),)),),
    "cu_lu_pivots_to_permutation": (Contract("i32[k] -> i32[n]", where=("k", "n")),),
    "hip_lu_pivots_to_permutation": (Contract("i32[k] -> i32[n]", where=("k", "n")),),
    # Kernels that XLA itself expands into operations, on every platform.
    "Qr": (Contract("T[m,n] -> T[m,n] T[min(m,n)]", columns=None),),
    "ProductOfElementaryHouseholderReflectors": (
        Contract("T[m,n] T[k] -> T[m,n]", where=("k", "n", "m"), columns=None),
    ),
    "Eigh": (
        Contract(
            "T[n,n] -> T[n,n] R[n]",
            columns=None,
            backend_config=tuple(f'"{a},{b},100,1e-6"' for a in "01" for b in "01"),
        ),
    ),
    "LuDecomposition": (Contract("T[m,n] -> T[m,n] i32[min(m,n)] i32[m]", columns=None),),
}


def _table() -> Iterator[tuple[str, tuple[tuple[Contract, str], ...]]]:
    """Pairs: the name of a kernel, and the ways to call it, each with the dtype of T."""
    for letter, dtype in zip("sdcz", _FLOATS, strict=True):
        complex = letter in "cz"
        plain = {k: v for k, v in _LAPACK.items() if not (complex and k in _REAL_ONLY)}
        for name, ways in (plain | (_LAPACK_COMPLEX if complex else {})).items():
            yield f"lapack_{letter}{name}_ffi", tuple((way, dtype) for way in ways)
    anywhere = {
        f"{lib}_{n}_ffi": w for lib in ("cusolver", "hipsolver") for n, w in _SOLVER.items()
    }
    for name, ways in (anywhere | _OTHERS).items():
        yield name, tuple((way, dtype) for way in ways for dtype in _FLOATS)


KERNELS: dict[str, tuple[tuple[Contract, str], ...]] = dict(_table())

# JAX may change the calls of these kernels in any version. A file has them for the JAX version that
# wrote it.
CHANGING: tuple[str, ...] = tuple(
    name for name in KERNELS if name.endswith(("geqp3_ffi", "ormqr_ffi", "unmqr_ffi"))
)


# -- checking -------------------------------------------------------------------------------


def array(text: str) -> Array:
    """The type that MLIR prints as `text`.

    Raises:
        ContractError: it is not a tensor of plain numbers.
    """
    found = _TENSOR.fullmatch(text)
    if found is None:
        raise ContractError(f"an operand or result is {text[:80]}")
    sizes = found[1].split("x")[:-1]
    return Array(found[2], tuple(None if size == "?" else int(size) for size in sizes))


def check_kernel(call: Mapping[str, Any]) -> None:
    """Checks a call of a kernel in the table whose sizes are all known.

    Args:
        call: see `untrusted.findings`.

    Raises:
        ContractError: the call does not fit the kernel.
    """
    operands, results = [[array(t) for t in call[side]] for side in ("operands", "results")]
    reasons = []
    for contract, dtype in KERNELS[call["target"]]:
        try:
            sizes, matrices = _bind(contract, dtype, operands, results)
            _check_attributes(contract, call["attributes"], sizes, matrices, len(operands))
            return
        except ContractError as error:
            reasons.append(str(error))
    raise ContractError(reasons[0])


def _bind(
    contract: Contract, dtype: str, operands: Sequence[Array], results: Sequence[Array]
) -> tuple[dict[str, int], list[tuple[int, bool]]]:
    """The sizes by name, and for each array its rank and whether it holds matrices."""
    given, wanted = contract.signature.split(" -> ")
    specs = [*given.split(), *wanted.split()]
    arrays = [*operands, *results]
    if len(given.split()) != len(operands) or len(specs) != len(arrays):
        raise ContractError(f"the number of arrays does not match {contract.signature}")
    kinds = {"T": dtype, "R": _REAL[dtype], "C": _COMPLEX[_REAL[dtype]], "i32": "i32"}
    first = len(_dims(specs[0]))
    batch = arrays[0].shape[: max(len(arrays[0].shape) - first, 0)]
    sizes: dict[str, int] = {"batch": len(batch)}
    matrices = []
    for spec, one in zip(specs, arrays, strict=True):
        dims = _dims(spec)
        lead = () if spec.endswith("()") else batch
        if one.dtype != kinds[re.split(r"[\[(]", spec)[0]]:
            raise ContractError(f"{one.dtype} for {spec}")
        if len(one.shape) != len(lead) + len(dims) or one.shape[: len(lead)] != lead:
            raise ContractError(f"shape {one.shape} for {spec} with batch dimensions {batch}")
        for dim, size in zip(dims, one.shape[len(lead) :], strict=True):
            expected = sizes.setdefault(dim, size or 0) if dim.isalpha() else _size(dim, sizes)
            if size != expected or (dim.isalpha() and size < 1):
                raise ContractError(f"a size of {size} for {dim} of {spec}, which is {expected}")
        matrices.append((len(one.shape), len(dims) > 1))
    order = [sizes[name] for name in contract.where]
    if order != sorted(order):
        raise ContractError(f"sizes {order} for {' <= '.join(contract.where)}")
    return sizes, matrices


def _dims(spec: str) -> list[str]:
    inner = re.split(r"[\[(]", spec, maxsplit=1)[1][:-1]
    return re.findall(r"min\(m,n\)|[\w-]+", inner)


def _size(expression: str, sizes: Mapping[str, int]) -> int:
    if expression == "min(m,n)":
        return min(sizes["m"], sizes["n"])
    name, _, less = expression.partition("-")
    return sizes[name] - int(less)


def _check_attributes(
    contract: Contract,
    given: Mapping[str, str],
    sizes: Mapping[str, int],
    matrices: Sequence[tuple[int, bool]],
    operands: int,
) -> None:
    attributes = dict(given)
    attributes.pop("sdy.sharding_rule", None)  # only for several devices, which call no kernel
    frontend = attributes.pop("mhlo.frontend_attributes", None)
    if frontend not in (None, f'{{num_batch_dims = "{sizes["batch"]}"}}', "{}"):
        raise ContractError("unexpected mhlo.frontend_attributes")
    expected: dict[str, Sequence[str | None]] = {
        "api_version": (None, "1 : i32", "2 : i32"),
        "called_computations": (None, "[]"),
        "has_side_effect": (None, "false"),
        "output_operand_aliases": _alias_texts(contract, len(matrices) - operands),
    }
    if contract.columns is not None:
        config = attributes.pop("mhlo.backend_config", "")
        _check_config(contract, config, sizes)
        layouts = [_layout(rank, matrix and contract.columns) for rank, matrix in matrices]
        expected["api_version"] = (None, "1 : i32", "4 : i32")
        expected["operand_layouts"] = (f"[{', '.join(layouts[:operands])}]",)
        expected["result_layouts"] = (f"[{', '.join(layouts[operands:])}]",)
    elif contract.backend_config:
        expected["backend_config"] = contract.backend_config
    else:
        expected["backend_config"] = (None, '""')
    for name in {*attributes, *expected}:
        if attributes.get(name) not in expected.get(name, ()):
            raise ContractError(f"unexpected {name}")


def _check_config(contract: Contract, text: str, sizes: Mapping[str, int]) -> None:
    found = _CONFIG.fullmatch(text)
    if found is None:
        raise ContractError("unexpected mhlo.backend_config")
    pairs = dict(one.split(" = ", 1) for one in (found[1] or "").split(", ") if one)
    if pairs.keys() != contract.config.keys():
        raise ContractError(f"the attributes are not {sorted(contract.config)}")
    for name, allowed in contract.config.items():
        if pairs[name] not in [one.format(**sizes) for one in allowed]:
            raise ContractError(f"{pairs[name]} for {name}")


def _alias_texts(contract: Contract, results: int) -> tuple[str | None, ...]:
    """The texts that the call may have for results that share the buffer of an operand."""
    if not contract.aliases:
        return (None, "[]")
    pairs = [
        "#stablehlo.output_operand_alias<output_tuple_indices = "
        f"[{result if results > 1 else ''}], operand_index = {operand}, operand_tuple_indices = []>"
        for result, operand in contract.aliases
    ]
    return (f"[{', '.join(pairs)}]", None, "[]")


def _layout(rank: int, columns: bool | None) -> str:
    order = list(reversed(range(rank)))
    if columns:
        order[:2] = reversed(order[:2])
    if rank == 1:
        return "dense<0> : tensor<1xindex>"
    return f"dense<{order if order else ''}> : tensor<{rank}xindex>"
