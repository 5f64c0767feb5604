"""The rules for programs from a file, which are checked against the findings of `reader`.

All rules are allow lists: operations that compute, calls that `kernel_contracts` describes, and a
few calls that XLA expands into operations. A program with anything else is not run; its graph is
run instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from graphc.errors import ArtifactCorruptError
from graphc.ir.dtypes import BY_SHORT
from graphc.untrusted.comparators import is_choice, is_order
from graphc.untrusted.findings import MOST_CALLS
from graphc.untrusted.kernel_contracts import KERNELS, ContractError, array, check_kernel

MAX_BYTES = 2**55
"""The maximum size of one tensor. No memory is so large; XLA's arithmetic overflows at 2**63."""

MOST_WORK = 10_000_000  # operations after all functions are inlined, as XLA inlines them

# Names of calls of XLA's and JAX's libraries. Such a call without a contract comes from a version
# of JAX that this graphc does not know. Calls of other names contain kernels or addresses of code,
# or call Python.
_LIBRARY = re.compile(
    r"(cu|hip)(solver|sparse|blas|dnn|hybrid)?_\w+|lapack_\w+_ffi|(mhlo|chlo|xla\.sdy)\.\w+|"
    r"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|annotate_device_placement|"
    r"AllocateBuffer|TopK"
)
# Calls that JAX replaces when it fills in open sizes, before XLA compiles.
_UNTIL_REFINED = {
    "shape_assertion",
    "stablehlo.dynamic_approx_top_k",
    "stablehlo.dynamic_reduce_window",
    "stablehlo.dynamic_rng_bit_generator",
    "stablehlo.dynamic_top_k",
}
_ELEMENTS = """
abs add and atan2 bitcast_convert cbrt ceil clamp compare complex convert cosine count_leading_zeros
divide exponential exponential_minus_one floor imag is_finite log log_plus_one logistic maximum
minimum multiply negate not or popcnt power real reduce_precision remainder round_nearest_afz
round_nearest_even rsqrt select shift_left shift_right_arithmetic shift_right_logical sign sine sqrt
subtract tan tanh xor
"""
_COMPUTING = f"""{_ELEMENTS}
broadcast broadcast_in_dim concatenate constant dynamic_slice dynamic_update_slice gather
get_dimension_size iota pad reshape reverse scatter slice transpose dynamic_broadcast_in_dim
dynamic_conv dynamic_gather dynamic_iota dynamic_pad dynamic_reshape real_dynamic_slice

batch_norm_grad batch_norm_inference batch_norm_training cholesky convolution dot_general fft reduce
reduce_window select_and_scatter sort triangular_solve

rng_bit_generator case if while return optimization_barrier custom_call composite
"""
_ACROSS_DEVICES = "all_gather all_reduce all_to_all partition_id reduce_scatter"
_FUNCTIONS = {"builtin.module", "func.func", "func.return", "func.call"}
_OPERATIONS = _FUNCTIONS | {f"stablehlo.{name}" for name in _COMPUTING.split()}
# XLA terminates the process if a region of a reduction, scatter or sort has another operation, such
# as a loop.
_APPLIED = {f"stablehlo.{name}" for name in (*_ELEMENTS.split(), "constant", "return")}
_ON_SEVERAL_DEVICES = {
    *("sdy.manual_computation", "sdy.mesh", "sdy.return", "sdy.sharding_constraint"),
    *(f"stablehlo.{name}" for name in _ACROSS_DEVICES.split()),
}
_ELEMENTWISE = "erf erfc erf_inv asin acos atan sinh cosh asinh acosh atanh"
# In a refined program, the enclosing function of JAX has a mesh, and composites are operations of
# CHLO.
_WHEN_REFINED = {
    *("sdy.mesh", "chlo.top_k", "chlo.ragged_dot"),
    *(f"chlo.{name}" for name in _ELEMENTWISE.split()),
}


def mlir_name(short: str) -> str:
    """MLIR's name for a dtype, given graphc's short name: `ui8` for `u8`, `f8E5M2` for `f8e5m2`."""
    others = {"bool": "i1", "bf16": "bf16", "c64": "complex<f32>", "c128": "complex<f64>"}
    if short in others:
        return others[short]
    return {"f": "f", "i": "i", "u": "ui"}[short[0]] + short[1:].upper()


# XLA terminates the process for some operations on types that JAX never uses with them.
_TYPES = frozenset(map(mlir_name, BY_SHORT))


class NotAllowedError(Exception):
    """A program contains something that no rule allows. The text states what it is."""


def check_targets(found: Mapping[str, Any]) -> None:
    """Rejects a program that must be forged, because no version of JAX writes such a program.

    Raises:
        ArtifactCorruptError: it calls something that is not computation, or has a tensor that is
            too large for any memory.
    """
    targets = {call["target"] for call in found["calls"]}
    for target in sorted(targets - KERNELS.keys() - _UNTIL_REFINED - _WRITTEN_OUT.keys()):
        if not _LIBRARY.fullmatch(target):
            raise ArtifactCorruptError(
                f"a program calls {target[:80]!r}, which no artifact may do",
                details=["only operations of XLA and its own libraries may be called"],
                hint="do not trust this file",
            )
    if found["elements"] > MAX_BYTES:
        raise ArtifactCorruptError(
            "a program has a tensor that is too large for any memory", hint="save it again"
        )


def check_rules(found: Mapping[str, Any], devices: int, *, refined: bool) -> bool:
    """Checks a whole program; returns whether it must be checked again with sizes filled in.

    Args:
        found: see `untrusted.findings`.
        devices: the number of devices that it is for.
        refined: whether sizes are filled in, so that none may be open.

    Raises:
        NotAllowedError: something is not allowed.
    """
    allowed = _OPERATIONS | (_ON_SEVERAL_DEVICES if devices > 1 else set())
    allowed |= _WHEN_REFINED if refined else set()
    for name in found["operations"]:
        if name not in allowed:
            raise NotAllowedError(f"it has the operation {name[:80]!r}")
    for name in found["types"]:
        if name not in _TYPES:
            raise NotAllowedError(
                f"it has values of type {name[:80]!r}, which graphc does not have"
            )
    for name in found["applied"]:
        if name not in _APPLIED:
            raise NotAllowedError(f"a reduction, scatter or sort applies {name[:80]!r}")
    if max(len(found[key]) for key in ("calls", "comparators", "called")) >= MOST_CALLS:
        raise NotAllowedError("it has too many different calls")
    if not all(map(is_order, found["comparators"])):
        raise NotAllowedError("it sorts by a comparator that JAX does not write")
    if found["operations"].get("builtin.module") != 1 or found["main"] is None:
        raise NotAllowedError("it is not one module with a function 'main'")
    if found["work"] is None or found["work"] > MOST_WORK:
        raise NotAllowedError("its functions call each other too often")
    if refined and found["open"]:
        raise NotAllowedError("it has sizes that stay open")
    if devices > 1 and not _meet(found, devices):
        raise NotAllowedError("some of its devices could wait for others forever")
    waiting = [call for call in found["calls"] if _is_open(call, refined)]
    for call in found["calls"]:
        if call not in waiting:
            _check_call(call, devices)
            _check_choice(call, found["called"])
        elif call["target"] in KERNELS and devices > 1:
            raise NotAllowedError(f"it calls {call['target']!r} on several devices")
    return bool(waiting)


def _meet(found: Mapping[str, Any], devices: int) -> bool:
    """Whether all devices reach every operation across devices: otherwise XLA terminates the
    process.

    All devices must take part in each operation, named one by one or as the only axis of a mesh,
    and no such operation may be in a loop or condition, which some devices may not reach.
    """
    axis = r'"\w+"'
    size = rf"\{{name = {axis}, size = {devices} : i64\}}"
    mesh = rf"#sdy\.mesh<\[{axis}={devices}\]>|\{{axes = \[{size}\]\}}"
    everyone = re.escape(f"dense<[{[*range(devices)]}]> : tensor<1x{devices}xi64>")
    by_axis = (
        r"#stablehlo\.replica_group_mesh_axes<mesh = @\w+, "
        rf"axes = \[#stablehlo\.axis_ref<name = {axis}>\]>"
    )
    return (
        not found["guarded"]
        and all(re.fullmatch(mesh, text) for text in found["meshes"])
        and all(re.fullmatch(f"{everyone}|{by_axis}", text) for text in found["groups"])
    )


def _is_open(call: Mapping[str, Any], refined: bool) -> bool:
    """Whether a call cannot be checked before open sizes are filled in."""
    if refined:
        return False
    types = [*call["operands"], *call["results"]]
    return (
        call["target"] in _UNTIL_REFINED
        or "indices_of_shape_operands" in call["attributes"]
        or any("?" in text for text in types)
    )


def _check_call(call: Mapping[str, Any], devices: int) -> None:
    target = call["target"]
    kernel = call["operation"] == "stablehlo.custom_call" and target in KERNELS
    if kernel and devices > 1:  # XLA splits the operands of these calls as the call describes
        raise NotAllowedError(f"it calls {target!r} on several devices")
    try:
        if kernel:
            return check_kernel(call)
        operation, check = _WRITTEN_OUT.get(target, ("", None))
        if check is None or operation != call["operation"]:
            raise NotAllowedError(f"it calls {target[:80]!r}, for which graphc has no contract")
        check(call)
    except ContractError as error:
        raise NotAllowedError(f"it calls {target!r} differently from JAX: {error}") from error


# -- calls that XLA expands into operations ------------------------------------------------


def _check_approx_top_k(call: Mapping[str, Any]) -> None:
    attributes = call["attributes"]
    config = re.fullmatch(
        r"\{aggregate_to_topk = true, is_fallback = (?:true|false), "
        r"recall_target = [0-9.e+-]+ : f32, reduction_dim = ([0-9]{1,2}) : i64, "
        r"reduction_input_size_override = -1 : i64, top_k = ([0-9]{1,15}) : i64\}",
        attributes.get("mhlo.backend_config", ""),
    )
    if config is None or attributes.keys() - {"mhlo.backend_config", "called_computations"}:
        raise ContractError("unexpected configuration")
    axis, k = int(config[1]), int(config[2])
    operands, results = [[array(t) for t in call[side]] for side in ("operands", "results")]
    x = operands[0] if operands else array("tensor<f32>")
    if axis >= len(x.shape) or not 1 <= k <= (x.shape[axis] or 0):
        raise ContractError(f"{k} values of {x.shape}")
    kept = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    given = [(x.dtype, x.shape), ("i32", x.shape), (x.dtype, ()), ("i32", ())]
    if operands != given or results != [(x.dtype, kept), ("i32", kept)]:
        raise ContractError("unexpected types")


def _check_choice(call: Mapping[str, Any], called: Mapping[str, Any]) -> None:
    """Checks the comparator of an approximate search: XLA sorts with it."""
    if call["target"] != "ApproxTopK":
        return
    name = re.fullmatch(r'\[@"?([\w.]+)"?\]', call["attributes"].get("called_computations", ""))
    comparator = called.get(name[1]) if name else None
    if comparator is None or not is_choice(comparator, array(call["operands"][0]).dtype):
        raise NotAllowedError("it searches by a comparator that JAX does not write")


def _check_elementwise(call: Mapping[str, Any]) -> None:
    array(call["operands"][0] if call["operands"] else "")
    if call["operands"] != call["results"] or len(call["operands"]) != 1:
        raise ContractError("unexpected types")
    _check_composite(call, "")


def _check_top_k(call: Mapping[str, Any]) -> None:
    config = call["attributes"].get("composite_attributes", "")
    found = re.fullmatch(r"\{(?:is_stable = (?:true|false), )?k = ([0-9]{1,15}) : i64\}", config)
    operands, results = [[array(t) for t in call[side]] for side in ("operands", "results")]
    if found is None or len(operands) != 1 or not operands[0].shape:
        raise ContractError("unexpected types or attributes")
    (x,), k = operands, int(found[1])
    kept = (*x.shape[:-1], k)
    if k > (x.shape[-1] or 0) or results != [(x.dtype, kept), ("i32", kept)]:
        raise ContractError(f"{k} values of {x.shape}")
    _check_composite(call, config)


def _ragged_dot_config(*axes: int | None) -> str:
    """The attributes of a product of ragged groups without batch dimensions.

    Args:
        axes: the contracted axes of the left and right operands, the ragged axis, and the axis of
            groups.
    """
    none = "dense<> : tensor<0xi64>"
    texts = [none if axis is None else f"dense<{axis}> : tensor<1xi64>" for axis in axes]
    return f"ragged_dot_dimension_numbers = [{', '.join([none, none, *texts])}]}}"


_ROWS, _GROUPS = _ragged_dot_config(1, 1, 0, 0), _ragged_dot_config(0, 0, 0, None)
_PRECISION = re.compile(r'\{(?:precision_config = \["\w+", "\w+"\], )?')


def _check_ragged_dot(call: Mapping[str, Any]) -> None:
    config = call["attributes"].get("composite_attributes", "")
    shapes = [array(text).shape for text in (*call["operands"], *call["results"])]
    kind = _PRECISION.sub("", config, count=1)
    ranks = {_ROWS: [2, 3, 1, 2], _GROUPS: [2, 2, 1, 3]}.get(kind)
    if ranks is None or [len(shape) for shape in shapes] != ranks:
        raise ContractError("unexpected types or attributes")
    left, right, (count,), result = shapes
    if kind == _ROWS:  # [rows, inner] x [groups, inner, columns]
        fits = (right[0], right[1]) == (count, left[1]) and result == (left[0], right[2])
    else:  # [rows, m] x [rows, n]: one product for each group of rows
        fits = left[0] == right[0] and result == (count, left[1], right[1])
    if not fits:
        raise ContractError("unexpected sizes")
    _check_composite(call, config)


def _check_composite(call: Mapping[str, Any], config: str) -> None:
    attributes = dict(call["attributes"])
    if attributes.pop("composite_attributes", "{}") not in (config, "{}"):
        raise ContractError("unexpected configuration")
    if attributes.pop("version", "0 : i32") not in ("0 : i32", "1 : i32"):
        raise ContractError("unexpected version")
    if attributes.keys() != {"decomposition"}:
        raise ContractError("unexpected attributes")


_WRITTEN_OUT: dict[str, tuple[str, Callable[[Mapping[str, Any]], None]]] = {
    "ApproxTopK": ("stablehlo.custom_call", _check_approx_top_k),
    "chlo.top_k": ("stablehlo.composite", _check_top_k),
    "chlo.ragged_dot": ("stablehlo.composite", _check_ragged_dot),
    **{
        f"chlo.{name}": ("stablehlo.composite", _check_elementwise) for name in _ELEMENTWISE.split()
    },
}
"""Target -> the operation that names it, and the check of its types and attributes."""
