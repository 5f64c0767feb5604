"""Vocabularies: strings of a signature, which are converted on the host."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.artifacts import container
from graphc.errors import (
    ArtifactCorruptError,
    AttributeValueError,
    ExecutionError,
    FeedError,
    UnknownNameError,
)
from tests.artifacts.forge import entry, forge, member

WORDS = ["[UNK]", "good", "bad", "größer"]
LABELS = [b"cat", b"dog\x00", "größer", "cat"]  # a label may occur twice
TABLE = np.arange(16, dtype=np.float32).reshape(4, 4) % 7


def saved(
    folder: Path, words: Any = None, labels: Any = None, dtype: str = "int32", **more
) -> Path:
    """`label` is the largest column of the sum of the words' rows."""
    with gc.Graph(seed=0) as graph:
        ids = gc.placeholder(("batch", 2), dtype, name="ids")
        scores = gc.reduce_sum(gc.take(gc.variable(TABLE, name="table"), ids, axis=0), axis=1)
        outputs = {"scores": scores, "label": gc.argmax(scores, axis=1), "same": ids}
    vocabularies = {
        "words": gc.Vocabulary(WORDS, default=0) if words is None else words,
        "label": gc.Vocabulary(LABELS) if labels is None else labels,
    }
    path = folder / "model.gcx"
    signature = gc.Signature({"words": ids}, outputs, vocabularies=vocabularies, **more)
    gc.save(gc.Session(graph), path, signatures={"predict": signature}, platforms=["cpu"])
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("whole"), examples=[{"words": [["good", "?"]]}])


SENTENCES = [["good", "bad"], ["größer", "größer"], ["unknown", ""]]
IDS = np.int32([[1, 2], [3, 3], [0, 0]])


@pytest.mark.parametrize(
    "given",
    [
        SENTENCES,
        [[word.encode() for word in row] for row in SENTENCES],
        np.array(SENTENCES),
        np.array(SENTENCES, object),
        np.char.encode(SENTENCES, "utf-8"),
        IDS,
    ],
    ids=["str", "bytes", "U", "objects", "S", "numbers"],
)
def test_strings_in_and_out(whole: Path, given: Any) -> None:
    point = gc.load(whole).signatures["predict"]
    found = point(words=given)
    np.testing.assert_array_equal(found["same"], IDS)
    scores = TABLE[IDS].sum(axis=1)
    np.testing.assert_array_equal(found["scores"], scores)
    names = [b"cat", b"dog\x00", "größer".encode(), b"cat"]
    assert found["label"].dtype == object
    assert found["label"].tolist() == [names[i] for i in scores.argmax(axis=1)]


def test_types_and_examples(whole: Path) -> None:
    point = gc.load(whole).signatures["predict"]
    types = "(words: string[batch, 2]) -> scores: f32[batch, 4], label: string[batch], "
    assert repr(point) == f"<EntryPoint predict{types}same: i32[batch, 2]>"
    assert str(point.program_inputs["words"]) == "i32[batch, 2]"
    (example,) = point.examples
    assert example["words"].tolist() == [[1, 0]]
    assert point.strings.vocabularies() == {
        "words": gc.Vocabulary(WORDS, default="[UNK]"),
        "label": gc.Vocabulary(LABELS),
    }


def test_words_that_are_not_known(tmp_path: Path) -> None:
    point = gc.load(saved(tmp_path, words=gc.Vocabulary(WORDS))).signatures["predict"]
    with pytest.raises(FeedError, match="input 'words': the word 'wörd' is not in the vocab"):
        point(words=[["good", "wörd"]])
    with pytest.raises(FeedError, match="input 'words': takes strings, got 3"):
        point(words=[["good", 3]])
    with pytest.raises(FeedError, match="input 'words' is missing"):
        point()
    with pytest.raises(FeedError, match=r"'words' must be i32\[batch, 2\]"):
        point(words=["good", "bad"])


def test_numbers_without_a_word(tmp_path: Path) -> None:
    point = gc.load(saved(tmp_path, labels=gc.Vocabulary(["a"]))).signatures["predict"]
    with pytest.raises(ExecutionError, match=r"output 'label': .* 1 words, none with the number 3"):
        point(words=SENTENCES[2:])
    path = saved(tmp_path, labels=gc.Vocabulary(["a", "other"], default="other"))
    found = gc.load(path).signatures["predict"](words=IDS)["label"]
    assert set(found.tolist()) <= {b"a", b"other"}
    assert gc.Vocabulary(["a", "b"], default=1).strings([[-1, 0], [5, 1]]).tolist() == [
        [b"b", b"a"],
        [b"b", b"b"],
    ]


def test_strings_with_a_state(tmp_path: Path) -> None:
    """An output that is fed back is a string, too."""
    with gc.Graph(seed=0) as graph:
        word = gc.placeholder((), "int64", name="word")
        count = gc.variable(np.int64(0), name="count", trainable=False)
        step = count.assign_add(1)
        outputs = {"word": gc.remainder(word + step, 3)}
    vocabulary = gc.Vocabulary(["a", "b", "c"])
    signature = gc.Signature(
        {"word": word}, outputs, updates=[step], vocabularies={"word": vocabulary}
    )
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures={"s": signature}, platforms=["cpu"])
    model = gc.load(tmp_path / "m.gcx")
    state, found, said = model.state(), {"word": "a"}, []
    for _ in range(3):
        found, state = model.signatures["s"](state, **found)
        said.append(found["word"].item())
    assert said == [b"b", b"a", b"a"]  # 0 + 1, 1 + 2, 0 + 3


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ({"words": gc.Vocabulary(LABELS)}, AttributeValueError, "'cat' more than once"),
        ({"words": gc.Vocabulary(["a"], default=300), "dtype": "uint8"}, AttributeValueError,
         "the vocabulary of 'words': its numbers do not fit into u8[batch, 2]"),
        ({"words": gc.Vocabulary(["a"], default=-1), "dtype": "uint8"}, AttributeValueError,
         "its numbers do not fit"),
        ({"labels": gc.Vocabulary(["a"], default=-1)}, AttributeValueError,
         "the default of an output is the number of a word, below 1, not -1"),
        ({"examples": [{"words": [["good", 3]]}]}, FeedError, "takes strings, got 3"),
    ],
)  # fmt: skip
def test_vocabularies_that_do_not_fit(tmp_path: Path, more, error, text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        saved(tmp_path, **more)
    assert not list(tmp_path.iterdir())


def test_vocabularies_of_nothing(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("n",), name="x")
        y = gc.identity(x)
    session, path = gc.Session(graph), tmp_path / "m.gcx"
    for name, error, text in (
        ("z", UnknownNameError, "a vocabulary for 'z', which is no input or output"),
        ("x", AttributeValueError, "its numbers are of an integer dtype, not f32[n]"),
    ):
        signature = gc.Signature({"x": x}, {"y": y}, vocabularies={name: gc.Vocabulary(["a"])})
        with pytest.raises(error, match=re.escape(text)):
            gc.save(session, path, signatures={"p": signature}, platforms=["cpu"])
    with pytest.raises(AttributeValueError, match=r"vocabularies must map names to gc\.Vocabulary"):
        gc.Signature({"x": x}, {"y": y}, vocabularies={"x": ["a"]})


@pytest.mark.parametrize(
    ("words", "default", "text"),
    [
        ([], None, "words must be a list of strings, got []"),
        ("abc", None, "words must be a list of strings, got 'abc'"),
        (None, None, "words must be a list of strings, got None"),
        ({"a"}, None, "words must be a list of strings, got {'a'}"),
        (["a"], 1 << 63, "default must be a number of 64 bits or a word"),
        (["a", 1], None, "words[1] must be a string, got 1"),
        (["a"], "b", "default must be one of the words, got 'b'"),
        (["a"], 1.5, "default must be a number or a word, got 1.5"),
        (["a"], True, "default must be a number or a word, got True"),
    ],
)
def test_vocabularies_that_are_none(words, default, text: str) -> None:
    with pytest.raises(AttributeValueError, match=re.escape(text)):
        gc.Vocabulary(words, default)


def vocabulary(manifest: Any, name: str = "words") -> Any:
    return entry(manifest, "predict")["vocabularies"][name]


LIES = {
    "no member": (lambda m: vocabulary(m).update(member="x"), "be members"),
    "more words": (lambda m: vocabulary(m).update(count=5), "have"),
    "fewer words": (lambda m: vocabulary(m).update(count=3), "have"),
    "very many words": (lambda m: vocabulary(m).update(count=10**9), "have 1000000000 words"),
    "no words": (lambda m: vocabulary(m).update(count=0), "be a number of words"),
    "no number": (lambda m: vocabulary(m).update(count="4"), "be of type int"),
    "a bool": (lambda m: vocabulary(m).update(default=True), "be of type int"),
    "too large a default": (lambda m: vocabulary(m).update(default=2**31), "do not fit"),
    "no word of an output": (lambda m: vocabulary(m, "label").update(default=4), "below 4"),
    "another name": (
        lambda m: entry(m, "predict")["vocabularies"].update(z=vocabulary(m)),
        "name inputs or outputs, got 'z'",
    ),
    "of floats": (
        lambda m: entry(m, "predict")["vocabularies"].update(scores=vocabulary(m)),
        "of an integer dtype, not f32",
    ),
    "a word twice": (
        lambda m: vocabulary(m).update(vocabulary(m, "label"), default=0),
        "have each word once",
    ),
    "a list": (lambda m: entry(m, "predict").update(vocabularies=[]), "be of type dict"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies(whole: Path, tmp_path: Path, lie: str) -> None:
    change, text = LIES[lie]
    forge(whole, tmp_path / "lie.gcx", change)
    with pytest.raises(ArtifactCorruptError, match=text):
        gc.load(tmp_path / "lie.gcx").signatures["predict"](words=SENTENCES)


def test_altered_words(whole: Path, tmp_path: Path) -> None:
    name = next(name for name in container.read(whole)[1] if name.startswith("vocabularies/"))
    data, content = member(whole, name), whole.read_bytes()
    assert content.count(data) == 1
    path = tmp_path / "altered.gcx"
    path.write_bytes(content.replace(data, data[:-1] + b"!"))
    with pytest.raises(ArtifactCorruptError, match="altered"):
        gc.load(path).signatures["predict"].strings.vocabularies()


def test_a_file_that_is_older(whole: Path, tmp_path: Path) -> None:
    forge(whole, tmp_path / "old.gcx", lambda m: entry(m, "predict").pop("vocabularies"))
    point = gc.load(tmp_path / "old.gcx").signatures["predict"]
    assert str(point.inputs["words"]) == "i32[batch, 2]" and not point.strings


def test_numbers_are_integers() -> None:
    vocabulary = gc.Vocabulary(["a", "b"], default=np.int64(1))
    assert vocabulary.default == 1 and vocabulary.strings(np.int8(7)).tolist() == b"b"
    for wrong in ([1.7], ["x"]):
        with pytest.raises(gc.errors.FeedError, match="numbers of words must be integers"):
            vocabulary.strings(wrong)
