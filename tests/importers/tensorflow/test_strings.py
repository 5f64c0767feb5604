"""Strings that are known only in a run: looked up in tables, compared with constants, and moved.

`words` and `string_lookup` are models as TensorFlow wrote them, with its results (`models.zip`).
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ModelFileError, ModelImportError
from graphc.importers.artifacts import save_model
from graphc.serving.batching.paddable import paddable
from tests.near import assert_near

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    with zipfile.ZipFile(HERE / "models.zip") as archive:
        archive.extractall(folder)
    return folder


def results(folder: Path) -> dict[str, Any]:
    with np.load(folder / "results.npz") as found:
        return dict(found)


def artifact(model: Any, folder: Path) -> Any:
    save_model(model, folder / "model.gcx", ["cpu"], frozen=True)
    return gc.load(folder / "model.gcx").signatures["predict"]


def test_a_classifier_of_words(models: Path, tmp_path: Path) -> None:
    """Two tables and a comparison share the numbers of the words."""
    wanted = results(models / "words")
    model = gc.from_saved_model(models / "words")
    assert model.inputs["words"].dtype == np.int32
    words = model.input_vocabularies["words"]
    assert {*words.words} == {b"the", b"cat", b"sat", b"mat", "é".encode(), b"zoo", b""}
    assert words.default == -1
    assert model.output_vocabularies["label"].words == (b"good", b"bad", b"ugly", b"none")
    point = artifact(model, tmp_path)
    assert str(point.inputs["words"]) == "string[batch, 3]"
    assert str(point.outputs["classes"]) == "string[batch, 3]"
    assert paddable(point).batch is not None  # requests are joined by the numbers of their words
    found = point(words=wanted["x"])
    assert_near(found["scores"], wanted["scores"], rtol=1e-5)
    for name in ("label", "third", "classes"):
        np.testing.assert_array_equal(found[name], wanted[name].astype(object))
    assert {*found["third"].tolist()} & {b"none"}


def test_string_lookup_of_keras(models: Path, tmp_path: Path) -> None:
    wanted = results(models / "string_lookup")
    point = artifact(gc.from_saved_model(models / "string_lookup"), tmp_path)
    (found,) = point(words=wanted["x"]).values()
    assert_near(found, wanted["y"], rtol=1e-5)


def test_a_layer_takes_the_numbers_of_words(models: Path) -> None:
    wanted = results(models / "words")
    model = gc.from_saved_model(models / "words")
    ids = model.input_vocabularies["words"].ids(wanted["x"])
    with gc.Graph() as graph:
        found = model(gc.constant(ids, "int32"))
    scores, label = gc.Session(graph).run([found["scores"], found["label"]])
    assert_near(scores, wanted["scores"], rtol=1e-5)
    labels = model.output_vocabularies["label"].strings(label)
    np.testing.assert_array_equal(labels, wanted["label"].astype(object))


@pytest.mark.parametrize("fault", ["missing", "outside"])
def test_files_of_words(models: Path, tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "words"
    shutil.copytree(models / "words", folder)
    if fault == "missing":
        (folder / "assets" / "words.txt").unlink()
        text = "the asset 'words.txt' cannot be read"
    else:
        file = folder / "saved_model.pb"
        data = file.read_bytes()
        assert data.count(b"\x12\x09words.txt") == 1
        file.write_bytes(data.replace(b"\x12\x09words.txt", b"\x12\x09../../b.t"))
        text = "'../../b.t' is outside the folder"
    with pytest.raises(ModelFileError, match=text):
        gc.from_saved_model(folder)


# -- graphs in text form ------------------------------------------------------------------------

TEXTS = """
node { name: "%s" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } }
       attr { key: "shape" value { shape { dim { size: -1 } } } } }
"""
CONST = """
node { name: "%s" op: "Const" attr { key: "dtype" value { type: %s } }
       attr { key: "value" value { tensor { dtype: %s %s tensor_shape { %s } } } } }
"""


def constant(name: str, *values: Any) -> str:
    text = isinstance(values[0], str)
    kind, field = ("DT_STRING", "string_val") if text else ("DT_INT64", "int64_val")
    listed = " ".join(f'{field}: "{v}"' if text else f"{field}: {v}" for v in values)
    shape = "" if len(values) == 1 else f"dim {{ size: {len(values)} }}"
    return CONST % (name, kind, kind, listed, shape)


def node(name: str, op: str, *inputs: str, **types: str) -> str:
    given = " ".join(f'input: "{i}"' for i in inputs)
    attrs = " ".join(f'attr {{ key: "{k}" value {{ {v} }} }}' for k, v in types.items())
    return f'node {{ name: "{name}" op: "{op}" {given} {attrs} }}\n'


def table(name: str, key: str, value: str, keys: tuple[Any, ...], values: tuple[Any, ...]) -> str:
    types = {"key_dtype": f"type: {key}", "value_dtype": f"type: {value}"}
    filled = (name, f"{name}/keys", f"{name}/values")
    return (
        node(name, "HashTableV2", **types)
        + constant(f"{name}/keys", *keys)
        + constant(f"{name}/values", *values)
        + node(f"{name}/init", "InitializeTableV2", *filled)
    )


STRING = "type: DT_STRING"
A = TEXTS % "a"
AB = A + TEXTS % "b"
IDS = table("ids", "DT_STRING", "DT_INT64", ("x", "y", "z"), (5, 3, 9)) + constant("other", 7)


def outputs(text: str, names: str | list[str], **feeds: Any) -> list[Any]:
    model = gc.from_graphdef(text.encode(), outputs=names)
    graph = model.to_graph()
    given = {graph.inputs[n]: graph.input_vocabularies[n].ids(v) for n, v in feeds.items()}
    values = gc.Session(graph.graph).run(list(graph.outputs.values()), given)
    words = graph.output_vocabularies
    return [
        words[name].strings(value) if name in words else value
        for name, value in zip(graph.outputs, values, strict=True)
    ]


def test_words_to_words() -> None:
    """A table of strings by strings; its results are looked up and joined with constants."""
    text = A + table("plural", "DT_STRING", "DT_STRING", ("x", "y"), ("z", "y")) + IDS
    text += constant("none", "none") + constant("axis", 0) + constant("more", "u", "x")
    text += node("p", "LookupTableFindV2", "plural", "a", "none")
    text += node("i", "LookupTableFindV2", "ids", "p", "other")
    text += node("all", "ConcatV2", "p", "more", "axis", T=STRING, N="i: 2")
    text += node("j", "LookupTableFindV2", "ids", "all", "other")
    p, i, all_of_it, j = outputs(text, ["p", "i", "all", "j"], a=["x", "y", "?"])
    assert p.tolist() == [b"z", b"y", b"none"]
    assert np.asarray(i).tolist() == [9, 3, 7]
    assert all_of_it.tolist() == [b"z", b"y", b"none", b"u", b"x"]
    assert np.asarray(j).tolist() == [9, 3, 7, 7, 5]


def test_tables_that_are_found_later_have_words_of_their_own() -> None:
    """A word of the second table is unknown to the first one, and the other way round."""
    text = A + table("first", "DT_STRING", "DT_INT64", ("x", "y"), (0, 1)) + IDS
    text += constant("minus", -4) + constant("z", "z")
    text += node("i", "LookupTableFindV2", "first", "a", "minus")
    text += node("j", "LookupTableFindV2", "ids", "a", "other")
    text += node("same", "NotEqual", "z", "a", T=STRING)
    i, j, same = outputs(text, ["i", "j", "same"], a=["z", "y", "x", "?"])
    assert np.asarray(i).tolist() == [-4, 1, 0, -4]
    assert np.asarray(j).tolist() == [9, 3, 5, 7]
    assert np.asarray(same).tolist() == [False, True, True, True]


def test_strings_that_are_constants() -> None:
    text = constant("c", "x", "y") + A + node("n", "Shape", "a", T=STRING)
    assert outputs(text, ["c", "n"], a=["?"])[0].tolist() == [b"x", b"y"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (A + node("y", "StringLower", "a"), "StringLower is not imported"),
        (A + node("y", "AsString", "a", T=STRING), "strings that are known only in a run"),
        (A + node("y", "Identity", "a", T=STRING), "takes a tensor, got strings that are known"),
        (AB + node("y", "Equal", "a", "b", T=STRING), "joins strings of several inputs"),
        (A + node("y", "Equal", "a", "a", T=STRING), "compares two strings that are known only"),
        (
            A + node("y", "StringToHashBucketFast", "a", num_buckets="i: 9"),
            "hashes strings into several buckets",
        ),
        (A + node("y", "Add", "a", "a", T=STRING), "takes strings that are known only in a run"),
    ],
    ids=["lower", "as string", "returned", "two inputs", "itself", "hashed", "added"],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(ModelImportError, match=why):
        gc.from_graphdef(text.encode(), outputs="y")


def test_names_of_inputs_and_outputs(tmp_path: Path) -> None:
    """An output of the name of an input has a vocabulary of its own."""
    text = A + table("plural", "DT_STRING", "DT_STRING", ("x", "y"), ("z", "y"))
    text += constant("none", "none") + node("p", "LookupTableFindV2", "plural", "a", "none")
    model = gc.from_graphdef(text.encode(), outputs={"a": "p"})
    point = artifact(model, tmp_path)
    (name,) = point.outputs
    assert point(a=["x", "?"])[name].tolist() == [b"z", b"none"]
