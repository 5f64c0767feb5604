"""Estimates of cost from shapes, compared with XLA's own count."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ShapeError
from graphc.passes.core import costs
from tests.passes.check import program


def estimate_and_xla(graph: gc.Graph, fetch: gc.Tensor, feeds: dict) -> tuple[int, float]:
    step = gc.compile(graph, fetch, feeds)
    ours = costs.total(cost for _, cost in costs.program_costs(step.program)).flops
    analysis = step.stages.lowered.cost_analysis()  # before fusion, as in our estimate
    return ours, analysis["flops"]


@pytest.mark.parametrize(
    ("a", "b", "transpose_a"),
    [((5, 7), (7, 3), False), ((4, 5, 7), (4, 7, 3), False), ((7, 5), (7, 3), True)],
)
def test_matmul_is_counted_as_xla_counts_it(a, b, transpose_a: bool) -> None:
    graph = gc.Graph()
    with graph:
        x, y = gc.placeholder(a, name="x"), gc.placeholder(b, name="y")
        z = gc.matmul(x, y, transpose_a=transpose_a)
    ours, xla = estimate_and_xla(graph, z, {x: a, y: b})
    assert ours == xla == 2 * np.prod(a) * 3


def test_dot_general_is_counted_as_xla_counts_it() -> None:
    graph = gc.Graph()
    with graph:
        x, y = gc.placeholder((2, 3, 4, 5), name="x"), gc.placeholder((5, 2, 6, 3), name="y")
        z = gc.dot_general(x, y, ((1, 3), (3, 0)), batch=((0,), (1,)))
    ours, xla = estimate_and_xla(graph, z, {x: x.shape, y: y.shape})
    assert ours == xla == 2 * (2 * 4 * 6) * (3 * 5)


def test_linear_algebra_and_transforms_grow_as_they_should() -> None:
    graph = gc.Graph()
    with graph:
        a, b = gc.placeholder((4, 6, 6), name="a"), gc.placeholder((4, 6, 2), name="b")
        made = [
            (gc.linalg.cholesky(a), 4 * 6**3 // 3),
            (gc.linalg.inv(a), 4 * 2 * 6**3),
            (gc.linalg.qr(b)[1], round(4 * 4 * 2**2 * (6 - 2 / 3))),
            (gc.linalg.triangular_solve(a, b), 4 * 6**2 * 2),
            (gc.linalg.solve(a, b), 4 * (2 * 6**3 // 3 + 2 * 6**2 * 2)),
            (gc.fft.fft(gc.ones((3, 8))), 3 * 5 * 8 * 3),
            (gc.fft.rfft(gc.ones((3, 8))), 3 * 5 * 8 * 3 // 2),
        ]
    for tensor, flops in made:
        assert costs.node_cost(graph.producer(tensor)).flops == flops, tensor


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "SAME"},
        {"padding": "VALID"},
        {"padding": "SAME", "strides": 2},
        {"padding": ((3, 0), (1, 2)), "strides": (1, 3)},
        {"padding": "SAME", "dilation": 2},
        {"padding": "SAME", "groups": 2},
    ],
)
def test_convolution_is_counted_as_xla_counts_it(options: dict) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2, 9, 8, 4), name="x")
        w = gc.placeholder((3, 5, 4 // options.get("groups", 1), 6), name="w")
        y = gc.nn.conv2d(x, w, **options)
    ours, xla = estimate_and_xla(graph, y, {x: x.shape, w: w.shape})
    assert ours == xla


def test_gradients_of_convolution_cost_what_it_costs() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2, 9, 8, 4), name="x")
        w = gc.placeholder((3, 5, 4, 6), name="w")
        y = gc.nn.conv2d(x, w, strides=2, padding="SAME")
        dx, dw = gc.gradients(y, [x, w])
    step = gc.compile(graph, [y, dx, dw], {x: x.shape, w: w.shape})
    flops = {
        node.op.name: cost.flops
        for node, cost in costs.program_costs(step.program)
        if node.op.name.startswith("Conv")
    }
    assert len(flops) == 3 and len(set(flops.values())) == 1


def test_attention_costs_its_products() -> None:
    graph = gc.Graph()
    with graph:
        q = gc.placeholder((2, 5, 4, 8), name="q")
        k = gc.placeholder((2, 7, 2, 8), name="k")
        y = gc.nn.attention(q, k, k)
        slopes = gc.gradients(y, [q, k])
    step = gc.compile(graph, [y, *slopes], {q: q.shape, k: k.shape})
    flops = {n.op.name: cost.flops for n, cost in costs.program_costs(step.program)}
    product = 2 * (2 * 4 * 5 * 7 * 8)
    assert flops["Attention"] == 2 * product
    assert flops["AttentionGradient"] == 5 * product


def test_reductions_and_elementwise_work() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((8, 16), name="x")
        y = gc.reduce_sum(gc.exp(x) * x, axis=1)
    ours, xla = estimate_and_xla(graph, y, {x: x.shape})
    assert ours == 3 * 8 * 16
    # XLA counts exp separately, and one addition less for each result.
    assert xla == pytest.approx(ours - 8 * 16 - 8)


def test_bytes_are_those_of_operands_and_results() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((8, 16), "float64", name="x")
        table = gc.placeholder((1000, 4), name="table")
        i = gc.placeholder((5,), "int32", name="i")
        fetches = [gc.exp(x), gc.reshape(x, (16, 8)), gc.take(table, i, axis=0)]
    step = gc.compile(graph, fetches, {t: t.shape for t in (x, table, i)})
    moved = {node.op.name: cost.bytes for node, cost in costs.program_costs(step.program)}
    assert moved == {"Exp": 2 * 8 * 16 * 8, "Reshape": 0, "Take": 2 * 5 * 4 * 4 + 5 * 4}


def test_a_loop_costs_all_its_iterations() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3, 3), name="x")
        last, _ = gc.scan(lambda c, _: (gc.matmul(c, c), c), x, xs=None, length=10)
    program = gc.compile(graph, last, {x: (3, 3)}).program
    assert costs.total(c for _, c in costs.program_costs(program)).flops == 10 * 2 * 27


def test_an_update_by_rows_costs_the_product_and_the_updates() -> None:
    (node,) = program(
        """
        program p(a: f32[5, 6], b: f32[5, 4], w: f32[6, 4]) {
          %0 = UpdateByRows(a, b, w) {states=1, rows=2} : f32[6, 4]
              with product(a: f32[5, 2], b: f32[5, 4]) {
            %0 = MatMul(a, b) {transpose_a=true} : f32[2, 4]
            return g = %0
          } with update(g: f32[2, 4], w: f32[2, 4]) {
            %0 = Add(w, g) : f32[2, 4]
            return w = %0
          }
          return w = %0
        }
        """
    ).nodes
    assert costs.node_cost(node).flops == 2 * 5 * 6 * 4 + 6 * 4


def test_open_sizes_are_named() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", 3), name="x")
        y = gc.exp(x)
    from graphc.runtime.targets.prepare import prepare

    program = prepare(graph, [y], [x], gc.CompileOptions()).program
    with pytest.raises(ShapeError, match="costs need sizes, which these names do not have: batch"):
        costs.program_costs(program)


def test_a_loop_moves_the_bytes_of_all_its_iterations() -> None:
    def moved(length: int) -> int:
        graph = gc.Graph()
        with graph:
            x = gc.placeholder((3, 3), name="x")
            last, _ = gc.scan(lambda c, _: (gc.matmul(c, c), c), x, xs=None, length=length)
        return costs.node_cost(graph.producer(last)).bytes

    assert moved(10) == 10 * moved(1) > 0


def test_searches_and_singular_vectors() -> None:
    with gc.Graph() as graph:
        a = gc.placeholder((4, 6, 3), name="a")
        sorted_, keys = gc.placeholder((9,), name="s"), gc.placeholder((5,), name="k")
        found = gc.searchsorted(sorted_, keys)
        left, _, _ = gc.linalg.svd(a, full_matrices=False)
    assert costs.node_cost(graph.producer(found)).flops == 5 * 4  # a search tree of 9 has 4 levels
    thin = 14 * 6 * 3**2 + 8 * 3**3
    assert costs.node_cost(graph.producer(left)).flops == 4 * thin
