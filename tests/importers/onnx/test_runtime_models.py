"""Models of PyTorch that ONNX Runtime has optimised or quantised."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from torch import nn

from tests.importers.onnx.models import results
from tests.importers.onnx.runtime import by_runtime
from tests.near import assert_near

LEVELS = onnxruntime.GraphOptimizationLevel
RNG = np.random.default_rng(0)


class Encoder(nn.Module):
    """A block of a transformer, written so that the runtime knows its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 32)
        self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(2)])
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        batch, time, _ = x.shape
        parts = [v.view(batch, time, 4, 8).transpose(1, 2) for v in self.qkv(x).split(32, 2)]
        weights = (parts[0] @ parts[1].transpose(-1, -2) / 8**0.5).softmax(-1)
        mixed = (weights @ parts[2]).transpose(1, 2).reshape(batch, time, 32)
        x = self.norms[0](x + self.out(mixed))
        return self.norms[1](x + self.down(nn.functional.gelu(self.up(x))))


class Images(nn.Module):
    """Convolutions with a residual connection and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, padding=1)
        self.gate, self.last = nn.Conv2d(8, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.first(x).relu()
        x = nn.functional.leaky_relu(x + self.second(x), 0.1)
        x = x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid()
        return self.last(nn.functional.max_pool2d(x, 2).mean((2, 3)))


class Sequences(nn.Module):
    """An LSTM in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 16, bidirectional=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


def sample(kind: type[nn.Module]) -> np.ndarray:
    if kind is Encoder:
        return RNG.integers(0, 30, (2, 7))
    return RNG.normal(size=(2, 3, 20, 20) if kind is Images else (5, 2, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    """The exporter and the quantizer warn of things that do not matter here."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def exported(kind: type[nn.Module], path: Path) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    given = torch.from_numpy(sample(kind))
    torch.onnx.export(
        module, (given,), str(path), dynamo=False, input_names=["x"], opset_version=17
    )


def optimised(path: Path, level: Any) -> Path:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 3
    out = path.with_suffix(".optimised.onnx")
    options.optimized_model_filepath = str(out)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return out


class Reader(CalibrationDataReader):
    """Some inputs to find the ranges with."""

    def __init__(self, kind: type[nn.Module]) -> None:
        self.rest = iter([{"x": sample(kind)} for _ in range(4)])

    def get_next(self) -> Any:
        return next(self.rest, None)


def check_file(path: Path, inputs: Any, ops: set[str], rtol: float) -> None:
    """Checks that a file has operators, and gives what ONNX Runtime gives."""
    proto = onnx.load(path)
    found = {node.op_type for node in proto.graph.node if node.domain == "com.microsoft"}
    assert ops <= found, found
    for got, want in zip(results(str(path), inputs), by_runtime(proto, inputs), strict=True):
        assert_near(got, want, rtol=rtol)


PLAIN: list[tuple[type[nn.Module], set[str]]] = [
    (Encoder, {"FusedMatMul", "Gelu", "SkipLayerNormalization"}),
    (Images, {"FusedConv"}),
]
DYNAMIC: list[tuple[type[nn.Module], set[str], float]] = [
    (Encoder, {"DynamicQuantizeMatMul", "FusedMatMul"}, 1e-5),
    (Sequences, {"DynamicQuantizeLSTM"}, 2e-3),
]
STATIC: list[tuple[type[nn.Module], Any, Any, set[str]]] = [
    (Encoder, QuantFormat.QDQ, LEVELS.ORT_ENABLE_EXTENDED, {"QLinearAdd", "QLinearSoftmax"}),
    (Encoder, QuantFormat.QOperator, LEVELS.ORT_ENABLE_BASIC, {"QLinearAdd", "QLinearMul"}),
    (Images, QuantFormat.QDQ, LEVELS.ORT_ENABLE_EXTENDED, {"QLinearAdd", "QGemm"}),
    (Images, QuantFormat.QDQ, LEVELS.ORT_ENABLE_ALL, {"QLinearConv", "QLinearAdd"}),
]


@pytest.mark.parametrize(("kind", "ops"), PLAIN)
def test_an_optimised_model(kind: type[nn.Module], ops: set[str], tmp_path: Path) -> None:
    exported(kind, tmp_path / "m.onnx")
    path = optimised(tmp_path / "m.onnx", LEVELS.ORT_ENABLE_EXTENDED)
    check_file(path, {"x": sample(kind)}, ops, 1e-5)


@pytest.mark.parametrize(("kind", "ops", "rtol"), DYNAMIC)
def test_a_model_that_is_quantised_in_the_run(
    kind: type[nn.Module], ops: set[str], rtol: float, tmp_path: Path
) -> None:
    exported(kind, tmp_path / "m.onnx")
    quantize_dynamic(tmp_path / "m.onnx", tmp_path / "q.onnx")
    path = optimised(tmp_path / "q.onnx", LEVELS.ORT_ENABLE_EXTENDED)
    check_file(path, {"x": sample(kind)}, ops, rtol)


@pytest.mark.parametrize(("kind", "form", "level", "ops"), STATIC)
def test_a_quantised_model(
    kind: type[nn.Module], form: Any, level: Any, ops: set[str], tmp_path: Path
) -> None:
    exported(kind, tmp_path / "m.onnx")
    quantize_static(
        tmp_path / "m.onnx",
        tmp_path / "q.onnx",
        Reader(kind),
        quant_format=form,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    path = optimised(tmp_path / "q.onnx", level)
    check_file(path, {"x": sample(kind)}, ops, 0.02)  # one step of 256, after some operators


def test_weights_of_4_bits(tmp_path: Path) -> None:
    """The runtime makes one operator of a dequantized matrix and its product."""
    w = RNG.integers(0, 16, (64, 32)).astype(ml_dtypes.uint4)
    zeros = RNG.integers(0, 16, (2, 32)).astype(ml_dtypes.uint4)
    scales = RNG.random((2, 32)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", 64), ("y", 32))
    )
    weights = [numpy_helper.from_array(v, n) for v, n in ((w, "w"), (scales, "s"), (zeros, "z"))]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    path = optimised(tmp_path / "m.onnx", LEVELS.ORT_ENABLE_EXTENDED)
    # The runtime rounds the other factor to 8 bits where the model allows it; graphc does not.
    given = {"x": RNG.normal(size=(3, 64)).astype(np.float32)}
    check_file(path, given, {"MatMulNBits"}, 2e-2)
    exact = given["x"] @ ((w.astype("f") - zeros.astype("f").repeat(32, 0)) * scales.repeat(32, 0))
    assert_near(results(str(path), given)[0], exact, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("quantised", [False, True])
def test_bert_as_the_optimizer_for_transformers_writes_it(quantised: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from onnxruntime.transformers import optimizer

    config = transformers.BertConfig(
        vocab_size=99, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, attn_implementation="eager",
    )  # fmt: skip

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel(config)

        def forward(self, ids: Any, mask: Any, segments: Any) -> Any:
            return self.bert(ids, attention_mask=mask, token_type_ids=segments)[0]

    torch.manual_seed(0)
    ids, path = torch.randint(0, 99, (2, 7)), str(tmp_path / "m.onnx")
    names = ["ids", "mask", "segments"]
    args = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    axes = {name: {0: "batch", 1: "time"} for name in names}
    torch.onnx.export(Bert().eval(), args, path, dynamo=False, input_names=names,
                      dynamic_axes=axes, opset_version=17)  # fmt: skip
    made = optimizer.optimize_model(path, "bert", num_heads=4, hidden_size=64, opt_level=0)
    made.save_model_to_file(path)
    ops = {"EmbedLayerNormalization", "Attention", "SkipLayerNormalization", "BiasGelu"}
    if quantised:
        options = {"DefaultTensorType": TensorProto.FLOAT}
        quantize_dynamic(path, path, extra_options=options)
        ops = {"QEmbedLayerNormalization", "QAttention", "SkipLayerNormalization"}
    mask = np.ones((2, 7), np.int64)
    mask[0, 4:] = 0
    inputs = dict(zip(names, [ids.numpy(), mask, np.zeros((2, 7), np.int64)], strict=True))
    check_file(Path(path), inputs, ops, 1e-5)
