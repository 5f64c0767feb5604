"""Strings of signatures with vocabularies, through the whole server."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import graphc as gc
from graphc.data.records import example
from graphc.serving import BatchingConfig, Client, Failure, ModelConfig, Server, ServerConfig
from graphc.serving.protocol.messages import messages, parse
from tests.artifacts.forge import entry, forge

WORDS = ["[UNK]", "good", "bad", "größer"]
LABELS = ["cat", "dog", "hörse"]
TABLE = np.float32([[0, 0, 1], [1, 5, 0], [9, 0, 0], [0, 3, 3]])


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """`predict` classifies two words; `strict` knows no others; `walk` keeps state."""
    with gc.Graph(seed=0) as graph:
        ids = gc.placeholder(("batch", 2), "int32", name="words")
        scores = gc.reduce_sum(gc.take(gc.variable(TABLE, name="table"), ids, axis=0), axis=1)
        order = gc.argsort(-scores, axis=1)
        best = {"scores": gc.take_along_axis(scores, order, 1), "classes": order}
        word = gc.placeholder((1,), "int32", name="word")
        count = gc.variable(np.int32(0), name="count", trainable=False)
        step = count.assign_add(1)
        following = gc.remainder(word + step, 4)
    known, labels = gc.Vocabulary(WORDS, default=0), gc.Vocabulary(LABELS)
    strict = gc.Vocabulary(WORDS)
    signatures = {
        "predict": gc.Signature(
            {"words": ids}, best, vocabularies={"words": known, "classes": labels},
            examples=[{"words": [["good", "bad"]]}],
        ),
        "strict": gc.Signature(
            {"words": ids}, {"label": order[:, 0]},
            vocabularies={"words": strict, "label": gc.Vocabulary(LABELS[:2])},
        ),
        "walk": gc.Signature(
            {"word": word}, {"word": following}, updates=[step],
            vocabularies={"word": strict}, examples=[{"word": ["good"]}],
        ),
    }  # fmt: skip
    found = tmp_path_factory.mktemp("strings") / "m.gcx"
    gc.save(gc.Session(graph), found, signatures=signatures, platforms=["cpu"])
    return found


class Running:
    """A server, and a client of each protocol."""

    def __init__(self, server: Server) -> None:
        self.rest = f"http://127.0.0.1:{server.rest_port}"
        self.grpc = f"127.0.0.1:{server.port}"
        self.server = server

    def post(self, verb: str, body: Any) -> Any:
        """The response as JSON; the status and the message if it is an error."""
        url = f"{self.rest}/v1/models/m{verb}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(url, data, timeout=60) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["error"]


@pytest.fixture(scope="module", params=[None, BatchingConfig()], ids=["alone", "batches"])
def running(path: Path, request) -> Iterator[Running]:
    config = ServerConfig(
        (ModelConfig("m", str(path)),), port=0, rest_port=0, batching=request.param
    )
    with Server(config) as server:
        yield Running(server)


SENTENCES = [["good", "größer"], ["bad", "?"], ["", "größer"]]
CLASSES = [["dog", "hörse", "cat"], ["cat", "hörse", "dog"], ["hörse", "dog", "cat"]]
SCORES = [[8, 3, 1], [9, 1, 0], [4, 3, 0]]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    "given",
    [
        SENTENCES,
        np.array(SENTENCES, object),
        np.char.encode(SENTENCES, "utf-8"),
        np.array([[w.encode() for w in row] for row in SENTENCES], object),
    ],
    ids=["str", "objects", "S", "bytes"],
)
def test_the_client_of_python(running: Running, protocol: str, given: Any) -> None:
    address = running.rest if protocol == "http" else f"grpc://{running.grpc}"
    with Client(address) as client:
        found = client.predict("m", words=given)
    assert found["classes"].dtype == object
    assert found["classes"].tolist() == [[w.encode() for w in row] for row in CLASSES]
    assert found["scores"].tolist() == SCORES


def test_many_words(running: Running) -> None:
    """Large requests are converted in a thread, and cut to batches."""
    rows = [[word.replace("?", "?" * 99) for word in row] for row in SENTENCES * 1000]
    wanted = np.array([[word.encode() for word in row] for row in CLASSES * 1000], object)
    with Client(f"grpc://{running.grpc}") as client:
        assert (client.predict("m", words=rows)["classes"] == wanted).all()
        with pytest.raises(Failure, match="is not in the vocabulary of 4 words") as caught:
            client.predict("m", words=[["good", "x" * 100_000]], signature="strict")
    assert caught.value.code == "INVALID_ARGUMENT" and len(caught.value.message) < 300


def test_json(running: Running) -> None:
    coded = {"b64": base64.b64encode("größer".encode()).decode()}
    rows = [{"words": row} for row in [["good", coded], *SENTENCES[1:]]]
    wanted = [{"scores": s, "classes": c} for s, c in zip(SCORES, CLASSES, strict=True)]
    assert running.post(":predict", {"instances": rows}) == {"predictions": wanted}
    columns = {"inputs": SENTENCES, "signature_name": "predict"}
    assert running.post(":predict", columns) == {"outputs": {"scores": SCORES, "classes": CLASSES}}


def test_classify(running: Running) -> None:
    wanted = [
        [[label, score] for label, score in zip(labels, scores, strict=True)]
        for labels, scores in zip(CLASSES, SCORES, strict=True)
    ]
    body = {"examples": [{"words": row} for row in SENTENCES]}
    assert running.post(":classify", body) == {"result": wanted}
    request = messages().ClassificationRequest()
    request.model_spec.name = "m"
    for row in SENTENCES:
        words = [word.encode() for word in row]
        request.input.example_list.examples.append(example({"words": words}))
    with grpc.insecure_channel(running.grpc) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Classify")
        data = call(request.SerializeToString(), timeout=60)
    rows = parse("ClassificationResponse", data).result.classifications
    assert [[[c.label, c.score] for c in row.classes] for row in rows] == wanted


def test_metadata(running: Running) -> None:
    found = running.post("/metadata", None)["metadata"]["signature_def"]["signature_def"]
    assert found["predict"]["inputs"]["words"]["dtype"] == "DT_STRING"
    assert found["predict"]["outputs"]["classes"]["dtype"] == "DT_STRING"
    request = messages().GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "m"
    with grpc.insecure_channel(running.grpc) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/GetModelMetadata")
        data = call(request.SerializeToString(), timeout=60)
    packed = parse("GetModelMetadataResponse", data).metadata["signature_def"]
    signatures = parse("SignatureDefMap", packed.value).signature_def
    assert signatures["predict"].inputs["words"].dtype == 7
    assert [dim.size for dim in signatures["predict"].inputs["words"].tensor_shape.dim] == [-1, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"instances": [{"words": ["good", 3]}]},
            "instances[0].words[1]: expected a string, got 3",
        ),
        ({"instances": [{"words": ["good", {"b64": "?"}]}]}, "b64"),
        ({"inputs": [["good"]]}, "input 'words': shape [1, 1], expected string[batch, 2]"),
        (
            {"inputs": [["good", "wörd"]], "signature_name": "strict"},
            "the word 'wörd' is not in the vocabulary of 4 words",
        ),
    ],
)
def test_wrong_strings(running: Running, body: Any, message: str) -> None:
    status, text = running.post(":predict", body)
    assert status == 400 and message in text


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_wrong_types(running: Running, protocol: str) -> None:
    """Numbers are no words, in a binary body too."""
    address = running.rest if protocol == "http" else f"grpc://{running.grpc}"
    with Client(address) as client:
        with pytest.raises(Failure, match="dtype i32, expected string") as caught:
            client.predict("m", words=np.int32([[1, 2]]))
        assert caught.value.code == "INVALID_ARGUMENT"
        with pytest.raises(Failure, match="output 'label': the vocabulary has 2 words") as caught:
            client.predict("m", words=[["[UNK]", "[UNK]"]], signature="strict")
        assert caught.value.code == "INTERNAL"
        found = client.predict("m", words=[["good", "good"]], signature="strict")
        assert found["label"].tolist() == [b"dog"]  # the others of a batch are not affected


def test_numbers_without_a_word_are_one_line_of_the_log(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets the message, and the log has no traceback, in sessions too."""
    what = "'strict': output 'label': the vocabulary has 2 words, none with the number 2"
    given = {"words": [["[UNK]", "[UNK]"]]}
    with Client(f"grpc://{running.grpc}") as client, client.session("m") as session:
        with pytest.raises(Failure, match=what) as caught:
            client.predict("m", **given, signature="strict")
        with pytest.raises(Failure, match=what) as in_session:
            session.predict(**given, signature="strict")
    for failure in (caught.value, in_session.value):
        assert failure.code == "INTERNAL"
        assert failure.message == f"{what}\nhint: give the vocabulary a default"
    lines = [r for r in caplog.records if r.name == "graphc.serving"]
    wanted = f"m version 1, strict: {what}; hint: give the vocabulary a default"
    assert [(r.levelname, r.getMessage(), r.exc_info) for r in lines] == [
        ("ERROR", wanted, None)
    ] * 2


def test_sessions(running: Running) -> None:
    """Each step takes the word of the one before it."""
    with Client(f"grpc://{running.grpc}") as client, client.session("m") as session:
        found = [
            step["word"].item()
            for step in session.generate(
                word=["good"], steps=9, feedback={"word": "word"}, stop={"word": ["[UNK]"]}
            )
        ]
    assert found == [b"bad", b"[UNK]"]  # 1 + 1, 2 + 2 of 4


def test_requests_are_joined_by_the_numbers_of_words(path: Path) -> None:
    """Rows of several clients run together, padded, and each gets its words."""
    config = ServerConfig(
        (ModelConfig("m", str(path)),),
        port=0,
        rest_port=None,
        batching=BatchingConfig(max_batch_size=4, batch_timeout_micros=200_000),
    )
    asked = 0
    with Server(config) as server:

        def ask(i: int) -> Any:
            with Client(f"grpc://127.0.0.1:{server.port}") as client:
                return client.predict("m", words=[SENTENCES[i % 3]])["classes"].tolist()

        while asked == sum(row.batches for row in server.metrics.signatures().values()):
            assert asked < 1000  # none was joined
            asked += 12
            with ThreadPoolExecutor(12) as pool:
                found = list(pool.map(ask, range(12)))
            wanted = [[word.encode() for word in row] for row in CLASSES]
            assert found == [[wanted[i % 3]] for i in range(12)]
        with Client(f"grpc://127.0.0.1:{server.port}") as client:
            found = client.predict("m", words=SENTENCES * 3)["classes"].tolist()  # three batches
        assert found == wanted * 3


def test_damaged_words_are_found_before_requests(path: Path, tmp_path: Path) -> None:
    def change(manifest: Any) -> None:
        entry(manifest, "predict")["vocabularies"]["words"]["count"] = 3

    forge(path, tmp_path / "m.gcx", change)
    config = ServerConfig((ModelConfig("m", str(tmp_path / "m.gcx")),), port=None, rest_port=0)
    with Server(config) as server:
        status, text = Running(server).post(":predict", {"inputs": SENTENCES})
        assert status == 404 or "vocabulary" in text
        state = Running(server).post("", None)["model_version_status"][0]
    assert state["state"] == "END"
    assert "the vocabulary of 'words' must have" in state["status"]["error_message"]
