"""Whole models in TensorFlow's formats (`models.zip`, see `make_models.py`)."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import ModelFileError, ModelImportError, UnknownNameError
from graphc.train.tensorflow import sstable
from tests.near import assert_near

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    with zipfile.ZipFile(HERE / "models.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("name", ["transformer", "recurrent", "seq2seq", "images"])
def test_a_saved_model_of_keras_gives_its_outputs(models: Path, name: str) -> None:
    wanted = np.load(models / name / "results.npz")
    model = gc.from_saved_model(models / name)
    graph = model.to_graph()
    (x,), (y,) = graph.inputs.values(), graph.outputs.values()
    got = gc.Session(graph.graph).run(y, {x: wanted["x"]})
    assert_near(got, wanted["y"], rtol=1e-5, atol=1e-5 * np.abs(wanted["y"]).max())
    trained = {name for name, v in graph.variables.items() if v.trainable}
    assert trained == {name for name in graph.variables if "moving_" not in name}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "resnet"])
def test_ten_steps_of_training_equal_those_of_tensorflow(models: Path, name: str) -> None:
    wanted = np.load(models / name / "results.npz")
    model = gc.from_meta_graph(models / name / "model.ckpt.meta", outputs=["loss", "logits"])
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", *wanted["x"].shape[2:]), "float64")
        y = gc.placeholder(("batch",), "int32")
        loss = model(x=x, y=y)["loss"]
        train = gc.minimize(loss, optax.sgd(0.125, momentum=0.75))
        step = [loss, train, *graph.collection("updates")]
        session = gc.Session(graph)
    pairs = zip(wanted["x"], wanted["y"], strict=True)
    losses = [session.run(step, {x: a, y: b})[0] for a, b in pairs]
    assert_near(losses, wanted["losses"], rtol=1e-9)
    for variable in model.variables:
        after = wanted[f"after_{variable.name.replace('/', '__')}"]
        assert_near(session.get(variable), after, rtol=1e-9, atol=1e-10)


def test_a_predicate_with_a_default_is_an_input_on_request(models: Path) -> None:
    path = models / "resnet" / "model.ckpt.meta"
    model = gc.from_meta_graph(path, outputs="logits", inputs=["x", "training"])
    with gc.Graph() as graph:
        x = gc.placeholder((4, 6, 6, 2), "float64")
        both = [model(x, gc.constant(value)) for value in (True, False)]
        wanted = np.load(models / "resnet" / "results.npz")
        trained, inferred = gc.Session(graph).run(both, {x: wanted["x"][0]})
    assert_near(trained, wanted["first"], rtol=1e-9)
    assert np.abs(trained - inferred).max() > 1e-3


def test_variables_have_tensorflows_names(models: Path) -> None:
    model = gc.from_meta_graph(models / "lstm" / "model.ckpt.meta", outputs="logits")
    assert sorted(model.weights) == ["out/bias", "out/kernel", "rnn/bias", "rnn/kernel"]
    assert gc.from_saved_model(models / "recurrent").weights.keys() >= {
        "bidirectional/forward_lstm/lstm_cell/kernel"
    }


def test_a_checkpoint_is_read_without_its_graph(models: Path) -> None:
    arrays = gc.train.read_tf_checkpoint(models / "lstm" / "model.ckpt")
    assert {k: v.shape for k, v in arrays.items()}["rnn/kernel"] == (9, 24)
    by_key = gc.train.read_tf_checkpoint(
        models / "recurrent" / "variables" / "variables", keys=True
    )
    by_name = gc.train.read_tf_checkpoint(models / "recurrent" / "variables" / "variables")
    assert all("/.ATTRIBUTES/" in key for key in by_key if key != "_CHECKPOINTABLE_OBJECT_GRAPH")
    assert "bidirectional/forward_lstm/lstm_cell/kernel" in by_name


def test_partitioned_variables_strings_and_narrow_floats_of_a_checkpoint(models: Path) -> None:
    arrays = gc.train.read_tf_checkpoint(models / "partitioned")  # uses the file "checkpoint"
    np.testing.assert_array_equal(arrays["table"], np.arange(70.0).reshape(7, 10))
    assert arrays["words"].tolist() == [b"a", b"long " * 50, b""]
    assert arrays["half"].dtype.name == "bfloat16" and arrays["half"].tolist() == [1.5, -2.0]
    assert (arrays["step"], arrays["step"].dtype) == (7, np.int64)


def test_a_checkpoint_of_version_1(models: Path) -> None:
    arrays = gc.train.read_tf_checkpoint(models / "partitioned" / "single")
    assert sorted(arrays) == ["step", "table", "words"]
    np.testing.assert_array_equal(arrays["table"], np.arange(70, dtype=np.float32).reshape(7, 10))
    assert arrays["words"].tolist() == [b"a", b"long " * 50, b""]
    assert (arrays["step"], arrays["step"].dtype) == (7, np.int64)
    assert gc.train.read_tf_checkpoint(models / "partitioned" / "single", keys=True).keys() == (
        arrays.keys()
    )


def test_blocks_of_a_checkpoint_may_be_compressed() -> None:
    # The three kinds of Snappy: a literal, a copy of 4 bytes 4 back, a copy of 8 bytes 2 back.
    data = bytes([17, 4 << 2, *b"hello", 0b00001, 4, 7 << 2 | 2, 2, 0])
    assert sstable.decompressed(data) == b"helloello" + b"lo" * 4
    for broken in (data[:-1], bytes([3, 0, 65, 0b00001, 9]), b"\xff" * 6):
        with pytest.raises(ModelFileError):
            sstable.decompressed(broken)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrent", "transformer", "images"])
def test_a_saved_model_trains_on(models: Path, name: str) -> None:
    wanted = np.load(models / name / "results.npz")
    model = gc.from_saved_model(models / name)
    with gc.Graph() as graph:
        y = model(gc.constant(wanted["x"]))
        loss = gc.mean(gc.square(y - wanted["y"][::-1]))
        train = gc.minimize(loss, optax.adam(1e-3))
    session = gc.Session(graph)
    losses = [session.run([loss, train])[0] for _ in range(20)]
    assert losses[-1] < 0.97 * losses[0]


def test_a_graph_without_its_checkpoint_names_all_variables(models: Path, tmp_path: Path) -> None:
    path = shutil.copy(models / "lstm" / "model.ckpt.meta", tmp_path)
    with pytest.raises(ModelImportError, match="4 variables have no value") as error:
        gc.from_meta_graph(path, outputs="logits")
    assert "rnn/kernel  (VariableV2)" in str(error.value)


def test_trainable_patterns(models: Path) -> None:
    path = models / "lstm" / "model.ckpt.meta"
    model = gc.from_meta_graph(path, outputs="logits", trainable="out/*")
    graph = model.to_graph()
    assert {n for n, v in graph.variables.items() if v.trainable} == {"out/bias", "out/kernel"}


def test_unknown_names_are_explained(models: Path) -> None:
    with pytest.raises(UnknownNameError, match="no signature 'serving_defaults'") as error:
        gc.from_saved_model(models / "images", "serving_defaults")
    assert "serving_default" in str(error.value)
    with pytest.raises(UnknownNameError, match="tags"):
        gc.from_saved_model(models / "images", tags=["train"])
    with pytest.raises(UnknownNameError, match="did you mean 'logits'"):
        gc.from_meta_graph(models / "lstm" / "model.ckpt.meta", outputs="logit")


def test_an_imported_model_is_saved_and_served_as_an_artifact(models: Path, tmp_path: Path) -> None:
    wanted = np.load(models / "seq2seq" / "results.npz")
    graph = gc.from_saved_model(models / "seq2seq").to_graph()
    session = gc.Session(graph.graph)
    gc.save(session, tmp_path / "a", signatures={"predict": graph.signature()}, platforms=("cpu",))
    loaded = gc.load(tmp_path / "a")
    (got,) = loaded.signatures["predict"](**{next(iter(graph.inputs)): wanted["x"]}).values()
    assert_near(got, wanted["y"], rtol=1e-5, atol=1e-6)
