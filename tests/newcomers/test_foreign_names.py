"""The table of names from other libraries: the suggested names exist and run."""

import inspect
import re
import traceback

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.ir.foreign_arguments import KEYWORDS
from graphc.ir.foreign_members import MEMBERS
from graphc.ir.foreign_names import ATTRIBUTES, FUNCTIONS

PACKAGES = (gc, gc.nn, gc.random, gc.data, gc.train, gc.linalg, gc.fft, gc.devices)
TABLES = {"attributes": ATTRIBUTES, "functions": FUNCTIONS, **MEMBERS}
ADVICE = [(kind, name) for kind, table in TABLES.items() for name in table]

# A training job and a data loader need files and threads; one device cannot be divided.
NOT_RUN = ["gc.train.fit(session, job)", "gc.devices.DataParallel(n)"]

# Text between two expressions of a suggestion.
_BETWEEN = re.compile(
    r", or |; |: |, (?:which|of|then|with)\b| of a variable| or | and the other| as the rate"
    r"| when the | around the | are the | gives |, "
)


def expressions(advice):
    """The parts of a suggestion that are Python expressions. `labels=...` means `labels=labels`."""
    text = re.sub(r"(\w+)=\.\.\.", r"\1=\1", advice)
    depth = start = 0
    parts = []
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        between = _BETWEEN.match(text, place)
        if depth == 0 and between and place >= start:
            parts.append(text[start:place])
            start = between.end()
    return [part for part in (*parts, text[start:]) if _is_expression(part.strip())]


def _is_expression(part):
    if not re.search(r"[.\[(@*+]|^x$", part):  # a word
        return False
    try:
        compile(part, "advice", "eval")
    except SyntaxError:
        return False
    return True


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The values of the names that suggestions use."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.constant(np.full((4, 4), 0.5, "float32") + np.eye(4, dtype="float32"))
        v = gc.variable(np.ones((4, 4), "float32"), name="v")
        layer = gc.nn.Dropout(0.5)
        layer.inner = gc.nn.Dense(4, name="inner")
        loss = gc.reduce_sum(v @ layer.inner(x) @ x)
        metric = gc.multiply(loss, 2.0, name="metric")
        mask = x > 1
    session = gc.Session(graph)
    folder = tmp_path_factory.mktemp("advice")
    path = folder / "values.npz"
    with graph.extend():
        mean = gc.metrics.Mean(x)
    session = gc.Session(graph)
    fed = gc.Graph()
    with fed:
        given = gc.placeholder((4,), name="x")
        signature = gc.Signature({"x": given}, {"y": given * 2})
    gc.save(gc.Session(fed), folder / "fed.gcx", signatures={"predict": signature})
    np.savez(path, **session.values())
    return {
        **{"gc": gc, "np": np, "optax": optax, "graph": graph, "session": session, "layer": layer},
        **dict.fromkeys(["x", "y", "t", "a", "b", "more", "log_predictions"], x),
        **dict.fromkeys(["loss", "ys", "metric", "train", "prediction", "tensor"], loss),
        **{"fetches": [loss], "variables": [v], "xs": [v]},
        **{
            "v": v,
            "mask": mask,
            "index": 1,
            "value": 1.0,
            "values": np.ones(4, "float32"),
            "initial": np.ones(3),
            "init": x,
            "folder": folder / "logs",
            "mean": mean,
            "loaded": gc.load(folder / "fed.gcx"),
            "checkpointer": gc.train.Checkpointer(folder / "checkpoints"),
            "pipeline": gc.data.from_arrays({"x": np.ones((8, 2))}),
            "generator": lambda: iter([{"x": np.ones(2)}]),
            "writer": gc.train.SummaryWriter,
            "history": gc.train.History(3, {"loss": np.zeros(3)}, 0.1, 0.1),
            "step": 1,
            "n": 2,
            "inputs": {"x": x},
            "outputs": {"y": x},
        },
        **{"axis": 0, "axes": (1, 0), "shape": (2, 8), "sections": 2, "k": 2, "dtype": "float32"},
        **{"labels": x, "logits": x, "p": 0.5, "rate": 0.1, "momentum": 0.9, "decay": 0.9},
        **{"optimizer": optax.sgd(0.1), "name": metric.node.name, "seed": 3, "units": 4},
        **{
            "another": layer.inner,
            "model": gc.nn.Sequential([layer.inner, gc.nn.relu]),
            "stddev": 0.1,
            "low": 0.0,
            "high": 1.0,
            "size": 2,
            "amount": 1,
            "numbers": np.arange(4),
            "limit": 1.0,
            "node": loss.node,
            "classes": 10,
            "samples": 3,
            "steps": 10,
        },
        **{"factor": 0.5, "tensors": [x, x], "cell": gc.nn.LSTMCell(4), "feeds": {}, "path": path},
        **{"arrays": {"x": np.ones((8, 2))}, "batch": 4, "batches": [{}], "signatures": {}},
        **{"f": lambda carry, row: (carry, row), "condition": lambda i: i < 3},
        **{"body": lambda i: i + 1},
    }


def arguments(expression, world):
    """`world` with the names that only this expression uses."""
    if "sparse_softmax" in expression:
        return {**world, "labels": np.arange(4)}
    if "pipeline." in expression:
        return {**world, "f": lambda record: record}
    if "loaded." in expression:
        return {**world, "values": np.ones(4, "float32")}
    if "broadcast_to" in expression:
        return {**world, "shape": (2, 4, 4)}
    if "while_loop" in expression:
        return {**world, "initial": 0}
    if "gc.scan" in expression:
        return {**world, "xs": world["x"]}
    if "SpectralNorm" in expression:
        return {**world, "layer": gc.nn.Dense(4)}
    if "set_all(values)" in expression:
        return {**world, "values": {"v": np.zeros((4, 4))}}
    if "gc.save" in expression:
        signatures = {"loss": gc.Signature({}, {"loss": world["loss"]})}
        return {**world, "path": world["path"].with_suffix(".gcx"), "signatures": signatures}
    if "layer.variable(" in expression:
        return {**world, "name": "scale", "shape": (3,)}
    if "assign" in expression:
        return {**world, "value": np.ones((4, 4), "float32")}
    if "layer(x)" in expression:
        return {**world, "layer": world["layer"].inner}
    if "gc.device(" in expression:
        return {**world, "name": "/cpu:0"}
    return world


@pytest.mark.parametrize(("kind", "name"), ADVICE)
def test_advice_runs(kind, name, world):
    advice = TABLES[kind][name]
    for expression in expressions(advice):
        if expression in NOT_RUN:
            continue
        with world["graph"].extend():
            code = compile(expression.strip().replace("<layer>", "inner"), advice, "eval")
            assert not isinstance(eval(code, arguments(expression, world)), Exception)


def resolve(name):
    """The object that a name like `gc.nn.relu` denotes."""
    thing = gc
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize(("kind", "name"), ADVICE)
def test_what_is_advised_exists(kind, name):
    advice = TABLES[kind][name]
    for found in re.findall(r"\bgc(?:\.\w+)+", advice):
        assert resolve(found) is not None
    for called, keyword in re.findall(r"(gc[.\w]+)\((?:[^()]*, )?(\w+)=", advice):
        assert keyword in inspect.signature(resolve(called)).parameters


def test_most_advice_is_code():
    assert sum(bool(expressions(TABLES[kind][name])) for kind, name in ADVICE) > 180


def test_names_in_the_table_are_not_public():
    assert not [name for name in FUNCTIONS if name in dir(gc)]
    assert not [name for name in ATTRIBUTES if name in dir(gc.Tensor)]


def test_keywords_are_arguments_of_some_function():
    known = set()
    for module in PACKAGES:
        for name in dir(module):
            thing = getattr(module, name)
            if callable(thing):
                known |= set(inspect.signature(thing).parameters)
    for name, others in KEYWORDS.items():
        assert known & set(others), name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_foreign_name_is_answered(name):
    with pytest.raises(gc.errors.UnknownAttributeError) as caught:
        getattr(gc, name)
    assert f"write {FUNCTIONS[name]}" in str(caught.value)
    assert "test_foreign_names.py" in str(caught.value)


def test_python_adds_no_guess_of_its_own():
    """For `cho_solve`, Python would add "Did you mean: 'lu_solve'?" after the hint."""
    with pytest.raises(gc.errors.UnknownAttributeError) as caught:
        gc.linalg.cho_solve  # noqa: B018
    text = "".join(traceback.format_exception(caught.value))
    assert "did you mean 'cholesky_solve'?" in text and "Did you mean" not in text
