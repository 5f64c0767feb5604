"""Whole models: names, sizes, training, files, and what is refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.cli import main
from graphc.errors import AttributeValueError, ModelFileError, ModelImportError, UnknownNameError
from graphc.importers.artifacts import cached_artifact
from tests.importers.tflite.cases import read, steps
from tests.importers.tflite.forged import named, with_operator

WRITE = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> WRITE:
    return lambda name: read()[name].write(tmp_path)


def test_one_import_runs_with_two_batches(write: WRITE) -> None:
    case = read()["net float"]
    model = gc.import_model(write("net float"))
    assert str(model.inputs["image"].shape[0]) == "batch"
    made = model.to_graph()
    session = gc.Session(made.graph)
    sizes = []
    for inputs, wanted in case.runs:
        (got,) = session.run(list(made.outputs.values()), {made.inputs["image"]: inputs[0]})
        assert steps(np.asarray(got), wanted[0]) < 1e-5
        sizes.append(len(inputs[0]))
    assert sizes == [1, 3]


def test_the_batch_may_be_given(write: WRITE) -> None:
    assert gc.from_tflite(write("net float"), sizes={"batch": 7}).inputs["image"].shape[0] == 7
    with pytest.raises(UnknownNameError, match="there is no size 'rows'"):
        gc.from_tflite(write("net float"), sizes={"rows": 7})


def test_open_sizes_have_the_name_of_their_input(write: WRITE) -> None:
    case = read()["open sizes"]
    model = gc.from_tflite(write("open sizes"))
    assert [str(size) for size in model.inputs["in-put"].shape] == ["batch", "in_put_1", "3"]
    assert gc.from_tflite(write("open sizes"), sizes={"in_put_1": 7}).inputs["in-put"].shape[1] == 7
    made = model.to_graph()
    for inputs, wanted in case.runs:
        (got,) = gc.Session(made.graph).run(
            list(made.outputs.values()), {made.inputs["in-put"]: inputs[0]}
        )
        assert steps(np.asarray(got), wanted[0]) < 1e-5


def test_a_file_without_suffix_is_found_by_its_identifier(write: WRITE, tmp_path: Path) -> None:
    path = write("TANH").rename(tmp_path / "model")
    assert gc.import_model(path).outputs == ("y0",)
    with pytest.raises(AttributeValueError, match="from_tflite has no option 'outputs'"):
        gc.import_model(path, outputs=["y0"])


@pytest.mark.parametrize("name", ["net float", "net float16", "net dynamic"])
def test_a_step_of_training_lowers_the_loss(write: WRITE, name: str) -> None:
    model = gc.from_tflite(write(name), trainable=True)
    (inputs, _), *_ = read()[name].runs
    labels = np.arange(len(inputs[0])) % 5
    with gc.Graph() as graph:
        probs = model(gc.constant(inputs[0]))
        loss = gc.reduce_mean(-gc.log(gc.take_along_axis(probs, labels[:, None], 1)))
        train = gc.minimize(loss, optax.sgd(0.05))
    assert all(v.dtype == np.float32 and v.trainable for v in model.variables)
    session = gc.Session(graph)
    first = float(session.run(loss))
    session.run(train)
    assert float(session.run(loss)) < first


def test_trainable_weights_are_chosen_by_the_names_of_tensors(write: WRITE) -> None:
    def trained(**options: str) -> list[str]:
        variables = gc.from_tflite(write("transformer"), **options).to_graph().variables
        return [name for name, variable in variables.items() if variable.trainable]

    chosen = trained(trainable="*dense*MatMul*")
    assert len(chosen) >= 2
    assert all("dense" in name for name in chosen)
    assert trained() == []
    with pytest.raises(UnknownNameError, match="no floating weight matches"):
        gc.from_tflite(write("transformer"), trainable="nothing*")


def test_signatures(write: WRITE) -> None:
    model = gc.from_tflite(write("two inputs"))
    assert set(model.inputs) == {"x", "y"}
    assert set(model.outputs) == {"sum", "product"}
    x, y = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([1, 0, 2])
    with gc.Graph() as graph:
        found = model(x=x, y=y)
    got = gc.Session(graph).run([found["sum"], found["product"]])
    assert np.array_equal(got[0], x + y)
    assert np.array_equal(got[1], [7, 16])
    both = write("two signatures")
    assert set(gc.from_tflite(both, "loop").inputs) == {"x", "n"}
    with pytest.raises(UnknownNameError, match="no signature 'lop'") as caught:
        gc.from_tflite(both, "lop")
    assert "loop" in str(caught.value)


def test_variables_keep_what_a_run_assigns(write: WRITE) -> None:
    made = gc.from_tflite(write("variables")).to_graph()
    assert made.updates
    session = gc.Session(made.graph)
    x = {made.inputs["x"]: np.float32([1, 10])}
    outputs = [made.outputs["before"], made.outputs["after"]]
    assert np.array_equal(session.run(outputs, x), [[1, 2], [2, 12]])
    assert np.array_equal(session.run(outputs, x), [[2, 12], [3, 22]])


def test_an_artifact_for_the_server(write: WRITE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(write("net int8 of uint8").parent))
    case = read()["net int8 of uint8"]
    ((inputs, wanted),) = case.runs
    served = gc.load(cached_artifact(write(case.name))).signatures["predict"]
    (got,) = served(image=inputs[0]).values()
    assert steps(np.asarray(got), wanted[0]) <= 1


def test_the_command(write: WRITE, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("two inputs")
    output = str(path.with_suffix(".gcx"))
    has_runtime = importlib.util.find_spec("ai_edge_litert") or importlib.util.find_spec(
        "tensorflow"
    )
    extra = ["--validate"] if has_runtime else []
    assert main(["import", str(path), "-o", output, *extra]) == 0
    assert "TensorFlow Lite" in capsys.readouterr().out
    assert set(gc.load(output).signatures["predict"].outputs) == {"sum", "product"}


def test_all_unsupported_operators_are_listed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(with_operator(read()["net float"].model, {"CONV_2D": 27, "SOFTMAX": 136}))
    with pytest.raises(ModelImportError, match="2 operators") as caught:
        gc.from_tflite(path)
    assert "SVDF is not imported" in str(caught.value)
    assert "HASHTABLE is not imported" in str(caught.value)


def test_a_custom_operator_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(named("TFLite_Detection_PostProcess"))
    with pytest.raises(ModelImportError, match="CUSTOM TFLite_Detection_PostProcess is not"):
        gc.from_tflite(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    good = read()["net float"].model
    path = tmp_path / "model.tflite"
    with pytest.raises(ModelFileError, match="cannot be read"):
        gc.from_tflite(path)
    for data, text in (
        (b"", "no identifier"),
        (b"no model of anything", "no identifier"),
        (good[:4] + b"TFL2" + good[8:], "no identifier TFL3"),
        (good[: len(good) // 2], "an offset leads to|has .* bytes"),
        (good[:8], "an offset leads to"),
    ):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match=text) as error:
            gc.from_tflite(path)
        assert error.value.details[-1] == f"in {path}"
