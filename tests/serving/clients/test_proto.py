"""clients/serving.proto and sessions.proto have the fields of the server's messages, and
serving.proto makes a working gRPC client."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

from graphc.serving import Server, ServerConfig
from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.metadata import STATES
from graphc.serving.protocol.tensors import name_of, number_of
from tests.serving.fakes import DTYPES, manager, typed

PROTO = Path(__file__).parents[3] / "clients" / "serving.proto"
# Messages that clients neither send nor receive, or that have other names in these files.
INTERNAL = {
    *("PackedTensor", "PackedRequest", "PackedResponse", "BatchingParameters"),
    *("PredictLog", "ClassifyLog", "RegressLog", "MultiInferenceLog", "PredictionLog"),
    *("HealthCheckRequest", "HealthCheckResponse", "PrometheusConfig", "MonitoringConfig"),
    *("PackedSessionRequest", "SSLConfig", "Sizes"),
    *("StringValue", "BoolValue", "Int64Value", "Any"),
}
EXAMPLES = {"Example", "Features", "Feature", "BytesList", "FloatList", "Int64List"}
Fields = dict[str, tuple[int, str]]  # name -> (number, type)


def read_proto(text: str) -> tuple[dict[str, Fields], dict[str, dict[str, int]], list[str]]:
    """The messages, enums and calls (SERVICE/NAME) of a .proto file."""
    text = re.sub(r"//.*|^(?:syntax|package|import|option) .*", "", text, flags=re.MULTILINE)
    services = re.findall(r"service (\w+) \{(.*?)\n\}", text, re.DOTALL)
    calls = [f"{name}/{call}" for name, body in services for call in re.findall(r"rpc (\w+)", body)]
    text = re.sub(r"service \w+ \{.*?\n\}", "", text, flags=re.DOTALL)
    tokens = iter(re.findall(r"map<string, [\w.]+>|[\w.]+|[{};=]", text))
    found: dict[str, Fields] = {}
    enums: dict[str, dict[str, int]] = {}

    def read(fields: Fields) -> None:
        """Reads up to the closing brace."""
        for token in tokens:
            if token == "}":
                return
            if token not in ("message", "enum", "oneof"):
                *kind, name, _, number = [token, *iter(lambda: next(tokens), ";")]
                fields[name] = (int(number), " ".join(kind))
                continue
            name, _ = next(tokens), next(tokens)
            inner: Fields = fields if token == "oneof" else {}
            read(inner)
            if token == "message":
                found[name] = inner
            elif token == "enum":
                enums[name] = {key: number for key, (number, _) in inner.items()}

    read({})
    return found, enums, calls


MESSAGES, ENUMS, CALLS = read_proto(PROTO.read_text())
MESSAGES |= read_proto((PROTO.parent / "sessions.proto").read_text())[0]


def fields_of(descriptor: Any) -> Fields:
    """The fields of a message class, with types as in a .proto file."""
    message = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(message)
    entries = {each.name: each for each in message.nested_type}

    def kind(field: Any) -> str:
        name = field.type_name.rpartition(".")[2]
        if name in entries:
            return f"map<string, {kind(entries[name].field[1])}>"
        scalar = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)
        name = name or scalar.removeprefix("TYPE_").lower()
        return f"repeated {name}" if field.label == field.LABEL_REPEATED else name

    return {field.name: (field.number, on_the_wire(kind(field))) for field in message.field}


def on_the_wire(kind: str) -> str:
    """The type with the same encoding: an enum equals an int32, an Example equals bytes."""
    kind = kind.replace("google.protobuf.", "").replace("tensorflow.serving.", "")
    kind = re.sub(r"\bExample\b", "bytes", kind)
    return re.sub(rf"\b({'|'.join(ENUMS)})\b", "int32", kind)


def test_the_messages_are_those_of_the_server() -> None:
    assert MESSAGES.keys() - EXAMPLES - {"Dim"} == vars(messages()).keys() - INTERNAL - {"Dim"}


@pytest.mark.parametrize("name", sorted(MESSAGES.keys() - EXAMPLES))
def test_the_fields_of(name: str) -> None:
    got = {field: (number, on_the_wire(kind)) for field, (number, kind) in MESSAGES[name].items()}
    assert got == fields_of(getattr(messages(), name).DESCRIPTOR)


def test_the_enums() -> None:
    types = [typed(f"{dtype}[n]").dtype for dtype in DTYPES]
    expected = {name_of(dtype): number_of(dtype) for dtype in types}
    assert expected.items() <= ENUMS["DataType"].items()
    assert ENUMS["State"] == STATES


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> SimpleNamespace:
    """The message classes that protoc makes from the file."""
    folder = tmp_path_factory.mktemp("proto")
    known = descriptor_pb2.FileDescriptorSet()
    for module in (any_pb2, wrappers_pb2):  # protoc may be installed without them
        module.DESCRIPTOR.CopyToProto(known.file.add())
    (folder / "known").write_bytes(known.SerializeToString())
    command = ["protoc", f"--descriptor_set_in={folder}/known", f"-I{PROTO.parent}"]
    command += [f"--descriptor_set_out={folder}/ours", PROTO.name]
    subprocess.run(command, check=True, timeout=60)
    ours = descriptor_pb2.FileDescriptorSet.FromString((folder / "ours").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in (*known.file, *ours.file):
        pool.Add(file)
    names = ours.file[0].message_type
    package = ours.file[0].package
    classes = {
        each.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{each.name}")
        )
        for each in names
    }
    return SimpleNamespace(**classes)


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    config = ServerConfig((), port=0, rest_port=None)
    with (
        Server(config, manager=manager()) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield channel


@pytest.mark.skipif(shutil.which("protoc") is None, reason="protoc is not installed")
def test_a_client_by_grpc(generated: SimpleNamespace, channel: grpc.Channel) -> None:
    def call(name: str, request: Any, response: Any) -> Any:
        (path,) = [f"/tensorflow.serving.{each}" for each in CALLS if each.endswith(f"/{name}")]
        method = channel.unary_unary(path, type(request).SerializeToString, response.FromString)
        return method(request, timeout=60)

    make = generated
    request = make.PredictRequest(model_spec={"name": "double"})
    request.model_spec.version.value = 3
    request.inputs["x"].CopyFrom(make.TensorProto(dtype="DT_FLOAT", float_val=[1, 2]))
    for size in (1, 2):
        request.inputs["x"].tensor_shape.dim.add(size=size)
    assert call("Predict", request, make.PredictResponse).outputs["y"].float_val == [2, 4]

    example = make.Example()
    example.features.feature["x"].float_list.value.extend([0.25, 0.75])
    spec = {"name": "m", "signature_name": "scores"}
    request = make.ClassificationRequest(model_spec=spec)
    request.input.example_list.examples.append(example)
    found = call("Classify", request, make.ClassificationResponse).result.classifications[0]
    assert [(each.label, each.score) for each in found.classes] == [("0", 0.25), ("1", 0.75)]

    request = make.GetModelMetadataRequest(model_spec={"name": "double"})
    request.metadata_field.append("signature_def")
    packed = call("GetModelMetadata", request, make.GetModelMetadataResponse).metadata
    signatures = make.SignatureDefMap()
    assert packed["signature_def"].Unpack(signatures)
    assert signatures.signature_def["serving_default"].inputs["x"].dtype == 1

    request = make.GetModelStatusRequest(model_spec={"name": "double"})
    status = call("GetModelStatus", request, make.GetModelStatusResponse).model_version_status
    assert [(each.version, each.state) for each in status] == [(3, 30)]
    request.model_spec.name = "other"
    with pytest.raises(grpc.RpcError) as caught:
        call("GetModelStatus", request, make.GetModelStatusResponse)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_the_calls_are_those_of_the_server(channel: grpc.Channel) -> None:
    assert len(CALLS) == 7
    for name in CALLS:
        call = channel.unary_unary(f"/tensorflow.serving.{name}")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"no message", timeout=60)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, name
