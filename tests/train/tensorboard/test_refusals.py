"""Values that the writer refuses, and the error messages."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.errors import (
    AttributeValueError,
    DTypeError,
    GraphError,
    MissingExtraError,
    ShapeError,
    UnknownNameError,
)
from tests.train.tensorboard.events import scalars, values

Writer = gc.train.SummaryWriter


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    with Writer(tmp_path) as made:
        yield made


@pytest.mark.parametrize("tag", ["", None, 3, b"x", "\ud800"], ids=repr)
def test_tags(writer: Any, tag: Any) -> None:
    with pytest.raises(AttributeValueError, match="the tag must be a text"):
        writer.scalar(tag, 1.0, 0)


@pytest.mark.parametrize(
    "step",
    [-1, 1.0, "1", None, True, 2**63, np.float32(1), np.array([1]), jnp.float32(1)],
    ids=lambda step: f"{type(step).__name__}-{step}",
)
def test_steps(writer: Any, step: Any) -> None:
    with pytest.raises(AttributeValueError, match="step must be an int of at least 0"):
        writer.scalar("x", 1.0, step)


@pytest.mark.parametrize("step", [2**63 - 1, np.int32(3), np.array(3), jnp.int32(3)], ids=repr)
def test_steps_of_other_types(tmp_path: Path, step: Any) -> None:
    with Writer(tmp_path) as writer:
        writer.scalar("x", 1.0, step)
    assert scalars(tmp_path, "x") == [(int(step), 1.0)]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([1.0], ShapeError),
        (np.zeros((0,)), ShapeError),
        ([[1.0], [1.0, 2.0]], DTypeError),
        (1j, DTypeError),
        ("1", DTypeError),
        (None, DTypeError),
        (np.datetime64("2020-01-01"), DTypeError),
    ],
    ids=str,
)
def test_scalars(writer: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"SummaryWriter\.scalar"):
        writer.scalar("x", value, 0)


def test_tensors_have_no_value(writer: Any) -> None:
    with gc.Graph():
        w = gc.variable(1.0, name="w")
        for value in (w, w + 1.0):
            with pytest.raises(GraphError, match="has no value outside a run"):
                writer.scalar("x", value, 0)


def test_random_keys_are_histograms_of_their_words(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.histogram("key", jax.random.key(7), 0)
    assert values(tmp_path)[0][2][:, 2].sum() == 2


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (np.zeros(3), ShapeError),
        (np.zeros((2, 3, 4, 1, 1)), ShapeError),
        (np.zeros((4, 4, 5)), ShapeError),
        (np.zeros((0, 4)), ShapeError),
        (np.zeros((0, 4, 4, 3)), ShapeError),
        (np.zeros((4, 4), int), DTypeError),
        (np.zeros((4, 4), ml_dtypes.int4), DTypeError),
        (np.zeros((4, 4), complex), DTypeError),
    ],
    ids=lambda value: f"{getattr(value, 'shape', '')}{getattr(value, 'dtype', '')}",
)
def test_images(writer: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"SummaryWriter\.image"):
        writer.image("x", value, 0)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (np.float32(0), ShapeError),
        (np.zeros((2, 3, 4, 5)), ShapeError),
        (np.zeros((10, 3)), ShapeError),
        (np.zeros((0, 10, 1)), ShapeError),
        (np.zeros(10, np.int32), DTypeError),
    ],
    ids=lambda value: f"{getattr(value, 'shape', '')}{getattr(value, 'dtype', '')}",
)
def test_audio(writer: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"SummaryWriter\.audio"):
        writer.audio("x", value, 0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (3, DTypeError),
        (b"x", DTypeError),
        (["a", 3], DTypeError),
        ("\ud800", DTypeError),
        ([["a"], ["b", "c"]], (ShapeError, DTypeError)),
        ([[["a"]]], ShapeError),
    ],
    ids=repr,
)
def test_texts(writer: Any, text: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"SummaryWriter\.text"):
        writer.text("x", text, 0)


@pytest.mark.parametrize(
    "hparams", [{}, {"a": None}, {"a": [1]}, {"a": np.nan}, {3: 1}, {"a": 1j}], ids=repr
)
def test_hparams(writer: Any, hparams: Any) -> None:
    with pytest.raises(AttributeValueError, match=r"SummaryWriter\.hparams"):
        writer.hparams(hparams)


def test_graphs(writer: Any) -> None:
    with pytest.raises(AttributeValueError, match="takes a graph, a program or an executable"):
        writer.graph("graph")
    with gc.Graph() as graph:
        gc.exp(1.0, name="e")
    with pytest.raises(UnknownNameError, match="there is no node 'f'"):
        writer.run_metadata("tag", graph, 0, seconds={"f": 1.0})
    for bad in (-1.0, np.nan, np.inf, "1"):
        with pytest.raises(AttributeValueError, match=r"seconds\['e'\] must be a finite number"):
            writer.run_metadata("tag", graph, 0, seconds={"e": bad})


def test_packages_that_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Any
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match="Pillow"):
        writer.image("x", np.zeros((2, 2)), 0)
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(MissingExtraError, match="google-crc32c"):
        Writer(tmp_path / "other")
    from graphc.train.tensorboard import protos

    monkeypatch.setattr(protos, "_imported", lambda: __import__("no_such_package"))
    with pytest.raises(MissingExtraError, match=r"graphc\[tensorboard\]"):
        Writer(tmp_path / "other")


def test_a_tag_has_one_kind_of_values(writer: Any) -> None:
    writer.scalar("x", 1.0, 0)
    with pytest.raises(AttributeValueError, match=r"histogram: the tag 'x' is in use for scalar"):
        writer.histogram("x", [1.0], 0)
    with gc.Graph() as graph:
        gc.exp(1.0, name="e")
    writer.run_metadata("x", graph, 0, seconds={"e": 1.0})
    with pytest.raises(AttributeValueError, match="the tag 'x' has been logged"):
        writer.run_metadata("x", graph, 0, seconds={"e": 1.0})


@pytest.mark.parametrize("folder", [3, None, b"folder", ["folder"]], ids=repr)
def test_folders(folder: Any) -> None:
    with pytest.raises(AttributeValueError, match="SummaryWriter: log_dir must be"):
        Writer(folder)
    with pytest.raises(AttributeValueError, match="TensorBoard: log_dir must be"):
        gc.train.TensorBoard(folder)


def test_a_folder_with_a_nul() -> None:
    with pytest.raises(gc.errors.GraphcError, match="null"):
        Writer("a\0b")


def test_an_unknown_argument_is_explained(writer: Any) -> None:
    with pytest.raises(gc.errors.ArgumentError, match="description"):
        writer.scalar("x", 1.0, 0, descripton="a")
