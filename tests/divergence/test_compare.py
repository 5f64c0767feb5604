"""`gc.compare` names exactly the planted node, and tolerates rounding."""

import jax.numpy as jnp
import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, FetchError, ModelFileError, UnknownNameError
from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.divergence.plants import (
    Change,
    Network,
    Plant,
    cnn,
    lstm,
    rounded_to_bf16,
    shifted,
    transformer,
    with_attrs,
    with_kernel,
)


def planted(network: Network, node: str, change: Change) -> gc.Comparison:
    graph, feeds, y = network
    return gc.compare(graph, gc.Run(passes=[Plant(node, change)]), feeds, fetches=y)


FAULTS = {
    "cnn: broken kernel": (cnn, "kept", with_kernel(lambda y: jnp.maximum(y, 1e-4))),
    "cnn: bf16": (cnn, "second/Conv", rounded_to_bf16),
    "cnn: layout": (cnn, "second/Conv", with_kernel(lambda y: jnp.swapaxes(y, 1, 2))),
    "transformer: epsilon": (transformer, "block0/norm/LayerNorm", with_attrs(epsilon=3e-5)),
    "transformer: bf16": (transformer, "block0/weights", rounded_to_bf16),
    "transformer: layout": (transformer, "block0/scores", with_kernel(shifted)),
    "transformer: one element": (
        transformer,
        "block0/v/MatMul",
        with_kernel(lambda y: y.at[1, 3, 2].multiply(1.0001)),
    ),
    "lstm: bf16 in the loop": (lstm, "gates", rounded_to_bf16),
    "lstm: broken kernel in the loop": (lstm, "squashed", with_kernel(lambda y: y * 1.00001)),
}


# One of each kind of error and of each network.
QUICK = ("cnn: layout", "transformer: epsilon", "lstm: bf16 in the loop")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in QUICK else pytest.mark.slow) for c in FAULTS]
)
def test_a_planted_fault_is_found_at_its_node_only(case: str) -> None:
    network, node, change = FAULTS[case]
    found = planted(network(), node, change)
    assert found.first is not None
    assert found.first.node == node
    assert found.first.source.startswith("plants.py:")
    assert found.first.blamed == "plant"
    # In a loop, each result has the error; elsewhere, no other value has it.
    around = {row.node for row in found.faults}
    assert around == ({"lstm"} if network is lstm else {node})
    assert ("lstm" in str(found.first.inside)) == (network is lstm)


def test_the_element_of_the_fault_is_named() -> None:
    _, node, change = FAULTS["transformer: one element"]
    found = planted(transformer(), node, change).first
    assert found is not None and found.index == (1, 3, 2)


@pytest.mark.parametrize("network", [cnn, transformer, lstm])
@pytest.mark.parametrize("options", [gc.CompileOptions(), gc.CompileOptions(precision="bf16")])
def test_rounding_is_not_a_fault(network, options) -> None:  # type: ignore[no-untyped-def]
    graph, feeds, y = network()
    found = gc.compare(graph, None, feeds, fetches=y, run=options)
    assert found.ok, found.text()
    assert found.rows


@pytest.mark.slow
def test_a_fault_before_blocks_become_a_loop_is_found_at_its_node() -> None:
    graph, feeds, y = transformer(layers=6)
    node = "block3/scores"
    passes = [Plant(node, with_kernel(shifted)), RollRepeats()]
    found = gc.compare(graph, gc.Run(passes=passes), feeds, fetches=y).first
    assert found is not None
    assert (found.node, found.blamed) == (node, "plant")


@pytest.mark.slow
def test_a_fault_in_a_rolled_loop_is_found_at_the_loop() -> None:
    graph, feeds, y = transformer(layers=6)
    rolled = gc.compare(graph, gc.Run(passes=[RollRepeats()]), feeds, fetches=y)
    assert rolled.ok and max(len(row.nodes) for row in rolled.rows) > 6 * 10

    broken = Plant("block*/weights", with_kernel(lambda y: y * 1.001))
    found = gc.compare(graph, gc.Run(passes=[RollRepeats(), broken]), feeds, fetches=y).first
    assert found is not None
    assert found.blamed == "plant"
    assert found.node == "block0/weights" and "iteration 0" in found.inside[0]


@pytest.mark.slow
def test_a_training_step_is_compared_with_its_updates() -> None:
    import optax

    graph, feeds, y = transformer()
    with graph:
        loss = gc.reduce_mean(gc.square(y), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    session = gc.Session(graph)
    session.run(train, feeds)
    found = gc.compare(session, None, feeds, fetches=[train, loss])
    assert found.ok, found.text()
    assert any(row.node.startswith("train/") for row in found.rows)


def values_of(graph: gc.Graph, feeds: dict, names: list[str]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    values = gc.Session(graph).run(names, feeds)
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def test_values_of_another_program_are_compared_by_name() -> None:
    graph, feeds, y = transformer()
    values = values_of(graph, feeds, ["block0/norm/LayerNorm", "block0/scores", "block0/out"])
    assert gc.compare(graph, values, feeds, fetches=y).ok
    values["block0/scores"] = values["block0/scores"] * np.float32(1.0001)
    found = gc.compare(graph, values, feeds, fetches=y)
    assert found.first is not None and found.first.node == "block0/scores"
    assert "block0/q/MatMul" in found.first.nodes  # these have no value in the record
    # The last value differs from the one computed from the changed value.
    assert [row.node for row in found.faults] == ["block0/scores", "block0/out"]


def test_values_with_other_shapes_or_nan_are_faults() -> None:
    graph, feeds, y = cnn()
    values = values_of(graph, feeds, ["first/Conv", "kept"])
    values["kept"] = values["kept"].copy()
    values["kept"][0, 0, 0, 0] = np.nan
    found = gc.compare(graph, values, feeds, fetches=y).first
    assert found is not None and found.node == "kept" and found.index == (0, 0, 0, 0)
    values["first/Conv"] = values["first/Conv"][:, :-1]
    found = gc.compare(graph, values, feeds, fetches=y).first
    assert found is not None and found.node == "first/Conv"


def test_before_and_after_a_pass() -> None:
    graph, feeds, y = transformer()
    options = gc.CompileOptions()
    run = gc.Run(options, after="simplify-algebra")
    assert gc.compare(
        graph, gc.Run(options, before="simplify-algebra"), feeds, fetches=y, run=run
    ).ok
    with pytest.raises(UnknownNameError, match="no pass 'simplify-algebr' ran"):
        gc.compare(graph, gc.Run(options, after="simplify-algebr"), feeds, fetches=y)
    with pytest.raises(AttributeValueError, match="exclude each other"):
        gc.Run(before="prune", after="prune")


def test_a_record_is_compared_in_another_run(tmp_path) -> None:  # type: ignore[no-untyped-def]
    graph, feeds, y = cnn()
    path = tmp_path / "run.record"
    record = gc.Record.write(path, graph, feeds, fetches=y)
    assert gc.compare(graph, gc.Record.open(path), feeds, fetches=y).ok
    assert len(record.values) == 9
    other, others_feeds, z = cnn()
    assert gc.compare(other, record, others_feeds, fetches=z).ok  # in the way of another process
    changed = {x: value + 1 for x, value in others_feeds.items()}
    with pytest.raises(ModelFileError, match="other feeds"):
        gc.compare(other, record, changed, fetches=z)


def test_a_damaged_record_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    graph, feeds, y = cnn()
    path = tmp_path / "run.record"
    gc.Record.write(path, graph, feeds, fetches=y)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(600):
        data = bytearray(good)
        at = int(rng.integers(len(data)))
        data[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            dict(gc.Record.open(path).values)
        except ModelFileError:
            refused += 1
    assert refused > 300  # other bits are in names and labels
    for cut in (0, 7, 8, 100, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(ModelFileError):
            gc.Record.open(path)


def test_mistakes_are_explained() -> None:
    graph, feeds, y = cnn()
    with pytest.raises(FetchError, match="no fetches"):
        gc.compare(graph, None, feeds)
    with pytest.raises(AttributeValueError, match="must be a graph or a session"):
        gc.compare(y, None, feeds, fetches=y)
    with pytest.raises(UnknownNameError, match="none of the 1 names"):
        gc.compare(graph, {"nothing": np.zeros(3)}, feeds, fetches=y)


def test_the_picture_and_the_report(tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = planted(cnn(), "second/Conv", rounded_to_bf16)
    text = str(found)
    assert "part at Conv 'second/Conv' (plants.py:" in text and "pass plant made it" in text
    assert "passes plant: 0.00" in text
    assert found.to_json()["first"]["node"] == "second/Conv"
    pytest.importorskip("matplotlib")
    found.plot(str(tmp_path / "growth.png"))
    assert (tmp_path / "growth.png").stat().st_size > 5000


def test_a_value_that_a_pass_stores_in_another_order_is_not_compared() -> None:
    """All axes have one size, so the shapes are equal."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((4, 4, 4, 4), name="x")
        first = gc.transpose(x, (0, 3, 1, 2))
        y = gc.transpose(gc.exp(gc.tanh(first, name="t"), name="e"), (0, 2, 3, 1), name="y")
    feeds = {x: np.random.default_rng(0).normal(size=(4, 4, 4, 4)).astype("float32")}
    found = gc.compare(graph, None, feeds, fetches=y)
    assert found.ok, found.text()


def test_two_devices() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 8), name="x")
        y = gc.nn.softmax(gc.nn.Dense(4, name="out")(gc.tanh(x)), name="probs")
    feeds = {x: np.random.default_rng(0).normal(size=(16, 8)).astype("float32")}
    found = gc.compare(gc.Session(graph), "/cpu:1", feeds, fetches=y)
    assert found.ok and found.rows, found.text()
    assert found.labels == ("O2", "O2 /cpu:1")
    broken = gc.Run(passes=[Plant("probs", with_kernel(lambda y: y * 1.0001))], device="/cpu:1")
    parted = gc.compare(gc.Session(graph), broken, feeds, fetches=y).first
    assert parted is not None and parted.node == "probs"
    with pytest.raises(gc.errors.DeviceError, match="/cpu:99"):
        gc.compare(graph, "/cpu:99", feeds, fetches=y)
