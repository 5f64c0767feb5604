"""Damaged and forged files: graphc raises an error, executes nothing and allocates little."""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ModelFileError, ModelImportError, UnknownNameError
from graphc.importers.tflite.flatbuffer import File
from graphc.importers.tflite.reading import LiteModel
from tests.importers.tensorflow.mutations import mutated
from tests.importers.tflite.cases import read
from tests.importers.tflite.forged import mutated_words, with_operator

EXPECTED = (ModelFileError, ModelImportError, UnknownNameError)


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("name", ["net int8 of int8", "lstm fused", "while"])
def test_damaged_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    refused = 0
    for damage in (mutated, mutated_words):
        for data in damage(read()[name].model, 60):
            path.write_bytes(data)
            try:
                gc.from_tflite(path)
            except EXPECTED:
                refused += 1
    assert 30 < refused < 120


def test_a_vector_that_very_many_tables_share_is_refused() -> None:
    """One vector of 20,000 numbers, and 1,000 offsets to one table that has it."""
    length, count = 20_000, 1000
    data = struct.pack("<I4xHHHH", 16, 6, 8, 4, 0)  # where the root is; the fields of both tables
    data += struct.pack("<iII", 8, 4, count)
    shared = len(data) + 4 * count
    data += b"".join(struct.pack("<I", shared - len(data) - 4 * i) for i in range(count))
    data += struct.pack(f"<iII{length}i", shared - 8, 4, length, *range(length))
    tables = File(data).root().tables(0)
    assert len(tables) == count
    assert tables[0].vector(0, "i") == list(range(length))
    with pytest.raises(ModelFileError, match="read often"):
        for table in tables:
            table.vector(0, "i")


def test_a_subgraph_that_calls_itself(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    model = read()["if"].model
    found = LiteModel(model).subgraph(0).operators
    branch = next(op for op in found if op.name == "IF")
    data = bytearray(model)
    table = next(
        t for t in File(model).root().tables(2)[0].tables(3) if t.vector(2, "i") == branch.outputs
    )
    options = table.table(4)
    assert options is not None
    at = options._place(0)
    assert at is not None
    data[at : at + 4] = struct.pack("<i", 0)
    path.write_bytes(bytes(data))
    with pytest.raises(ModelFileError, match="call themselves"):
        gc.from_tflite(path)


def test_the_operators_of_another_kind(tmp_path: Path) -> None:
    """Each operator with the operands and options of all others: errors, and no crash."""
    path = tmp_path / "model.tflite"
    start = time.monotonic()
    for name in ("CONV_2D 0", "SPLIT_V", "LSTM ", "GATHER"):
        case = read()[name]
        own = LiteModel(case.model).subgraph(0).operators[0].name
        for code in range(0, 162, 3):
            path.write_bytes(with_operator(case.model, {own: code}))
            with suppress(*EXPECTED):
                gc.from_tflite(path)
    assert time.monotonic() - start < 120


def test_constants_that_do_not_fit_their_shape(tmp_path: Path) -> None:
    case = read()["FULLY_CONNECTED"]
    model = LiteModel(case.model)
    shape = model.subgraph(0).tensors[1].shape
    wanted = struct.pack(f"<I{len(shape)}i", len(shape), *shape)
    assert case.model.count(wanted) == 1
    path = tmp_path / "model.tflite"
    for size in (2**31 - 1, 0, 3):
        changed = struct.pack(f"<I{len(shape)}i", len(shape), size, *shape[1:])
        path.write_bytes(case.model.replace(wanted, changed))
        with pytest.raises((ModelFileError, ModelImportError)):
            gc.from_tflite(path)


def test_sizes_that_no_machine_has(tmp_path: Path) -> None:
    case = read()["RESIZE_BILINEAR False"]
    sizes = struct.pack("<2i", 5, 9)
    assert case.model.count(sizes) == 1
    path = tmp_path / "model.tflite"
    path.write_bytes(case.model.replace(sizes, struct.pack("<2i", 2**31 - 1, 9)))
    with pytest.raises(ModelImportError, match="makes images of the sizes"):
        gc.from_tflite(path)
    assert np.array_equal(case.runs[0][1][0].shape, (1, 5, 9, 2))


def test_an_empty_constant_with_sizes_that_no_machine_has(tmp_path: Path) -> None:
    case = read()["SHAPE"]
    shape = struct.pack("<I3i", 3, 2, 3, 4)
    assert case.model.count(shape) == 1
    path = tmp_path / "model.tflite"
    path.write_bytes(case.model.replace(shape, struct.pack("<I3i", 3, 0, 2**31 - 1, 2**31 - 1)))
    with pytest.raises(ModelFileError, match="has the shape"):
        gc.from_tflite(path)
