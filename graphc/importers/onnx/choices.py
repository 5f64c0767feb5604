"""Attributes whose values are words: the words that an operator knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from graphc.importers.onnx.call import Call, Refused

Words = tuple[str, ...]

_AUTO_PAD: Final = {"auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")}
_BLOCKS: Final = {"mode": ("DCR", "CRD")}
_DIRECTION: Final = {"direction": ("forward", "reverse", "bidirectional")}
_LOSS: Final = {"reduction": ("none", "mean", "sum")}
_POST: Final = {"post_transform": ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")}
_RESIZE: Final = {
    "mode": ("nearest", "linear", "cubic", "bilinear", "bicubic"),
    "coordinate_transformation_mode": (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_half_pixel_for_nn", "tf_crop_and_resize",
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}  # fmt: skip
_SCATTER: Final = {"reduction": ("none", "add", "mul", "min", "max")}


def _each(operators: Iterable[str], words: Mapping[str, Words]) -> dict[str, Mapping[str, Words]]:
    return dict.fromkeys(operators, words)


CHOICES: Final[Mapping[str, Mapping[str, Words]]] = {
    **_each(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), _AUTO_PAD),
    **_each(("AveragePool", "LpPool", "MaxPool"), _AUTO_PAD),
    **_each(("DepthToSpace", "SpaceToDepth"), _BLOCKS),
    **_each(("GRU", "LSTM", "RNN"), _DIRECTION),
    **_each(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _LOSS),
    **_each(("LinearClassifier", "LinearRegressor", "TreeEnsembleClassifier"), _POST),
    **_each(("Resize", "Upsample"), _RESIZE),
    **_each(("ScatterElements", "ScatterND"), _SCATTER),
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("linear", "nearest", "cubic", "bilinear", "bicubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "Normalizer": {"norm": ("MAX", "L1", "L2")},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "RoiAlign": {
        "mode": ("avg", "max"),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    },
    "TensorScatter": {"mode": ("linear", "circular")},
    "TreeEnsembleRegressor": {
        **_POST,
        "aggregate_function": ("SUM", "AVERAGE", "MIN", "MAX"),
    },
}
"""Operator -> attribute -> its words."""


def check_choices(call: Call) -> None:
    """Refuses a node with a word that its operator does not know.

    Raises:
        Refused: there is one.
    """
    for name, words in CHOICES.get(call.op, {}).items():
        value: Any = call.attr(name, words[0])
        if value not in words:
            known = ", ".join(word for word in words if word)
            raise Refused(f"has {name} = {value!r:.80}, which is not one of {known}")
