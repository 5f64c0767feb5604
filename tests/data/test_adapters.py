"""Sources of other libraries, if they are installed (the extra `adapters`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import graphc as gc


def positions(pipeline: gc.data.Pipeline, key: str = "x") -> list[Any]:
    """The items, after a check that iteration can continue at each position."""
    want = [np.asarray(item[key]).tolist() for item in pipeline]
    for taken in range(len(want) + 1):
        with iter(pipeline) as items:
            for _ in range(taken):
                next(items)
            state = json.loads(json.dumps(items.state()))
        with iter(pipeline) as again:
            again.restore(state)
            assert [np.asarray(item[key]).tolist() for item in again] == want[taken:]
    return want


def is_numpy(item: Any) -> bool:
    return all(isinstance(each, (np.ndarray, np.generic)) for each in item.values())


def trains(pipeline: gc.data.Pipeline) -> None:
    """Feeds batches of {"x": [4]} to a session."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None,), "float32", name="x")
        total = gc.sum(x)
    session = gc.Session(graph)
    feeds = pipeline.map(lambda batch: {"x": batch["x"]}).prefetch(session)
    assert sum(float(session.run(total, each)) for each in feeds) == 66.0


@pytest.mark.filterwarnings("ignore")
def test_a_data_loader_and_datasets_of_torch() -> None:
    torch = pytest.importorskip("torch")

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, i: int) -> Any:
            if i >= 12:
                raise IndexError
            return {"x": torch.tensor(float(i), requires_grad=True), "y": torch.tensor(i)}

    loader = torch.utils.data.DataLoader(
        [{"x": torch.tensor(float(i)), "b": torch.ones(2).bfloat16()} for i in range(12)],
        batch_size=4,
    )
    assert positions(gc.data.from_iterable(loader)) == np.arange(12.0).reshape(3, 4).tolist()
    first = next(iter(gc.data.from_iterable(loader)))
    assert is_numpy(first) and str(first["b"].dtype) == "bfloat16"
    trains(gc.data.from_iterable(loader))
    rows = gc.data.from_iterable(Rows())
    assert rows.count == 12  # read in any order
    assert sorted(positions(rows.shuffle(seed=1))) == list(range(12))
    assert is_numpy(next(iter(rows)))
    trains(rows.batch(4))


@pytest.mark.filterwarnings("ignore")
def test_a_dataset_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices({"x": np.arange(12, dtype=np.float32)}).batch(4)
    pipeline = gc.data.from_iterable(data)
    assert positions(pipeline) == np.arange(12.0).reshape(3, 4).tolist()
    assert is_numpy(next(iter(pipeline)))
    trains(pipeline)
    texts = gc.data.from_iterable(tf.data.Dataset.from_tensor_slices({"x": ["a", "b\0"]}).batch(2))
    assert next(iter(texts))["x"].tolist() == [b"a", b"b\0"]


@pytest.mark.filterwarnings("ignore")
def test_datasets_of_hugging_face(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets")
    rows = {"x": [float(i) for i in range(12)], "tokens": [[i, 2] for i in range(12)]}
    data = datasets.Dataset.from_dict(rows)
    pipeline = gc.data.from_iterable(data)
    assert pipeline.count == 12
    assert sorted(positions(pipeline.shuffle(seed=1))) == rows["x"]
    assert next(iter(pipeline.batch(3)))["tokens"].tolist() == [[0, 2], [1, 2], [2, 2]]
    trains(pipeline.batch(4))
    stream = gc.data.from_iterable(data.to_iterable_dataset())
    assert positions(stream) == rows["x"]
    assert is_numpy(next(iter(gc.data.from_iterable(data.with_format("numpy")))))


@pytest.mark.filterwarnings("ignore")
def test_datasets_of_grain() -> None:
    grain = pytest.importorskip("grain.python")
    data = grain.MapDataset.source([{"x": np.float32(i)} for i in range(12)])
    pipeline = gc.data.from_iterable(data)
    assert pipeline.count == 12 and sorted(positions(pipeline.shuffle(seed=3))) == list(range(12))
    iterable = data.shuffle(seed=1).batch(4).to_iter_dataset()
    stream = gc.data.from_iterable(iterable)
    assert sorted(x for batch in positions(stream) for x in batch) == list(range(12))
    items = iter(stream)
    next(items)
    assert "own" in items.state()["at"]  # its iterator restores itself
    trains(stream)
