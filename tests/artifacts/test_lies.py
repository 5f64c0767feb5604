"""Files with correct checksums and wrong contents: in the manifest, the weights or the graph."""

import base64
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import graphc as gc
from graphc.artifacts import container
from graphc.errors import ArtifactError, ArtifactVersionError
from graphc.ir.serial import from_bytes, to_bytes
from tests.artifacts.forge import Change, entry, forge, member, write_zip
from tests.artifacts.models import linear

X = np.array([[1.0, 2.0]], np.float32)
OLD = Path(__file__).parent / "old"
WEIGHTS = "weights.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    graph, signatures = linear()
    path = tmp_path_factory.mktemp("whole") / "model.gcx"
    gc.save(gc.Session(graph), path, signatures=signatures)
    return path


def answer(path: Path) -> float:
    return float(gc.load(path).signatures["predict"](x=X)["y"][0, 0])


def use(path: Path) -> None:
    model = gc.load(path)
    for point in model.signatures.values():
        point(model.state(), x=X)


# -- the manifest ---------------------------------------------------------------------------


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a manifest."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((*path, key))
        if isinstance(inner, (dict, list)):
            found += paths_of(inner, (*path, key))
    return found


def test_a_forged_file_with_nothing_changed_loads(whole: Path, tmp_path: Path) -> None:
    forge(whole, tmp_path / "same.gcx", lambda m: m.update(later="unknown fields are passed over"))
    assert answer(tmp_path / "same.gcx") == answer(whole) == 5.0


def test_anything_removed_or_of_another_type(whole: Path, tmp_path: Path) -> None:
    """One field at a time. The programs are read too, because some errors appear only then."""
    manifest, _ = container.read(whole)
    path = tmp_path / "model.gcx"
    wrong = [None, -1, 1.5, True, "?", [], {}, [[]], 10**30, {"a": []}, float("nan")]
    rng = random.Random(3)
    for place in paths_of(manifest):

        def remove(m: dict[str, Any], place: tuple[Any, ...] = place) -> None:
            for key in place[:-1]:
                m = m[key]
            del m[place[-1]]

        def replace(m: dict[str, Any], value: Any, place: tuple[Any, ...] = place) -> None:
            for key in place[:-1]:
                m = m[key]
            m[place[-1]] = value

        values = rng.sample(wrong, 3)
        changes: list[Change] = [remove, *(lambda m, v=v, r=replace: r(m, v) for v in values)]
        for change in changes:
            forge(whole, path, change)
            try:
                model = gc.load(path)
                for point in model.signatures.values():
                    point.way  # noqa: B018  reads the program
            except (ArtifactError, gc.errors.DeviceError) as error:
                assert str(error).count("\n") < 6
            except Exception as error:
                raise AssertionError(f"{place}: {error!r}") from error


def dims(shape: list[Any]) -> Change:
    return lambda m: entry(m)["inputs"][0].update(shape=shape)


LIES: dict[str, tuple[Change, str | None]] = {
    "unknown dtype": (
        lambda m: m["variables"][0].update(dtype="f31"),
        "dtype of graphc, got 'f31'",
    ),
    "Python in a dtype": (lambda m: m["variables"][0].update(dtype="__import__('os')"), "dtype"),
    "negative size": (lambda m: m["variables"][0].update(shape=[-2, 1]), "list of sizes"),
    "absurd size": (lambda m: m["variables"][0].update(shape=[2**62, 2**62]), "list of sizes"),
    "absurd product": (lambda m: m["variables"][0].update(shape=[2**40, 2**40]), "into memory"),
    "absurd and empty": (lambda m: m["variables"][0].update(shape=[0, 2**55]), "into memory"),
    "NaN size": (lambda m: m["variables"][0].update(shape=[float("nan")]), "list of sizes"),
    "infinite size": (lambda m: m["variables"][0].update(shape=[float("inf"), 1]), "list of sizes"),
    "many sizes": (lambda m: m["variables"][0].update(shape=[1] * 65), "list of sizes"),
    "more than there is": (
        lambda m: m["variables"][0].update(shape=[2**30]),
        "hold the 4294967296",
    ),
    "another shape": (lambda m: m["variables"][0].update(shape=[1, 2]), "take w: f32"),
    "open size of a variable": (lambda m: m["variables"][0].update(shape=["n"]), "list of sizes"),
    "an offset before": (lambda m: m["variables"][0].update(offset=-1), "a place in the member"),
    "an offset beyond": (lambda m: m["variables"][0].update(offset=10**9), "hold the 8 bytes"),
    "an absurd offset": (lambda m: m["variables"][0].update(offset=10**40), "place in the member"),
    "another offset": (lambda m: m["variables"][0].update(offset=0), "value of 'w' was altered"),
    "another checksum": (lambda m: m["variables"][0].update(sha256="0"), "of 'w' was altered"),
    "no checksum": (lambda m: m["variables"][0].update(sha256=""), "of 'w' was altered"),
    "variable twice": (lambda m: m["variables"].append(m["variables"][0]), "different names"),
    "overlapping variables": (
        lambda m: m["variables"].append(
            {**m["variables"][0], "name": "z", "offset": m["variables"][0]["offset"] - 4}
        ),
        "share no bytes with another",
    ),
    "slot that is not there": (lambda m: entry(m)["read"].append("z"), "name variables, got 'z'"),
    "read and written": (lambda m: entry(m)["read"].append("w"), "share no variable"),
    "assigned is not written": (
        lambda m: entry(m)["assigned"].clear(),
        "begin with what is written",
    ),
    "not written": (lambda m: entry(m).update(written=[], read=["w"]), None),
    "program that is not there": (lambda m: entry(m).update(stablehlo="x"), "be members"),
    "graph that is not there": (lambda m: entry(m).update(graph="../../x"), "be members"),
    "native that is not there": (
        lambda m: entry(m).update(native={"member": "x", "environment": {}}),
        "be members",
    ),
    "an environment that is none": (
        lambda m: entry(m).update(native={"member": WEIGHTS, "environment": {"jax": 1}}),
        "map names to texts",
    ),
    "nothing but weights": (
        lambda m: entry(m).update(stablehlo=WEIGHTS, graph=None),
        "none of its forms can be used",
    ),
    "another program": (
        lambda m: entry(m).update(stablehlo="programs/predict.stablehlo"),
        "give 2 values|take|give",
    ),
    "index beyond": (lambda m: entry(m, "predict")["outputs"][0].update(index=1), "indices below"),
    "fetches that are not": (lambda m: entry(m, "predict").update(fetches=3), "give 3 values"),
    "more inputs": (
        lambda m: entry(m)["inputs"].append({"name": "q", "dtype": "f32", "shape": []}),
        "an axis, or null, of each input",
    ),
    "more inputs and splits": (
        lambda m: (
            entry(m)["inputs"].append({"name": "q", "dtype": "f32", "shape": []}),
            entry(m)["splits"].append(None),
        ),
        "take 3 values, not 2",
    ),
    "an axis beyond": (lambda m: entry(m).update(splits=[2]), "an axis, or null"),
    "no devices": (lambda m: entry(m).update(devices=0), "be a number of devices"),
    "a million devices": (lambda m: entry(m).update(devices=10**7), "be a number of devices"),
    "a convention that is none": (lambda m: entry(m).update(convention="9"), "of type int"),
    "input of another dtype": (
        lambda m: entry(m)["inputs"][0].update(dtype="i32"),
        r"take x: i32\[batch, 2\], not",
    ),
    "input of another size": (dims(["batch", 3]), "take x"),
    "dim that is none": (dims(["a b", 2]), "list of sizes"),
    "dim that is code": (dims(["__import__('os').abort()", 2]), "list of sizes"),
    "dim that is deep": (dims(["(" * 900 + "n", 2]), "list of sizes"),
    "dim that is long": (dims(["n + " * 10**6 + "n", 2]), "list of sizes"),
    "dim that explodes": (dims(["(a+b+c+d+e+f)*" * 66 + "n", 2]), "list of sizes"),
    "no signatures": (lambda m: m.update(signatures={}), "hold at least one"),
    "no platforms": (lambda m: m.update(platforms=[]), None),  # the graph fits any platform
    "other format": (lambda m: m.update(format="zip"), "is not a graphc artifact"),
    "no version": (lambda m: m.pop("version"), "None is not a version"),
    "version zero": (lambda m: m.update(version=0), "0 is not a version"),
    "huge version": (lambda m: m.update(version=10**100), "has version 1000"),
    "newer": (
        lambda m: m.update(version=3),
        "has version 3, but this graphc reads versions up to 2",
    ),
    "older": (lambda m: m.update(version=1), "program must be of type str"),
}


@pytest.mark.parametrize("name", LIES)
def test_false_contents(whole: Path, tmp_path: Path, name: str) -> None:
    change, text = LIES[name]
    path = tmp_path / "model.gcx"
    forge(whole, path, change)
    if text is None:
        return use(path)
    with pytest.raises(ArtifactError, match=text) as info:
        use(path)
    assert info.value.hint


def test_a_dim_that_is_huge(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    forge(whole, path, dims(["n*" + "9" * 900, 2]))
    with pytest.raises(gc.errors.FeedError, match="expected size 9999"):
        use(path)


def test_devices_that_are_not_there(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    forge(whole, path, lambda m: entry(m).update(devices=9))
    with pytest.raises(
        gc.errors.DeviceError, match="saved for 9 devices, but only 4 are available"
    ):
        use(path)


def texts_of_manifests() -> dict[str, bytes]:
    return {
        "deep": b"[" * 10**5,
        "deep and closed": b"[" * 10**5 + b"]" * 10**5,
        "deep object": b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
        "huge integer": b'{"format": "graphc-artifact", "version": ' + b"9" * 10**6 + b"}",
        "no UTF-8": b'{"a": "\xff"}',
        "a list": b"[]",
        "not JSON": b"{'format': 1}",
        "a lone surrogate": b'{"format": "\\ud800"}',
    }


@pytest.mark.parametrize("name", texts_of_manifests())
def test_manifests_that_are_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gcx"
    write_zip(path, texts_of_manifests()[name], {})
    with pytest.raises(ArtifactError, match=r"manifest is not JSON|is not a graphc artifact"):
        gc.load(path)


# -- the graph ------------------------------------------------------------------------------

Edit = Callable[[dict[str, Any]], object]


def nodes(program: dict[str, Any]) -> list[dict[str, Any]]:
    return program["program"]["nodes"]


def with_broadcast(
    program: dict[str, Any], shape: list[int], more: list[Any] | None = None
) -> None:
    """Adds a scalar that is broadcast to `shape`, and then nodes, before the first node."""
    types = program["types"]
    types += [f"f32{shape}", "f32[]"]
    data = base64.b64encode(bytes(4)).decode()
    record = {"dtype": "f32", "shape": [], "data": data}
    given = len(program["program"]["inputs"])
    added = [
        {"op": "Constant", "out": [len(types) - 1], "attrs": {"value": {"array": record}}},
        {"op": "BroadcastTo", "in": [given], "out": [len(types) - 2], "attrs": {"shape": shape}},
        *(more or []),
    ]
    for node in nodes(program):
        node["in"] = [n + 2 if n >= given else n for n in node["in"]]
    for output in program["program"]["outputs"]:
        output[2] += 2 if output[2] >= given else 0
    nodes(program)[:0] = added


def unstacked(program: dict[str, Any]) -> None:
    given = len(program["program"]["inputs"])
    unstack = {"op": "Unstack", "in": [given + 1], "out": [], "attrs": {"axis": 0}}
    with_broadcast(program, [2**31], [unstack])


def deep(program: dict[str, Any]) -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    nodes(program)[0]["attrs"] = {"transpose_a": value}


EDITS: dict[str, tuple[Edit, str]] = {
    "unknown operator": (lambda p: nodes(p)[0].update(op="Exec"), "no operator 'Exec'"),
    "an operator of Python": (lambda p: nodes(p)[0].update(op="__class__"), "no operator"),
    "a cycle": (lambda p: nodes(p)[0].update({"in": [2, 2]}), "the number of a tensor below 2"),
    "an operand beyond": (lambda p: nodes(p)[0].update({"in": [9, 0]}), "number of a tensor"),
    "an absurd operand": (lambda p: nodes(p)[0].update({"in": [2**70, 0]}), "number of a tensor"),
    "a NaN operand": (lambda p: nodes(p)[0].update({"in": [float("nan"), 0]}), "of a tensor"),
    "unknown attribute": (lambda p: nodes(p)[0].update(attrs={"eval": "1"}), "eval"),
    "values inside values": (deep, "nested more than"),
    "another type": (lambda p: nodes(p)[0].update(out=[0]), "other types than its operands"),
    "a type beyond": (lambda p: nodes(p)[0].update(out=[99]), "number of a type"),
    "a type that is none": (lambda p: p["types"].__setitem__(0, "f32[__import__]x"), "type such"),
    "huge sizes": (lambda p: p["types"].__setitem__(0, f"f32[{2**70}]"), "no tensor has the type"),
    "a tensor beyond any memory": (
        lambda p: with_broadcast(p, [2**40, 2**40]),
        "have tensors that fit into memory",
    ),
    "results beyond number": (unstacked, "has 2147483648 slices"),
    "a newer version": (lambda p: p.update(version=99), "has version 99"),
    "no version": (lambda p: p.update(version=float("nan")), "must be a positive integer"),
    "a variable is read": (
        lambda p: nodes(p).append({"op": "ReadVariable", "out": [0], "attrs": {"variable": "w"}}),
        "cannot be read|dtype|variable",
    ),
    "other ports": (lambda p: p["program"]["inputs"].reverse(), "needs 1 == batch"),
    "other names": (lambda p: p["program"]["inputs"][0].__setitem__(0, "z"), "take w|z"),
    "other kinds": (lambda p: p["program"]["inputs"][0].__setitem__(1, "feed"), "take w|kind"),
    "no outputs": (lambda p: p["program"]["outputs"].clear(), "give 1 values"),
    "nothing": (lambda p: p.clear(), "not serialised IR"),
    "a batch axis beyond": (
        lambda p: p["program"].update(batch_axes={"x": 10**30}),
        "batch axis",
    ),
    "an equality": (
        lambda p: p["program"].update(equalities=[["batch", "2"]]),
        "needs batch == 2|cannot be read",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_graphs_that_lie(whole: Path, tmp_path: Path, name: str) -> None:
    edit, text = EDITS[name]
    program, arrays = from_bytes(member(whole, "programs/predict.graph"))
    edit(program)
    path = tmp_path / "model.gcx"
    text_of = json.dumps(program).encode()  # with NaN too
    data = safetensors.numpy.save({**arrays, "manifest": np.frombuffer(text_of, np.uint8)})
    forge(
        whole,
        path,
        lambda m: entry(m, "predict").update(convention=99),
        {"programs/predict.graph": data},
    )
    with pytest.raises((ArtifactError, gc.errors.FeedError)) as info:
        gc.load(path).signatures["predict"](x=X)
    assert re.search(text, str(info.value)), str(info.value)


def test_graphs_that_are_none(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    for data in (
        b"",
        b"\xff" * 100,
        b"\0" * 8,
        safetensors.numpy.save({"manifest": np.frombuffer(b"[" * 10**5, np.uint8)}),
        safetensors.numpy.save({"manifest": np.zeros(3, np.float32)}),
        to_bytes({"format": "graphc-ir", "version": 1}, {}),
    ):
        forge(
            whole,
            path,
            lambda m: entry(m, "predict").update(convention=99),
            {"programs/predict.graph": data},
        )
        with pytest.raises(ArtifactVersionError, match="graph 'predict' cannot be read"):
            gc.load(path).signatures["predict"](x=X)
