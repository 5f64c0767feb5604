"""The layout of requests in batches: padding, splits, lengths, and which requests can be joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.devices.row_proof import Refusal, Rows
from graphc.ir.types import parse_type
from graphc.serving.batching.paddable import OpenSize, Paddable
from graphc.web.failures import Failure
from tests.serving.batching.rig import AXES, BATCH, Rig, rows, values


@pytest.mark.parametrize(("count", "padded"), [(1, 1), (2, 2), (3, 4), (4, 4)])
def test_padding_goes_to_the_next_allowed_size(count: int, padded: int) -> None:
    rig = Rig()
    rig.submit(rows(*range(count)))
    rig.batcher.run_ready()
    assert rig.last()[:2] == (count, padded)


def test_configured_sizes() -> None:
    rig = Rig(max_batch_size=6, allowed_batch_sizes=(3, 6))
    assert rig.batcher.sizes == (3, 6)
    future = rig.submit(rows(1, 2, 3, 4))
    rig.batcher.run_ready()
    assert rig.last()[:2] == (4, 6) and values(future) == [10, 20, 30, 40]


def test_a_large_request_is_cut_and_joined() -> None:
    rig = Rig()
    future = rig.submit(rows(*range(10)))
    small = rig.submit(rows(50))
    while rig.batcher.run_ready():
        assert rig.reports[-1].rows <= 4
    assert values(future) == [10.0 * i for i in range(10)]
    assert values(small) == [500]
    assert future.result()["one"].shape == ()
    assert [(r.rows, r.requests) for r in rig.reports] == [(4, 1), (4, 1), (3, 2)]


def test_a_full_request_is_not_copied() -> None:
    rig = Rig()
    seen = []
    rig.batcher._run = lambda inputs: seen.append(inputs) or {"y": inputs["x"], "one": 1}
    inputs = rows(1, 2)
    rig.submit(inputs)
    rig.batcher.run_ready()
    assert seen[0]["x"] is inputs["x"]


def test_results_do_not_share_memory_with_the_next_batch() -> None:
    rig = Rig()
    rig.batcher._run = lambda inputs: {"y": inputs["x"], "one": np.float32(1)}
    first = [rig.submit(rows(1)), rig.submit(rows(2, 3))]
    rig.batcher.run_ready()
    rig.submit(rows(7)), rig.submit(rows(8, 9))
    rig.batcher.run_ready()
    assert [f.result(0)["y"][:, 0].tolist() for f in first] == [[1], [2, 3]]


def test_equal_bytes_in_other_shapes_are_not_joined() -> None:
    types = {"x": parse_type("f32[n, 2]"), "k": parse_type("f32[a, b]")}
    sizes = {"n": BATCH} | {name: OpenSize(name, {"k": i}) for i, name in enumerate("ab")}
    rig = Rig(Paddable(types, AXES.outputs, sizes, BATCH), pad_variable_length_inputs=True)
    for shape in ((3, 2), (3, 2), (4, 2), (4, 1)):
        rig.submit(rows(1) | {"k": np.zeros(shape, np.float32)})
    while rig.batcher.run_ready():
        pass
    assert [r.requests for r in rig.reports] == [2, 1, 1]
    assert [given["k"].shape for given in rig.given] == [(4, 2), (4, 2), (4, 1)]


SCALED = OpenSize("n", {"x": 0}, {"y": Rows(0)})
LENGTHS = {
    "x": parse_type("f32[n, t]"),
    "factor": parse_type("f32[]"),
}


def lengths(joined: bool) -> Paddable:
    refusal = None if joined else Refusal("mixes the steps", "s", "CumSum")
    outputs = {"y": Rows(1)} if joined else {}
    size = OpenSize("t", {"x": 1}, outputs, refusal)
    types = {"y": parse_type("f32[n, t]"), "one": parse_type("f32[]")}
    return Paddable(LENGTHS, types, {"n": SCALED, "t": size}, SCALED)


def long(value: float, n: int, t: int, factor: float = 1.0) -> dict[str, Any]:
    return {"x": np.full((n, t), value, np.float32), "factor": np.float32(factor).reshape(())}


def test_other_sizes_and_other_values_are_not_joined() -> None:
    rig = Rig(lengths(True))
    rig.submit(long(1, 1, 3)), rig.submit(long(2, 1, 4))
    rig.submit(long(3, 1, 3)), rig.submit(long(4, 1, 3, factor=2.0))
    while rig.batcher.run_ready():
        pass
    assert [r.requests for r in rig.reports] == [2, 1, 1]


@pytest.mark.parametrize(("joined", "shapes"), [(True, [(2, 4)]), (False, [(1, 3), (1, 4)])])
def test_lengths_are_padded_only_if_proved(joined: bool, shapes) -> None:
    rig = Rig(lengths(joined), pad_variable_length_inputs=True)
    first, second = rig.submit(long(1, 1, 3)), rig.submit(long(2, 1, 4))
    while rig.batcher.run_ready():
        pass
    assert [given["x"].shape for given in rig.given] == shapes
    assert first.result(0)["y"].tolist() == [[10] * 3]
    assert second.result(0)["y"].tolist() == [[20] * 4]
    if joined:
        assert rig.given[0]["x"][0].tolist() == [1, 1, 1, 0]


def test_buffers_that_are_used_again_hold_no_old_values() -> None:
    rig = Rig(lengths(True), pad_variable_length_inputs=True)
    for value, n, t in ((9, 4, 4), (1, 3, 3), (2, 3, 4), (3, 3, 3)):
        rig.submit(long(value, n, t))
        rig.batcher.run_ready()
        given = rig.given[-1]["x"]
        expected = np.zeros((4, 4), np.float32)
        expected[:n, :t] = value
        np.testing.assert_array_equal(given, expected)


def test_queues_take_turns() -> None:
    rig = Rig(lengths(True))
    for _ in range(3):
        rig.submit(long(1, 4, 3))
    rig.submit(long(1, 4, 5))
    while rig.batcher.run_ready():
        pass
    assert [given["x"].shape[1] for given in rig.given] == [3, 5, 3, 3]


def test_without_a_proof_each_request_runs_alone_at_its_size() -> None:
    refused = OpenSize("n", {"x": 0}, {}, Refusal("mixes the rows", "s", "Softmax"))
    rig = Rig(Paddable(AXES.inputs, AXES.outputs, {"n": refused}, None))
    futures = [rig.submit(rows(*range(n))) for n in (1, 3, 9)]
    assert rig.batcher.sizes == ()
    while rig.batcher.run_ready():
        pass
    assert [len(values(f)) for f in futures] == [1, 3, 9]
    assert [given["x"].shape[0] for given in rig.given] == [1, 3, 9]
    assert {r.reason for r in rig.reports} == {"alone"}


def test_an_output_of_another_size_fails_the_batch() -> None:
    rig = Rig()
    rig.batcher._run = lambda inputs: {"y": inputs["x"][:1], "one": 1}
    future = rig.submit(rows(1, 2, 3))
    rig.batcher.run_ready()
    error = future.exception(0)
    assert isinstance(error, Failure) and "must have 4 elements" in error.message


def test_rows_of_several_elements() -> None:
    size = OpenSize("n", {"x": 0}, {"y": Rows(0, 2)})
    axes = Paddable(AXES.inputs, {"y": parse_type("f32[2*n]")}, {"n": size}, size)
    rig = Rig(axes)
    rig.batcher._run = lambda inputs: {"y": inputs["x"].reshape(-1)}
    futures = [rig.submit(rows(1)), rig.submit(rows(2, 3))]
    rig.batcher.run_ready()
    assert [f.result(0)["y"].tolist() for f in futures] == [[1, 1], [2, 2, 3, 3]]
