"""The parts of TensorFlow Lite's schema that are read: operators, their options, dtypes.

Fields of options are listed in the order of the schema: a name, a letter for the type (b, B: int8,
uint8; i, I: int32, uint32; q: int64; f: float32; ?: bool; s: string; [i, [f: vectors), and the
default if it is not 0. Fields behind the last one that is used are left out.
"""

from __future__ import annotations

from typing import Final

_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6
RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL
CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST
PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM
STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM
STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG
STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER
STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER
STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE
STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT
STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""
NAMES: Final = tuple(_NAMES.split())
"""The builtin operators by their codes."""

_POOL = "padding:b stride_w:i stride_h:i filter_width:i filter_height:i activation:b"
_CONV_3D = (
    "padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 dilation_w:i=1 "
    "dilation_h:i=1"
)

OPTIONS: Final[dict[str, str]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "L2_NORMALIZATION"), "activation:b"),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), _POOL),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), "block_size:i"),
    **dict.fromkeys(
        (
            "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL",
        ),
        "keep_dims:?",
    ),
    **dict.fromkeys(("CONV_3D", "CONV_3D_TRANSPOSE"), _CONV_3D),
    "BATCH_MATMUL": "adj_x:? adj_y:?",
    "BIDIRECTIONAL_SEQUENCE_LSTM": (
        "activation:b cell_clip:f proj_clip:f merge_outputs:? time_major:?=1"
    ),
    "BIDIRECTIONAL_SEQUENCE_RNN": "time_major:? activation:b merge_outputs:?",
    "BUCKETIZE": "boundaries:[f",
    "CALL": "subgraph:I",
    "CALL_ONCE": "init_subgraph:i",
    "CONCATENATION": "axis:i activation:b",
    "CONV_2D": "padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1",
    "CUMSUM": "exclusive:? reverse:?",
    "DEPTHWISE_CONV_2D": (
        "padding:b stride_w:i stride_h:i multiplier:i activation:b dilation_w:i=1 dilation_h:i=1"
    ),
    "FAKE_QUANT": "min:f max:f num_bits:i narrow_range:?",
    "FULLY_CONNECTED": "activation:b weights_format:b keep_num_dims:?",
    "GATHER": "axis:i batch_dims:i",
    "GELU": "approximate:?",
    "IF": "then:i else:i",
    "LEAKY_RELU": "alpha:f",
    "LOCAL_RESPONSE_NORMALIZATION": "radius:i bias:f alpha:f beta:f",
    "MIRROR_PAD": "mode:b",
    "ONE_HOT": "axis:i",
    "PACK": "count:i axis:i",
    "RESHAPE": "new_shape:[i",
    "RESIZE_BILINEAR": "height:i width:i align_corners:? half_pixel_centers:?",
    "RESIZE_NEAREST_NEIGHBOR": "align_corners:? half_pixel_centers:?",
    "REVERSE_SEQUENCE": "seq_dim:i batch_dim:i",
    "SOFTMAX": "beta:f",
    "SQUEEZE": "squeeze_dims:[i",
    "STABLEHLO_COMPOSITE": "name:s decomposition:i",
    "STRIDED_SLICE": (
        "begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:?"
    ),
    "TRANSPOSE_CONV": "padding:b stride_w:i stride_h:i activation:b",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "activation:b cell_clip:f proj_clip:f time_major:?",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "time_major:? activation:b",
    "UNPACK": "count:i axis:i",
    "VAR_HANDLE": "container:s shared_name:s",
    "WHILE": "cond:i body:i",
}  # fmt: skip
"""The fields of the options of operators."""

DTYPES: Final[dict[int, int]] = {
    0: 1, 1: 19, 2: 3, 3: 4, 4: 9, 5: 7, 6: 10, 7: 5, 8: 8, 9: 6, 10: 2, 11: 18, 12: 23, 13: 20,
    14: 21, 15: 22, 16: 17, 17: 29, 18: 14, 20: 30,
}  # fmt: skip
"""The numbers of TensorFlow's dtypes by those of TensorFlow Lite's."""

ACTIVATIONS: Final = ("", "Relu", "ReluN1To1", "Relu6", "Tanh", "SignBit")
"""The activations that operators have fused, by their numbers."""
