"""How each operator of TensorFlow Lite is written with operators of TensorFlow.

Names that begin with "Lite" have their rules in `rules` and `recurrent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from graphc.importers.tensorflow.graph import Edge
from graphc.importers.tflite.flatbuffer import broken
from graphc.importers.tflite.lstm_integers import rounding_of
from graphc.importers.tflite.reading import Operator
from graphc.importers.tflite.rows import replaced_row
from graphc.importers.tflite.schema import ACTIVATIONS
from graphc.importers.tflite.translation import Body, Refused, Translate, called_by, variable_of

OPERATORS: Final[dict[str, Translate]] = {}

_PLAIN: Final = {
    "ABS": "Abs", "ADD": "AddV2", "ADD_N": "AddN", "ATAN2": "Atan2", "BITWISE_XOR": "BitwiseXor",
    "BROADCAST_TO": "BroadcastTo", "CEIL": "Ceil", "COMPLEX_ABS": "ComplexAbs", "COS": "Cos",
    "DIV": "Div", "ELU": "Elu", "EQUAL": "Equal", "EXP": "Exp", "EXPAND_DIMS": "ExpandDims",
    "FILL": "Fill", "FLOOR": "Floor", "FLOOR_DIV": "FloorDiv", "FLOOR_MOD": "FloorMod",
    "GATHER_ND": "GatherNd", "GREATER": "Greater", "GREATER_EQUAL": "GreaterEqual",
    "HARD_SWISH": "LiteHardSwish", "IMAG": "Imag", "L2_NORMALIZATION": "LiteNormalize",
    "LESS": "Less", "LESS_EQUAL": "LessEqual", "LOG": "Log", "LOGICAL_AND": "LogicalAnd",
    "LOGICAL_NOT": "LogicalNot", "LOGICAL_OR": "LogicalOr", "LOGISTIC": "Sigmoid",
    "LOG_SOFTMAX": "LogSoftmax", "MATRIX_DIAG": "MatrixDiag", "MATRIX_SET_DIAG": "MatrixSetDiag",
    "MAXIMUM": "Maximum", "MINIMUM": "Minimum", "MUL": "Mul", "NEG": "Neg",
    "NOT_EQUAL": "NotEqual", "PAD": "Pad", "PADV2": "PadV2", "POW": "Pow", "PRELU": "LitePRelu",
    "QUANTIZE": "Identity", "RANK": "Rank", "REAL": "Real", "RELU": "Relu", "RELU6": "Relu6",
    "REVERSE_V2": "ReverseV2", "RFFT2D": "RFFT2D", "RIGHT_SHIFT": "RightShift", "ROUND": "Round",
    "RSQRT": "Rsqrt", "SCATTER_ND": "ScatterNd", "SEGMENT_SUM": "SegmentSum", "SELECT": "Select",
    "SELECT_V2": "SelectV2", "SIGN": "Sign", "SIN": "Sin", "SLICE": "Slice",
    "SPARSE_TO_DENSE": "SparseToDense", "SQRT": "Sqrt", "SQUARE": "Square",
    "SQUARED_DIFFERENCE": "SquaredDifference", "SUB": "Sub", "TANH": "Tanh", "TILE": "Tile",
    "TRANSPOSE": "Transpose", "UNSORTED_SEGMENT_MAX": "UnsortedSegmentMax",
    "UNSORTED_SEGMENT_MIN": "UnsortedSegmentMin", "UNSORTED_SEGMENT_PROD": "UnsortedSegmentProd",
    "UNSORTED_SEGMENT_SUM": "UnsortedSegmentSum", "WHERE": "Where", "ZEROS_LIKE": "ZerosLike",
    "BATCH_TO_SPACE_ND": "BatchToSpaceND", "SPACE_TO_BATCH_ND": "SpaceToBatchND",
    "DYNAMIC_UPDATE_SLICE": "LiteUpdateSlice",
}  # fmt: skip
"""Operators with the operands of TensorFlow's, and without options but a fused activation."""

# Options that are attributes: operator -> (TensorFlow's operator, {attribute: option}).
_WITH_OPTIONS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "BATCH_MATMUL": ("BatchMatMulV2", {"adj_x": "adj_x", "adj_y": "adj_y"}),
    "BUCKETIZE": ("LiteBucketize", {"boundaries": "boundaries"}),
    "CUMSUM": ("Cumsum", {"exclusive": "exclusive", "reverse": "reverse"}),
    "DEPTH_TO_SPACE": ("DepthToSpace", {"block_size": "block_size"}),
    "FAKE_QUANT": (
        "FakeQuantWithMinMaxArgs",
        {"min": "min", "max": "max", "num_bits": "num_bits", "narrow_range": "narrow_range"},
    ),
    "GELU": ("LiteGelu", {"approximate": "approximate"}),
    "LEAKY_RELU": ("LeakyRelu", {"alpha": "alpha"}),
    "LOCAL_RESPONSE_NORMALIZATION": (
        "LRN",
        {"depth_radius": "radius", "bias": "bias", "alpha": "alpha", "beta": "beta"},
    ),
    "ONE_HOT": ("OneHot", {"axis": "axis"}),
    "PACK": ("Pack", {"axis": "axis"}),
    "REVERSE_SEQUENCE": ("ReverseSequence", {"seq_dim": "seq_dim", "batch_dim": "batch_dim"}),
    "SOFTMAX": ("LiteSoftmax", {"beta": "beta"}),
    "SPACE_TO_DEPTH": ("SpaceToDepth", {"block_size": "block_size"}),
    "SQUEEZE": ("Squeeze", {"squeeze_dims": "squeeze_dims"}),
    **{
        name: (
            f"Resize{kind}",
            {"align_corners": "align_corners", "half_pixel_centers": "half_pixel_centers"},
        )
        for name, kind in (
            ("RESIZE_BILINEAR", "Bilinear"),
            ("RESIZE_NEAREST_NEIGHBOR", "NearestNeighbor"),
        )
    },
    **{
        name: (name.removeprefix("REDUCE_").capitalize(), {"keep_dims": "keep_dims"})
        for name in (
            "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL",
        )
    },
}  # fmt: skip

# Operators whose result has a dtype of its own: (TensorFlow's operator, the attribute).
_WITH_DTYPE: Final = {
    "ARG_MAX": ("ArgMax", "output_type"), "ARG_MIN": ("ArgMin", "output_type"),
    "BITCAST": ("Bitcast", "type"), "BROADCAST_ARGS": ("BroadcastArgs", "T"),
    "CAST": ("Cast", "DstT"), "MULTINOMIAL": ("Multinomial", "output_dtype"),
    "RANDOM_STANDARD_NORMAL": ("RandomStandardNormal", "dtype"),
    "RANDOM_UNIFORM": ("RandomUniform", "dtype"), "RANGE": ("Range", "Tidx"),
    "SHAPE": ("Shape", "out_type"),
}  # fmt: skip

MOVES: Final = frozenset(
    (
        "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "DEPTH_TO_SPACE",
        "DYNAMIC_UPDATE_SLICE", "EMBEDDING_LOOKUP", "EXPAND_DIMS", "GATHER", "GATHER_ND",
        "MAX_POOL_2D", "MAXIMUM", "MINIMUM", "PACK", "REDUCE_MAX", "REDUCE_MIN", "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR", "REVERSE_SEQUENCE", "REVERSE_V2", "SELECT", "SELECT_V2",
        "SLICE", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE",
        "TRANSPOSE", "UNPACK",
    )
)  # fmt: skip
"""Operators that take integers as they are, if all of their tensors have one scale."""


def _plain(name: str) -> Translate:
    return lambda b, op: b.node(name, *b.inputs(op))


def _with_options(name: str, attributes: dict[str, str]) -> Translate:
    return lambda b, op: b.node(
        name, *b.inputs(op), **{key: op.options[option] for key, option in attributes.items()}
    )


def _with_dtype(name: str, attribute: str) -> Translate:
    return lambda b, op: b.node(name, *b.inputs(op), **{attribute: b.result(op).dtype})


OPERATORS.update({name: _plain(other) for name, other in _PLAIN.items()})
OPERATORS.update({name: _with_options(*entry) for name, entry in _WITH_OPTIONS.items()})
OPERATORS.update({name: _with_dtype(*entry) for name, entry in _WITH_DTYPE.items()})


def _lite(*names: str) -> Callable[[Translate], Translate]:
    def register(function: Translate) -> Translate:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def _padding(op: Operator) -> bytes:
    if op.options["padding"] not in (0, 1):
        raise broken(f"{op.name} has the padding {op.options['padding']}")
    return (b"SAME", b"VALID")[op.options["padding"]]


def _spatial(op: Operator, prefix: str, axes: Sequence[str] = "hw") -> list[int]:
    """The options of the spatial axes, with 1 for batch and channels."""
    found = [int(op.options[f"{prefix}_{axis}"]) for axis in axes]
    if any(not 0 < size < 1 << 20 for size in found):
        raise broken(f"{op.name} has {prefix} {found}")
    return [1, *found, 1]


def _convolution(op: Operator, axes: Sequence[str] = "hw") -> dict[str, Any]:
    """The attributes of a convolution."""
    strides, dilations = (_spatial(op, key, axes) for key in ("stride", "dilation"))
    return {"strides": strides, "dilations": dilations, "padding": _padding(op)}


def _biased(b: Body, op: Operator, y: Edge, i: int) -> Edge:
    return b.node("BiasAdd", y, b.input(op, i)) if b.has(op, i) else y


@_lite("CONV_2D")
def _conv(b: Body, op: Operator) -> Edge:
    """The kernel is [outputs, height, width, inputs]."""
    kernel = b.node("Transpose", b.input(op, 1), b.const([1, 2, 3, 0]))
    return _biased(b, op, b.node("Conv2D", b.input(op, 0), kernel, **_convolution(op)), 2)


@_lite("DEPTHWISE_CONV_2D")
def _depthwise(b: Body, op: Operator) -> Edge:
    y = b.node("LiteDepthwise", b.input(op, 0), b.input(op, 1), **_convolution(op))
    return _biased(b, op, y, 2)


@_lite("CONV_3D")
def _conv_3d(b: Body, op: Operator) -> Edge:
    y = b.node("Conv3D", b.input(op, 0), b.input(op, 1), **_convolution(op, "dhw"))
    return _biased(b, op, y, 2)


@_lite("TRANSPOSE_CONV")
def _transposed(b: Body, op: Operator) -> Edge:
    kernel = b.node("Transpose", b.input(op, 1), b.const([1, 2, 0, 3]))
    attrs = {"strides": _spatial(op, "stride"), "padding": _padding(op)}
    y = b.node("Conv2DBackpropInput", b.input(op, 0), kernel, b.input(op, 2), **attrs)
    return _biased(b, op, y, 3)


@_lite("CONV_3D_TRANSPOSE")
def _transposed_3d(b: Body, op: Operator) -> Edge:
    inputs = [b.input(op, i) for i in range(3)]
    y = b.node("Conv3DBackpropInputV2", *inputs, **_convolution(op, "dhw"))
    return _biased(b, op, y, 3)


@_lite("FULLY_CONNECTED")
def _dense(b: Body, op: Operator) -> Edge:
    if op.options["weights_format"]:
        raise Refused("has shuffled weights")
    keep = bool(op.options["keep_num_dims"])
    y = b.node("LiteDense", b.input(op, 0), b.input(op, 1), keep=keep)
    return _biased(b, op, y, 2)


@_lite("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def _pool(b: Body, op: Operator) -> Edge:
    ksize = _spatial(op, "filter", ("height", "width"))
    attrs = {"ksize": ksize, "strides": _spatial(op, "stride"), "padding": _padding(op)}
    if op.name == "L2_POOL_2D":
        return b.node("Sqrt", b.node("AvgPool", b.node("Square", b.input(op, 0)), **attrs))
    return b.node("MaxPool" if op.name == "MAX_POOL_2D" else "AvgPool", b.input(op, 0), **attrs)


@_lite("CONCATENATION")
def _concatenation(b: Body, op: Operator) -> Edge:
    found = replaced_row(b, op)
    if found is not None and b.takes_integers(op):
        x, i = found
        return b.node("LiteReplaceRow", b.edge(x), b.input(op, 1), b.edge(i))
    return b.node("ConcatV2", *b.inputs(op), b.const(op.options["axis"]))


@_lite("RESHAPE")
def _reshape(b: Body, op: Operator) -> Edge:
    shape = b.input(op, 1) if b.has(op, 1) else b.const(op.options["new_shape"])
    return b.node("Reshape", b.input(op, 0), shape)


@_lite("GATHER")
def _gather(b: Body, op: Operator) -> Edge:
    inputs = [b.input(op, 0), b.input(op, 1), b.const(op.options["axis"])]
    return b.node("GatherV2", *inputs, batch_dims=op.options["batch_dims"])


@_lite("EMBEDDING_LOOKUP")
def _embedding(b: Body, op: Operator) -> Edge:
    return b.node("GatherV2", b.input(op, 1), b.input(op, 0), b.const(0))


@_lite("STRIDED_SLICE")
def _strided_slice(b: Body, op: Operator) -> Edge:
    if op.options["offset"]:
        raise Refused("has ends that are relative to its starts")
    masks = {key: op.options[key] for key in op.options if key.endswith("_mask")}
    return b.node("StridedSlice", *b.inputs(op), **masks)


@_lite("MIRROR_PAD")
def _mirror(b: Body, op: Operator) -> Edge:
    mode = b"SYMMETRIC" if op.options["mode"] else b"REFLECT"
    return b.node("MirrorPad", *b.inputs(op), mode=mode)


@_lite("SPLIT", "SPLIT_V")
def _split(b: Body, op: Operator) -> list[Edge]:
    name = "Split" if op.name == "SPLIT" else "SplitV"
    return b.several(b.node(name, *b.inputs(op), num_split=len(op.outputs)), op)


@_lite("UNPACK")
def _unpack(b: Body, op: Operator) -> list[Edge]:
    return b.several(b.node("Unpack", *b.inputs(op), axis=op.options["axis"]), op)


@_lite("TOPK_V2")
def _top(b: Body, op: Operator) -> list[Edge]:
    return b.several(b.node("TopKV2", *b.inputs(op), index_type=b.result(op, 1).dtype), op)


@_lite("UNIQUE")
def _unique(b: Body, op: Operator) -> list[Edge]:
    return b.several(b.node("Unique", *b.inputs(op), out_idx=b.result(op, 1).dtype), op)


@_lite("DEQUANTIZE")
def _dequantize(b: Body, op: Operator) -> Edge:
    x = b.input(op, 0)
    half = b.tensor(op.inputs[0]).quantization is None
    return b.node("Cast", x, DstT=b.result(op).dtype) if half else x


@_lite("RELU_N1_TO_1", "RELU_0_TO_1")
def _clip(b: Body, op: Operator) -> Edge:
    low = -1.0 if op.name == "RELU_N1_TO_1" else 0.0
    return b.node("LiteClip", b.input(op, 0), low=low, high=1.0)


@_lite("NON_MAX_SUPPRESSION_V4")
def _suppression(b: Body, op: Operator) -> list[Edge]:
    first = b.node("NonMaxSuppressionV4", *b.inputs(op), pad_to_max_output_size=True)
    return b.several(first, op)


@_lite("NON_MAX_SUPPRESSION_V5")
def _soft_suppression(b: Body, op: Operator) -> list[Edge]:
    return b.several(b.node("LiteSuppression", *b.inputs(op)), op)


@_lite(
    "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
    "BIDIRECTIONAL_SEQUENCE_RNN",
)  # fmt: skip
def _recurrent(b: Body, op: Operator) -> Sequence[Edge]:
    """The state begins as zeros in each call."""
    number = op.options["activation"]
    if not 0 <= number < len(ACTIVATIONS):
        raise broken(f"there is no activation {number}")
    options = {**op.options, "activation": ACTIVATIONS[number].encode()}
    if op.name == "UNIDIRECTIONAL_SEQUENCE_LSTM" and len(op.inputs) < 20:
        raise broken(f"{op.name} has {len(op.inputs)} inputs")
    if op.name == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        options["rounding"] = rounding_of(b, op)
    name = "Lite" + "".join(part.capitalize() for part in op.name.split("_"))
    return b.several(b.node(name, *b.inputs(op), **options), op)


# Control flow and variables.


@_lite("IF")
def _if(b: Body, op: Operator) -> list[Edge]:
    then, other = (b.function(int(op.options[key])) for key in ("then", "else"))
    dtypes = [b.result(op, i).dtype for i in range(len(op.outputs))]
    attrs = {"then_branch": then, "else_branch": other, "Tout": dtypes}
    return b.several(b.effect("If", *b.inputs(op), **attrs), op)


@_lite("WHILE")
def _while(b: Body, op: Operator) -> list[Edge]:
    cond, body = (b.function(int(op.options[key])) for key in ("cond", "body"))
    return b.several(b.effect("While", *b.inputs(op), cond=cond, body=body), op)


@_lite("CALL", "STABLEHLO_COMPOSITE")
def _call(b: Body, op: Operator) -> list[Edge]:
    (index,) = called_by(op)
    return b.several(b.effect("PartitionedCall", *b.inputs(op), f=b.function(index)), op)


@_lite("CALL_ONCE")
def _call_once(b: Body, op: Operator) -> list[Edge]:
    """The first values of variables are read by `Subgraphs.variables`."""
    return []


@_lite("VAR_HANDLE")
def _variable(b: Body, op: Operator) -> Edge:
    name = variable_of(op)
    found = b.library.variables.get(name)
    if found is None:
        raise Refused(f"is the variable {name[:100]!r}, which no constant is assigned to at first")
    b.library.weights.setdefault(f"variable {name}", found)
    return b.node("LiteVariable", name=f"variable {name}")


@_lite("READ_VARIABLE")
def _read(b: Body, op: Operator) -> Edge:
    return b.read(b.input(op, 0))


@_lite("ASSIGN_VARIABLE")
def _assign(b: Body, op: Operator) -> list[Edge]:
    b.effect("LiteAssign", b.input(op, 0), b.input(op, 1))
    return []
