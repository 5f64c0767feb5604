"""The gRPC services, over a real channel with graphc's own messages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from graphc.data.records import example
from graphc.serving.config import ModelConfig, ServerConfig, Specific
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode_all, encode
from graphc.serving.server import Server
from tests.serving.fakes import DTYPES, FakeManager, manager

GOLDEN = json.loads((Path(__file__).parents[1] / "protocol" / "golden.json").read_text())


@pytest.fixture(scope="module")
def models() -> FakeManager:
    return manager()


@pytest.fixture(scope="module")
def channel(models, tmp_path_factory) -> Iterator[grpc.Channel]:
    folder = tmp_path_factory.mktemp("models") / "double"
    config = ServerConfig(
        (ModelConfig("double", str(folder)),), port=0, rest_port=None, max_body_bytes=1 << 20
    )
    with (
        Server(config, manager=models) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as found,
    ):
        yield found


def call(channel: grpc.Channel, method: str, data: Any, **options: Any) -> Any:
    """Calls `Service/Method` with a message or with bytes."""
    names = {
        "Classify": "Classification",
        "Regress": "Regression",
        "HandleReloadConfigRequest": "ReloadConfig",
    }
    data = data if isinstance(data, bytes) else data.SerializeToString()
    found = channel.unary_unary(f"/{method}")(data, timeout=20, **options)
    name = method.rpartition("/")[2]
    return parse(f"{names.get(name, name)}Response", found)


PREDICT, MODELS = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"


def refusal(channel: grpc.Channel, method: str, data: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, method, data, **options)
    return caught.value.code().name, caught.value.details()


def predict(model: str = "double", signature: str = "", **inputs: Any) -> Any:
    request = messages().PackedRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    for name, value in inputs.items():
        encode(np.asarray(value), request.inputs[name])
    return request


def request(kind: str, *examples: bytes, context: bytes | None = None, **spec: Any) -> Any:
    made = getattr(messages(), kind)()
    if hasattr(made, "model_spec"):
        made.model_spec.CopyFrom(messages().ModelSpec(**spec))
    if context is None:
        made.input.example_list.examples.extend(examples)
    else:
        made.input.example_list_with_context.examples.extend(examples)
        made.input.example_list_with_context.context = context
    return made


def test_predict(channel) -> None:
    response = call(channel, f"{PREDICT}/Predict", predict(x=np.float32([[1, 2]])))
    assert decode_all(response.outputs)["y"].tolist() == [[2.0, 4.0]]
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("double", 3, "serving_default")


def test_predict_by_version_and_label(channel) -> None:
    asked = predict(x=np.float32([[1, 2]]))
    asked.model_spec.version.value = 3
    assert call(channel, f"{PREDICT}/Predict", asked).model_spec.version.value == 3
    asked.model_spec.version.value = 2
    assert refusal(channel, f"{PREDICT}/Predict", asked)[0] == "NOT_FOUND"
    asked.model_spec.version.value = -1
    assert "negative" in refusal(channel, f"{PREDICT}/Predict", asked)[1]
    asked.model_spec.version_label = "stable"
    assert call(channel, f"{PREDICT}/Predict", asked).model_spec.version.value == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_through(channel, models, dtype: str) -> None:
    type = models.models["echo"].signatures[dtype].inputs["t"]
    value = np.array([0, 1, 1]).astype(type.dtype)
    if dtype == "string":
        value[:] = [b"a", b"\xff", b""]
    found = call(channel, f"{PREDICT}/Predict", predict("echo", dtype, t=value))
    array = decode_all(found.outputs)["t"]
    assert array.dtype == value.dtype and array.tolist() == value.tolist()


def test_output_filter(channel) -> None:
    asked = predict("m", "add", a=np.int32([1]), b=np.int32([2]))
    asked.output_filter.append("a")
    assert list(call(channel, f"{PREDICT}/Predict", asked).outputs) == ["a"]
    asked.output_filter.append("a")
    assert "twice" in refusal(channel, f"{PREDICT}/Predict", asked)[1]
    asked.output_filter[1] = "z"
    assert "no output 'z'; there are: sum, a" in refusal(channel, f"{PREDICT}/Predict", asked)[1]


def test_classify(channel) -> None:
    rows = [example({"x": [1.0, 2.0]}), example({"x": [3.0, 4.0]})]
    asked = request("ClassificationRequest", *rows, name="m", signature_name="scores")
    found = call(channel, f"{PREDICT}/Classify", asked).result.classifications
    assert [[(c.label, c.score) for c in row.classes] for row in found] == [
        [("0", 1.0), ("1", 2.0)],
        [("0", 3.0), ("1", 4.0)],
    ]


def test_regress_with_a_context(channel) -> None:
    rows = [example({}), example({"age": [4.0]})]
    context = example({"age": [3.0]})
    asked = request("RegressionRequest", *rows, context=context, name="m", signature_name="value")
    found = call(channel, f"{PREDICT}/Regress", asked).result.regressions
    assert [row.value for row in found] == [6.0, 8.0]


def test_multi_inference(channel) -> None:
    asked = request("MultiInferenceRequest", example({"x": [1.0, 2.0], "age": [4.0]}))
    for signature, method in (("scores", "classify"), ("value", "regress")):
        task = asked.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "m", signature
    first, second = call(channel, f"{PREDICT}/MultiInference", asked).results
    assert [c.score for c in first.classification_result.classifications[0].classes] == [1.0, 2.0]
    assert second.regression_result.regressions[0].value == 8.0
    asked.tasks[1].method_name = "tensorflow/serving/predict"
    assert refusal(channel, f"{PREDICT}/MultiInference", asked)[0] == "UNIMPLEMENTED"
    asked.tasks[1].model_spec.name = "double"
    assert "same model" in refusal(channel, f"{PREDICT}/MultiInference", asked)[1]


def test_metadata(channel) -> None:
    asked = messages().GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = "double"
    found = call(channel, f"{PREDICT}/GetModelMetadata", asked)
    assert found.model_spec.version.value == 3
    packed = found.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signature = parse("SignatureDefMap", packed.value).signature_def["serving_default"]
    assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1, 2]
    assert signature.outputs["y"].dtype == 1
    asked.metadata_field[0] = "graph"
    assert "no metadata field 'graph'" in refusal(channel, f"{PREDICT}/GetModelMetadata", asked)[1]


def test_status(channel) -> None:
    asked = messages().GetModelStatusRequest()
    asked.model_spec.name = "double"
    (row,) = call(channel, f"{MODELS}/GetModelStatus", asked).model_version_status
    assert (row.version, row.state, row.status.error_code) == (3, 30, 0)
    asked.model_spec.name = "nope"
    assert refusal(channel, f"{MODELS}/GetModelStatus", asked)[0] == "NOT_FOUND"


def test_reload(channel, models, tmp_path_factory) -> None:
    base = tmp_path_factory.getbasetemp()
    root = next(path for path in base.iterdir() if path.name.startswith("models"))
    asked = messages().ReloadConfigRequest()
    config = asked.config.model_config_list.config.add(name="new", base_path=f"{root}/new")
    config.model_version_policy.specific.versions.append(4)
    assert call(channel, f"{MODELS}/HandleReloadConfigRequest", asked).status.error_code == 0
    assert models.configs == (ModelConfig("new", f"{root}/new", Specific((4,))),)
    for path in ("/etc", f"{root}/../other", f"{root}/../models-of-others"):
        config.base_path = path
        code, text = refusal(channel, f"{MODELS}/HandleReloadConfigRequest", asked)
        assert code == "INVALID_ARGUMENT" and "outside the folders" in text
    asked.config.model_config_list.config.add(name="new", base_path="")
    assert "base_path" in refusal(channel, f"{MODELS}/HandleReloadConfigRequest", asked)[1]


def test_health(channel) -> None:
    data = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
    assert parse("HealthCheckResponse", data).status == 1


@pytest.mark.parametrize("name", sorted(GOLDEN["messages"]))
def test_real_requests_for_an_unknown_model(channel, name: str) -> None:
    methods = {
        "PredictRequest": f"{PREDICT}/Predict",
        "ClassificationRequest": f"{PREDICT}/Classify",
        "RegressionRequest": f"{PREDICT}/Regress",
        "GetModelMetadataRequest": f"{PREDICT}/GetModelMetadata",
    }
    if name in methods:
        data = bytes.fromhex(GOLDEN["messages"][name])
        code, text = refusal(channel, methods[name], data.replace(b"\x01m", b"\x01z"))
        assert (code, text) == ("NOT_FOUND", "Servable not found for request: Latest(z)")


@pytest.mark.parametrize(
    ("method", "data", "code", "text"),
    [
        ("Predict", b"\xff", "INVALID_ARGUMENT", "not a PredictRequest"),
        ("Predict", b"", "INVALID_ARGUMENT", "must name a model"),
        ("Predict", predict(), "INVALID_ARGUMENT", "input 'x' is missing"),
        ("Predict", predict(x=np.float64([[1, 2]])), "INVALID_ARGUMENT", "expected f32[batch, 2]"),
        ("Predict", predict(signature="z"), "FAILED_PRECONDITION", 'key "z" not found'),
        ("Predict", predict("m", "fails", age=np.float32([1])), "INTERNAL", "internal error"),
        ("Classify", request("ClassificationRequest", name="m"), "INVALID_ARGUMENT", "no examples"),
        (
            "Regress",
            request("RegressionRequest", b"\xff", name="m", signature_name="value"),
            "INVALID_ARGUMENT",
            "record 0 is not a tf.train.Example",
        ),
        ("MultiInference", b"", "INVALID_ARGUMENT", "no tasks"),
    ],
)
def test_errors(channel, method: str, data: Any, code: str, text: str) -> None:
    found = refusal(channel, f"{PREDICT}/{method}", data)
    assert found[0] == code and text in found[1]


def test_messages_beyond_the_limit(channel) -> None:
    large = predict(x=np.zeros((1 << 18, 2), np.float32))
    assert refusal(channel, f"{PREDICT}/Predict", large)[0] == "RESOURCE_EXHAUSTED"


def test_an_unknown_method(channel) -> None:
    assert refusal(channel, f"{PREDICT}/Explain", b"")[0] == "UNIMPLEMENTED"
