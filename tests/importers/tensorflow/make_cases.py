"""Makes `cases.json.gz`: small graphs with TensorFlow's own results, at least one for each rule.

Needs TensorFlow: `python tests/importers/tensorflow/make_cases.py`. The result is deterministic.
The tests read the file; they need no TensorFlow.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
raw = tf.raw_ops
v1.disable_eager_execution()
v1.enable_control_flow_v2()

CASES: list[dict[str, Any]] = []
RNG = np.random.default_rng(0)


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Floats with few digits, so that the file stays small."""
    return np.round(RNG.uniform(low, high, shape), 2).astype(np.float32)


def i32(*shape: int, low: int = -5, high: int = 6) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


def encoded(array: Any) -> list[Any]:
    array = np.asarray(array)
    if array.dtype == object:
        return ["strings", list(array.shape), [base64.b64encode(v).decode() for v in array.flat]]
    return [
        array.dtype.name, list(array.shape), base64.b64encode(array.tobytes()).decode(),
    ]  # fmt: skip


def case(
    name: str, build: Callable[..., Any], *inputs: Any, free: bool = True, only_types: bool = False
) -> None:
    """Makes one graph: placeholders for the inputs, and TensorFlow's results for them.

    Args:
        free: whether the leading size of the placeholders is unknown.
        only_types: whether results are random, so that only shapes and dtypes are compared.
    """
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(1)
        places = []
        for i, value in enumerate(inputs):
            shape = list(np.shape(value))
            if free and shape:
                shape[0] = None
            places.append(v1.placeholder(np.asarray(value).dtype, shape, name=f"x{i}"))
        results = build(*places)
        if hasattr(results, "_asdict"):
            results = list(results)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            session.run(v1.tables_initializer())
            variables = {v.op.name: session.run(v) for v in v1.global_variables()}
            values = session.run(results, dict(zip(places, inputs, strict=True)))
            after = {v.op.name: session.run(v) for v in v1.global_variables()}
        text = graph.as_graph_def().SerializeToString(deterministic=True)
    CASES.append(
        {
            "name": name,
            "graph": base64.b64encode(text).decode(),
            "inputs": {p.op.name: encoded(v) for p, v in zip(places, inputs, strict=True)},
            "outputs": {r.name: encoded(v) for r, v in zip(results, values, strict=True)},
            "variables": {k: encoded(v) for k, v in variables.items()},
            "after": {k: encoded(v) for k, v in after.items()},
            "only_types": only_types,
        }
    )


def elementwise() -> None:
    x, y = f32(3, 4), f32(3, 4)
    for op in [
        "Abs",
        "Atan",
        "Ceil",
        "Cos",
        "Cosh",
        "Digamma",
        "Erf",
        "Erfc",
        "Exp",
        "Expm1",
        "Floor",
        "IsFinite",
        "IsInf",
        "IsNan",
        "Lgamma",
        "Neg",
        "Rint",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Square",
        "Tan",
        "Tanh",
        "Softplus",
        "Softsign",
        "Relu",
        "Relu6",
        "Elu",
        "Selu",
        "Asinh",
        "BesselI0e",
        "BesselI1e",
        "BesselI0",
        "BesselI1",
        "FresnelCos",
        "FresnelSin",
    ]:
        name = {"Relu": "features", "Relu6": "features", "Elu": "features", "Selu": "features",
                "Softplus": "features", "Softsign": "features"}.get(op, "x")  # fmt: skip
        case(op, lambda a, op=op, name=name: getattr(raw, op)(**{name: a}), x * 3)
    positive, unit = f32(3, 4, low=0.1, high=3), f32(3, 4, low=-0.9, high=0.9)
    for op in ["Log", "Log1p", "Rsqrt", "Sqrt", "Inv", "Reciprocal", "Spence", "Expint"]:
        case(op, lambda a, op=op: getattr(raw, op)(x=a), positive)
    for op in ["Acos", "Asin", "Atanh", "Erfinv"]:
        case(op, lambda a, op=op: getattr(raw, op)(x=a), unit)
    case("Acosh", lambda a: raw.Acosh(x=a), positive + 1)
    case("Ndtri", lambda a: raw.Ndtri(x=a), f32(3, 4, low=0.1, high=0.9))
    for op in [
        "Add",
        "AddV2",
        "Sub",
        "Mul",
        "Maximum",
        "Minimum",
        "SquaredDifference",
        "Greater",
        "GreaterEqual",
        "Less",
        "LessEqual",
        "RealDiv",
        "Div",
        "FloorDiv",
        "FloorMod",
        "TruncateMod",
        "Mod",
        "DivNoNan",
        "MulNoNan",
        "NotEqual",
        "Equal",
    ]:
        case(op, lambda a, b, op=op: getattr(raw, op)(x=a, y=b), x, y[:1], free=False)
    for op in ["Div", "FloorDiv", "FloorMod", "TruncateDiv", "Mod", "Add", "Mul", "Maximum"]:
        b = i32(2, 5)
        b[b == 0] = 3
        case(f"{op} int", lambda p, q, op=op: getattr(raw, op)(x=p, y=q), i32(2, 5) * 3, b)
    zero = np.array([1.0, 0.0, -2.0], np.float32)
    case("DivNoNan zero", lambda a, b: raw.DivNoNan(x=a, y=b), zero + 1, zero)
    case(
        "MulNoNan zero",
        lambda a, b: raw.MulNoNan(x=a, y=b),
        np.array([np.inf, np.nan, 1.0], np.float32),
        zero,
    )
    case("Pow", lambda a, b: raw.Pow(x=a, y=b), positive, y)
    case("Atan2", lambda a, b: raw.Atan2(y=a, x=b), x, y)
    case("Xlogy", lambda a, b: raw.Xlogy(x=a, y=b), x, positive)
    case("Xlog1py", lambda a, b: raw.Xlog1py(x=a, y=b), x, positive)
    case("NextAfter", lambda a, b: raw.NextAfter(x1=a, x2=b), x, y)
    case("Igamma", lambda a, b: raw.Igamma(a=a, x=b), positive, positive[::-1].copy())
    case("Igammac", lambda a, b: raw.Igammac(a=a, x=b), positive, positive[::-1].copy())
    case("Zeta", lambda a, b: raw.Zeta(x=a, q=b), positive + 1.5, positive)
    case("Polygamma", lambda a, b: raw.Polygamma(a=a, x=b), np.ones((3, 4), np.float32), positive)
    case("Betainc", lambda a, b, c: raw.Betainc(a=a, b=b, x=c), positive, positive + 1,
         f32(3, 4, low=0.1, high=0.9))  # fmt: skip
    case("ApproximateEqual", lambda a, b: raw.ApproximateEqual(x=a, y=b, tolerance=0.5), x, y)
    p, q = i32(6, low=0, high=100), i32(6, low=0, high=5)
    for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"]:
        case(op, lambda a, b, op=op: getattr(raw, op)(x=a, y=b), p, q)
    case("Invert", lambda a: raw.Invert(x=a), p)
    case("PopulationCount", lambda a: raw.PopulationCount(x=a), p)
    t, u = np.array([True, False, True]), np.array([True, True, False])
    case("LogicalAnd", lambda a, b: raw.LogicalAnd(x=a, y=b), t, u)
    case("LogicalOr", lambda a, b: raw.LogicalOr(x=a, y=b), t, u)
    case("LogicalNot", lambda a: raw.LogicalNot(x=a), t)
    case("LeakyRelu", lambda a: raw.LeakyRelu(features=a, alpha=0.1), x)
    case("ClipByValue", lambda a: raw.ClipByValue(t=a, clip_value_min=-0.5, clip_value_max=1.0), x)
    case("Cast", lambda a: raw.Cast(x=a, DstT=tf.int32), x)
    case("Cast bool", lambda a: raw.Cast(x=a, DstT=tf.bool), i32(5))
    case("Cast f64", lambda a: raw.Cast(x=a, DstT=tf.float64), x)
    case("Cast half", lambda a: raw.Cast(x=raw.Cast(x=a, DstT=tf.bfloat16), DstT=tf.float32), x)
    case("Bitcast", lambda a: raw.Bitcast(input=a, type=tf.int32), x)
    case("Complex", lambda a, b: raw.Complex(real=a, imag=b), x, y)
    z = (x + 1j * y).astype(np.complex64)
    for op, key in [("Real", "input"), ("Imag", "input"), ("Angle", "input"), ("ComplexAbs", "x"),
                    ("Conj", "input")]:  # fmt: skip
        case(op, lambda a, op=op, key=key: getattr(raw, op)(**{key: a}), z)
    case("AddN", lambda a, b: raw.AddN(inputs=[a, b, a]), x, y)
    case("AccumulateNV2", lambda a, b: raw.AccumulateNV2(inputs=[a, b], shape=[3, 4]), x, y,
         free=False)  # fmt: skip
    case("Select", lambda c, a, b: raw.Select(condition=c, x=a, y=b), t, x, y)
    case("SelectV2", lambda c, a, b: raw.SelectV2(condition=c, t=a, e=b), t[:, None], x, y)
    for op in ["Identity", "Snapshot", "StopGradient", "PreventGradient"]:
        case(op, lambda a, op=op: getattr(raw, op)(input=a), x)
    case("CheckNumerics", lambda a: raw.CheckNumerics(tensor=a, message="m"), x)
    case("CheckNumericsV2", lambda a: raw.CheckNumericsV2(tensor=a, message="m"), x)
    case("EnsureShape", lambda a: raw.EnsureShape(input=a, shape=[None, 4]), x)
    case("DebugGradientIdentity", lambda a: raw.DebugGradientIdentity(input=a), x)
    case("IdentityN", lambda a, b: raw.IdentityN(input=[a, b]), x, y)
    case("Print", lambda a: raw.Print(input=a, data=[a], message="", first_n=0), x)
    case(
        "PlaceholderWithDefault",
        lambda a: a + raw.PlaceholderWithDefault(input=tf.constant([1.0] * 4), shape=[4]),
        x,
    )

    def guarded(a: Any) -> Any:
        with tf.control_dependencies([raw.Assert(condition=True, data=[a]), raw.NoOp()]):
            return a * 2

    case("Assert", guarded, x)


def reductions() -> None:
    x = f32(3, 4, 2)
    for op in ["Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"]:
        case(op, lambda a, op=op: getattr(raw, op)(input=a, axis=[1, -1]), x)
        case(f"{op} keep", lambda a, op=op: getattr(raw, op)(input=a, axis=0, keep_dims=True), x)
    case("Mean int", lambda a: raw.Mean(input=a, axis=[0]), i32(3, 4))
    b = x > 0
    case("All", lambda a: raw.All(input=a, axis=[1]), b)
    case("Any", lambda a: raw.Any(input=a, axis=[1]), b)
    case("ArgMax", lambda a: raw.ArgMax(input=a, dimension=1), x)
    case("ArgMin", lambda a: raw.ArgMin(input=a, dimension=-1, output_type=tf.int32), x)
    for exclusive in (False, True):
        for reverse in (False, True):
            options = {"exclusive": exclusive, "reverse": reverse}
            case("Cumsum", lambda a, o=options: raw.Cumsum(x=a, axis=1, **o), x)
            case("Cumprod", lambda a, o=options: raw.Cumprod(x=a, axis=-2, **o), x)
    case("CumulativeLogsumexp", lambda a: raw.CumulativeLogsumexp(x=a, axis=1), x)
    case("TopKV2", lambda a: raw.TopKV2(input=a, k=2), f32(3, 7))
    case("NthElement", lambda a: raw.NthElement(input=a, n=2), f32(3, 7))
    labels = np.array([0, 3, 2], np.int32)
    case("InTopK", lambda a, t: raw.InTopK(predictions=a, targets=t, k=2), f32(3, 5), labels)
    case("InTopKV2", lambda a, t: raw.InTopKV2(predictions=a, targets=t, k=2), f32(3, 5), labels)
    ids = np.array([0, 0, 2, 3], np.int32)
    for op in ["SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"]:
        case(op, lambda a, op=op: getattr(raw, op)(data=a, segment_ids=ids), f32(4, 3))
    for op in ["Sum", "Max", "Min", "Prod"]:
        op = f"UnsortedSegment{op}"
        case(op, lambda a, i, op=op: getattr(raw, op)(data=a, segment_ids=i, num_segments=5),
             f32(4, 3), np.array([3, 0, 3, 1], np.int32))  # fmt: skip
    for op in ["SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"]:
        case(op, lambda a, i, op=op: getattr(raw, op)(data=a, indices=i, segment_ids=ids),
             f32(6, 3), np.array([5, 0, 3, 1], np.int32))  # fmt: skip
    counted = np.array([1, 3, 1, 0], np.int32)
    empty = np.zeros(0, np.float32)
    case("Bincount", lambda a: raw.Bincount(arr=a, size=5, weights=empty), counted)
    case("Bincount weights", lambda a, w: raw.Bincount(arr=a, size=5, weights=w), counted, f32(4))
    case("DenseBincount", lambda a: raw.DenseBincount(input=a, size=5, weights=empty), counted)
    ordered = np.sort(f32(2, 6), 1)
    case("LowerBound", lambda a, b: raw.LowerBound(sorted_inputs=a, values=b), ordered, f32(2, 3))
    case("UpperBound", lambda a, b: raw.UpperBound(sorted_inputs=a, values=b), ordered, f32(2, 3))
    case(
        "HistogramFixedWidth",
        lambda a: raw.HistogramFixedWidth(values=a, value_range=[-1.0, 1.0], nbins=5),
        f32(20),
    )


def shapes() -> None:
    x = f32(3, 4)
    case("Shape", lambda a: raw.Shape(input=a), x)
    case("Shape int64", lambda a: raw.Shape(input=a, out_type=tf.int64), x)
    case("ShapeN", lambda a, b: raw.ShapeN(input=[a, b]), x, f32(2), free=False)
    case("Size", lambda a: raw.Size(input=a), x)
    case("Rank", lambda a: raw.Rank(input=a), x)
    case("Reshape", lambda a: raw.Reshape(tensor=a, shape=[-1, 2]), x)

    def flatten(a: Any) -> Any:
        return tf.reshape(a, [tf.shape(a)[0], tf.reduce_prod(tf.shape(a)[1:])])

    case("Reshape flatten", flatten, f32(2, 3, 4))
    case("Squeeze", lambda a: raw.Squeeze(input=a, axis=[1]), f32(3, 1, 2, 1))
    case("ExpandDims", lambda a: raw.ExpandDims(input=a, axis=-1), x)
    case("Transpose", lambda a: raw.Transpose(x=a, perm=[2, 0, 1]), f32(2, 3, 4))
    case(
        "ConjugateTranspose",
        lambda a: raw.ConjugateTranspose(x=a, perm=[1, 0]),
        (x + 1j * x[::-1]).astype(np.complex64),
    )
    case("InvertPermutation", lambda a: raw.InvertPermutation(x=a), np.array([2, 0, 1], np.int32))
    case("BroadcastTo", lambda a: raw.BroadcastTo(input=a, shape=[2, 3, 4]), x, free=False)
    case("Fill", lambda a: raw.Fill(dims=[tf.shape(a)[0], 2], value=3.5), x)
    case("Empty", lambda a: raw.Empty(shape=[2, 3], dtype=tf.float32, init=True) + a[0, 0], x)
    case("ZerosLike", lambda a: raw.ZerosLike(x=a), x)
    case("OnesLike", lambda a: raw.OnesLike(x=a), x)
    case("Pack", lambda a, b: raw.Pack(values=[a, b], axis=1), x, x + 1)
    case("Unpack", lambda a: raw.Unpack(value=a, num=4, axis=1), x)
    case("ConcatV2", lambda a, b: raw.ConcatV2(values=[a, b, a], axis=-1), x, x[:, :2].copy())
    case("Concat", lambda a, b: raw.Concat(concat_dim=0, values=[a, b]), x, x[:2].copy())
    case("Split", lambda a: raw.Split(axis=1, value=a, num_split=2), x)
    case("SplitV", lambda a: raw.SplitV(value=a, size_splits=[1, -1], axis=1, num_split=2), x)
    case("Tile", lambda a: raw.Tile(input=a, multiples=[2, 3]), x)
    case("Tile free", lambda a, b: raw.Tile(input=a[:1], multiples=[tf.shape(b)[0], 1]), x, f32(5))
    case("Pad", lambda a: raw.Pad(input=a, paddings=[[1, 0], [2, 1]]), x)
    case("PadV2", lambda a: raw.PadV2(input=a, paddings=[[1, 0], [2, 1]], constant_values=9.0), x)
    for mode in ("REFLECT", "SYMMETRIC"):
        case(
            f"MirrorPad {mode}",
            lambda a, m=mode: raw.MirrorPad(input=a, paddings=[[1, 0], [2, 1]], mode=m),
            x,
            free=False,
        )
    case("Range", lambda a: raw.Range(start=0, limit=tf.shape(a)[0], delta=1), x)
    case("Range from", lambda a: raw.Range(start=2, limit=tf.shape(a)[0] + 4, delta=1), x)
    case("Range constant", lambda a: a[0] + raw.Range(start=0.0, limit=2.0, delta=0.5), x)
    case(
        "LinSpace", lambda a, b: raw.LinSpace(start=a, stop=b, num=5), np.float32(1), np.float32(2)
    )
    case("Reverse", lambda a: raw.Reverse(tensor=a, dims=[True, False]), x)
    case("ReverseV2", lambda a: raw.ReverseV2(tensor=a, axis=[-1]), x)
    case(
        "ReverseSequence",
        lambda a, n: raw.ReverseSequence(input=a, seq_lengths=n, seq_dim=1, batch_dim=0),
        x,
        np.array([2, 4, 0], np.int32),
    )
    case("Roll", lambda a: raw.Roll(input=a, shift=[1, -2], axis=[0, 1]), x)
    case("SpaceToDepth", lambda a: raw.SpaceToDepth(input=a, block_size=2), f32(2, 4, 6, 3))
    case("DepthToSpace", lambda a: raw.DepthToSpace(input=a, block_size=2), f32(2, 2, 3, 8))
    pads = [[0, 0], [1, 1]]
    case(
        "SpaceToBatchND",
        lambda a: raw.SpaceToBatchND(input=a, block_shape=[2, 2], paddings=pads),
        f32(2, 4, 4, 3),
    )
    case(
        "BatchToSpaceND",
        lambda a: raw.BatchToSpaceND(input=a, block_shape=[2, 2], crops=pads),
        f32(8, 2, 3, 3),
    )
    case(
        "SpaceToBatch",
        lambda a: raw.SpaceToBatch(input=a, paddings=pads, block_size=2),
        f32(2, 4, 4, 3),
    )
    case(
        "BatchToSpace",
        lambda a: raw.BatchToSpace(input=a, crops=pads, block_size=2),
        f32(8, 2, 3, 3),
    )
    case("BroadcastArgs", lambda a: raw.BroadcastArgs(s0=tf.shape(a), s1=[1, 1, 4]), x)
    case(
        "BroadcastGradientArgs",
        lambda a: raw.BroadcastGradientArgs(s0=tf.shape(a), s1=[4])[1],
        x,
        free=False,
    )
    case("MatrixDiag", lambda a: raw.MatrixDiag(diagonal=a), x)
    case("Diag", lambda a: raw.Diag(diagonal=a), f32(3))
    case("DiagPart", lambda a: raw.DiagPart(input=a), f32(3, 3))
    case("MatrixDiagPart", lambda a: raw.MatrixDiagPart(input=a), f32(2, 3, 4))
    case(
        "MatrixSetDiag",
        lambda a, d: raw.MatrixSetDiag(input=a, diagonal=d),
        f32(2, 3, 4),
        f32(2, 3),
    )
    for k in (0, 1, -1):
        case(
            f"MatrixDiagV3 {k}",
            lambda a, k=k: raw.MatrixDiagV3(
                diagonal=a, k=k, num_rows=-1, num_cols=-1, padding_value=9.0
            ),
            x,
        )
        case(
            f"MatrixDiagPartV3 {k}",
            lambda a, k=k: raw.MatrixDiagPartV3(input=a, k=k, padding_value=0.0),
            f32(2, 3, 4),
        )
        size = {0: 3, 1: 3, -1: 2}[k]
        case(
            f"MatrixSetDiagV3 {k}",
            lambda a, d, k=k: raw.MatrixSetDiagV3(input=a, diagonal=d, k=k),
            f32(2, 3, 4),
            f32(2, size),
        )
    case(
        "MatrixDiagV2",
        lambda a: raw.MatrixDiagV2(diagonal=a, k=0, num_rows=-1, num_cols=-1, padding_value=0.0),
        x,
    )
    case(
        "MatrixDiagPartV2",
        lambda a: raw.MatrixDiagPartV2(input=a, k=0, padding_value=0.0),
        x,
        free=False,
    )
    case(
        "MatrixSetDiagV2",
        lambda a, d: raw.MatrixSetDiagV2(input=a, diagonal=d, k=0),
        f32(2, 3, 4),
        f32(2, 3),
    )
    case(
        "MatrixBandPart",
        lambda a: raw.MatrixBandPart(input=a, num_lower=1, num_upper=-1),
        f32(4, 5),
    )


def indexing() -> None:
    x = f32(4, 5, 6)
    for text, take in {
        "slice": lambda a: a[1:, 2:4, ::2],
        "negative": lambda a: a[:-1, -3:, ::-1],
        "shrink": lambda a: a[1, :, -1],
        "ellipsis": lambda a: a[..., 1:3],
        "new axis": lambda a: a[:, tf.newaxis, 2, ..., tf.newaxis],
    }.items():
        case(f"StridedSlice {text}", take, x)
    case("StridedSlice moving", lambda a, i: a[:, i], x, np.int32(2))
    case("StridedSlice size", lambda a: tf.ones([tf.shape(a)[0], 2])[: tf.shape(a)[0]], x)
    case("Slice", lambda a: raw.Slice(input=a, begin=[0, 1, 2], size=[-1, 2, 3]), x)
    case(
        "Slice moving",
        lambda a, b: raw.Slice(input=a, begin=b, size=[2, 2, 3]),
        x,
        np.array([1, 0, 3], np.int32),
        free=False,
    )
    index = np.array([[3, 0], [1, 1]], np.int32)
    case("Gather", lambda a, i: raw.Gather(params=a, indices=i), x, index)
    case("GatherV2", lambda a, i: raw.GatherV2(params=a, indices=i, axis=1), x, index)
    case(
        "GatherV2 batch",
        lambda a, i: raw.GatherV2(params=a, indices=i, axis=2, batch_dims=1),
        x,
        i32(4, 3, low=0, high=5),
    )
    case("GatherNd", lambda a, i: raw.GatherNd(params=a, indices=i), x, index)
    updates = f32(2, 6)
    case("ScatterNd", lambda u: raw.ScatterNd(indices=[[1], [1]], updates=u, shape=[4, 6]), updates)
    for op in ["Update", "Add", "Sub", "Max", "Min"]:
        op = f"TensorScatter{op}"
        case(
            op,
            lambda a, u, op=op: getattr(raw, op)(tensor=a, indices=[[0], [2]], updates=u),
            f32(4, 6),
            updates,
        )
    case(
        "ScatterNdNonAliasingAdd",
        lambda a, u: raw.ScatterNdNonAliasingAdd(input=a, indices=[[0], [0]], updates=u),
        f32(4, 6),
        updates,
    )
    for axis in (-1, 0, 1):
        case(
            f"OneHot {axis}",
            lambda i, a=axis: raw.OneHot(indices=i, depth=4, on_value=2.0, off_value=-1.0, axis=a),
            index + 1,
        )
    case(
        "DynamicStitch",
        lambda a, b: raw.DynamicStitch(indices=[[0, 2], [1, 3]], data=[a, b]),
        f32(2, 3),
        f32(2, 3),
    )
    case(
        "ParallelDynamicStitch",
        lambda a, b: raw.ParallelDynamicStitch(indices=[[0, 2], [1, 3]], data=[a, b]),
        f32(2, 3),
        f32(2, 3),
    )
    case(
        "DynamicPartition",
        lambda a: raw.DynamicPartition(data=a, partitions=[1, 0, 1, 1], num_partitions=2),
        f32(4, 2),
    )
    case("Where", lambda a: raw.Where(condition=[[True, False], [True, True]]) + a, np.int64(1))
    case("Unique", lambda a: [r + a for r in raw.Unique(x=[3, 1, 3, 2])], np.int32(1))
    case("UniqueV2", lambda a: [r + a for r in raw.UniqueV2(x=[3, 1, 3, 2], axis=[0])], np.int32(1))
    case(
        "UniqueWithCounts",
        lambda a: [r + a for r in raw.UniqueWithCounts(x=[3, 1, 3])],
        np.int32(1),
    )
    case("ListDiff", lambda a: [r + a for r in raw.ListDiff(x=[3, 1, 4], y=[1])], np.int32(1))
    case(
        "SparseToDense",
        lambda v: raw.SparseToDense(
            sparse_indices=[[0, 1], [2, 0]], output_shape=[3, 2], sparse_values=v, default_value=7.0
        ),
        f32(2),
    )
    case(
        "ExtractImagePatches",
        lambda a: raw.ExtractImagePatches(
            images=a, ksizes=[1, 2, 2, 1], strides=[1, 2, 2, 1], rates=[1, 1, 1, 1], padding="SAME"
        ),
        f32(2, 5, 4, 3),
        free=False,
    )


def matrices() -> None:
    a, b = f32(3, 4), f32(4, 2)
    case("MatMul", lambda p, q: raw.MatMul(a=p, b=q), a, b, free=False)
    case(
        "MatMul transposed",
        lambda p, q: raw.MatMul(a=p, b=q, transpose_a=True, transpose_b=True),
        f32(4, 3),
        f32(2, 4),
        free=False,
    )
    case("SparseMatMul", lambda p, q: raw.SparseMatMul(a=p, b=q), a, b, free=False)
    for op in ("BatchMatMul", "BatchMatMulV2"):
        case(
            op,
            lambda p, q, op=op: getattr(raw, op)(x=p, y=q, adj_y=True),
            f32(2, 3, 4),
            f32(2, 5, 4),
        )
    case(
        "BatchMatMulV3",
        lambda p, q: raw.BatchMatMulV3(x=p, y=q, Tout=tf.float32, adj_x=True),
        f32(2, 4, 3),
        f32(2, 4, 5),
    )
    case(
        "Einsum",
        lambda p, q: raw.Einsum(inputs=[p, q], equation="bij,bjk->bik"),
        f32(2, 3, 4),
        f32(2, 4, 5),
    )
    case(
        "Einsum ellipsis",
        lambda p, q: raw.Einsum(inputs=[p, q], equation="...ij,...jk->...ik"),
        f32(2, 3, 4),
        f32(2, 4, 5),
    )
    m = f32(2, 3, 3)
    spd = (m @ m.transpose(0, 2, 1) + 2 * np.eye(3)).astype(np.float32)
    case("Cholesky", lambda p: raw.Cholesky(input=p), spd)
    case("MatrixDeterminant", lambda p: raw.MatrixDeterminant(input=p), spd)
    case("LogMatrixDeterminant", lambda p: raw.LogMatrixDeterminant(input=p), spd)
    case(
        "MatrixInverse",
        lambda p: raw.MatrixInverse(input=p, adjoint=True),
        m + 3 * np.eye(3, dtype=np.float32),
    )
    case("MatrixSolve", lambda p, q: raw.MatrixSolve(matrix=p, rhs=q), spd, f32(2, 3, 2))
    case(
        "MatrixSolveLs",
        lambda p, q: raw.MatrixSolveLs(matrix=p, rhs=q, l2_regularizer=np.float64(0.5), fast=True),
        f32(4, 3),
        f32(4, 2),
        free=False,
    )
    case(
        "MatrixTriangularSolve",
        lambda p, q: raw.MatrixTriangularSolve(matrix=p, rhs=q, lower=True, adjoint=True),
        spd,
        f32(2, 3, 2),
    )
    case("MatrixSquareRoot", lambda p: raw.MatrixSquareRoot(input=p), spd)
    case("Qr", lambda p: tf.matmul(*raw.Qr(input=p)), m)

    def svd(p: Any) -> Any:
        s, u, v = raw.Svd(input=p)
        return [s, tf.matmul(u * s[..., None, :], v, transpose_b=True)]

    case("Svd", svd, m)
    case("SelfAdjointEigV2", lambda p: raw.SelfAdjointEigV2(input=p)[0], spd)
    case("Lu", lambda p: raw.Lu(input=p), m[0], free=False)
    case("Cross", lambda p, q: raw.Cross(a=p, b=q), f32(2, 3), f32(2, 3))
    z = (f32(2, 4, 4) + 1j * f32(2, 4, 4)).astype(np.complex64)
    for op in ["FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D"]:
        case(op, lambda p, op=op: getattr(raw, op)(input=p), z, free=False)
    case("RFFT", lambda p: raw.RFFT(input=p, fft_length=[8]), f32(2, 8))
    case("RFFT2D", lambda p: raw.RFFT2D(input=p, fft_length=[4, 8]), f32(2, 4, 8))
    case("IRFFT", lambda p: raw.IRFFT(input=p, fft_length=[6]), z)
    case("IRFFT2D", lambda p: raw.IRFFT2D(input=p, fft_length=[4, 6]), z)


def networks() -> None:
    x, w = f32(2, 7, 6, 4), f32(3, 3, 4, 2)
    ones = [1, 1, 1, 1]
    for padding in ("SAME", "VALID"):
        case(
            f"Conv2D {padding}",
            lambda a, b, p=padding: raw.Conv2D(input=a, filter=b, strides=[1, 2, 2, 1], padding=p),
            x,
            w,
            free=False,
        )
        case(
            f"DepthwiseConv2dNative {padding}",
            lambda a, b, p=padding: raw.DepthwiseConv2dNative(
                input=a, filter=b, strides=[1, 2, 2, 1], padding=p
            ),
            x,
            w,
            free=False,
        )
        for op in ("MaxPool", "AvgPool"):
            key = "input" if op == "MaxPool" else "value"
            case(
                f"{op} {padding}",
                lambda a, o=op, k=key, p=padding: getattr(raw, o)(
                    **{k: a}, ksize=[1, 3, 2, 1], strides=[1, 2, 2, 1], padding=p
                ),
                x,
                free=False,
            )
        case(
            f"Conv3D {padding}",
            lambda a, b, p=padding: raw.Conv3D(
                input=a, filter=b, strides=[1, 1, 2, 1, 1], padding=p
            ),
            f32(1, 4, 4, 4, 2),
            f32(2, 2, 2, 2, 3),
            free=False,
        )
        for op in ("MaxPool3D", "AvgPool3D"):
            case(
                f"{op} {padding}",
                lambda a, o=op, p=padding: getattr(raw, o)(
                    input=a, ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding=p
                ),
                f32(1, 4, 5, 4, 2),
                free=False,
            )
        case(
            f"Conv2DBackpropInput {padding}",
            lambda b, d, p=padding: raw.Conv2DBackpropInput(
                input_sizes=[2, 7, 6, 4], filter=b, out_backprop=d, strides=[1, 2, 2, 1], padding=p
            ),
            w,
            f32(2, *{"SAME": (4, 3), "VALID": (3, 2)}[padding], 2),
            free=False,
        )
        case(
            f"Conv2DBackpropFilter {padding}",
            lambda a, d, p=padding: raw.Conv2DBackpropFilter(
                input=a, filter_sizes=[3, 3, 4, 2], out_backprop=d, strides=[1, 2, 2, 1], padding=p
            ),
            x,
            f32(2, *{"SAME": (4, 3), "VALID": (3, 2)}[padding], 2),
            free=False,
        )
    case(
        "Conv2D explicit",
        lambda a, b: raw.Conv2D(
            input=a,
            filter=b,
            strides=ones,
            padding="EXPLICIT",
            explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0],
        ),
        x,
        w,
        free=False,
    )
    case(
        "Conv2D dilated",
        lambda a, b: raw.Conv2D(
            input=a, filter=b, strides=ones, padding="SAME", dilations=[1, 2, 2, 1]
        ),
        x,
        w,
        free=False,
    )
    case("Conv2D free", lambda a: raw.Conv2D(input=a, filter=w, strides=ones, padding="SAME"), x)
    case(
        "Conv2D grouped",
        lambda a, b: raw.Conv2D(input=a, filter=b, strides=ones, padding="SAME"),
        x,
        f32(3, 3, 2, 4),
        free=False,
    )
    case(
        "MaxPoolV2",
        lambda a: raw.MaxPoolV2(input=a, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"),
        x,
        free=False,
    )
    case(
        "MaxPoolWithArgmax",
        lambda a: raw.MaxPoolWithArgmax(
            input=a, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME"
        ),
        x,
        free=False,
    )
    case(
        "Conv3DBackpropInputV2",
        lambda b, d: raw.Conv3DBackpropInputV2(
            input_sizes=[1, 4, 4, 4, 2],
            filter=b,
            out_backprop=d,
            strides=[1, 2, 2, 2, 1],
            padding="SAME",
        ),
        f32(2, 2, 2, 2, 3),
        f32(1, 2, 2, 2, 3),
        free=False,
    )
    case(
        "Conv3DBackpropFilterV2",
        lambda a, d: raw.Conv3DBackpropFilterV2(
            input=a,
            filter_sizes=[2, 2, 2, 2, 3],
            out_backprop=d,
            strides=[1, 2, 2, 2, 1],
            padding="SAME",
        ),
        f32(1, 4, 4, 4, 2),
        f32(1, 2, 2, 2, 3),
        free=False,
    )
    case(
        "DepthwiseConv2dNativeBackpropInput",
        lambda b, d: raw.DepthwiseConv2dNativeBackpropInput(
            input_sizes=[2, 7, 6, 4], filter=b, out_backprop=d, strides=ones, padding="SAME"
        ),
        w,
        f32(2, 7, 6, 8),
        free=False,
    )
    case(
        "DepthwiseConv2dNativeBackpropFilter",
        lambda a, d: raw.DepthwiseConv2dNativeBackpropFilter(
            input=a, filter_sizes=[3, 3, 4, 2], out_backprop=d, strides=ones, padding="SAME"
        ),
        x,
        f32(2, 7, 6, 8),
        free=False,
    )
    pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    case(
        "MaxPoolGrad",
        lambda a, d: raw.MaxPoolGrad(
            orig_input=a, orig_output=raw.MaxPool(input=a, **pool), grad=d, **pool
        ),
        x,
        f32(2, 4, 3, 4),
        free=False,
    )
    case(
        "AvgPoolGrad",
        lambda d: raw.AvgPoolGrad(orig_input_shape=[2, 7, 6, 4], grad=d, **pool),
        f32(2, 4, 3, 4),
        free=False,
    )
    pool3 = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    case(
        "MaxPool3DGrad",
        lambda a, d: raw.MaxPool3DGrad(
            orig_input=a, orig_output=raw.MaxPool3D(input=a, **pool3), grad=d, **pool3
        ),
        f32(1, 4, 4, 4, 2),
        f32(1, 2, 2, 2, 2),
        free=False,
    )
    case(
        "AvgPool3DGrad",
        lambda d: raw.AvgPool3DGrad(orig_input_shape=[1, 4, 4, 4, 2], grad=d, **pool3),
        f32(1, 2, 2, 2, 2),
        free=False,
    )
    bias = f32(4)
    for op in ("BiasAdd", "BiasAddV1"):
        case(op, lambda a, b, op=op: getattr(raw, op)(value=a, bias=b), x, bias)
    case(
        "BiasAdd NCHW",
        lambda a, b: raw.BiasAdd(value=a, bias=b, data_format="NCHW"),
        f32(2, 4, 3, 3),
        bias,
    )
    case("BiasAddGrad", lambda d: raw.BiasAddGrad(out_backprop=d), x)
    scale, offset, mean, variance = f32(4), f32(4), f32(4), f32(4, low=0.5, high=2)
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        case(
            f"{op} inference",
            lambda a, *p, op=op: getattr(raw, op)(
                x=a, scale=p[0], offset=p[1], mean=p[2], variance=p[3], is_training=False
            )[0],
            x,
            scale,
            offset,
            mean,
            variance,
        )
        case(
            f"{op} training",
            lambda a, s, o, op=op: getattr(raw, op)(
                x=a, scale=s, offset=o, mean=[], variance=[], is_training=True
            )[:3],
            x,
            scale,
            offset,
        )
        grad = op.replace("Norm", "NormGrad")

        def batch_norm_grad(a: Any, d: Any, s: Any, op: str = op, grad: str = grad) -> Any:
            y = getattr(raw, op)(x=a, scale=s, offset=s, mean=[], variance=[], is_training=True)
            more = {"reserve_space_3": y[5]} if op.endswith("V3") else {}
            return getattr(raw, grad)(y_backprop=d, x=a, scale=s, reserve_space_1=y[3],
                                      reserve_space_2=y[4], **more)[:3]  # fmt: skip

        case(grad, batch_norm_grad, x, f32(*x.shape), scale)
    case("LRN", lambda a: raw.LRN(input=a, depth_radius=2, bias=1.0, alpha=0.5, beta=0.5), x)
    case("L2Loss", lambda a: raw.L2Loss(t=a), x)
    case("Softmax", lambda a: raw.Softmax(logits=a), f32(3, 5))
    case("LogSoftmax", lambda a: raw.LogSoftmax(logits=a), f32(3, 5))
    labels = np.array([[0.2, 0.8, 0], [1, 0, 0]], np.float32)
    case(
        "SoftmaxCrossEntropyWithLogits",
        lambda a, b: raw.SoftmaxCrossEntropyWithLogits(features=a, labels=b),
        f32(2, 3),
        labels,
    )
    case(
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda a, b: raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=b),
        f32(3, 4),
        np.array([1, 0, 3], np.int32),
    )
    case(
        "Dilation2D",
        lambda a, b: raw.Dilation2D(
            input=a, filter=b, strides=[1, 2, 1, 1], rates=ones, padding="SAME"
        ),
        x,
        f32(2, 3, 4),
        free=False,
    )
    case(
        "CTCLoss",
        lambda a: raw.CTCLoss(
            inputs=a,
            labels_indices=np.array([[0, 0], [0, 1], [1, 0]], np.int64),
            labels_values=np.array([1, 2, 0], np.int32),
            sequence_length=[5, 4],
        )[0],
        f32(5, 2, 4),
        free=False,
    )


def gradients() -> None:
    x, d = f32(3, 4), f32(3, 4)
    for op in ["ReluGrad", "Relu6Grad", "SoftplusGrad", "SoftsignGrad"]:
        case(op, lambda a, b, op=op: getattr(raw, op)(gradients=b, features=a), x * 4, d)
    case("LeakyReluGrad", lambda a, b: raw.LeakyReluGrad(gradients=b, features=a, alpha=0.3), x, d)
    for op in ["EluGrad", "SeluGrad"]:
        case(op, lambda a, b, op=op: getattr(raw, op)(gradients=b, outputs=a), x, d)
    for op in ["SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "InvGrad", "ReciprocalGrad"]:
        case(op, lambda a, b, op=op: getattr(raw, op)(y=a, dy=b), x, d)


def images() -> None:
    x = f32(2, 5, 7, 3, low=0, high=255)
    for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"):
        for options in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
            for size in ([8, 9], [3, 4]):
                text = f"{op} {next(iter(options), '')} {size[0]}"
                case(
                    text,
                    lambda a, o=op, k=options, s=size: getattr(raw, o)(images=a, size=s, **k),
                    x,
                    free=True,
                )
    case("ResizeArea", lambda a: raw.ResizeArea(images=a, size=[3, 4]), x)
    boxes = np.array([[0.1, 0.0, 0.9, 1.2], [0.5, 0.2, 0.2, 0.8]], np.float32)
    for method in ("bilinear", "nearest"):
        case(
            f"CropAndResize {method}",
            lambda a, b, m=method: raw.CropAndResize(
                image=a,
                boxes=b,
                box_ind=[0, 1],
                crop_size=[4, 3],
                method=m,
                extrapolation_value=5.0,
            ),
            x,
            boxes,
            free=False,
        )
    many = np.sort(f32(12, 2, 2, low=0, high=1), 1).reshape(12, 4)
    case(
        "NonMaxSuppressionV4",
        lambda b, s: raw.NonMaxSuppressionV4(
            boxes=b,
            scores=s,
            max_output_size=6,
            iou_threshold=0.3,
            score_threshold=0.1,
            pad_to_max_output_size=True,
        ),
        many,
        f32(12, low=0, high=1),
        free=False,
    )
    scores = f32(12, low=0, high=1)
    case(
        "NonMaxSuppression",
        lambda a: (
            a
            + raw.NonMaxSuppression(boxes=many, scores=scores, max_output_size=4, iou_threshold=0.3)
        ),
        np.int32(1),
    )
    case(
        "NonMaxSuppressionV2",
        lambda a: (
            a
            + raw.NonMaxSuppressionV2(
                boxes=many, scores=scores, max_output_size=4, iou_threshold=0.3
            )
        ),
        np.int32(1),
    )
    case(
        "NonMaxSuppressionV3",
        lambda a: (
            a
            + raw.NonMaxSuppressionV3(
                boxes=many, scores=scores, max_output_size=4, iou_threshold=0.3, score_threshold=0.2
            )
        ),
        np.int32(1),
    )
    unit = f32(2, 3, 3, 3, low=0, high=1)
    case(
        "AdjustContrastv2",
        lambda a, f: raw.AdjustContrastv2(images=a, contrast_factor=f),
        x,
        np.float32(0.5),
    )
    case("AdjustHue", lambda a, f: raw.AdjustHue(images=a, delta=f), unit, np.float32(0.2))
    case(
        "AdjustSaturation",
        lambda a, f: raw.AdjustSaturation(images=a, scale=f),
        unit,
        np.float32(0.5),
    )
    case("RGBToHSV", lambda a: raw.RGBToHSV(images=a), unit)
    case("HSVToRGB", lambda a: raw.HSVToRGB(images=a), unit)


def random_numbers() -> None:
    x = f32(50)
    sizes = lambda a: tf.stack([tf.shape(a)[0], 4])  # noqa: E731
    drawn = {
        "RandomUniform": lambda a: raw.RandomUniform(shape=sizes(a), dtype=tf.float32),
        "RandomStandardNormal": lambda a: raw.RandomStandardNormal(
            shape=sizes(a), dtype=tf.float32
        ),
        "TruncatedNormal": lambda a: raw.TruncatedNormal(shape=sizes(a), dtype=tf.float32),
        "ParameterizedTruncatedNormal": lambda a: raw.ParameterizedTruncatedNormal(
            shape=sizes(a), means=1.0, stdevs=2.0, minvals=-1.0, maxvals=3.0
        ),
        "RandomUniformInt": lambda a: raw.RandomUniformInt(shape=sizes(a), minval=2, maxval=9),
        "StatelessRandomUniform": lambda a: raw.StatelessRandomUniform(shape=sizes(a), seed=[1, 2]),
        "StatelessRandomNormal": lambda a: raw.StatelessRandomNormal(shape=sizes(a), seed=[1, 2]),
        "StatelessTruncatedNormal": lambda a: raw.StatelessTruncatedNormal(
            shape=sizes(a), seed=[1, 2]
        ),
        "StatelessRandomUniformInt": lambda a: raw.StatelessRandomUniformInt(
            shape=sizes(a), seed=[1, 2], minval=0, maxval=7
        ),
        "Multinomial": lambda a: raw.Multinomial(logits=a[None], num_samples=6),
        "StatelessMultinomial": lambda a: raw.StatelessMultinomial(
            logits=a[None], num_samples=6, seed=[1, 2]
        ),
        "RandomShuffle": lambda a: raw.RandomShuffle(value=a),
        "RandomGamma": lambda a: raw.RandomGamma(shape=[5], alpha=tf.abs(a) + 1),
        "RandomPoissonV2": lambda a: raw.RandomPoissonV2(shape=[5], rate=tf.abs(a)),
        "StatelessRandomUniformV2": lambda a: tf.random.stateless_uniform(sizes(a), [1, 2]),
        "StatelessRandomNormalV2": lambda a: tf.random.stateless_normal(sizes(a), [1, 2]),
        "StatelessTruncatedNormalV2": lambda a: tf.random.stateless_truncated_normal(
            sizes(a), [1, 2]
        ),
        "StatelessRandomUniformIntV2": lambda a: tf.random.stateless_uniform(
            sizes(a), [1, 2], 0, 9, tf.int32
        ),
    }
    for op, build in drawn.items():
        case(op, build, x, only_types=True)


def state() -> None:
    for resource in (False, True):
        kind = "resource" if resource else "reference"

        def variables(resource: bool = resource) -> Any:
            start = np.arange(8, dtype=np.float32).reshape(4, 2)
            return v1.Variable(start, name="v", use_resource=resource)

        case(f"read {kind}", lambda a, v=variables: v() * a, f32(2))
        case(
            f"assign {kind}",
            lambda a, v=variables: tf.identity(v1.assign(v(), a)),
            f32(4, 2),
            free=False,
        )
        case(
            f"assign_add {kind}",
            lambda a, v=variables: tf.identity(v1.assign_add(v(), a)),
            f32(4, 2),
            free=False,
        )
        case(
            f"assign_sub {kind}",
            lambda a, v=variables: tf.identity(v1.assign_sub(v(), a)),
            f32(4, 2),
            free=False,
        )
        case(f"gather {kind}", lambda i, v=variables: tf.gather(v(), i), i32(3, low=0, high=4))
        case(
            f"gather_nd {kind}",
            lambda i, v=variables: tf.gather_nd(v(), i),
            i32(3, 2, low=0, high=2),
        )
        case(f"shape {kind}", lambda a, v=variables: tf.shape(v()) + a, np.int32(1))
        for name in ("update", "add", "sub", "max", "min", "mul"):
            case(
                f"scatter_{name} {kind}",
                lambda a, v=variables, n=name: tf.identity(
                    getattr(v1, f"scatter_{n}")(v(), [0, 2], a)
                ),
                f32(2, 2),
                free=False,
            )
        for name in ("update", "add", "sub"):
            case(
                f"scatter_nd_{name} {kind}",
                lambda a, v=variables, n=name: tf.identity(
                    getattr(v1, f"scatter_nd_{n}")(v(), [[0], [2]], a)
                ),
                f32(2, 2),
                free=False,
            )


def more_state() -> None:
    def variable() -> Any:
        return v1.Variable(
            np.arange(6, dtype=np.float32).reshape(3, 2), name="v", use_resource=True
        )

    case("VariableShape", lambda a: raw.VariableShape(input=variable().handle) + a, np.int32(1))

    def initialized(a: Any) -> Any:
        v = v1.Variable(np.ones(3, np.float32), name="v", use_resource=False)
        return tf.logical_and(v1.is_variable_initialized(v), a)

    case("IsVariableInitialized", initialized, np.array(True))

    def stateful(a: Any) -> Any:
        v = variable()

        @tf.function
        def step(x: Any) -> Any:
            v.assign_add(x)
            tf.print("seen", output_stream="file:///dev/null")
            return v * 2

        return step(a)

    case("StatefulPartitionedCall", stateful, f32(3, 2), free=False)

    def branches(a: Any) -> Any:
        v = variable()

        def write() -> Any:
            with tf.control_dependencies([v.assign_add(a)]):
                return v.read_value() * 2

        return v1.cond(a[0, 0] > -100, write, lambda: a)

    case("If", branches, f32(3, 2), free=False)

    def loop(a: Any) -> Any:
        v = variable()

        def body(i: Any, x: Any) -> Any:
            with tf.control_dependencies([v.assign_add(x)]):
                return i + 1, v.read_value() * 0.5

        return v1.while_loop(lambda i, x: i < 3, body, [0, a])[1]

    case("While", loop, f32(3, 2), free=False)

    def choice(a: Any, i: Any) -> Any:
        v = variable()
        return tf.switch_case(i, [lambda: v.assign(a) + 1, lambda: v.assign_sub(a) + 2])

    case("Case", choice, f32(3, 2), np.int32(1), free=False)
    x = f32(3, 2)
    slots = {"lr": 0.1, "momentum": 0.9}

    def keras_momentum(a: Any) -> Any:
        v, m = variable(), v1.Variable(np.ones((3, 2), np.float32), name="m", use_resource=True)
        step = raw.ResourceApplyKerasMomentum(var=v.handle, accum=m.handle, grad=a, **slots)
        with tf.control_dependencies([step]):
            return [v.read_value(), m.read_value()]

    case("ResourceApplyKerasMomentum", keras_momentum, x, free=False)

    def adagrad(a: Any) -> Any:
        v, m = variable(), v1.Variable(np.ones((3, 2), np.float32), name="m", use_resource=True)
        step = raw.ResourceApplyAdagradV2(
            var=v.handle, accum=m.handle, grad=a, lr=0.1, epsilon=0.01
        )
        with tf.control_dependencies([step]):
            return [v.read_value(), m.read_value()]

    case("ResourceApplyAdagradV2", adagrad, x, free=False)
    case("ParallelStack", lambda a, b: v1.parallel_stack([a, b]), f32(4), f32(4), free=False)


def optimizers() -> None:
    def step(make: Callable[[], Any], resource: bool) -> Callable[[Any], Any]:
        def build(x: Any) -> Any:
            w = v1.Variable(np.array([[0.5], [-1.0]], np.float32), name="w", use_resource=resource)
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w.value() if resource else w) - 1.0))
            optimizer = make()
            ((gradient, _),) = optimizer.compute_gradients(loss, [w])
            train = optimizer.apply_gradients([(gradient, w)])
            with tf.control_dependencies([train]):
                return w.read_value()

        return build

    train = v1.train
    for name, make in {
        "GradientDescent": lambda: train.GradientDescentOptimizer(0.1),
        "Momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
        "Nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        "Adagrad": lambda: train.AdagradOptimizer(0.1),
        "RMSProp": lambda: train.RMSPropOptimizer(0.1, 0.9, 0.5),
        "Adam": lambda: train.AdamOptimizer(0.1),
        "Adadelta": lambda: train.AdadeltaOptimizer(0.1),
    }.items():
        for resource in (False, True):
            case(
                f"{name} {'resource' if resource else 'reference'}", step(make, resource), f32(5, 2)
            )


def tables() -> None:
    keys, values = np.array([3, 1, 7], np.int64), np.array([0.5, 1.5, 2.5], np.float32)

    def lookup(a: Any) -> Any:
        start = tf.lookup.KeyValueTensorInitializer(keys, values)
        table = tf.lookup.StaticHashTable(start, -1.0)
        return [table.lookup(a), table.size()]

    case("LookupTableFindV2", lookup, np.array([1, 2, 7, 3], np.int64))

    def strings(a: Any) -> Any:
        start = tf.lookup.KeyValueTensorInitializer(["cat", "dog"], np.array([4, 5], np.int64))
        table = tf.lookup.StaticHashTable(start, -1)
        name = raw.StringJoin(inputs=["d", "og"])
        return table.lookup(tf.stack(["cat", "cow", name])) + a

    case("LookupTableFindV2 strings", strings, np.int64(0))
    case("StringToNumber", lambda a: a + raw.StringToNumber(string_tensor=["1.5", "2"]), f32(2))
    case(
        "AsString",
        lambda a: a + raw.StringToNumber(string_tensor=raw.AsString(input=[3, 4])),
        f32(2),
    )
    case(
        "DecodeRaw",
        lambda a: (
            a + raw.DecodeRaw(bytes=np.array([1.5, 2.5], "<f4").tobytes(), out_type=tf.float32)
        ),
        f32(2),
    )


def lists() -> None:
    def array(a: Any) -> Any:
        handle, flow = raw.TensorArrayV3(size=tf.shape(a)[0], dtype=tf.float32)
        flow = raw.TensorArrayScatterV3(
            handle=handle, indices=tf.range(tf.shape(a)[0]), value=a, flow_in=flow
        )
        one = raw.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)
        some = raw.TensorArrayGatherV3(
            handle=handle, indices=[2, 1], flow_in=flow, dtype=tf.float32
        )
        size = raw.TensorArraySizeV3(handle=handle, flow_in=flow)
        with tf.control_dependencies([one, some, size]):
            close = raw.TensorArrayCloseV3(handle=handle)
        del close
        return [one, some, size]

    case("TensorArray", array, f32(4, 3))

    def written(a: Any) -> Any:
        handle, flow = raw.TensorArrayV3(size=2, dtype=tf.float32)
        flow = raw.TensorArrayWriteV3(handle=handle, index=1, value=a[0] * 2, flow_in=flow)
        flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=a[1], flow_in=flow)
        return raw.TensorArrayGatherV3(
            handle=handle, indices=[1, 0], flow_in=flow, dtype=tf.float32
        )

    case("TensorArrayWriteV3", written, f32(4, 3))

    def parts(a: Any) -> Any:
        handle, flow = raw.TensorArrayV3(size=2, dtype=tf.float32)
        flow = raw.TensorArraySplitV3(
            handle=handle, value=a, lengths=np.array([2, 2]), flow_in=flow
        )
        return raw.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=tf.float32)

    case("TensorArray parts", parts, f32(4, 3), free=False)

    def tensor_list(a: Any) -> Any:
        made = raw.TensorListFromTensor(tensor=a, element_shape=[3])
        made = raw.TensorListSetItem(input_handle=made, index=1, item=a[0] * 2)
        kinds = {"element_shape": [3], "element_dtype": tf.float32}
        shape = raw.TensorListElementShape(input_handle=made, shape_type=tf.int32)
        return [
            raw.TensorListGetItem(input_handle=made, index=1, **kinds),
            raw.TensorListStack(input_handle=made, **kinds),
            raw.TensorListGather(input_handle=made, indices=[2, 0], **kinds),
            raw.TensorListLength(input_handle=made), shape,
            raw.TensorListStack(
                input_handle=raw.TensorListResize(input_handle=made, size=2), **kinds),
        ]  # fmt: skip

    case("TensorList", tensor_list, f32(4, 3), free=False)

    def pushed(a: Any) -> Any:
        kinds = {"element_shape": [3], "element_dtype": tf.float32}
        made = raw.EmptyTensorList(element_shape=[3], max_num_elements=5, element_dtype=tf.float32)
        for i in range(3):
            made = raw.TensorListPushBack(input_handle=made, tensor=a[i])
        rest, last = raw.TensorListPopBack(input_handle=made, **kinds)
        both = raw.TensorListConcatLists(input_a=rest, input_b=made, element_dtype=tf.float32)
        return [last, raw.TensorListStack(input_handle=both, **kinds)]

    case("TensorListPushBack", pushed, f32(4, 3))

    def scattered(a: Any) -> Any:
        kinds = {"element_shape": [3], "element_dtype": tf.float32}
        made = raw.TensorListScatterV2(tensor=a, indices=[2, 0], element_shape=[3], num_elements=4)
        made = raw.TensorListScatterIntoExistingList(input_handle=made, tensor=a, indices=[1, 3])
        return raw.TensorListStack(input_handle=made, **kinds)

    case("TensorListScatterV2", scattered, f32(2, 3), free=False)

    def concatenated(a: Any) -> Any:
        made = raw.TensorListSplit(tensor=a, element_shape=[2, 3], lengths=np.array([2, 2]))
        return raw.TensorListConcatV2(
            input_handle=made,
            element_shape=[2, 3],
            leading_dims=np.zeros(0, np.int64),
            element_dtype=tf.float32,
        )

    case("TensorListSplit", concatenated, f32(4, 3), free=False)
    case(
        "TensorListReserve",
        lambda a: raw.TensorListStack(
            input_handle=raw.TensorListSetItem(
                input_handle=raw.TensorListReserve(
                    element_shape=-1, num_elements=3, element_dtype=tf.float32
                ),
                index=1,
                item=a,
            ),
            element_shape=[4],
            element_dtype=tf.float32,
        ),
        f32(4),
        free=False,
    )


def quantization() -> None:
    x = f32(3, 4) * 4
    case(
        "FakeQuantWithMinMaxArgs", lambda a: raw.FakeQuantWithMinMaxArgs(inputs=a, min=-3, max=4), x
    )
    case(
        "FakeQuantWithMinMaxVars",
        lambda a, b, c: raw.FakeQuantWithMinMaxVars(inputs=a, min=b, max=c, num_bits=4),
        x,
        np.float32(-2),
        np.float32(3),
    )
    case(
        "FakeQuantWithMinMaxVarsPerChannel",
        lambda a, b, c: raw.FakeQuantWithMinMaxVarsPerChannel(inputs=a, min=b, max=c),
        x,
        -f32(4, low=1, high=3),
        f32(4, low=1, high=3),
        free=False,
    )
    for signed in (False, True):
        case(
            f"QuantizeAndDequantizeV2 {signed}",
            lambda a, s=signed: raw.QuantizeAndDequantizeV2(
                input=a, input_min=-2.0, input_max=3.0, signed_input=s, range_given=True
            ),
            x,
        )
    case(
        "QuantizeAndDequantizeV4",
        lambda a: raw.QuantizeAndDequantizeV4(
            input=a, input_min=0.0, input_max=0.0, range_given=False
        ),
        x,
    )
    case(
        "QuantizeV2",
        lambda a: tf.cast(
            raw.QuantizeV2(input=a, min_range=-5.0, max_range=6.0, T=tf.quint8, mode="MIN_FIRST")[
                0
            ],
            tf.float32,
        ),
        x,
    )
    for mode in ("MIN_COMBINED", "MIN_FIRST"):
        case(
            f"Dequantize {mode}",
            lambda a, m=mode: raw.Dequantize(
                input=raw.Bitcast(input=a, type=tf.quint8), min_range=-5.0, max_range=6.0, mode=m
            ),
            i32(3, 4, low=0, high=255).astype(np.uint8),
        )


def control_flow() -> None:
    for version in (1, 2):
        (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
        t = f"v{version}"
        case(
            f"cond {t}",
            lambda a: v1.cond(tf.reduce_sum(a) > 0, lambda: a * 2, lambda: a - 1),
            f32(3),
        )
        case(
            f"cond other {t}",
            lambda a: v1.cond(tf.reduce_sum(a) > 100, lambda: (a * 2, a[0]), lambda: (a - 1, a[1])),
            f32(3),
        )
        case(
            f"cond nested {t}",
            lambda a: v1.cond(
                tf.reduce_sum(a) > -100,
                lambda: v1.cond(a[0] > 50, lambda: a + 1, lambda: a * 3),
                lambda: tf.zeros_like(a),
            ),
            f32(3),
        )
        case(
            f"cond constant branch {t}",
            lambda a: v1.cond(a[0] > 0, lambda: tf.constant(1.0), lambda: a[1] * 2),
            f32(3),
        )
        case(
            f"while {t}",
            lambda a: v1.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + a), [0, a])[
                1
            ],
            f32(3),
        )
        case(
            f"while step {t}",
            lambda a: v1.while_loop(lambda i, x: i < 5, lambda i, x: (i + 2, x * 1.5 + a), [0, a])[
                1
            ],
            f32(3),
        )
        case(
            f"while tests {t}",
            lambda a: v1.while_loop(
                lambda i, j, x: tf.logical_and(i < 6, j <= 3),
                lambda i, j, x: (i + 1, j + 1, x + a),
                [0, 0, a],
            ),
            f32(3),
        )
        case(
            f"while greater {t}",
            lambda a: v1.while_loop(
                lambda i, x: tf.shape(a)[0] > i, lambda i, x: (1 + i, x + a), [1, a]
            ),
            f32(4),
        )
        case(
            f"while data {t}",
            lambda a: v1.while_loop(
                lambda x: tf.reduce_sum(x) < 100, lambda x: x * 2, [tf.abs(a) + 1]
            ),
            f32(3),
        )

        def nested(a: Any) -> Any:
            def outer(i: Any, x: Any) -> Any:
                inner = v1.while_loop(
                    lambda j, y: j < i, lambda j, y: (j + 1, y + a * tf.cast(j, tf.float32)), [0, x]
                )
                return i + 1, v1.cond(i > 1, lambda: inner[1] * 0.5, lambda: inner[1])

            return v1.while_loop(lambda i, x: i < 4, outer, [0, a])[1]

        case(f"while nested {t}", nested, f32(3))

        def arrays(a: Any) -> Any:
            size = tf.shape(a)[0]
            source = tf.TensorArray(tf.float32, size).unstack(a)
            target = tf.TensorArray(tf.float32, size)

            def body(i: Any, total: Any, out: Any) -> Any:
                total = total + source.read(i)
                return i + 1, total, out.write(i, total * 2)

            _, total, out = v1.while_loop(lambda i, *_: i < size, body, [0, tf.zeros([3]), target])
            return [total, out.stack()]

        case(f"TensorArray loop {t}", arrays, f32(4, 3))

        def case_(a: Any, i: Any) -> Any:
            return v1.case([(i < 1, lambda: a), (i < 2, lambda: a * 2)], default=lambda: -a)

        case(f"case {t}", case_, f32(3), np.int32(1))
        case(f"map_fn {t}", lambda a: v1.map_fn(lambda r: tf.reduce_max(r) * r, a), f32(4, 3))
        case(f"scan {t}", lambda a: v1.scan(lambda p, r: p * 0.5 + r, a), f32(4, 3))
        case(
            f"switch_case {t}",
            lambda a, i: tf.switch_case(i, [lambda: a, lambda: a * 2, lambda: a * 3]),
            f32(3),
            np.int32(7),
        )
    v1.enable_control_flow_v2()

    @tf.function
    def inner(a: Any, b: Any) -> Any:
        return a * b, a - b

    @tf.function
    def outer(a: Any) -> Any:
        x, y = inner(a, a + 1)
        return inner(x, y)

    case("function", lambda a: outer(a), f32(3))
    case(
        "StatelessIf",
        lambda a: tf.raw_ops.StatelessIf(
            cond=a[0] > 0,
            input=[a],
            Tout=[tf.float32],
            then_branch=tf.function(lambda x: x * 2).get_concrete_function(tf.TensorSpec([3])),
            else_branch=tf.function(lambda x: x - 2).get_concrete_function(tf.TensorSpec([3])),
            output_shapes=[[3]],
        ),
        f32(3),
        free=False,
    )


def write() -> None:
    path = Path(__file__).with_name("cases.json.gz")
    text = json.dumps({"tensorflow": tf.__version__, "cases": CASES}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(CASES)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    for group in (
        elementwise, reductions, shapes, indexing, matrices, networks, gradients, images,
        random_numbers, state, more_state, optimizers, tables, lists, quantization, control_flow,
    ):  # fmt: skip
        group()
    write()
