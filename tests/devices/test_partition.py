"""Partition: clusters, transfers and micro-batches; the results do not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.devices.partition import Partition, partition
from graphc.devices.schedule import Span, bubble, idle_part, timeline
from graphc.errors import DeviceError
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.verify import verify
from graphc.passes.core.validate import random_inputs
from tests.near import assert_near
from tests.passes.check import program
from tests.passes.evaluate import evaluate
from tests.passes.generate import programs

A, B, C = (f"/device:CPU:{i}" for i in range(3))


def parts(text: str, devices: list[str], homes: dict[str, str] | None = None) -> Partition:
    """The partition of a program whose nodes are on `devices`; A is the base device."""
    start = program(text)
    rows = zip(start.nodes, devices, strict=True)
    nodes = tuple(node.replace(device=device) for node, device in rows)
    return partition(start.replace(nodes=nodes), homes or {}, A)


def shape(found: Partition) -> list[tuple[str, list[str]]]:
    """Each cluster's device and operators."""
    return [(c.device, [node.op.name for node in c.program.nodes]) for c in found.clusters]


def run(found: Partition, inputs: list[Any]) -> list[Any]:
    """Runs the clusters in order. A cluster uses only values that its device has or received."""
    at: dict[Any, Any] = {}
    for port, value in zip(found.program.inputs, inputs, strict=True):
        at[port.tensor, found.homes.get(port.name)] = value
    sent = {(s.tensor, s.target) for s in found.sends}
    results: dict[Any, list[Any]] = {}
    for cluster in found.clusters:
        verify_cluster(cluster.program)
        values = []
        for tensor in cluster.takes:
            fed = at.get((tensor, None))
            if fed is None:
                source = next(place for t, place in at if t is tensor)
                assert source == cluster.device or (tensor, cluster.device) in sent, tensor.name
                fed = at[tensor, source]
            values.append(fed)
        given = evaluate(cluster.program, values)
        for tensor, value in zip(cluster.gives, given, strict=True):
            at[tensor, cluster.device] = value
        for tensor, value in zip(cluster.results, given[len(cluster.sent) :], strict=True):
            results.setdefault(tensor, []).append(value)
    return [results[port.tensor].pop(0) for port in found.program.outputs]


def verify_cluster(program: Program) -> None:
    verify(program, "local")


CHAIN = """
program p(x: f32[2]) {
  %0 = Exp(x) : f32[2]
  %1 = Tanh(%0) : f32[2]
  %2 = Sin(%1) : f32[2]
  %3 = Cos(%1) : f32[2]
  %4 = Add(%2, %3) : f32[2]
  return y = %4
}
"""


def test_a_chain_is_cut_where_it_changes_the_device() -> None:
    found = parts(CHAIN, [A, B, B, A, A])
    assert shape(found) == [(A, ["Exp"]), (B, ["Tanh", "Sin"]), (A, ["Cos", "Add"])]
    makers = found.program.producers()
    sends = [(makers[s.tensor].op.name, s.source, s.target) for s in found.sends]
    assert sends == [("Exp", A, B), ("Tanh", B, A), ("Sin", B, A)]
    assert shape(parts(CHAIN, [A] * 5)) == [(A, ["Exp", "Tanh", "Sin", "Cos", "Add"])]


def test_clusters_are_joined_if_no_node_is_between_them() -> None:
    # If only levels counted, the cosine would be in a separate cluster.
    text = """
    program p(x: f32[2], z: f32[2]) {
      %0 = Exp(x) : f32[2]
      %1 = Tanh(%0) : f32[2]
      %2 = Sin(%1) : f32[2]
      %3 = Cos(z) : f32[2]
      %4 = Add(%3, %1) : f32[2]
      return y = %2, w = %4
    }
    """
    found = parts(text, [A, B, C, C, C])
    assert [device for device, _ in shape(found)] == [A, B, C]
    assert len(found.clusters[2].program.nodes) == 3


def test_two_ways_through_another_device_are_not_joined() -> None:
    found = parts(CHAIN, [A, B, A, B, A])
    assert [device for device, _ in shape(found)] == [A, B, A]
    values = run(found, [np.array([0.5, -1.0], np.float32)])
    np.testing.assert_array_equal(
        values[0], evaluate(found.program, [np.array([0.5, -1.0], np.float32)])[0]
    )


def test_nodes_of_passes_follow_their_operands_and_constants_their_users() -> None:
    text = """
    program p(x: f32[2]) {
      %0 = Constant() {value=f32[] 1.0} : f32[]
      %1 = BroadcastTo(%0) {shape=[2]} : f32[2]
      %2 = Exp(x) : f32[2]
      %3 = Add(%2, %1) : f32[2]
      %4 = Tanh(%3) : f32[2]
      %5 = Add(%4, %1) : f32[2]
      return y = %5
    }
    """
    found = parts(text, ["", "", A, "", B, B])
    constants = ["Constant", "BroadcastTo"]
    assert shape(found) == [(A, [*constants, "Exp", "Add"]), (B, [*constants, "Tanh", "Add"])]
    (send,) = found.sends
    assert found.program.producers()[send.tensor].op.name == "Add"


def test_what_only_a_later_cluster_needs_is_computed_there() -> None:
    """State is read on the device that updates it, and no derived value is kept in between."""
    text = """
    program p(x: f32[2], v: state f32[2]) {
      %0 = Exp(x) : f32[2]
      %1 = Multiply(v, v) : f32[2]
      %2 = Tanh(%0) : f32[2]
      %3 = Add(%1, %2) : f32[2]
      return state v = %3
    }
    """
    found = parts(text, [A, A, B, A], {"v": A})
    assert shape(found) == [(A, ["Exp"]), (B, ["Tanh"]), (A, ["Multiply", "Add"])]


def test_state_goes_home_and_outputs_have_a_cluster() -> None:
    text = """
    program p(x: f32[2], v: state f32[2], w: state f32[2]) {
      %0 = Add(v, x) : f32[2]
      return y = w, same = v, state v = w, state w = %0
    }
    """
    found = parts(text, [A], {"v": A, "w": B})
    inputs = [np.array([1.0, 2.0], np.float32) * k for k in (1, 3, 5)]
    assert [list(v) for v in run(found, inputs)] == [[5, 10], [3, 6], [5, 10], [4, 8]]
    assert {(s.source, s.target) for s in found.sends} == {(A, B), (B, A)}


def test_a_body_for_two_devices_is_an_error_but_for_micro_batches() -> None:
    start = spread(LOOP)
    found = partition(start, {}, A)
    turns = [(c.device, c.micro_batch) for c in found.clusters if c.micro_batch is not None]
    assert turns == [(A, 0), (B, 0), (A, 1), (B, 1), (A, 2), (B, 2)]
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=p.tensor.type.shape).astype(np.float32) for p in start.inputs]
    for got, expected in zip(run(found, inputs), evaluate(start, inputs), strict=True):
        assert_near(got, expected, rtol=1e-6)
    # All iterations have the same nodes, so they share executables.
    texts = {str(c.program).split("{", 1)[1] for c in found.clusters if c.micro_batch is not None}
    assert len(texts) == 2
    with pytest.raises(DeviceError, match=r"contains nodes for /device:CPU:0, /device:CPU:1"):
        partition(spread(FUNCTION), {}, A)


LOOP = """
program p(w: f32[2], start: f32[2], xs: f32[3, 2]) {
  %0, %1 = Scan(w, start, xs) {consts=1, carries=1, length=3} : f32[2], f32[3, 2]
      with body(a0: f32[2], a1: f32[2], a2: f32[2]) {
    %0 = Multiply(a0, a2) : f32[2]
    %1 = Tanh(%0) : f32[2]
    %2 = Add(a1, %1) : f32[2]
    return r0 = %2, r1 = %1
  }
  return last = %0, ys = %1
}
"""
FUNCTION = """
program p(x: f32[2]) {
  %0 = Call(x) : f32[2]
      with body(a0: f32[2]) {
    %0 = Exp(a0) : f32[2]
    %1 = Tanh(%0) : f32[2]
    %2 = Sin(%1) : f32[2]
    return r0 = %2
  }
  return y = %0
}
"""


def spread(text: str) -> Program:
    """A program with one body on two devices."""
    start = program(text)
    (loop,) = start.nodes
    (body,) = loop.regions
    places = (A, B, B)
    rows = zip(body.nodes, places, strict=True)
    inside = tuple(node.replace(device=place) for node, place in rows)
    return start.replace(nodes=(loop.replace(regions=(body.replace(nodes=inside),)),))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_meaning_stays(data: Any) -> None:
    start = data.draw(programs())
    if start.symbols():
        start = bind_sizes(start, dict.fromkeys(start.symbols(), 3))
    places = st.sampled_from(["", A, B, C])

    def placed(node: Node) -> Node:
        return node.replace(device=data.draw(places)) if node.inputs else node

    start = start.replace(nodes=tuple(map(placed, start.nodes)))
    homes = {p.name: data.draw(st.sampled_from([A, B, C])) for p in start.inputs[1:]}
    inputs = [p if i == 0 else p._replace(kind="state") for i, p in enumerate(start.inputs)]
    start = start.replace(inputs=tuple(inputs))
    found = partition(start, homes, A)
    values = random_inputs(start, 0)
    for got, expected in zip(run(found, values), evaluate(start, values), strict=True):
        np.testing.assert_array_equal(got, expected)


# -- the schedule ----------------------------------------------------------------------------


def test_micro_batches_fill_a_pipeline() -> None:
    found = partition(spread(LOOP), {}, A)
    seconds = [0.0 if c.micro_batch is None else 1.0 for c in found.clusters]
    spans = timeline(found.clusters, seconds)
    busy = [s for s in spans if s.end > s.start]
    assert max(s.end for s in busy) == 4.0  # three micro-batches through two stages
    assert idle_part(busy) == pytest.approx(bubble(stages=2, micro_batches=3)) == 0.25
    for stage in (A, B):
        turns = [found.clusters[s.cluster].micro_batch for s in busy if s.device == stage]
        assert turns == [0, 1, 2]
    assert idle_part([]) == 0.0
    assert idle_part([Span(0, A, 0.0, 2.0), Span(1, B, 1.0, 2.0)]) == 0.25
