"""Images of named sizes: one imported model runs on images of several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime
from onnx import helper

import graphc as gc
from graphc.errors import ArtifactError, FeedError, ModelImportError, ShapeError, UnknownNameError
from graphc.importers.artifacts import save_model
from graphc.ir.dim_parser import parse_dim
from graphc.serving import Client, Failure, ModelConfig, Server, ServerConfig
from tests.importers.onnx.models import model, results
from tests.near import assert_near

SIZES = ((1, 1), (2, 3), (5, 4), (8, 7))


def image(height: int, width: int, dtype: Any = np.float32) -> Any:
    """[2, 3, height, width]."""
    rng = np.random.default_rng(height * 10 + width)
    return (rng.normal(size=(2, 3, height, width)) * 10).astype(dtype)


def node(op: str, inputs: str, outputs: str = "y", **attrs: Any) -> Any:
    # An input that is left out is written "-".
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attrs)


def onnx_type(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def check_sizes(
    nodes: Sequence[Any],
    weights: Any = None,
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    sizes: Sequence[tuple[int, int]] = SIZES,
    dtype: Any = np.float32,
    positive: bool = False,
) -> None:
    """Imports the nodes once for [batch, 3, height, width], and runs them on images of each
    size. Cases with an output each may share a model, so that less is compiled."""
    named = ["batch", 3, "height", "width"]
    x = image(1, 1, dtype)
    proto = model(nodes, {"x": x}, outputs, weights or {}, opset=opset, shapes={"x": named})
    alone = gc.from_onnx(proto).to_graph()
    proto.ir_version = 10
    for output in proto.graph.output:
        output.type.CopyFrom(helper.make_tensor_type_proto(onnx_type(dtype), None))
    there = onnxruntime.InferenceSession(proto.SerializeToString())
    (given,), ys = alone.inputs.values(), list(alone.outputs.values())
    with gc.Session(alone.graph) as session:
        for height, width in sizes:
            x = image(height, width, dtype)
            x = abs(x) if positive else x
            found = zip(
                outputs, session.run(ys, {given: x}), there.run(None, {"x": x}), strict=True
            )
            for name, value, want in found:
                got = np.asarray(value)
                assert (got.dtype, got.shape) == (want.dtype, want.shape), name
                assert_near(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{name}: {height}x{width}")


SCALED = [
    ("nearest", "asymmetric", "floor"),
    ("nearest", "half_pixel", "round_prefer_floor"),
    ("nearest", "half_pixel", "round_prefer_ceil"),
    ("nearest", "asymmetric", "ceil"),
    ("nearest", "tf_half_pixel_for_nn", "floor"),
    ("linear", "half_pixel", None),
    ("linear", "pytorch_half_pixel", None),
    ("linear", "align_corners", None),
    ("linear", "half_pixel_symmetric", None),
]


@pytest.mark.parametrize("scale", [2.0, 3.0])
def test_larger_images(scale: float) -> None:
    nodes, outputs = [], []
    for mode, coordinates, rounding in SCALED:
        attrs = {} if rounding is None else {"nearest_mode": rounding}
        attrs |= {"mode": mode, "coordinate_transformation_mode": coordinates}
        outputs.append(f"{mode}_{coordinates}_{rounding}")
        nodes.append(node("Resize", "x - scales", outputs[-1], **attrs))
    check_sizes(nodes, {"scales": np.array([1, 1, scale, scale], np.float32)}, outputs=outputs)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_smaller_images(parts: int) -> None:
    """Sizes that do not divide are rounded down; one element is left of some."""
    scales = np.array([1, 1, 1 / parts, 1 / parts], np.float32)
    nodes, outputs = [], []
    for mode in ("nearest", "linear"):
        for where in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
            outputs.append(f"{mode}_{where}")
            attrs = {"mode": mode, "coordinate_transformation_mode": where}
            nodes.append(node("Resize", "x - scales", outputs[-1], **attrs))
    sizes = ((4, 4), (7, 5), (8, 12))
    check_sizes(nodes, {"scales": scales}, outputs=outputs, sizes=sizes, opset=19)


def test_images_of_the_size_of_others() -> None:
    """The new sizes are those of another value, as in networks with skip connections."""
    nodes = [
        node("Conv", "x kernel", "small", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Shape", "x", "shape"),
        node("Resize", "small - - shape", "y", mode="linear"),
    ]
    rng = np.random.default_rng(0)
    weights = {"kernel": rng.normal(size=(3, 3, 3, 3)).astype(np.float32)}
    check_sizes(nodes, weights)


def test_elements_that_are_equally_near() -> None:
    """Positions are exact: 10 elements become 15, and 4 become 14."""
    weights = {"shape": np.array([1, 10, -1]), "sizes": np.array([1, 15, 14])}
    nodes, outputs = [node("Reshape", "x shape", "wide")], []
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for coordinates in ("half_pixel", "asymmetric", "align_corners"):
            attrs = {"nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
            outputs.append(f"{rounding}_{coordinates}")
            nodes.append(node("Resize", "wide - - sizes", outputs[-1], mode="nearest", **attrs))
    check_sizes(nodes, weights, outputs=outputs, sizes=((5, 4), (4, 10), (5, 10)))


def test_upsample() -> None:
    """The old form has its scales as an attribute, and rounds down."""
    check_sizes([node("Upsample", "x", scales=[1.0, 1.0, 2.0, 3.0])], opset=7)


@pytest.mark.parametrize("scale", [1.5, 0.7])
def test_sizes_that_are_not_whole_are_refused(scale: float) -> None:
    scales = np.array([1, 1, scale, scale], np.float32)
    with pytest.raises(ModelImportError, match=r"Resize by .* needs known sizes of images"):
        check_sizes([node("Resize", "x - scales")], {"scales": scales})


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_keeps_sizes(auto: str) -> None:
    rng = np.random.default_rng(0)
    nodes, weights = [], {}
    for window, step in ((3, 1), (3, 2), (2, 2), (4, 3)):
        square, case = [window, window], f"{window}_{step}"
        attrs = {"auto_pad": auto, "kernel_shape": square, "strides": [step, step]}
        weights[f"kernel_{case}"] = rng.normal(size=(2, 3, *square)).astype(np.float32)
        nodes.append(node("Conv", f"x kernel_{case}", f"conv_{case}", **attrs))
        nodes.append(node("MaxPool", "x", f"pool_{case}", **attrs))
    check_sizes(nodes, weights, outputs=[each.output[0] for each in nodes])


def test_windows_that_pass_over_elements_are_refused() -> None:
    pool = node("MaxPool", "x", auto_pad="SAME_UPPER", kernel_shape=[1, 1], strides=[2, 2])
    with pytest.raises(ModelImportError, match="steps that pass over elements"):
        check_sizes([pool])


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_pools_up_to_the_end(dtype: Any) -> None:
    nodes = []
    for window, step, pad in ((3, 2, 0), (2, 2, 0), (3, 2, 1)):
        attrs = {"kernel_shape": [window] * 2, "strides": [step] * 2, "pads": [pad] * 4}
        nodes.append(node("MaxPool", "x", f"y_{window}_{step}_{pad}", ceil_mode=1, **attrs))
    outputs = [each.output[0] for each in nodes]
    check_sizes(nodes, outputs=outputs, dtype=dtype, sizes=((3, 3), (4, 5), (8, 7)))


@pytest.mark.parametrize(
    ("window", "step", "pad"), [(1, 2, 0), (2, 1, 0), (2, 3, 0), (3, 2, 1), (3, 3, 0), (5, 3, 2)]
)
@pytest.mark.parametrize("named", [True, False])
def test_pools_of_the_smallest_images(window: int, step: int, pad: int, named: bool) -> None:
    """As onnxruntime, with windows larger than the image; one that is not there is an error."""
    attrs = {"kernel_shape": [window] * 2, "strides": [step] * 2, "pads": [pad] * 4}
    pool = node("MaxPool", "x", ceil_mode=1, **attrs)
    for size in ((1, 1), (1, 3), (2, 2)):
        x = image(*size)
        shapes = {"x": ["batch", 3, "height", "width"]} if named else {}
        proto = model([pool], {"x": x}, ["y"], opset=18, shapes=shapes)
        proto.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, None))
        there = onnxruntime.InferenceSession(proto.SerializeToString())
        try:
            (want,) = there.run(None, {"x": x})
        except Exception:  # a size below 0
            want = np.zeros(0)
        try:
            (got,) = results(proto, {"x": x})
        except ShapeError as error:
            assert not want.size and "model:1" in str(error)
            continue
        except ModelImportError as error:
            assert named and "windows within the padding" in error.details[0]
            continue
        assert got.shape == want.shape
        assert_near(got, want, rtol=0)


def test_last_windows_within_the_padding_are_refused() -> None:
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    with pytest.raises(ModelImportError, match="with ceil_mode, and windows within the padding"):
        check_sizes([node("MaxPool", "x", ceil_mode=1, **attrs)])


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_with_own_elements(mode: str) -> None:
    pads = np.array([0, 0, 1, 2, 0, 0, 2, 1])
    check_sizes(
        [node("Pad", "x pads", mode=mode)], {"pads": pads}, opset=19, sizes=((3, 4), (7, 5))
    )


@pytest.mark.parametrize("end", [1_000_000_000, 2**31 - 1, 2**63 - 1])
def test_slices_up_to_the_end(end: int) -> None:
    """Exporters write several large numbers for the end of an axis."""
    weights = {"starts": np.array([0, 1]), "ends": np.array([end, end]), "axes": np.array([0, 2])}
    nodes = [node("Slice", "x starts ends axes")]
    check_sizes(nodes, weights, sizes=((2, 3), (5, 4)))


def test_slices_beyond_the_end_are_empty() -> None:
    far = 2**31 - 1
    for start, end in ((far, far), (0, -far)):
        weights = {"start": np.array([start]), "end": np.array([end]), "axis": np.array([2])}
        check_sizes([node("Slice", "x start end axis")], weights, sizes=((2, 3), (5, 4)))


def test_a_convolution_of_integers_that_keeps_sizes() -> None:
    rng = np.random.default_rng(0)
    kernel = rng.integers(-9, 9, (2, 3, 3, 3)).astype(np.int8)
    nodes = [
        node("Cast", "x", "integers", to=2),
        node("ConvInteger", "integers kernel", "sums", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("Cast", "sums", "y", to=1),
    ]
    check_sizes(nodes, {"kernel": kernel}, dtype=np.float32, positive=True)


def test_axes_that_become_one() -> None:
    """An axis has a named size, and is 1 in each run."""
    nodes = [
        node("MaxPool", "x", "pooled", kernel_shape=[4, 1], strides=[4, 1]),
        node("Squeeze", "pooled height", "y"),
    ]
    check_sizes(nodes, {"height": np.array([2])}, sizes=((4, 3), (5, 4), (7, 1)))


def test_repeats_that_are_sizes() -> None:
    """As a decoder makes a state for each image."""
    nodes = [
        node("Shape", "x", "rows", start=2, end=3),
        node("Concat", "one rows two one", "counts", axis=0),
        node("Tile", "state counts", "tiled"),
        node("ReduceMax", "x", "top", keepdims=1),
        node("Add", "tiled top", "y"),
    ]
    state = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    check_sizes(nodes, {"one": np.array([1]), "two": np.array([2]), "state": state})


def test_the_rest_of_a_division() -> None:
    """The part of a signal that whole steps cover."""
    nodes = [
        node("Shape", "x", "width", start=3, end=4),
        node("Mod", "width two", "rest"),
        node("Sub", "width rest", "end"),
        node("Slice", "x zero end axis", "y"),
    ]
    weights = {"two": np.array([2]), "zero": np.array([0]), "axis": np.array([3])}
    check_sizes(nodes, weights, sizes=((1, 3), (5, 4), (8, 7)))


@pytest.mark.parametrize("one_sided", [0, 1])
def test_frames_of_a_signal(one_sided: int) -> None:
    nodes = [
        node("Reshape", "x shape", "signal"),
        node("STFT", "signal step window", "y", onesided=one_sided),
    ]
    weights = {
        "shape": np.array([2, -1, 1]),
        "step": np.array(3),
        "window": np.hanning(8).astype(np.float32),
    }
    check_sizes(nodes, weights, sizes=((3, 4), (5, 4), (8, 7)))


@pytest.mark.parametrize("one_sided", [0, 1])
def test_a_transform_of_each_row(one_sided: int) -> None:
    """The number of rows has a name; each row has 8 elements."""
    nodes = [
        node("Reshape", "x shape", "rows"),
        node("DFT", "rows", "y", axis=1, onesided=one_sided),
    ]
    check_sizes(nodes, {"shape": np.array([-1, 8, 1])}, sizes=((4, 4), (8, 7)))


def test_as_many_of_the_greatest_as_a_size() -> None:
    """So recurrent layers of PyTorch sort lengths. Of equal elements the first comes first."""
    nodes, outputs = [node("Round", "x", "whole"), node("Shape", "x", "shape")], []
    for axis, parts in ((2, 1), (3, 1), (3, 2)):
        size = f"k_{axis}_{parts}"
        nodes += [
            node("Gather", f"shape axis_{axis}", f"size_{size}"),
            node("Div", f"size_{size} parts_{parts}", size),
        ]
        for largest in (0, 1):
            case = f"{size}_{largest}"
            outputs.append(f"y_{case}")
            found = f"values_{case} places_{case}"
            nodes += [
                node("TopK", f"whole {size}", found, axis=axis, largest=largest),
                node("Cast", f"places_{case}", f"numbers_{case}", to=1),
                node("Mul", f"numbers_{case} hundred", f"marks_{case}"),
                node("Add", f"values_{case} marks_{case}", f"y_{case}"),
            ]
    weights = {"hundred": np.float32(100), "parts_1": np.array([1]), "parts_2": np.array([2])}
    weights |= {"axis_2": np.array([2]), "axis_3": np.array([3])}
    check_sizes(nodes, weights, outputs=outputs)


def test_a_range_over_a_size_that_was_cast() -> None:
    """Anchors of detectors: the positions are counted in floats."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape three", "width"),
        node("Cast", "width", "limit", to=1),
        node("Range", "zero limit one", "columns"),
        node("Add", "x columns", "y"),
    ]
    one = np.array(1, np.float32)
    check_sizes(nodes, {"three": np.array(3), "zero": np.zeros_like(one), "one": one})


RANGES = [
    ("width", "four", 1), ("width", "four", -1), ("four", "width", 1), ("four", "width", -1),
    ("zero", "width", 3), ("width", "zero", -2), ("four", "width", 2), ("width", "four", -3),
    ("zero", "width", -1), ("one", "width", 1), ("height", "width", 1), ("height", "width", -2),
    ("width", "less", -1), ("third", "four", 2),
]  # fmt: skip


def test_many_ranges_in_a_file(tmp_path: Path) -> None:
    """JAX compares sizes in time that grows exponentially with the conditions that it is given."""
    numbers = {"zero": 0, "one": 1, "four": 4, "less": -3, "two": 2, "three": 3}
    steps = {f"step{step}": step for _, _, step in RANGES}
    weights = {name: np.array(value) for name, value in (numbers | steps).items()}
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape two", "height"),
        node("Gather", "shape three", "width"),
        node("Div", "width three", "third"),
        *(node("Range", f"{a} {b} step{step}", f"y{i}") for i, (a, b, step) in enumerate(RANGES)),
    ]
    outputs = [f"y{i}" for i in range(len(RANGES))]
    x, named = image(1, 1), ["batch", 3, "height", "width"]
    proto = model(nodes, {"x": x}, outputs, weights, opset=18, shapes={"x": named})
    for output in proto.graph.output:
        output.type.CopyFrom(helper.make_tensor_type_proto(7, None))
    alone = gc.from_onnx(proto).to_graph()
    signatures = {"predict": alone.signature()}
    gc.save(gc.Session(alone.graph), tmp_path / "m.gcx", signatures=signatures, platforms=["cpu"])
    loaded = gc.load(tmp_path / "m.gcx").signatures["predict"]
    for height, width in ((5, 1), (3, 4), (2, 9)):
        known = numbers | {"height": height, "width": width, "third": width // 3}
        got = loaded(x=image(height, width))
        for name, (start, stop, step) in zip(outputs, RANGES, strict=True):
            assert got[name].tolist() == list(range(known[start], known[stop], step))


@pytest.mark.parametrize(("start", "stop", "step"), RANGES)
@pytest.mark.parametrize("to", [7, 1], ids=["int64", "float32"])
def test_ranges_are_empty_where_they_count_the_wrong_way(
    start: str, stop: str, step: int, to: int, tmp_path: Path
) -> None:
    """In a session, in a file with open sizes, and as an exported model."""
    numbers = {"zero": 0, "one": 1, "four": 4, "less": -3, "step": step, "two": 2, "three": 3}
    weights = {name: np.array(value, np.int64) for name, value in numbers.items()}
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape two", "height"),
        node("Gather", "shape three", "width"),
        node("Div", "width three", "third"),
        *(node("Cast", name, f"{name}_cast", to=to) for name in (start, stop, "step")),
        node("Range", f"{start}_cast {stop}_cast step_cast", "y"),
    ]
    x, named = image(1, 1), ["batch", 3, "height", "width"]
    proto = model(nodes, {"x": x}, ["y"], weights, opset=18, shapes={"x": named})
    proto.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(to, None))
    alone = gc.from_onnx(proto).to_graph()
    (given,), (y,) = alone.inputs.values(), alone.outputs.values()
    session, signature = gc.Session(alone.graph), alone.signature()
    gc.save(session, tmp_path / "m.gcx", signatures={"predict": signature}, platforms=["cpu"])
    loaded = gc.load(tmp_path / "m.gcx").signatures["predict"]
    gc.to_onnx(session, tmp_path / "m.onnx", signature)
    there = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for height, width in ((5, 1), (5, 4), (3, 5), (3, 9)):
        x = image(height, width)
        known = {**numbers, "height": height, "width": width, "third": width // 3}
        want = np.arange(known[start], known[stop], step)
        for got in (session.run(y, {given: x}), loaded(x=x)["y"], there.run(None, {"x": x})[0]):
            assert np.asarray(got).dtype == helper.tensor_dtype_to_np_dtype(to)
            assert np.asarray(got).tolist() == want.tolist()


RATIOS = [
    ("width", "two"), ("fewer", "two"), ("minus", "three"), ("width", "negative"),
    ("fewer", "negative"), ("minus", "negative"), ("difference", "three"), ("seven", "width"),
    ("below", "width"), ("below", "two"), ("thirds", "negative"), ("seven", "negative"),
]  # fmt: skip


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_sizes_are_divided_towards_zero(op: str, tmp_path: Path) -> None:
    """As onnxruntime divides them, also after the model was exported again."""
    numbers = {"two": 2, "three": 3, "negative": -3, "seven": 7, "below": -7, "five": 5}
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape two", "height"),
        node("Gather", "shape three", "width"),
        node("Sub", "width five", "fewer"),
        node("Neg", "width", "minus"),
        node("Sub", "height width", "difference"),
        node("Div", "width three", "thirds"),
        node("ReduceMax", "x", "top", keepdims=0),
        node("Sub", "top top", "nothing"),
    ]
    outputs = [f"{a}_{b}" for a, b in RATIOS]
    for (a, b), y in zip(RATIOS, outputs, strict=True):
        nodes += [
            node(op, f"{a} {b}", f"ratio_{y}"),
            node("Cast", f"ratio_{y}", f"number_{y}", to=1),
            node("Add", f"number_{y} nothing", y),
        ]
    weights = {name: np.array(value, np.int64) for name, value in numbers.items()}
    sizes = [(4, width) for width in range(1, 10)]
    check_sizes(nodes, weights, outputs=outputs, sizes=sizes)
    x, named = image(1, 1), ["batch", 3, "height", "width"]
    proto = model(nodes, {"x": x}, outputs, weights, opset=18, shapes={"x": named})
    alone = gc.from_onnx(proto).to_graph()
    gc.to_onnx(gc.Session(alone.graph), tmp_path / "m.onnx", alone.signature())
    proto.ir_version = 10
    for output in proto.graph.output:
        output.type.CopyFrom(helper.make_tensor_type_proto(1, None))
    before = onnxruntime.InferenceSession(proto.SerializeToString())
    after = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for size in sizes:
        feeds = {"x": image(*size)}
        rows = zip(outputs, after.run(outputs, feeds), before.run(outputs, feeds), strict=True)
        for name, got, want in rows:
            assert got == want, f"{name}: {size}"


def test_a_range_has_the_size_of_a_slice(tmp_path: Path) -> None:
    """`width - 1` is negative only without columns, so files can keep it open."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape three", "width"),
        node("Range", "one width one", "counts"),
        node("Cast", "counts", "columns", to=1),
        node("Slice", "x starts ends axes", "tail"),
        node("Add", "tail columns", "y"),
    ]
    lists = {"starts": np.array([1]), "ends": np.array([1 << 62]), "axes": np.array([3])}
    x, named = image(4, 6), ["batch", 3, "height", "width"]
    weights = {"three": np.array(3), "one": np.array(1), **lists}
    proto = model(nodes, {"x": x}, ["y"], weights, opset=18, shapes={"x": named})
    alone = gc.from_onnx(proto).to_graph()
    signatures = {"predict": alone.signature()}
    gc.save(gc.Session(alone.graph), tmp_path / "m.gcx", signatures=signatures, platforms=["cpu"])
    loaded = gc.load(tmp_path / "m.gcx").signatures["predict"]
    assert_near(loaded(x=x)["y"], x[..., 1:] + np.arange(1, 6, dtype=np.float32), rtol=1e-6)


def test_a_range_from_a_fraction_is_refused() -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape three", "width"),
        node("Cast", "width", "limit", to=1),
        node("Range", "half limit one", "columns"),
        node("Add", "x columns", "y"),
    ]
    one = np.array(1, np.float32)
    weights = {"three": np.array(3), "half": np.array(0.5, np.float32), "one": one}
    with pytest.raises(ModelImportError, match="Range over named sizes needs whole bounds"):
        check_sizes(nodes, weights)


def test_old_softmax_of_the_last_axis() -> None:
    check_sizes([node("Softmax", "x", axis=3)], opset=9)
    check_sizes([node("Softmax", "x", axis=2)], opset=9)


def test_sizes_without_a_name_can_be_given() -> None:
    """Axis 2 of the input "x" is named "x_2"; "?" is no name."""
    x = image(4, 4)
    proto = model([node("Relu", "x")], {"x": x}, ["y"], shapes={"x": ["batch", 3, "?", "?"]})
    alone = gc.from_onnx(proto, sizes={"x_2": 4, "batch": 2}).to_graph()
    (given,) = alone.inputs.values()
    assert (given.shape[0], given.shape[2]) == (2, 4) and str(given.shape[3]) == "x_3"
    (got,) = results(proto, {"x": x}, sizes={"x_2": 4})
    assert_near(got, np.maximum(x, 0), rtol=0)
    with pytest.raises(UnknownNameError, match="sizes has 'x_1'") as caught:
        gc.from_onnx(proto, sizes={"x_1": 3})
    assert "x_3" in str(caught.value)


def test_multiples_of_a_size(tmp_path: Path) -> None:
    """A network that halves its images and doubles them again adds them to themselves. Files can
    keep such sizes open if they are even."""
    nodes = [
        node("MaxPool", "x", "half", kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", "half - scales", "whole"),
        node("Add", "x whole", "y"),
    ]
    x, named = image(4, 6), ["batch", 3, "height", "width"]
    scales = np.array([1, 1, 2, 2], np.float32)
    proto = model(nodes, {"x": x}, ["y"], {"scales": scales}, opset=18, shapes={"x": named})
    even = gc.from_onnx(proto, sizes={"height": "2*h", "width": "2*w"}).to_graph()
    session = gc.Session(even.graph)
    signature = even.signature()
    gc.save(session, tmp_path / "m.gcx", signatures={"predict": signature}, platforms=["cpu"])
    gc.to_onnx(session, tmp_path / "m.onnx", signature)
    loaded = gc.load(tmp_path / "m.gcx").signatures["predict"]
    there = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for size in ((2, 2), (4, 6), (8, 10)):
        x = image(*size)
        half = x.reshape(2, 3, size[0] // 2, 2, size[1] // 2, 2).max((3, 5))
        want = x + half.repeat(2, 2).repeat(2, 3)
        assert_near(loaded(x=x)["y"], want, rtol=1e-6)
        assert_near(there.run(None, {"x": x})[0], want, rtol=1e-6)
    with pytest.raises(ArtifactError, match="an open size cannot guarantee"):
        free = gc.from_onnx(proto).to_graph()
        gc.to_onnx(gc.Session(free.graph), tmp_path / "free.onnx", free.signature())


def test_a_size_that_must_be_a_multiple(tmp_path: Path) -> None:
    """An argument of the layer is checked too: now if its size is known, otherwise in each run."""
    x, named = image(64, 4), ["batch", 3, "height", "width"]
    proto = model([node("Relu", "x")], {"x": x}, ["y"], shapes={"x": named})
    layer = gc.from_onnx(proto, sizes={"height": "32*h"})
    with gc.Graph() as graph:
        given = gc.placeholder((2, 3, "a", "w"), name="given")
        y = layer(given)
        with pytest.raises(ShapeError, match="axis 2: the size must be a multiple of 32, got 33"):
            layer(gc.zeros((2, 3, 33, 4)))
        assert layer(gc.zeros((2, 3, 96, 4))).shape == (2, 3, 96, 4)
        assert layer(gc.placeholder((2, 3, "64*b", "w"))).shape[2] == parse_dim("64*b")
    with gc.Session(graph) as session:
        assert session.run(y, {given: x}).shape == x.shape
        with pytest.raises(FeedError, match=r"needs a == 32\*floordiv\(a, 32\)") as caught:
            session.run(y, {given: image(33, 4)})
        assert "feed 'given': (2, 3, 33, 4)" in str(caught.value)
        signatures = {"predict": gc.Signature({"x": given}, {"y": y})}
        with pytest.raises(ArtifactError, match="which an open size cannot guarantee"):
            gc.save(session, tmp_path / "m.gcx", signatures=signatures, platforms=["cpu"])
    save_model(layer, tmp_path / "m.gcx", ["cpu"])
    loaded = gc.load(tmp_path / "m.gcx").signatures["predict"]
    assert loaded(x=x)["y"].shape == x.shape
    wanted = r"feed 'x' must be f32\[batch, 3, 32\*h, width\], .* size 32\*h on axis 2, got 33"
    with pytest.raises(FeedError, match=wanted):
        loaded(x=image(33, 4))
    config = ServerConfig((ModelConfig("m", str(tmp_path / "m.gcx")),), port=0, rest_port=None)
    with Server(config) as server, Client(f"grpc://127.0.0.1:{server.port}") as client:
        with pytest.raises(Failure, match=wanted) as failure:
            client.predict("m", x=image(33, 4))
        assert failure.value.code == "INVALID_ARGUMENT"
