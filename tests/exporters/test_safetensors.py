"""`gc.to_safetensors`: values and names, and errors before anything is written."""

import numpy as np
import optax
import pytest
from safetensors import deserialize

import graphc as gc
from graphc.errors import AttributeValueError, ModelExportError, UnknownNameError
from tests.near import assert_near


@pytest.mark.parametrize(
    ("dtype", "tag"),
    [
        ("bool", "BOOL"),
        ("int8", "I8"),
        ("uint64", "U64"),
        ("float16", "F16"),
        ("bfloat16", "BF16"),
        ("float64", "F64"),
        ("float8_e5m2", "F8_E5M2"),
    ],
)
def test_values_keep_their_dtypes(tmp_path, dtype, tag):
    with gc.Graph() as graph:
        gc.variable(np.array([[0, 1, 1], [1, 0, 1]]).astype(bool), dtype=dtype, name="a/v")
        gc.variable(np.zeros((0, 3), "float32"), name="empty")
    session = gc.Session(graph)
    gc.to_safetensors(session, tmp_path / "f.safetensors")
    found = dict(deserialize((tmp_path / "f.safetensors").read_bytes()))
    assert set(found) == {"a/v", "empty"} and found["empty"]["shape"] == [0, 3]
    assert found["a/v"]["dtype"] == tag and found["a/v"]["shape"] == [2, 3]
    assert bytes(found["a/v"]["data"]) == session.values()["a/v"].tobytes()


def test_refusals_leave_the_old_file(tmp_path):
    path = tmp_path / "f.safetensors"
    path.write_bytes(b"old")
    with gc.Graph() as graph:
        gc.variable(1j, name="z")
        gc.variable(2.0, name="v")
        gc.variable(2j, name="y")
    session = gc.Session(graph)
    with pytest.raises(ModelExportError, match=r"(?s)'z' is complex64.*'y' is complex64"):
        gc.to_safetensors(session, path)
    with pytest.raises(UnknownNameError):
        gc.to_safetensors(session, path, ["w"])
    for names in ("v", 3, {"v": 1}, {"v": "a", "z": "a"}):
        with pytest.raises(AttributeValueError):
            gc.to_safetensors(session, path, names)
    with pytest.raises(AttributeValueError, match="takes a session, got dict"):
        gc.to_safetensors({"v": np.ones(2)}, path)
    with pytest.raises(ModelExportError, match="cannot write"):
        gc.to_safetensors(session, tmp_path / "none" / "f", ["v"])
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_torch_module_takes_trained_values(tmp_path):
    torch = pytest.importorskip("torch")
    load = pytest.importorskip("safetensors.torch").load_file
    module = torch.nn.Linear(3, 2)
    x = np.arange(12, dtype="float32").reshape(4, 3)
    with gc.Graph() as graph:
        w = gc.variable(np.ones((2, 3), "float32"), name="weight")
        b = gc.variable(np.zeros(2, "float32"), name="bias")
        y = gc.matmul(gc.constant(x), gc.transpose(w)) + b
        step = gc.minimize(gc.mean(y * y), optax.sgd(0.01))
    session = gc.Session(graph)
    session.run(step)
    gc.to_safetensors(session, tmp_path / "f.safetensors", ["weight", "bias"])
    module.load_state_dict(load(tmp_path / "f.safetensors"))
    assert not np.allclose(session.values()["weight"], 1)
    found = module(torch.from_numpy(x)).detach().numpy()
    assert_near(found, session.run(y), rtol=1e-5)
