"""Indices, labels and lengths out of range: their results, and the errors of checked runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import NumericsError, ShapeError
from graphc.ir.dtypes import as_dtype
from graphc.ops.structure.numerics import OUT_OF_RANGE
from tests.near import assert_near

CHECK = gc.CompileOptions(check_numerics=True, cache=None)
PLAIN = gc.CompileOptions(cache=None)
TABLE = np.arange(10, dtype="f").reshape(5, 2)
STEPS = np.ones((2, 3, 4), "f")

Build = Callable[..., Any]


def built(build: Build, *feeds: Any) -> tuple[gc.Graph, Any, dict[Any, Any]]:
    arrays = [np.asarray(feed) for feed in feeds]
    with gc.Graph(seed=0) as g:
        given = [gc.placeholder(a.shape, a.dtype.name, name=f"in{i}") for i, a in enumerate(arrays)]
        y = build(*given)
    return g, y, dict(zip(given, arrays, strict=True))


def in_loop(table: Any, indices: Any) -> Any:
    return gc.scan(lambda c, i: (c + gc.sum(gc.take(table, i)), None), 0.0, indices)[0]


def in_while(table: Any, indices: Any) -> Any:
    def turn(state: Any) -> Any:
        return state[0] + 1, state[1] + gc.sum(table[indices[state[0]]])

    return gc.while_loop(lambda state: state[0] < 4, turn, (0, 0.0))[1]


def in_branch(table: Any, indices: Any) -> Any:
    return gc.cond(gc.sum(indices) > 0, lambda: gc.take(table, indices), lambda: table[:4])


def in_function(table: Any, indices: Any) -> Any:
    look_up = gc.function(lambda i: gc.take(table, i), name="look_up")
    return look_up(indices * 0) + look_up(indices)


def ctc(logits: Any, labels: Any, steps: Any, counts: Any) -> Any:
    return nn.ctc_loss(logits=logits, labels=labels, logit_lengths=steps, label_lengths=counts)


def crf(scores: Any, tags: Any, lengths: Any) -> Any:
    return nn.crf_log_likelihood(scores, tags, np.zeros((4, 4), "f"), lengths)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return nn.sparse_softmax_cross_entropy(logits=logits, labels=labels)


def scoped(build: Build) -> Any:
    with gc.name_scope("a"), gc.name_scope("b"):
        return build()


def ctc_labels(logits: Any, labels: Any) -> Any:
    return ctc(logits, labels, ints(3, 3), ints(2, 2))


def ctc_steps(logits: Any, steps: Any) -> Any:
    return ctc(logits, np.array([[1, 2], [1, 2]]), steps, ints(1, 0))


def ctc_counts(logits: Any, counts: Any) -> Any:
    return ctc(logits, np.array([[1, 2], [1, 2]]), ints(3, 3), counts)


def decoded(x: Any, length: Any) -> Any:
    layer = nn.MultiHeadAttention(4, 2, causal=True)
    key = gc.zeros((2, 5, 2, 2))
    return layer.with_cache(x, nn.AttentionCache(key, key, length))[0]


def solved(factors: Any, pivots: Any) -> Any:
    return gc.linalg.lu_solve((factors, pivots), np.ones(2, "f"))


def ints(*values: int, dtype: str = "int32") -> Any:
    return np.array(values, dtype)


OK = ints(1, 2)
# build, feeds with one integer out of range, and the error text
CAUGHT: dict[str, tuple[Build, list[Any], str]] = {
    "take": (gc.take, [TABLE, ints(0, 5)], "^take: indices out of range: 5 is not in -5 to 4"),
    "take from the end": (gc.take, [TABLE, ints(-6)], "-6 is not in -5 to 4"),
    "take, unsigned": (gc.take, [TABLE, ints(250, dtype="uint8")], "250 is not in -5 to 4"),
    "take, 64 bits": (gc.take, [TABLE, ints(2**40, dtype="int64")], "at least 2147483647 is not"),
    "take, -64 bits": (gc.take, [TABLE, ints(-(2**40), dtype="int64")], "at most -2147483648 is"),
    "take, axis None": (lambda x, i: gc.take(x, i, None), [TABLE, ints(10)], "10 is not in -10"),
    "take_along_axis": (
        lambda x, i: gc.take_along_axis(x, i, 0),
        [TABLE, ints(0, 7).reshape(1, 2)],
        "^take_along_axis: indices out of range: 7 is not in -5 to 4",
    ),
    "x[i]": (lambda x, i: x[i], [TABLE, ints(0, 100, dtype="int8")], "100 is not in -5 to 4"),
    "x[i, j]": (
        lambda x, i: x[i, i], [TABLE, ints(0, 3)],
        r"^x\[...\]: indices out of range: 3 is not in -2 to 1",
    ),
    "x[i, j], in a scope": (
        lambda x, i: scoped(lambda: x[:, None][i, 0, i]), [TABLE, ints(0, 3)],
        r"^x\[...\] in 'a/b': indices out of range: 3 is not in -2 to 1",
    ),
    "gather_nd": (gc.gather_nd, [TABLE, [[0, 1], [4, -3]]], "-3 is not in -5 to 4 or -2 to 1"),
    "Embedding": (
        lambda i: nn.Embedding(4, 2, name="tokens")(i),
        [ints(0, 4)],
        "^Embedding in 'tokens': indices out of range: 4 is not in -4 to 3",
    ),
    "labels": (cross_entropy, [TABLE, ints(0, 1, 0, -1, 1)], "labels out of range: -1 is not in 0"),
    "labels too great": (cross_entropy, [TABLE, ints(0, 1, 2, 1, 1)], "2 is not in 0 to 1"),
    "lengths": (
        lambda x, n: nn.LSTM(3, name="lstm")(x, lengths=n), [STEPS, ints(3, 4)],
        "^LSTM in 'lstm': lengths out of range: 4 is not in 0 to 3",
    ),
    "lengths, both ways": (
        lambda x, n: nn.Bidirectional(nn.GRU(3))(x, lengths=n), [STEPS, ints(3, -1)],
        "^GRU in 'bidirectional/forward/gru': lengths out of range: -1 is not in 0 to 3",
    ),
    "ctc labels": (ctc, [STEPS, [[1, 4], [1, 2]], ints(3, 3), OK * 0 + 2], "labels out of range"),
    "ctc steps": (ctc, [STEPS, [[1, 2], [1, 2]], ints(3, 9), OK], "lengths out of range: 9"),
    "ctc counts": (ctc, [STEPS, [[1, 2], [1, 2]], ints(3, 3), ints(2, 3)], "3 is not in 0 to 2"),
    "crf tags": (crf, [STEPS, [[0, 1, 4], [0, 0, 0]], ints(3, 3)], "tags out of range: 4 is not"),
    "crf lengths": (crf, [STEPS, np.zeros((2, 3), "i"), ints(3, 4)], "lengths out of range: 4"),
    "known labels": (
        lambda x: cross_entropy(x, np.array([0, 0, 2, 0, 0])), [TABLE],
        "^sparse_softmax_cross_entropy: labels out of range: 2 is not in 0 to 1",
    ),
    "known indices": (
        lambda x: gc.gather_nd(x, np.array([[5]])), [TABLE], "^gather_nd: indices out of range: 5",
    ),
    "known lengths": (
        lambda x: nn.GRU(2)(x, lengths=np.array([3, 4])), [STEPS], "lengths out of range: 4 is",
    ),
    "a loop": (in_loop, [TABLE, ints(0, 1, 7, 9)], r"(?s)7 is not in.*in iteration 2, counted"),
    "a while loop": (
        in_while,
        [TABLE, ints(0, 1, 2, 9)],
        "(?s)9 is not in.*in iteration 3, counted",
    ),
    "a branch": (in_branch, [TABLE, ints(0, 1, 2, 9)], r"(?s)9 is not in.*in Switch 'cond'"),
    "a function": (in_function, [TABLE, ints(0, 9)], r"(?s)9 is not in.*in Call 'look_up"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
def test_what_is_out_of_range_is_named(name: str) -> None:
    build, feeds, text = CAUGHT[name]
    g, y, given = built(build, *feeds)
    with pytest.raises(NumericsError, match=text) as caught:
        gc.Session(g, options=CHECK).run(y, given)
    assert "test_ranges.py:" in str(caught.value)


# build(floats, integers), both feeds, the least and the greatest allowed integer, and the
# error's description of the integers
Limits = tuple[Build, Any, Any, int, int, str]
MOVES = np.zeros((4, 4), "f")
LIMITS: dict[str, Limits] = {
    "take": (gc.take, TABLE, OK, -5, 4, "take: indices"),
    "take_along_axis": (
        lambda x, i: gc.take_along_axis(x, i[None], 0), TABLE, OK, -5, 4,
        "take_along_axis: indices",
    ),
    "x[i]": (lambda x, i: x[i], TABLE, OK, -5, 4, "x[...]: indices"),
    "x[i, j]": (lambda x, i: x[i, gc.maximum(i, -2) * 0], TABLE, OK, -5, 4, "x[...]: indices"),
    "gather_nd": (
        lambda x, i: gc.gather_nd(x, i[:, None]), TABLE, OK, -5, 4, "gather_nd: indices",
    ),
    "embedding_lookup": (nn.embedding_lookup, TABLE, OK, -5, 4, "embedding_lookup: indices"),
    "choose": (
        lambda x, i: gc.choose(i, [x[:2, 0], x[2:4, 1]]), TABLE, OK, -2, 1, "choose: places",
    ),
    "unravel_index": (
        lambda x, i: gc.sum(x) * gc.cast(gc.unravel_index(i, (2, 3))[0], "float32"),
        TABLE, OK, 0, 5, "unravel_index: places",
    ),
    "ravel_multi_index": (
        lambda x, i: gc.sum(x) * gc.cast(gc.ravel_multi_index((i * 0, i), (2, 3)), "float32"),
        TABLE, OK, 0, 2, "ravel_multi_index: indices",
    ),
    "ravel_multi_index, first": (
        lambda x, i: gc.sum(x) * gc.cast(gc.ravel_multi_index((i, i * 0), (2, 3)), "float32"),
        TABLE, OK * 0, 0, 1, "ravel_multi_index: indices",
    ),
    "labels": (
        cross_entropy, TABLE, ints(0, 1, 1, 0, 1), 0, 1, "sparse_softmax_cross_entropy: labels",
    ),
    "ctc_loss, labels": (
        ctc_labels, STEPS, ints(1, 2, 1, 2).reshape(2, 2), 0, 3, "ctc_loss: labels",
    ),
    "ctc_loss, steps": (ctc_steps, STEPS, ints(3, 3), 0, 3, "ctc_loss: lengths"),
    "ctc_loss, counts": (ctc_counts, STEPS, OK, 0, 2, "ctc_loss: lengths"),
    "ctc_greedy_decode": (
        lambda x, n: nn.ctc_greedy_decode(x, n)[2], STEPS, OK, 0, 3, "ctc_greedy_decode: lengths",
    ),
    "ctc_beam_search": (
        lambda x, n: nn.ctc_beam_search(x, n, 3)[2], STEPS, OK, 0, 3, "ctc_beam_search: lengths",
    ),
    "edit_distance, x": (
        lambda x, n: nn.edit_distance(gc.cast(x[..., 0], "int32"), [[1, 2], [3, 4]], n),
        STEPS, OK, 0, 3, "edit_distance: x_lengths",
    ),
    "edit_distance, y": (
        lambda x, n: nn.edit_distance([[1, 2], [3, 4]], gc.cast(x[..., 0], "int32"), None, n, True),
        STEPS, OK, 0, 3, "edit_distance: y_lengths",
    ),
    "crf_log_likelihood, tags": (
        lambda x, t: nn.crf_log_likelihood(x, t, MOVES), STEPS, np.zeros((2, 3), "i"), 0, 3,
        "crf_log_likelihood: tags",
    ),
    "crf_log_likelihood": (
        lambda x, n: nn.crf_log_likelihood(x, np.zeros((2, 3), "i"), MOVES, n), STEPS, OK, 0, 3,
        "crf_log_likelihood: lengths",
    ),
    "crf_log_norm": (
        lambda x, n: nn.crf_log_norm(x, MOVES, n), STEPS, OK, 0, 3, "crf_log_norm: lengths",
    ),
    "viterbi_decode": (
        lambda x, n: nn.viterbi_decode(x, MOVES, n)[1], STEPS, OK, 0, 3, "viterbi_decode: lengths",
    ),
    "LSTM": (
        lambda x, n: nn.LSTM(2, name="l")(x, lengths=n), STEPS, OK, 0, 3, "LSTM in 'l': lengths",
    ),
    "attention's cache": (
        decoded, STEPS, np.int32(1), 0, 2, "MultiHeadAttention in 'multi_head_attention': steps in",
    ),
    "ragged_dot": (
        lambda x, n: gc.ragged_dot(x, np.ones((2, 2, 3), "f"), n), TABLE, OK, 0, 5,
        "ragged_dot: group_sizes",
    ),
    "max_unpool": (
        lambda x, i: nn.max_unpool(x, i, 2), STEPS[:, :1, None], np.zeros((2, 1, 1, 4), "i"), 0, 3,
        "max_unpool: places",
    ),
    "crop_and_resize": (
        lambda x, i: nn.crop_and_resize(x, np.full((2, 4), 0.5, "f"), i, 2), STEPS[..., None],
        OK * 0, 0, 1, "crop_and_resize: images",
    ),
    "lu_solve": (solved, np.eye(2, dtype="f") * 2, ints(0, 1), 0, 1, "lu_solve: pivots"),
}  # fmt: skip


NO_GRADIENT = ("ctc_beam_search", "edit_distance, x", "edit_distance, y")


@pytest.mark.parametrize("name", LIMITS)
def test_the_last_allowed_value_passes_and_the_next_is_an_error(name: str) -> None:
    build, x, good, *_ = LIMITS[name]
    g, y, given = built(build, x, good)
    check_limits(name, g, y, given)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LIMITS if name not in NO_GRADIENT])
def test_the_same_in_a_gradient(name: str) -> None:
    build, x, good, *_ = LIMITS[name]
    g, y, given = built(build, x, good)
    with g:
        slope = gc.gradients(gc.sum(y * y), next(iter(given)))
    check_limits(name, g, slope, given)


def check_limits(name: str, g: gc.Graph, fetch: Any, given: dict[Any, Any]) -> None:
    _, _, good, low, high, what = LIMITS[name]
    integers = list(given)[1]
    checked, plain = (gc.Session(g, options=options) for options in (CHECK, PLAIN))
    for value in (low, high):
        given[integers] = with_last(good, value)
        assert_near(checked.run(fetch, given), plain.run(fetch, given), rtol=1e-6)
    for value in (low - 1, high + 1):
        given[integers] = with_last(good, value)
        plain.run(fetch, given)  # an unchecked run raises no error
        with pytest.raises(NumericsError) as caught:
            checked.run(fetch, given)
        text = str(caught.value)
        assert text.startswith(what)
        assert f" out of range: {value} is not in {low} to {high}\n  at test_ranges.py:" in text


def with_last(integers: Any, value: int) -> Any:
    changed = np.array(integers)
    changed.flat[-1] = value
    return changed


# Values out of range that have a meaning: checked runs accept them, as unchecked runs do.
MEANT: dict[str, tuple[Build, list[Any], Any]] = {
    "one_hot": (lambda i: gc.nn.one_hot(i, 2), [ints(-1, 1)], [[0, 0], [0, 1]]),
    "segment_sum": (lambda i: gc.segment_sum(gc.ones((3,)), i, 2), [ints(-1, 0, 5)], [1, 0]),
    "take, clip": (lambda i: gc.take(TABLE, i, mode="clip"), [ints(9)], TABLE[4:]),
    "take, zero": (lambda i: gc.take(TABLE, i, mode="zero"), [ints(9)], [[0, 0]]),
    "take, wrap": (lambda i: gc.take(TABLE, i, mode="wrap"), [ints(7)], TABLE[2:3]),
    "x.at": (lambda i: gc.zeros((2,)).at[i].add(1.0), [ints(0, 9)], [1, 0]),
    "sequence_mask": (lambda n: nn.sequence_mask(n, 2), [ints(5, -1)], [[1, 1], [0, 0]]),
    "in_top_k": (lambda i: nn.in_top_k(i, TABLE[:2], 1), [ints(7, 1)], [False, True]),
    "put_along_axis": (
        lambda i: gc.put_along_axis(gc.zeros((2,)), i, 1.0, 0), [ints(-1, 9)], [0, 1],
    ),
    "dynamic_slice": (lambda i: gc.dynamic_slice(TABLE[:, 0], [i], [1]), [np.int32(9)], [8]),
    "dynamic_update_slice": (
        lambda i: gc.dynamic_update_slice(gc.zeros((2,)), gc.ones((1,)), [i]), [np.int32(9)],
        [0, 1],
    ),
    "switch": (
        lambda i: gc.switch(i, [lambda: gc.zeros(()), lambda: gc.ones(())]), [np.int32(9)], 1,
    ),
    "bincount": (lambda i: gc.bincount(i, 2), [ints(-1, 1, 9)], [0, 1]),
    "roll": (lambda i: gc.roll(np.arange(3), i), [np.int32(7)], [2, 0, 1]),
    "hinge_loss": (
        lambda i: nn.hinge_loss(logits=np.ones(2, "f"), labels=i), [ints(0, 3)], [1, 0],
    ),
    "groups that name more rows than there are": (
        lambda n: gc.ragged_dot(TABLE[:4] * 0 + 1, np.ones((2, 2, 1), "f"), n)[:, 0],
        [ints(3, 3)], [2, 2, 2, 2],
    ),
    "isin": (lambda i: gc.isin(i, np.arange(3, dtype=np.int32)), [ints(9, 1)], [False, True]),
}  # fmt: skip


def test_errors_of_shapes_name_what_was_given() -> None:
    with gc.Graph():
        x, y = gc.placeholder((4, 3), name="x"), gc.placeholder((5, 2), "int32", name="y")
        v = gc.variable(np.zeros((5, 2), "i"), name="v")
        for labels, text in ((y, r"labels +y:0"), (v, r"labels +v ")):
            with pytest.raises(ShapeError, match=text) as caught:
                cross_entropy(x, labels)
            assert "InRange" not in str(caught.value)


def test_values_that_mean_something_pass() -> None:
    with gc.Graph() as g:
        feeds, fetches = {}, {}
        for name, (build, given, _) in MEANT.items():
            inputs = [gc.placeholder(a.shape, a.dtype.name) for a in given]
            feeds.update(zip(inputs, given, strict=True))
            fetches[name] = build(*inputs)
    for options in (CHECK, PLAIN):
        found = gc.Session(g, options=options).run(fetches, feeds)
        for name, (_, _, wanted) in MEANT.items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def test_values_in_range_are_not_reported() -> None:
    """Checks that would report other values accept the first and the last allowed value."""
    with gc.Graph() as g:
        i = gc.placeholder((2,), "int32")
        fetches = [
            gc.take(TABLE, i - 5), gc.take(TABLE, i), gc.take_along_axis(TABLE, i[None] - 5, 0),
            gc.constant(TABLE)[i, gc.minimum(i, 1)], nn.Embedding(5, 2)(i),
            cross_entropy(np.zeros((2, 5), "f"), i),
            nn.GRU(2)(np.zeros((2, 4, 1), "f"), lengths=i),
        ]  # fmt: skip
    *taken, embedded, losses, hidden = gc.Session(g, options=CHECK).run(fetches, {i: ints(0, 4)})
    ends = TABLE[[0, 4]]
    for got, want in zip(taken, (ends, ends, [[0, 9]], [0, 9]), strict=True):
        np.testing.assert_array_equal(got, want)
    assert embedded.shape == (2, 2)
    assert_near(losses, np.full(2, np.log(5)), rtol=1e-6)
    assert len(hidden)


def test_programs_without_checks_hold_no_marks() -> None:
    g, y, given = built(gc.take, TABLE, ints(0, 4))
    assert any(node.op.name == "InRange" for node in g.nodes)
    for options, marked in ((PLAIN, False), (CHECK, True)):
        program = gc.compile(g, y, {t: a.shape for t, a in given.items()}, options=options).program
        assert any(node.op.name == "InRange" for node in program.nodes) == marked


def test_known_indices_are_looked_at_while_the_graph_is_built() -> None:
    with gc.Graph() as g:
        gc.take(TABLE, np.array([4]))
        with pytest.raises(gc.errors.ShapeError, match="index 5 is out of range"):
            gc.take(TABLE, np.array([5]))
    assert all(node.op.name != "InRange" for node in g.nodes)


@pytest.mark.parametrize("rows", [8, 6], ids=["even", "uneven"])
def test_replicas(rows: int) -> None:
    """One wrong label in the last replica's part. The padding of an uneven batch is not a label."""
    with gc.Graph() as g:
        logits = gc.placeholder((None, 3), name="logits")
        labels = gc.placeholder((None,), "int32", name="labels")
        loss = gc.reduce_mean(cross_entropy(logits, labels - 1))
    session = gc.Session(g, options=CHECK, strategy=gc.devices.DataParallel(4))
    feeds = {logits: np.ones((rows, 3), "f"), labels: np.ones(rows, "i")}
    session.run(loss, feeds)
    feeds[labels][-1] = 9
    with pytest.raises(NumericsError, match=r"(?s)labels out of range: 8.*on replica .* of 4"):
        session.run(loss, feeds)


def test_a_mesh() -> None:
    with gc.Graph() as g:
        table = gc.placeholder((5, 2), name="table")
        indices = gc.placeholder((None,), "int32", name="indices")
        y = gc.take(table, indices)
    session = gc.Session(g, options=CHECK, strategy=gc.devices.Mesh({"data": 4}))
    session.run(y, {table: TABLE, indices: np.arange(4, dtype="i")})
    with pytest.raises(NumericsError, match="indices out of range: 5 is not in -5 to 4"):
        session.run(y, {table: TABLE, indices: np.arange(2, 6, dtype="i")})


@pytest.mark.parametrize(
    "dtype", ["int4", "uint4", "int8", "uint8", "int32", "uint32", "int64", "uint64"]
)
def test_every_integer_dtype(dtype: str) -> None:
    """Includes bounds that the dtype cannot represent, and its own least and greatest values."""
    kind = as_dtype(dtype)
    unsigned = dtype.startswith("u")
    with jax.enable_x64(True):
        for values, bounds, wanted in (
            ([0, 7], (-8, 8), [0, 0]),
            ([0, 7], (0, 7), [1, 7]),
            ([], (0, 1), [0, 0]),
            ([1], (-(2**40), 2**40), [0, 0]),
            ([0, 3], (1, 2), [1, 3]),
            ([0, 1], (1, 2), [1, 0]),
            ([0], (0, 1), [0, 0]) if unsigned else ([-3, 0], (0, 1), [1, -3]),
        ):
            low, high = ((bound,) for bound in bounds)
            context = type("Context", (), {"shape": staticmethod(lambda shape: shape)})
            array = jax.numpy.asarray(np.array(values).astype(kind))
            found = OUT_OF_RANGE.lower(context, array, low=low, high=high)
            assert found.tolist() == wanted, (values, bounds)


def test_the_greatest_share_is_in_range_after_rounding() -> None:
    """In float32, 1.0 * (2**24 + 3) is rounded up to an index one past the end."""
    with gc.Graph() as graph:
        x = gc.zeros((2**24 + 4,))
        q = gc.placeholder((), name="q")
        greatest = gc.quantile(x, q)
    checked = gc.Session(graph, options=gc.CompileOptions(check_numerics=True))
    assert float(checked.run(greatest, {q: 1.0})) == 0


@pytest.mark.parametrize("dtype, sizes", [("int64", (2**33, 2**30)), ("uint64", (2**34, 2**30))])
def test_bounds_beyond_int64(dtype: str, sizes: tuple[int, int]) -> None:
    with gc.Graph() as graph:
        i = gc.placeholder((), dtype, name="i")
        places = gc.unravel_index(i, sizes)
    checked = gc.Session(graph, options=gc.CompileOptions(check_numerics=True))
    assert [int(p) for p in checked.run(places, {i: 2**62 + 5})] == [2**32, 5]


def test_ulonglong_in_the_caches_of_jax() -> None:
    """JAX rejects scalars of np.ulonglong, a dtype that equals uint64 and stays in its caches."""
    code = """
import graphc as gc, jax, numpy as np
with jax.enable_x64(True):
    jax.numpy.zeros((), np.dtype(np.ulonglong))
    assert jax.core.ShapedArray((), np.dtype(np.uint64)).dtype.type is np.ulonglong
with gc.Graph() as graph:
    x = gc.placeholder((2,), "uint64", name="x")
    i = gc.placeholder((2,), "int32", name="i")
    pooled = gc.nn.max_pool(gc.reshape(x, (1, 2, 1)), 2, 1, padding="same")
    fetches = [gc.unravel_index(x[0], (4, 5)), gc.take(x, i, mode="fill"), pooled, x // x[::-1]]
checked = gc.Session(graph, options=gc.CompileOptions(check_numerics=True))
print(*checked.run(fetches, {x: [3, 6], i: [0, 9]}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "18446744073709551615" in done.stdout


def test_the_steps_in_a_cache_may_be_a_number() -> None:
    with gc.Graph() as graph:
        layer = nn.MultiHeadAttention(4, 2, causal=True)
        x = gc.placeholder((2, 1, 4), name="x")
        y, _ = layer.with_cache(x, layer.empty_cache(2, 4)._replace(length=0))
        counted, _ = layer.with_cache(x, layer.empty_cache(2, 4))
    got, want = gc.Session(graph).run([y, counted], {x: np.ones((2, 1, 4), "f")})
    assert np.abs(want).max() > 0
    assert_near(got, want, rtol=1e-6)
