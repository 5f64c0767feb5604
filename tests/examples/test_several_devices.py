"""Examples over several devices: two nodes, layers of an LSTM, stages of a transformer."""

import model_parallel_lstm
import pipeline_transformer
import pytest
import sources
import two_devices
from transformer_lm import Size

import graphc as gc


def test_two_nodes_on_two_devices(capsys: pytest.CaptureFixture[str]) -> None:
    two_devices.main()
    output = capsys.readouterr().out
    where = "/job:localhost/replica:0/task:0/device:CPU:"
    assert f"product: (MatMul) {where}0\n" in output
    assert f"total: (ReduceSum) {where}1\n" in output
    assert "total 30, computed on /device:CPU:1" in output
    assert "# send product:0  /device:CPU:0 -> /device:CPU:1" in output


@pytest.mark.one_jax
def test_one_layer_per_device_trains_as_on_one(capsys: pytest.CaptureFixture[str]) -> None:
    model_parallel_lstm.main(
        ["--layers", "2", "--units", "8", "--length", "6", "--batch", "4", "--steps", "3",
         "--micro-batches", "2", "--log"]
    )  # fmt: skip
    output = capsys.readouterr().out
    one, several = (line.split(";")[0] for line in output.splitlines() if "at last" in line)
    assert one == several
    assert "layer1/cell/kernel: (Variable) /job:localhost/replica:0/task:0/device:CPU:1" in output


@pytest.mark.one_jax
def test_a_pipeline_waits_less_with_more_micro_batches(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline_transformer.main(
        ["--stages", "2", "--blocks", "2", "--width", "16", "--length", "8", "--batch", "4",
         "--steps", "2", "--micro-batches", "1", "2"]
    )  # fmt: skip
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    (_, loss, clusters, compiled, _, theory, *_), (_, other, more, rest, _, less, *_) = rows
    assert float(loss) == pytest.approx(float(other), abs=1e-5)
    assert (theory, less) == ("50.0%", "33.3%")
    assert int(clusters) == int(compiled) == 3
    # Two micro-batches of three clusters, compiled once; two more clusters on each device.
    assert (int(more), int(rest)) == (10, 7)
    size = Size(blocks=2, width=16, heads=4, length=8, batch=4)
    graph, text, one, train = pipeline_transformer.build(size, ["/cpu:0"], 1)
    session = gc.Session(graph)
    training = sources.encode(sources.read(sources.TRAINING))
    for _, piece in zip(range(2), sources.windows(training, 9, 4, seed=1), strict=False):
        _, value = session.run([train, one], {text: piece})
    assert float(loss) == pytest.approx(float(value), abs=1e-5)
