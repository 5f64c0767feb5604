"""Elementwise operators."""

from __future__ import annotations

import numpy as np

from graphc import nn, ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import Value, VariableRef
from graphc.ir.node import Tensor

FAMILY = Family()
FAMILY.plain(
    {
        "Abs": ops.abs, "Acos": ops.acos, "Acosh": ops.acosh, "Add": ops.add, "AddV2": ops.add,
        "Asin": ops.asin, "Asinh": ops.asinh, "Atan": ops.atan, "Atan2": ops.atan2,
        "Atanh": ops.atanh, "Betainc": ops.betainc, "BitwiseAnd": ops.bitwise_and,
        "BitwiseOr": ops.bitwise_or, "BitwiseXor": ops.bitwise_xor, "Ceil": ops.ceil,
        "Conj": ops.conj, "Cos": ops.cos, "Cosh": ops.cosh, "Digamma": ops.digamma,
        "Erf": ops.erf, "Erfc": ops.erfc, "Erfinv": ops.erfinv, "Exp": ops.exp,
        "Expm1": ops.expm1, "Floor": ops.floor, "Greater": ops.greater,
        "GreaterEqual": ops.greater_equal, "Igamma": ops.gammainc, "Igammac": ops.gammaincc,
        "Invert": ops.bitwise_invert, "IsFinite": ops.isfinite, "IsInf": ops.isinf,
        "IsNan": ops.isnan, "LeftShift": ops.left_shift, "Less": ops.less,
        "LessEqual": ops.less_equal, "Lgamma": ops.gammaln, "Log": ops.log, "Log1p": ops.log1p,
        "LogicalAnd": ops.logical_and, "LogicalNot": ops.logical_not, "LogicalOr": ops.logical_or,
        "Maximum": ops.maximum, "Minimum": ops.minimum, "Mul": ops.multiply, "Ndtri": ops.ndtri,
        "Neg": ops.negative, "NextAfter": ops.nextafter, "Polygamma": ops.polygamma,
        "PopulationCount": lambda x: ops.cast(ops.population_count(x), "uint8"),
        "Pow": ops.power, "RightShift": ops.right_shift, "Rint": ops.rint, "Round": ops.round,
        "Rsqrt": ops.rsqrt, "Sigmoid": ops.sigmoid, "Sign": ops.sign, "Sin": ops.sin,
        "Sinh": ops.sinh, "Sqrt": ops.sqrt, "Square": ops.square,
        "SquaredDifference": ops.squared_difference, "Sub": ops.subtract, "Tan": ops.tan,
        "Tanh": ops.tanh, "Xlog1py": ops.xlog1py, "Xlogy": ops.xlogy, "Zeta": ops.zeta,
        "BesselI0": ops.i0, "BesselI1": ops.i1, "BesselI0e": ops.i0e, "BesselI1e": ops.i1e,
        "Expint": ops.expi, "FresnelCos": lambda x: ops.fresnel(x)[1],
        "FresnelSin": lambda x: ops.fresnel(x)[0], "Spence": ops.spence,
        "FloorDiv": ops.floor_divide, "FloorMod": ops.remainder, "Mod": ops.fmod,
        "TruncateMod": ops.fmod, "RealDiv": ops.true_divide,
        "Relu": nn.relu, "Relu6": nn.relu6, "Elu": nn.elu, "Selu": nn.selu,
        "Softplus": ops.softplus, "Softsign": nn.softsign,
        "Inv": ops.reciprocal, "Reciprocal": ops.reciprocal,
        "ClipByValue": ops.clip, "MulNoNan": lambda x, y: _where_zero(y, ops.multiply(x, y)),
        "DivNoNan": lambda x, y: _where_zero(y, ops.true_divide(x, _not_zero(y))),
        "Equal": ops.equal, "NotEqual": ops.not_equal, "Complex": ops.complex, "Real": ops.real,
        "Imag": ops.imag, "Angle": ops.angle, "ComplexAbs": ops.abs,
        "AddN": lambda *tensors: ops.add_n(tensors),
        "AccumulateNV2": lambda *tensors: ops.add_n(tensors),
    }
)  # fmt: skip


def _where_zero(condition: Tensor, result: Tensor) -> Tensor:
    return ops.where(ops.equal(condition, ops.zeros_like(condition)), 0, result)


def _not_zero(y: Tensor) -> Tensor:
    return ops.where(ops.equal(y, ops.zeros_like(y)), ops.ones_like(y), y)


@FAMILY.rule("ApproximateEqual")
def approximate_equal(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return ops.less(ops.abs(ops.subtract(x, y)), call.attr("tolerance", 1e-5))


@FAMILY.rule("Div", "TruncateDiv")
def divide(call: Call, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.kind not in "iu":
        return ops.true_divide(x, y)
    quotient = ops.floor_divide(x, y)  # TensorFlow rounds towards zero
    if x.dtype.kind == "u":
        return quotient
    exact = ops.equal(ops.multiply(quotient, y), x)
    upwards = ops.logical_and(ops.less(quotient, 0), ops.logical_not(exact))
    return ops.add(quotient, ops.cast(upwards, x.dtype))


@FAMILY.rule("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return nn.leaky_relu(x, call.attr("alpha", 0.2))


@FAMILY.rule("Cast")
def cast(call: Call, x: Tensor) -> Tensor:
    wanted = call.dtype("DstT")
    if wanted.kind == "b":
        return ops.not_equal(x, ops.zeros_like(x))
    return ops.cast(x, wanted)


@FAMILY.rule("Bitcast")
def bitcast(call: Call, x: Tensor) -> Tensor:
    wanted = call.dtype("type")
    if wanted.itemsize != x.dtype.itemsize:
        call.refuse("changes the size of the elements")
    return ops.bitcast(x, wanted)


@FAMILY.rule("Select", "SelectV2")
def select(call: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if call.node.op == "Select" and condition.ndim == 1 < x.ndim:  # chooses rows
        condition = ops.reshape(condition, (condition.shape[0], *[1] * (x.ndim - 1)))
    return ops.where(condition, x, y)


@FAMILY.rule(
    "Identity", "Snapshot", "RefIdentity", "PreventGradient", "CheckNumerics", "StopGradient",
    "CheckNumericsV2", "DebugGradientIdentity", "EnsureShape",
    "LoopCond", "PlaceholderWithDefault", "Print",
    kinds="v*",
)  # fmt: skip
def identity(call: Call, value: Value, *rest: Value) -> Value:
    if call.node.op == "StopGradient":
        return ops.stop_gradient(call.tensor(value))
    if isinstance(value, VariableRef) and call.attr("T") != _RESOURCE:
        return call.tensor(value)  # the value at this point, before later assignments
    return value


_RESOURCE = 20  # the number of the dtype of handles


@FAMILY.rule("IdentityN", kinds="v*")
def identity_n(call: Call, *values: Value) -> list[Value]:
    return list(values)


@FAMILY.rule("Const", kinds="")
def const(call: Call) -> Value:
    value = call.attr("value")
    if not isinstance(value, np.ndarray):
        call.refuse("has no value")
    return value
