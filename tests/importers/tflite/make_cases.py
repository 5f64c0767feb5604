"""Makes `cases.json.gz`: models of one operator, and whole models, with the interpreter's results.

Needs TensorFlow and tf_keras (the converter fuses only its LSTMs, not those of Keras 3):
`python tests/importers/tflite/make_cases.py`. The result is deterministic. The tests read the file;
they need no TensorFlow.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import flatbuffers
import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

CASES: list[dict[str, Any]] = []
RNG = np.random.default_rng(0)
REFERENCE = tf.lite.experimental.OpResolverType.BUILTIN_REF
TYPES = {
    np.dtype(kind): number
    for kind, number in (
        ("float32", 0), ("float16", 1), ("int32", 2), ("uint8", 3), ("int64", 4), ("bool", 6),
        ("int16", 7), ("complex64", 8), ("int8", 9), ("uint32", 15),
    )
}  # fmt: skip
Quant = tuple[Any, Any, int]
VERSIONS = {"BROADCAST_TO": 2}  # of operators whose first version is not 1


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Floats with few digits, so that the file stays small."""
    return np.round(RNG.uniform(low, high, shape), 2).astype(np.float32)


def i32(*shape: int, low: int = -5, high: int = 6) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def encoded(array: Any) -> list[Any]:
    array = np.asarray(array)
    return [array.dtype.name, list(array.shape), base64.b64encode(array.tobytes()).decode()]


class const:
    """An operand that is a constant of the model."""

    def __init__(self, value: Any, dtype: Any = None) -> None:
        self.value = np.asarray(value, dtype)


class state:
    """An operand that is a variable tensor."""

    def __init__(self, *shape: int, dtype: Any = np.float32) -> None:
        self.value = np.zeros(shape, dtype)


class Writer:
    """A model that is written tensor by tensor."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes, self.model.subgraphs = [], []
        empty = schema.BufferT()
        self.model.buffers = [empty]

    def tensor(
        self, graph: Any, value: np.ndarray, name: str, quant: Quant | None = None,
        keep: bool = False, variable: bool = False,
    ) -> int:  # fmt: skip
        t = schema.TensorT()
        t.shape, t.type, t.name = list(value.shape), TYPES[value.dtype], name
        t.isVariable, t.buffer, t.hasRank = variable, 0, True
        if keep:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(value.tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            t.buffer = len(self.model.buffers) - 1
        if quant is not None:
            q = schema.QuantizationParametersT()
            q.scale = np.atleast_1d(np.asarray(quant[0], np.float32))
            q.zeroPoint = np.atleast_1d(np.asarray(quant[1], np.int64))
            q.quantizedDimension = quant[2] if len(quant) > 2 else 0
            t.quantization = q
        graph.tensors.append(t)
        return len(graph.tensors) - 1

    def graph(self) -> Any:
        graph = schema.SubGraphT()
        graph.tensors, graph.inputs, graph.outputs, graph.operators = [], [], [], []
        self.model.subgraphs.append(graph)
        return graph

    def operator(
        self, graph: Any, name: str, inputs: Sequence[int], outputs: Sequence[int],
        options: str = "", values: dict[str, Any] | None = None, custom: str = "",
    ) -> None:  # fmt: skip
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), VERSIONS.get(name, 1)
        if custom:
            code.customCode = custom
        self.model.operatorCodes.append(code)
        op = schema.OperatorT()
        op.opcodeIndex = len(self.model.operatorCodes) - 1
        op.inputs, op.outputs = list(inputs), list(outputs)
        if options:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            op.builtinOptions = getattr(schema, options + "T")()
            for key, value in (values or {}).items():
                assert hasattr(op.builtinOptions, key), key
                setattr(op.builtinOptions, key, value)
        graph.operators.append(op)

    def bytes(self) -> bytes:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def results_of(model: bytes, inputs: Sequence[Any], reference: bool = True) -> list[np.ndarray]:
    """The interpreter's results. Inputs may have other leading sizes than the file says."""
    kind = {"experimental_op_resolver_type": REFERENCE} if reference else {}
    try:
        interpreter = tf.lite.Interpreter(model_content=model, **kind)
    except ValueError:  # there is no reference kernel
        interpreter = tf.lite.Interpreter(model_content=model)
    details = interpreter.get_input_details()
    for detail, value in zip(details, inputs, strict=True):
        if list(detail["shape"]) != list(value.shape):
            interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(details, inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def keep(
    name: str, model: bytes, *runs: Sequence[Any], reference: bool = True,
    only_types: bool = False, signature: str | None = None,
) -> None:  # fmt: skip
    """Keeps a model with its results for some lists of inputs."""
    CASES.append(
        {
            "name": name,
            "model": base64.b64encode(model).decode(),
            "only_types": only_types,
            "signature": signature,
            "runs": [
                [
                    [encoded(x) for x in inputs],
                    [encoded(y) for y in results_of(model, inputs, reference)],
                ]
                for inputs in runs
            ],
        }
    )


def case(
    op: str, *operands: Any, options: str = "", out: Any = np.float32, more: Sequence[Any] = (),
    quant: Sequence[Quant | None] = (), out_quant: Quant | None = None, name: str = "",
    reference: bool = True, only_types: bool = False, out_shape: Sequence[int] = (), **values: Any,
) -> None:  # fmt: skip
    """Keeps a model of one operator.

    Args:
        operands: arrays are inputs; `const`, `state`, and None for one that is left out.
        out, more: the dtypes of the results.
        quant, out_quant: (scale, zero, axis) of operands and of the results.
    """
    writer = Writer()
    graph = writer.graph()
    numbers, inputs = [], []
    for i, operand in enumerate(operands):
        own = quant[i] if i < len(quant) else None
        if operand is None:
            numbers.append(-1)
        elif isinstance(operand, (const, state)):
            fixed = isinstance(operand, const)
            numbers.append(writer.tensor(graph, operand.value, f"c{i}", own, fixed, not fixed))
        else:
            numbers.append(writer.tensor(graph, np.asarray(operand), f"x{i}", own))
            graph.inputs.append(numbers[-1])
            inputs.append(np.asarray(operand))
    for i, dtype in enumerate([out, *more]):
        graph.outputs.append(writer.tensor(graph, np.zeros(out_shape, dtype), f"y{i}", out_quant))
    writer.operator(graph, op, numbers, graph.outputs, options, values)
    try:
        keep(name or op, writer.bytes(), inputs, reference=reference, only_types=only_types)
    except Exception as error:
        print("FAILED", name or op, str(error).splitlines()[:3])


def elementwise() -> None:
    for op in (
        "ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "LOG_SOFTMAX",
        "NEG", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ROUND", "SIGN", "SIN", "SQUARE",
        "TANH", "ZEROS_LIKE",
    ):  # fmt: skip
        case(op, f32(3, 4, low=-4, high=8))
    for op in ("LOG", "SQRT", "RSQRT"):
        case(op, f32(3, 4, low=0.1))
    for op, options in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
        case(op, f32(3, 4), f32(4), options=options)
    for number in (1, 2, 3):  # the interpreter has no others for ADD
        case("ADD", f32(3, 4), const(f32(4)), options="AddOptions",
             name=f"ADD activation {number}", fusedActivationFunction=number)  # fmt: skip
    case("DIV", f32(3, 4), f32(4, low=0.5), options="DivOptions")
    case("DIV", i32(3, 4), i32(4, low=1), options="DivOptions", out=np.int32, name="DIV int32")
    for op in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"):
        case(op, f32(3, 4), f32(1, 4, low=0.5))
    case("ATAN2", f32(3, 4), f32(3, 4))
    case("POW", f32(3, 4, low=0.5), f32(3, 4))
    for op in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        case(op, i32(3, 4), i32(3, 4), out=bool)
    flags = RNG.integers(0, 2, (2, 3, 4)).astype(bool)
    for op in ("LOGICAL_AND", "LOGICAL_OR"):
        case(op, flags[0], flags[1], out=bool)
    case("LOGICAL_NOT", flags[0], out=bool)
    case("SELECT", flags[0, :, 0].copy(), f32(3, 4), f32(3, 4))
    case("SELECT_V2", flags[0], f32(3, 4), f32(1, 4))
    case("BITWISE_XOR", i32(3, 4), i32(3, 4), out=np.int32)
    case("RIGHT_SHIFT", i32(3, 4), i32(3, 4, low=0), out=np.int32)
    case("BITCAST", f32(3, 4), out=np.int32)
    case("CAST", f32(3, 4), options="CastOptions", out=np.int32, inDataType=0, outDataType=2)
    case("CAST", i32(3, 4), options="CastOptions", out=bool, name="CAST bool", outDataType=6,
         inDataType=2)  # fmt: skip
    z = (f32(3, 4) + 1j * f32(3, 4)).astype(np.complex64)
    for op in ("COMPLEX_ABS", "REAL", "IMAG"):
        case(op, z)
    case("ADD_N", f32(3), f32(3), f32(3))
    case("LEAKY_RELU", f32(3, 4), options="LeakyReluOptions", alpha=0.3)
    case("PRELU", f32(3, 4), const(f32(4)))
    for flag in (False, True):
        case("GELU", f32(3, 4), options="GeluOptions", name=f"GELU {flag}", approximate=flag)
    case("SOFTMAX", f32(3, 4), options="SoftmaxOptions", beta=0.7)
    case("L2_NORMALIZATION", f32(3, 4), options="L2NormOptions")
    case("BUCKETIZE", f32(9), options="BucketizeOptions", out=np.int32,
         boundaries=[-1.0, 0.0, 1.0])  # fmt: skip
    case("FAKE_QUANT", f32(9), options="FakeQuantOptions", min=-1.4, max=1.6, numBits=8,
         reference=False)  # fmt: skip


def reductions() -> None:
    x = f32(2, 3, 4)
    axes = const([1, -1], np.int32)
    for op in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        case(op, x, axes, options="ReducerOptions", keepDims=op == "SUM")
    for op in ("REDUCE_ANY", "REDUCE_ALL"):
        case(op, x > 0, axes, options="ReducerOptions", out=bool)
    for op, options in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        case(op, x, const(-1, np.int32), options=options, out=np.int32, outputType=2)
    for flag in (False, True):
        case("CUMSUM", x, const(1, np.int32), options="CumsumOptions", name=f"CUMSUM {flag}",
             exclusive=flag, reverse=flag)  # fmt: skip
    case("TOPK_V2", f32(2, 5), const(3, np.int32), options="TopKV2Options", more=[np.int32])
    case("SEGMENT_SUM", f32(5, 2), const([0, 0, 1, 1, 2], np.int32))
    for kind in ("MAX", "MIN", "PROD", "SUM"):
        case(f"UNSORTED_SEGMENT_{kind}", f32(5, 2), const([0, 2, 0, 1, 2], np.int32),
             const(3, np.int32))  # fmt: skip


def shapes() -> None:
    x = f32(2, 3, 4)
    case("RESHAPE", x, const([4, -1], np.int32))
    case("RESHAPE", x, options="ReshapeOptions", newShape=[6, 4], name="RESHAPE option")
    case("SQUEEZE", f32(2, 1, 3, 1), options="SqueezeOptions", squeezeDims=[1])
    case("EXPAND_DIMS", x, const(1, np.int32))
    case("TRANSPOSE", x, const([2, 0, 1], np.int32))
    case("SHAPE", x, options="ShapeOptions", out=np.int32, outType=2)
    case("RANK", x, out=np.int32)
    case("PACK", f32(2, 3), f32(2, 3), options="PackOptions", valuesCount=2, axis=1)
    case("UNPACK", x, options="UnpackOptions", num=3, axis=1, more=[np.float32] * 2)
    case("CONCATENATION", f32(2, 3), f32(2, 1), options="ConcatenationOptions", axis=-1)
    case("SPLIT", const(2, np.int32), x, options="SplitOptions", numSplits=2, more=[np.float32])
    case("SPLIT_V", x, const([1, -1], np.int32), const(1, np.int32), options="SplitVOptions",
         numSplits=2, more=[np.float32])  # fmt: skip
    case("SLICE", x, const([0, 1, 0], np.int32), const([2, 2, -1], np.int32))
    case("STRIDED_SLICE", x, const([0, 2, 1], np.int32), const([1, 0, 4], np.int32),
         const([1, -1, 2], np.int32), options="StridedSliceOptions", shrinkAxisMask=1,
         endMask=2)  # fmt: skip
    case("TILE", f32(2, 3), const([2, 1], np.int32))
    case("FILL", const([2, 3], np.int32), f32())
    case("RANGE", const(1, np.int32), const(9, np.int32), const(3, np.int32), out=np.int32)
    case("PAD", f32(2, 3), const([[1, 0], [0, 2]], np.int32))
    case("PADV2", f32(2, 3), const([[1, 0], [0, 2]], np.int32), const(0.5, np.float32))
    for mode in (0, 1):
        case("MIRROR_PAD", f32(3, 3), const([[1, 0], [0, 2]], np.int32), mode=mode,
             options="MirrorPadOptions", name=f"MIRROR_PAD {mode}")  # fmt: skip
    case("REVERSE_V2", x, const([1], np.int32))
    case("REVERSE_SEQUENCE", f32(2, 4, 2), const([2, 3], np.int32), seqDim=1,
         options="ReverseSequenceOptions")  # fmt: skip
    case("BROADCAST_TO", f32(1, 3), const([2, 3], np.int32))
    case("BROADCAST_ARGS", const([1, 3], np.int32), const([2, 1], np.int32), out=np.int32)
    case("SPACE_TO_DEPTH", f32(1, 4, 4, 2), options="SpaceToDepthOptions", blockSize=2)
    case("DEPTH_TO_SPACE", f32(1, 2, 2, 8), options="DepthToSpaceOptions", blockSize=2)
    case("SPACE_TO_BATCH_ND", f32(1, 4, 3, 2), const([2, 2], np.int32),
         const([[0, 0], [1, 0]], np.int32))  # fmt: skip
    case("BATCH_TO_SPACE_ND", f32(4, 2, 2, 1), const([2, 2], np.int32),
         const([[0, 0], [1, 0]], np.int32))  # fmt: skip
    case("MATRIX_DIAG", f32(2, 3))
    case("MATRIX_SET_DIAG", f32(2, 3, 3), f32(2, 3))
    case("GATHER", x, const([1, 0, 1], np.int32), options="GatherOptions", axis=1)
    case("GATHER", x, const([[2, 0], [1, 1]], np.int32), options="GatherOptions", axis=1,
         batchDims=1, name="GATHER batch")  # fmt: skip
    case("GATHER_ND", x, const([[1, 0], [0, 2]], np.int32))
    case("SCATTER_ND", const([[1], [3]], np.int32), f32(2, 2), const([4, 2], np.int32))
    case("ONE_HOT", i32(3, low=0, high=4), const(4, np.int32), const(2, np.float32),
         const(-1, np.float32), options="OneHotOptions", axis=-1)  # fmt: skip
    case("EMBEDDING_LOOKUP", i32(3, low=0, high=4), const(f32(4, 2)))
    case("WHERE", const([True, False, True]), out=np.int64)
    case("UNIQUE", const([3, 1, 3, 2], np.int32), options="UniqueOptions", out=np.int32,
         more=[np.int32], idxOutType=2)  # fmt: skip
    case("SPARSE_TO_DENSE", const([1, 3], np.int32), const([5], np.int32), f32(2),
         const(0.5, np.float32), options="SparseToDenseOptions")  # fmt: skip
    case("DYNAMIC_UPDATE_SLICE", f32(4, 3), f32(2, 2), i32(2, low=0, high=2))


def networks() -> None:
    for padding in (0, 1):
        conv = {"padding": padding, "strideH": 2, "strideW": 1}
        case("CONV_2D", f32(2, 7, 6, 4), const(f32(5, 3, 2, 4)), const(f32(5)),
             options="Conv2DOptions", dilationHFactor=1, dilationWFactor=2,
             fusedActivationFunction=1, name=f"CONV_2D {padding}", **conv)  # fmt: skip
        conv = {"padding": padding, "strideH": 2, "strideW": 2}
        case("DEPTHWISE_CONV_2D", f32(2, 7, 6, 3), const(f32(1, 3, 2, 6)), const(f32(6)),
             options="DepthwiseConv2DOptions", depthMultiplier=2, dilationHFactor=1,
             dilationWFactor=1, name=f"DEPTHWISE_CONV_2D {padding}",
             fusedActivationFunction=3, **conv)  # fmt: skip
        for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
            case(op, f32(2, 7, 6, 3), options="Pool2DOptions", filterHeight=3, filterWidth=2,
                 name=f"{op} {padding}", **conv)  # fmt: skip
    case("CONV_2D", f32(1, 5, 5, 4), const(f32(6, 3, 3, 2)), const(f32(6)), options="Conv2DOptions",
         padding=0, strideH=1, strideW=1, name="CONV_2D groups")  # fmt: skip
    case("TRANSPOSE_CONV", const([2, 8, 7, 3], np.int32), const(f32(3, 3, 2, 4)),
         f32(2, 4, 7, 4), const(f32(3)), options="TransposeConvOptions", padding=0, strideH=2,
         strideW=1)  # fmt: skip
    for op, operands in (
        ("CONV_3D", [f32(1, 4, 5, 4, 2), const(f32(2, 3, 2, 2, 3)), const(f32(3))]),
        ("CONV_3D_TRANSPOSE",
         [const([1, 8, 5, 4, 3], np.int32), const(f32(2, 3, 2, 3, 2)), f32(1, 4, 5, 4, 2)]),
    ):  # fmt: skip
        stride = 2 if "TRANSPOSE" in op else 1
        case(op, *operands, options="Conv3DOptions", padding=0, strideD=stride, strideH=1,
             strideW=1, dilationDFactor=1, dilationHFactor=1, dilationWFactor=1)  # fmt: skip
    case("FULLY_CONNECTED", f32(2, 3, 4), const(f32(5, 4)), const(f32(5)),
         options="FullyConnectedOptions", fusedActivationFunction=1)  # fmt: skip
    case("FULLY_CONNECTED", f32(2, 3, 4), const(f32(5, 4)), None, keepNumDims=True,
         options="FullyConnectedOptions", name="FULLY_CONNECTED keep")  # fmt: skip
    case("BATCH_MATMUL", f32(2, 3, 4), f32(2, 5, 4), options="BatchMatMulOptions", adjY=True)
    case("LOCAL_RESPONSE_NORMALIZATION", f32(1, 2, 2, 8), radius=2, bias=1.0, alpha=0.3,
         beta=0.5, options="LocalResponseNormalizationOptions",
         reference=False)  # fmt: skip  # whose windows are shorter by one
    for op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        kind = "ResizeBilinearOptions" if "BI" in op else "ResizeNearestNeighborOptions"
        for half in (False, True):
            case(op, f32(1, 3, 4, 2), const([5, 9], np.int32), options=kind,
                 halfPixelCenters=half, name=f"{op} {half}")  # fmt: skip
    case("RFFT2D", f32(4, 8), const([4, 8], np.int32), out=np.complex64)
    case("NON_MAX_SUPPRESSION_V4", const(boxes()), f32(6, low=0, high=1), const(4, np.int32),
         const(0.5, np.float32), const(0.1, np.float32), out=np.int32, more=[np.int32])  # fmt: skip
    case("NON_MAX_SUPPRESSION_V5", const(boxes()), f32(6, low=0, high=1), const(4, np.int32),
         const(0.5, np.float32), const(0.1, np.float32), const(0, np.float32), out=np.int32,
         more=[np.float32, np.int32])  # fmt: skip
    for op in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        case(op, const([2, 3], np.int32), options="RandomOptions", seed=1, seed2=2,
             only_types=True)  # fmt: skip
    case("MULTINOMIAL", f32(2, 3), const(4, np.int32), options="RandomOptions", seed=1, seed2=2,
         out=np.int32, only_types=True)  # fmt: skip


def boxes() -> np.ndarray:
    corners = np.sort(f32(6, 2, 2, low=0, high=1), 1)
    return corners.reshape(6, 4)


def recurrent() -> None:
    """Sequences of 4 steps, batch 2, 3 inputs, 5 units, and 4 after a projection."""

    def w(*shape: int) -> const:
        return const(f32(*shape, low=-0.7, high=0.7))

    def lstm(cifg: bool = False, peephole: bool = False, projection: bool = False) -> list[Any]:
        out = 4 if projection else 5
        first = None if cifg else w(5, 3)
        again = None if cifg else w(5, out)
        eyes = [None if cifg or not peephole else w(5), *([w(5), w(5)] if peephole else [None] * 2)]
        ends = [w(4, 5), w(4)] if projection else [None, None]
        biases = [None if cifg else w(5), w(5), w(5), w(5)]
        return [first, w(5, 3), w(5, 3), w(5, 3), again, w(5, out), w(5, out), w(5, out), *eyes,
                *biases, *ends]  # fmt: skip

    options = {"options": "UnidirectionalSequenceLSTMOptions", "fusedActivationFunction": 4}
    for name, parts, clip in (
        ("", {}, 0.0),
        ("cifg peephole", {"cifg": True, "peephole": True}, 0.0),
        ("projection", {"projection": True, "peephole": True}, 0.6),
    ):
        weights = lstm(**parts)
        out = 4 if "projection" in parts else 5
        time_major = name == ""
        case("UNIDIRECTIONAL_SEQUENCE_LSTM", f32(4, 2, 3) if time_major else f32(2, 4, 3),
             *weights, state(2, out), state(2, 5), name=f"LSTM {name}", timeMajor=time_major,
             cellClip=clip, projClip=clip, **options)  # fmt: skip
    weights = lstm(peephole=True)
    norms = [const(f32(5, low=0.5, high=1.5)) for _ in range(4)]
    case("UNIDIRECTIONAL_SEQUENCE_LSTM", f32(2, 4, 3), *weights, state(2, 5), state(2, 5), *norms,
         name="LSTM layer norm", timeMajor=False, cellClip=0.0, projClip=0.0,
         **options)  # fmt: skip
    # The interpreter's merged outputs are not the same each time. Those of the RNN are.
    case("BIDIRECTIONAL_SEQUENCE_LSTM", f32(2, 4, 3), *lstm(), *lstm(),
         *[state(2, 5) for _ in range(4)], *[None] * 9, mergeOutputs=False, timeMajor=False,
         options="BidirectionalSequenceLSTMOptions", fusedActivationFunction=4, cellClip=0.0,
         projClip=0.0, more=[np.float32])  # fmt: skip
    case("UNIDIRECTIONAL_SEQUENCE_RNN", f32(2, 4, 3), w(5, 3), w(5, 5), w(5), state(2, 5),
         options="SequenceRNNOptions", fusedActivationFunction=1, timeMajor=False)  # fmt: skip
    case("BIDIRECTIONAL_SEQUENCE_RNN", f32(4, 2, 3), w(5, 3), w(5, 5), w(5), state(2, 5),
         w(5, 3), w(5, 5), w(5), state(2, 5), *[None] * 3,
         options="BidirectionalSequenceRNNOptions", fusedActivationFunction=4, timeMajor=True,
         mergeOutputs=True)  # fmt: skip


def quantised() -> None:
    a, b, y = (0.05, 3, 0), (0.03, -7, 0), (0.06, 10, 0)
    for op, options in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
        case(op, i8(4, 5), i8(5), options=options, quant=[a, b], out=np.int8, out_quant=y,
             fusedActivationFunction=1, name=f"{op} int8")  # fmt: skip
    unit = (1 / 256, -128, 0)
    case("LOGISTIC", i8(4, 5), quant=[a], out=np.int8, out_quant=unit, name="LOGISTIC int8")
    case("TANH", i8(4, 5), quant=[a], out=np.int8, out_quant=(1 / 128, 0, 0), name="TANH int8")
    case("SOFTMAX", i8(4, 5), options="SoftmaxOptions", quant=[a], out=np.int8, out_quant=unit,
         beta=1.0, name="SOFTMAX int8")  # fmt: skip
    case("HARD_SWISH", i8(4, 5), quant=[a], out=np.int8, out_quant=y, name="HARD_SWISH int8")
    case("LEAKY_RELU", i8(4, 5), options="LeakyReluOptions", quant=[a], out=np.int8, alpha=0.2,
         out_quant=y, name="LEAKY_RELU int8")  # fmt: skip
    for op in ("MEAN", "SUM"):
        case(op, i8(4, 5, 6), const([1], np.int32), options="ReducerOptions", quant=[a],
             out=np.int8, out_quant=(0.3, 10, 0), name=f"{op} int8",
             reference=op == "MEAN")  # fmt: skip
    case("PAD", i8(2, 3), const([[1, 0], [0, 2]], np.int32), quant=[a], out=np.int8, out_quant=a,
         name="PAD int8")  # fmt: skip
    case("RESHAPE", i8(2, 3), const([6], np.int32), quant=[a], out=np.int8, out_quant=a,
         name="RESHAPE int8")  # fmt: skip
    case("CONCATENATION", i8(2, 3), const(i8(2, 2)), options="ConcatenationOptions", axis=1,
         quant=[a, a], out=np.int8, out_quant=a, name="CONCATENATION int8")  # fmt: skip
    for op in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
        case(op, i8(1, 4, 4, 2), options="Pool2DOptions", filterHeight=2, filterWidth=2, strideH=2,
             strideW=2, quant=[a], out=np.int8, out_quant=a, name=f"{op} int8")  # fmt: skip
    case("RESIZE_BILINEAR", i8(1, 3, 4, 2), const([6, 8], np.int32), quant=[a], out=np.int8,
         options="ResizeBilinearOptions", halfPixelCenters=True, out_quant=a,
         name="RESIZE_BILINEAR int8")  # fmt: skip
    scales = np.array([0.01, 0.02, 0.005, 0.03], np.float32)
    bias = RNG.integers(-3000, 3000, 4).astype(np.int32)
    case("CONV_2D", i8(1, 5, 5, 3), const(i8(4, 3, 3, 3)), const(bias), options="Conv2DOptions",
         padding=0, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1,
         quant=[a, (scales, [0] * 4, 0), (scales * np.float32(0.05), [0] * 4, 0)], out=np.int8,
         out_quant=(0.2, -5, 0), name="CONV_2D int8")  # fmt: skip
    case("DEPTHWISE_CONV_2D", i8(1, 5, 5, 2), const(i8(1, 3, 3, 4)), const(bias), padding=1,
         options="DepthwiseConv2DOptions", depthMultiplier=2, strideH=1, strideW=1,
         dilationHFactor=1, dilationWFactor=1, out=np.int8, out_quant=(0.15, 4, 0),
         quant=[a, (scales, [0] * 4, 3), (scales * np.float32(0.05), [0] * 4, 0)],
         name="DEPTHWISE_CONV_2D int8")  # fmt: skip
    u8 = RNG.integers(0, 256, (3, 6)).astype(np.uint8)
    weights = RNG.integers(0, 256, (4, 6)).astype(np.uint8)
    case("FULLY_CONNECTED", u8, const(weights), const(bias), options="FullyConnectedOptions",
         quant=[(0.04, 120, 0), (0.02, 130, 0), (0.0008, 0, 0)], out=np.uint8,
         out_quant=(0.05, 127, 0), name="FULLY_CONNECTED uint8")  # fmt: skip
    case("ADD", i8(4, 5).astype(np.int16) * 200, i8(4, 5).astype(np.int16) * 150,
         options="AddOptions", quant=[(0.001, 0, 0), (0.002, 0, 0)], out=np.int16,
         out_quant=(0.003, 0, 0), potScaleInt16=False, name="ADD int16")  # fmt: skip
    case("BATCH_MATMUL", i8(2, 3, 4), i8(2, 4, 5), options="BatchMatMulOptions", quant=[a, b],
         out=np.int8, out_quant=(0.2, 1, 0), name="BATCH_MATMUL int8")  # fmt: skip
    case("QUANTIZE", f32(4, 5, low=-5, high=5), out=np.int8, out_quant=a)
    halves = np.array([-0.15, -0.05, 0.05, 0.15, 0.25, 100, -100], np.float32) / 2
    case("QUANTIZE", halves, out=np.int8, out_quant=(0.05, 0, 0), name="QUANTIZE halves")
    case("QUANTIZE", i8(4, 5), quant=[a], out=np.int8, out_quant=y, name="QUANTIZE int8")
    case("DEQUANTIZE", i8(4, 5), quant=[a])
    case("DEQUANTIZE", const(f32(4, 5).astype(np.float16)), name="DEQUANTIZE float16")
    case("EQUAL", i8(4, 5), i8(4, 5) // 16 * 16, quant=[a, a], out=bool, name="EQUAL int8")
    case("ARG_MAX", i8(4, 5), const(-1, np.int32), options="ArgMaxOptions", quant=[a],
         out=np.int32, outputType=2, name="ARG_MAX int8")  # fmt: skip


def open_sizes() -> None:
    """A model of which two sizes are open, and their product is."""
    writer = Writer()
    graph = writer.graph()
    x = writer.tensor(graph, np.zeros((1, 1, 3), np.float32), "in-put")
    graph.tensors[x].shapeSignature = [-1, -1, 3]
    w = writer.tensor(graph, f32(2, 3), "weights", keep=True)
    y = writer.tensor(graph, np.zeros((1, 2), np.float32), "y")
    graph.tensors[y].shapeSignature = [-1, 2]
    graph.inputs, graph.outputs = [x], [y]
    writer.operator(graph, "FULLY_CONNECTED", [x, w, -1], [y], "FullyConnectedOptions")
    keep("open sizes", writer.bytes(), [f32(2, 4, 3)], [f32(1, 5, 3)])


def calls() -> None:
    """A model whose second subgraph is called."""
    for name, kind in (("CALL", "CallOptions"), ("STABLEHLO_COMPOSITE", "")):
        writer = Writer()
        outer, inner = writer.graph(), writer.graph()
        for graph in (outer, inner):
            x, y = (writer.tensor(graph, np.zeros((2, 3), np.float32), n) for n in "xy")
            graph.inputs, graph.outputs = [x], [y]
        writer.operator(outer, name, [0], [1], kind, {"subgraph": 1} if kind else None)
        if not kind:
            op = outer.operators[0]
            op.builtinOptions2Type = schema.BuiltinOptions2.StableHLOCompositeOptions
            op.builtinOptions2 = schema.StableHLOCompositeOptionsT()
            op.builtinOptions2.name, op.builtinOptions2.decompositionSubgraphIndex = "f", 1
        writer.operator(inner, "TANH", [0], [1])
        x = f32(2, 3)
        if kind:  # the interpreter has no kernel for it
            CASES.append(
                {
                    "name": name, "only_types": False, "signature": None,
                    "model": base64.b64encode(writer.bytes()).decode(),
                    "runs": [[[encoded(x)], [encoded(np.tanh(x))]]],
                }
            )  # fmt: skip
        else:
            keep(name, writer.bytes(), [x])


def converted(
    model: Any, samples: np.ndarray | None = None, kind: str = "float", io: Any = None
) -> bytes:
    """A Keras model as a file of TensorFlow Lite."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        converter.representative_dataset = lambda: ([s[None]] for s in samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = io
    return converter.convert()


def network() -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((16, 16, 3), name="image"),
            layers.Conv2D(8, 3, 2, "same", use_bias=False),
            layers.BatchNormalization(
                moving_variance_initializer=tf.keras.initializers.Constant(0.4)
            ),
            layers.ReLU(6.0),
            layers.DepthwiseConv2D(3, padding="same", activation="relu"),
            layers.Conv2D(12, 1),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(24, "relu"),
            layers.Dense(5, "softmax"),
        ]
    )


def block() -> Any:
    """A block of a transformer."""
    layers = tf.keras.layers
    x = layers.Input((6, 16), name="tokens")
    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(2, 8)(y, y) + x
    z = layers.Dense(32, "gelu")(layers.LayerNormalization()(y))
    return tf.keras.Model(x, layers.Dense(16)(z) + y)


class Programs(tf.Module):
    """Functions with signatures, branches, loops and variables."""

    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable([1.0, 2.0], name="total")

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([3])])
    def two(self, x: Any, y: Any) -> Any:
        return {"sum": x + y, "product": tf.reduce_sum(x * y, 1)}

    @tf.function(input_signature=[tf.TensorSpec([4])])
    def branch(self, x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * 2, lambda: x - 1)

    @tf.function(input_signature=[tf.TensorSpec([3]), tf.TensorSpec([], tf.int32)])
    def loop(self, x: Any, n: Any) -> Any:
        return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 1.5 + 1), [0, x])[1]

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def count(self, x: Any) -> Any:
        before = self.total * 1.0
        self.total.assign_add(x)
        return {"before": before, "after": self.total * 1.0}


def of_function(module: Any, *names: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, {name: getattr(module, name) for name in names})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=list(names))
        converter.experimental_enable_resource_variables = True
        return converter.convert()


def models() -> None:
    tf.keras.utils.set_random_seed(0)
    rng = np.random.default_rng(1)
    images = np.round(rng.normal(size=(6, 16, 16, 3)), 1).astype(np.float32)
    net = network()
    keep("net float", converted(net), [images[:1]], [images[:3]])
    keep("net float16", converted(net, kind="float16"), [images[:3]])
    keep("net dynamic", converted(net, kind="dynamic"), [images[:3]])
    for io, cast in ((np.int8, lambda x: np.clip(x * 30, -128, 127)),
                     (np.uint8, lambda x: np.clip(x * 30 + 128, 0, 255)),
                     (np.float32, lambda x: x)):  # fmt: skip
        name = np.dtype(io).name
        model = converted(net, images, "int8", tf.as_dtype(io))
        keep(f"net int8 of {name}", model, [np.round(cast(images[:3]), 1).astype(io)])
    tokens = np.round(rng.normal(size=(2, 6, 16)), 1).astype(np.float32)
    keep("transformer", converted(block()), [tokens[:1]], [tokens])
    keep("transformer int8", converted(block(), tokens, "int8", tf.int8),
         [np.clip(tokens * 30, -128, 127).astype(np.int8)])  # fmt: skip
    series = np.round(rng.normal(size=(3, 5, 4)), 1).astype(np.float32)
    layers = tf.keras.layers
    for batch in (1, None):
        x = layers.Input((5, 4), batch_size=batch, name="series")
        rnn = tf.keras.Model(x, layers.Dense(2)(layers.LSTM(6)(x)))
        name = "fused" if batch else "unrolled"
        if batch is None:
            rnn = tf.keras.Model(x, layers.Dense(2)(layers.LSTM(6, unroll=True)(x)))
        keep(f"lstm {name}", converted(rnn), [series[: batch or 3]])
    x = layers.Input((5, 4), batch_size=1, name="series")
    both = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    rnn = tf.keras.Model(x, layers.GRU(4, return_sequences=True)(both))
    keep("sequences", converted(rnn), [series[:1]])
    module = Programs()
    keep("two inputs", of_function(module, "two"), [f32(3), f32(2, 3)], reference=False)
    keep("if", of_function(module, "branch"), [f32(4, low=0)], [f32(4, high=0)])
    keep("while", of_function(module, "loop"), [f32(3), np.int32(4)])
    keep("variables", of_function(module, "count"), [f32(2)])
    keep("two signatures", of_function(module, "branch", "loop"), [f32(4)], signature="branch")


def integer_lstms() -> None:
    """LSTMs of integers, as the converter fuses and quantises them."""
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    rng = np.random.default_rng(2)
    layers, normal = tf_keras.layers, tf_keras.initializers.RandomNormal(0, 0.8)
    one = {"kernel_initializer": normal, "bias_initializer": normal}
    series = np.round(rng.normal(size=(40, 6, 3)), 1).astype(np.float32)
    x = tf_keras.Input((6, 3), batch_size=1)
    whole = {**one, "return_sequences": True}
    nets = {
        "lstm int8": layers.LSTM(5, **whole)(x),
        "lstm int8 both ways": layers.Bidirectional(layers.LSTM(4, **whole))(x),
        "lstm int8 two": layers.Dense(2)(layers.LSTM(4, **one)(layers.LSTM(5, **whole)(x))),
    }
    for name, y in nets.items():
        net = tf_keras.Model(x, y)
        run = tf.function(net).get_concrete_function(tf.TensorSpec((1, 6, 3), tf.float32))
        converter = tf.lite.TFLiteConverter.from_concrete_functions([run], net)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([s[None]] for s in series)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        keep(name, converter.convert(), *([i8(1, 6, 3)] for _ in range(3)))


def write() -> None:
    path = Path(__file__).with_name("cases.json.gz")
    text = json.dumps({"tensorflow": tf.__version__, "cases": CASES}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(CASES)} cases, {path.stat().st_size} bytes")


GROUPS: tuple[Callable[[], None], ...] = (
    elementwise, reductions, shapes, networks, recurrent, quantised, calls, open_sizes, models,
    integer_lstms,
)  # fmt: skip

if __name__ == "__main__":
    for group in GROUPS:
        group()
    write()
