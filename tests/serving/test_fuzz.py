"""Malformed requests: each gets a client-error status, and the server keeps working."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphc.serving.endpoints.grpc_services import GrpcServices
from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.service import Service
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode, encode
from graphc.serving.server import asgi
from graphc.web.access import Access
from graphc.web.failures import Failure
from tests.serving.fakes import DTYPES, ask, manager
from tests.serving.stateful import CountingManager

GOLDEN = json.loads((Path(__file__).parent / "protocol" / "golden.json").read_text())
APPLICATION = asgi(manager(), request_seconds=600.0)
MISTAKES = (400, 404, 405, 413, 415)

numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([2**31, -(2**63) - 1, 2**64, 10**400, 1e308, -0.0, 5e-324]),
)
leaves = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["x", "a", "b", "b64", "t"]), inner, max_size=3),
    ),
    max_leaves=20,
)
keys = st.sampled_from(["instances", "inputs", "signature_name", "examples", "context"])
signatures = st.sampled_from(["add", "scores", "value", "total", "", *DTYPES])
verbs = st.sampled_from(["predict", "classify", "regress"])


def flipped(data: bytes, flips: list[tuple[int, int]]) -> bytes:
    """The bytes with the given bits of the given bytes flipped."""
    changed = bytearray(data)
    for place, bit in flips:
        if changed:
            changed[place % len(changed)] ^= 1 << bit
    return bytes(changed)


flips = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=6)


def check(status: int, body: bytes) -> None:
    assert status == 200 or status in MISTAKES, (status, body)
    if status != 200:
        assert set(json.loads(body)) == {"error"}


@settings(max_examples=300, deadline=None)
@given(
    model=st.sampled_from(["double", "m", "echo"]),
    verb=verbs,
    body=st.dictionaries(keys, values, max_size=3),
    signature=signatures,
)
@example(model="m", verb="regress", body={"examples": [{"age": 10**400}]}, signature="value")
def test_json_of_any_shape(model: str, verb: str, body: dict[str, Any], signature: str) -> None:
    reply = ask(
        APPLICATION, "POST", f"/v1/models/{model}:{verb}", {"signature_name": signature, **body}
    )
    check(reply.status, reply.body)


GOOD = [
    ("double", {"instances": [[1.5, -2e10], [3, 4]]}),
    ("m", {"signature_name": "add", "inputs": {"a": [1, 2], "b": [3, 4]}}),
    ("echo", {"signature_name": "string", "instances": ["ä", {"b64": "/wA="}]}),
    ("echo", {"signature_name": "bf16", "instances": [1.0, 2.0]}),
]


@settings(max_examples=300, deadline=None)
@given(request=st.sampled_from(GOOD), flips=flips, cut=st.integers(0, 200), gzipped=st.booleans())
def test_json_with_flipped_bits(request: Any, flips: Any, cut: int, gzipped: bool) -> None:
    model, value = request
    data = json.dumps(value).encode()
    data = gzip.compress(data, mtime=0) if gzipped else data
    headers = {"content-encoding": "gzip"} if gzipped else {}
    data = flipped(data, flips)[: cut or None]
    reply = ask(APPLICATION, "POST", f"/v1/models/{model}:predict", data, headers)
    check(reply.status, reply.body)


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", ""]),
    path=st.one_of(
        st.text(max_size=30),
        st.lists(
            st.sampled_from(
                [
                    "/",
                    "v1",
                    "models",
                    "double",
                    ":",
                    "predict",
                    "versions",
                    "3",
                    "..",
                    "%",
                    "labels",
                ]
            ),
            max_size=9,
        ).map("".join),
    ),
    headers=st.dictionaries(
        st.sampled_from(["content-length", "content-encoding", "accept-encoding", "content-type"]),
        st.text(st.characters(max_codepoint=127), max_size=30),
    ),
)
def test_any_path_and_headers(method: str, path: str, headers: dict[str, str]) -> None:
    reply = ask(APPLICATION, method, path, b"{}", headers)
    if "error" not in str(reply.body):
        assert reply.status == 200 or method == "HEAD"
    else:
        assert reply.status in MISTAKES


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(sorted(GOLDEN["tensors"])), flips=flips)
def test_tensors_with_flipped_bits(name: str, flips: Any) -> None:
    data = flipped(bytes.fromhex(GOLDEN["tensors"][name]), flips)
    try:
        array = decode(parse("TensorProto", data), "x", limit=1 << 20)
    except Failure as failure:
        assert failure.code == "INVALID_ARGUMENT"
    else:
        assert array.nbytes <= 1 << 20


@settings(max_examples=200, deadline=None)
@given(
    dtype=st.integers(-1, 40),
    sizes=st.lists(st.one_of(st.integers(0, 4), st.integers(-(2**63), 2**63 - 1)), max_size=4),
    content=st.binary(max_size=16),
    ints=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
)
def test_tensors_of_any_fields(dtype: int, sizes: Any, content: bytes, ints: Any) -> None:
    proto = messages().TensorProto(
        dtype=dtype, tensor_content=content, int_val=ints, half_val=ints, float8_val=content
    )
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    try:
        array = decode(proto, "x", limit=1 << 20)
    except Failure as failure:
        assert failure.code == "INVALID_ARGUMENT"
    else:
        assert list(array.shape) == sizes


METHODS = {
    "PredictRequest": "predict",
    "ClassificationRequest": "classify",
    "RegressionRequest": "regress",
    "MultiInferenceRequest": "multi_inference",
    "GetModelMetadataRequest": "metadata",
    "GetModelStatusRequest": "status",
    "ReloadConfigRequest": "reload",
}


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(METHODS)), flips=flips, noise=st.binary(max_size=20))
def test_messages_with_flipped_bits(name: str, flips: Any, noise: bytes) -> None:
    service = Service(manager(), Metrics())
    method = getattr(GrpcServices(service, Access()), METHODS[name])
    data = flipped(bytes.fromhex(GOLDEN["messages"][name]) + noise, flips)

    async def run() -> None:
        with service.call("GRPC", name) as call:
            await method(call, data, None)

    try:
        asyncio.run(run())
    except Failure as failure:
        codes = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED")
        assert failure.code in codes, failure


bodies = st.dictionaries(
    st.sampled_from(["inputs", "instances", "feedback", "stop", "output_filter", "signature_name"]),
    st.one_of(values, st.just([1]), st.just({"x": [1]}), st.just({"x": "total"}), st.just("add")),
)


@settings(max_examples=100, deadline=None)
@given(
    bodies,
    st.sampled_from([1, 3, 0, -1, None, "1", True, 2**70]),
    st.sampled_from(["predict", "generate"]),
)
@example({"inputs": [1], "feedback": {"x": "total"}, "stop": {"x": [1]}}, 3, "generate")
def test_requests_of_sessions(body: Any, steps: Any, verb: str) -> None:
    models = CountingManager()
    application = asgi(models, request_seconds=600.0)
    path = "/v1/models/counter/sessions"
    id = ask(application, "POST", path, {"signature_name": "add"}).json["session_id"]
    reply = ask(application, "POST", f"{path}/{id}:{verb}", {"steps": steps, **body})
    check(reply.status, reply.body)
    assert ask(application, "POST", f"{path}/{id}:predict", {"inputs": [1]}).status == 200
    models.sessions.close()


@settings(max_examples=100, deadline=None)
@given(flips=flips, cut=st.integers(0, 100))
def test_messages_of_sessions_with_flipped_bits(flips: Any, cut: int) -> None:
    models = CountingManager()
    application = asgi(models, request_seconds=600.0)
    path = "/v1/models/counter/sessions"
    id = ask(application, "POST", path, {"signature_name": "add"}).json["session_id"]
    request = messages().PackedSessionRequest(output_filter=["total"], feedback={"x": "total"})
    encode(np.int32([1, 2]), request.inputs["x"])
    data = flipped(request.SerializeToString(), flips)[: cut or None]
    headers = {"content-type": "application/x-protobuf"}
    reply = ask(application, "POST", f"{path}/{id}:predict", data, headers)
    if reply.status != 200:
        check(reply.status, reply.body)
    assert ask(application, "POST", f"{path}/{id}:predict", {"inputs": [1]}).status == 200
    models.sessions.close()
