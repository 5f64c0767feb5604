"""Serialized IR: the contents of the manifest, all of which are checked."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from graphc.errors import SerialError
from graphc.ir.compare import difference
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.parse import parse_graph, parse_program
from graphc.ir.program import Port, Program
from graphc.ir.serial import (
    dump_graph,
    dump_program,
    from_bytes,
    load_graph,
    load_program,
    to_bytes,
)
from graphc.ir.types import TensorType, parse_type
from graphc.ir.values import same_value
from graphc.ir.variable import Variable
from tests.ir.catalogue import CATALOGUE
from tests.ir.test_graph_text import INITIALIZERS, TEXT, Uniform

PROGRAM = """program p(x: f32[n, 4], w: state f32[4, 3]) {
  size n == 2*m
  batch_axis x=0
  %0 = MatMul(x, w) : f32[n, 3] as first on /device:GPU:0 after init
  %1 = Everything(%0) {f=inf, n=2*n, d=f16, m={k=[1, dim(m)]}, a=i4[2] [-1, 7]} : f32[n, 3]
  %2 = Constant() {value=f32[300] BIG} : f32[300]
  %3 = Scan(%2) {length=2} : f32[300] with body(u: f32[300]) {
    %0 = Relu(u) : f32[300]
    return r = %0
  }
  return loss = %1, state w = w, k = %3
}""".replace("BIG", '"' + "AACAPwAA" * 200 + '"')


def program() -> Program:
    return parse_program(PROGRAM, CATALOGUE, source_file="/home/me/p.txt")


def dumped() -> tuple[dict[str, Any], dict[str, Any]]:
    return dump_program(program())


def load(manifest: Any, arrays: Any) -> Program:
    return load_program(manifest, arrays, CATALOGUE)


def test_a_manifest_is_json_and_says_what_it_is() -> None:
    manifest, arrays = dumped()
    assert json.loads(json.dumps(manifest, allow_nan=False)) == manifest
    assert (manifest["format"], manifest["version"]) == ("graphc-ir", 1)
    assert list(arrays) == ["a0"] and arrays["a0"].dtype == np.uint8
    assert manifest["arrays"]["a0"]["shape"] == [300]
    node = manifest["program"]["nodes"][0]
    assert node == {
        "op": "MatMul", "in": [0, 1], "out": [2], "attrs": {"transpose_b": False},
        "name": "first", "source": "p.txt:4", "device": "/device:GPU:0", "after": ["init"],
    }  # fmt: skip
    assert "/home" not in json.dumps(manifest)


def test_programs_are_read_back_with_names_and_sources() -> None:
    loaded = load(*from_bytes(to_bytes(*dumped())))
    assert difference(program(), loaded) is None
    first = loaded.nodes[0]
    assert (first.name, first.device, first.control_inputs) == (
        "first", "/device:GPU:0", ("init",),
    )  # fmt: skip
    assert [str(n.source) for n in loaded.walk()] == [str(n.source) for n in program().walk()]


def test_a_line_of_a_program_from_a_file_is_not_read_here(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "p.txt").write_text("another file\n" * 9)
    monkeypatch.syspath_prepend(tmp_path)
    loaded = load(*from_bytes(to_bytes(*dumped())))
    source = next(n.source for n in loaded.walk() if n.source)
    assert source.file == "p.txt" and source.code == ""


@pytest.mark.parametrize("short", BY_SHORT)
def test_constants_of_every_dtype(short: str) -> None:
    dtype = BY_SHORT[short]
    values = np.resize([0, 1, 1] if short == "bool" else [0, 1, 3, 7], 1500).astype(dtype)
    for value in (values[:4].reshape(2, 2), values.reshape(3, 500), values[:0], values[:1].T):
        type = TensorType(dtype, value.shape)
        node = Node(CATALOGUE["Constant"], (), (Tensor(type),), {"value": value})
        manifest, arrays = dump_program(
            Program("p", (), (node, node.replace(outputs=(Tensor(type),))), ())
        )
        assert len(arrays) == (value.nbytes > 1024)  # one array, however often it is used
        for loaded in load(*from_bytes(to_bytes(manifest, arrays))).nodes:
            assert same_value(loaded.attrs["value"], value)


def test_unknown_things_are_named() -> None:
    manifest, arrays = dumped()
    for key, value, message in [
        ("format", "tflite", "this is not serialised IR of graphc"),
        ("version", 2, "(?s)has version 2, but this graphc reads versions up to 1.*newer graphc"),
        ("version", 0, "version must be a positive integer"),
        ("version", "1", "version must be a positive integer"),
        ("kind", "graph", "the manifest is of a 'graph', not of a program"),
    ]:
        with pytest.raises(SerialError, match=message):
            load({**manifest, key: value}, arrays)
    for nothing in (None, [], "x", {}):
        with pytest.raises(SerialError, match="this is not serialised IR of graphc"):
            load(nothing, arrays)
    with pytest.raises(SerialError, match="not of a graph"):
        load_graph(manifest, arrays, CATALOGUE, {})


Edit = Callable[[Any, Any], Any]

# A change of the manifest (and arrays), and the expected message.
FAULTS: list[tuple[Edit, str]] = [
    (lambda m, a: m.pop("types"), "manifest.types: expected a list, got None"),
    (lambda m, a: m["types"].append("float32[2]"), r"types\[4\]: expected a type such as"),
    (lambda m, a: m["types"].append("f32[-2]"), r"types\[4\]: no tensor has the type"),
    (lambda m, a: m["types"].append(f"f32[{10**30}]"), "no tensor has the type"),
    (lambda m, a: m["types"].append(f"f32[{'1, ' * 65}]"), "no tensor has the type"),
    (lambda m, a: m["types"].append("f32[n**n]"), "is not a dim or a list of dims"),
    (lambda m, a: m["types"].append("f32[(a + b)*(a + b)]"), "expected a type or a dim"),
    (lambda m, a: m["types"].append("f32[" + "-" * 990 + "n]"), r"is not a dim|types\[4\]"),
    (lambda m, a: m["types"].append("f32[" + "n*" * 1000 + "n]"), "expected a type or a dim"),
    (lambda m, a: m["types"].append(7), "expected a string, got 7"),
    (lambda m, a: m.update(arrays=[]), "manifest.arrays: expected an object"),
    (lambda m, a: m.update(program=7), "program: expected an object, got 7"),
    (lambda m, a: m["program"].pop("name"), "program.name: expected a string, got None"),
    (lambda m, a: m["program"]["inputs"].append([1]), r"inputs\[2\]: expected a list of 3"),
    (lambda m, a: m["program"]["inputs"].append(["v", "feed", 99]), "the number of a type below 4"),
    (lambda m, a: m["program"]["inputs"].append(["v", "fed", 0]), "input 'v' is of kind 'fed'"),
    (lambda m, a: m["program"]["outputs"].append(["v", "fetch", -1]), "number of a tensor below"),
    (lambda m, a: m["program"].update(equalities=[["n"]]), r"equalities\[0\]: expected two dims"),
    (lambda m, a: m["program"].update(equalities=[["n", "m"], ["2", "3"]]), "equality 2 == 3"),
    (lambda m, a: m["program"].update(batch_axes={"x": True}), "expected an integer, got True"),
    (lambda m, a: m["program"].update(batch_axes={"x": 7}), "batch axis 7 does not exist in 'x'"),
    (lambda m, a: nodes(m)[0].update(op="MatMull"), r"nodes\[0\]: no operator 'MatMull'"),
    (lambda m, a: nodes(m)[0].update(op=None), r"nodes\[0\].op: expected a string"),
    (lambda m, a: nodes(m)[0].update({"in": [0, 2]}), "the number of a tensor below 2, got 2"),
    (lambda m, a: nodes(m)[0].update({"in": [0, True]}), "got True"),
    (lambda m, a: nodes(m)[0].update({"in": [0]}), "(?s)not a valid program: .*takes 2 operands"),
    (lambda m, a: nodes(m)[0].update(out=[0]), "(?s)not a valid program: p: MatMul 'first'"),
    (lambda m, a: nodes(m)[0].update(attrs={"axis": 1}), "MatMul has no attribute 'axis'"),
    (lambda m, a: nodes(m)[0].update(attrs={"transpose_b": 1}), "transpose_b must be of kind bool"),
    (lambda m, a: nodes(m)[0].update(source="p.txt"), "a source such as 'train.py:12'"),
    (lambda m, a: nodes(m)[0].update(source="p:²"), "a source such as 'train.py:12'"),
    (lambda m, a: nodes(m)[0].update(source="/etc/p:1"), "a source such as 'train.py:12'"),
    (lambda m, a: nodes(m)[0].update(device="nowhere"), "'nowhere' is not a device name"),
    (lambda m, a: nodes(m)[0].update(after=[1]), "after: expected a string, got 1"),
    (lambda m, a: nodes(m)[0].update(regions=[7]), r"regions\[0\]: expected an object"),
    (lambda m, a: attrs(m).update(n={"dim": "2**n"}), "attrs.n: '2\\*\\*n' is not a dim"),
    (lambda m, a: attrs(m).update(n={"dim": "floordiv(n, 0)"}), "is not a dim"),
    (lambda m, a: attrs(m).update(d={"dtype": "f33"}), "attrs.d: expected a dtype"),
    (lambda m, a: attrs(m).update(d={"dtype": []}), "attrs.d: expected a dtype"),
    (lambda m, a: attrs(m).update(f={"float": "1e5"}), "attrs.f: expected a value"),
    (lambda m, a: attrs(m).update(f={"float": "nan", "x": 1}), "attrs.f: expected a value"),
    (lambda m, a: attrs(m).update(f={"eval": "1"}), "attrs.f: expected a value"),
    (lambda m, a: attrs(m).update(f={"complex": [1.0]}), "attrs.f: expected a value"),
    (lambda m, a: attrs(m).update(f={"complex": ["a", 1.0]}), "attrs.f: expected a value"),
    (lambda m, a: attrs(m).update(ints=deep(200)), "nested more than 50 levels deep"),
    (lambda m, a: small(m).update(data="*"), "the data of an array are not base64"),
    (lambda m, a: small(m).update(data="AAAA"), "needs 2 bytes, got 3"),
    (lambda m, a: small(m).update(data="/wc="), "needs bytes of i4"),
    (lambda m, a: small(m).update(shape=[-1, -2]), r"no array has the shape \[-1, -2\]"),
    (lambda m, a: small(m).update(shape=[2.0]), r"no array has the shape"),
    (lambda m, a: small(m).update(shape=[2**62, 2**62]), "needs [0-9]+ bytes, got 2"),
    (lambda m, a: small(m).update(shape=[1] * 65), "no array has the shape"),
    (lambda m, a: m["arrays"].pop("a0"), "arrays.a0: expected an object, got None"),
    (lambda m, a: m["arrays"]["a0"].update(shape=[301]), "needs 1204 bytes, got 1200"),
    (lambda m, a: m["arrays"]["a0"].update(dtype="u8"), "needs 300 bytes, got 1200"),
    (lambda m, a: m["arrays"]["a0"].update(dtype="i32"), "(?s)not a valid program: .*f32.300"),
    (lambda m, a: m["arrays"]["a0"].pop("sha256"), "arrays.a0.sha256: expected a string"),
    (lambda m, a: a.clear(), "arrays.a0: its bytes are missing"),
    (lambda m, a: a.update(a0=a["a0"].view(np.float32)), "arrays.a0: its bytes are missing"),
    (lambda m, a: a.update(a0=a["a0"] ^ 1), "checksum does not match: the data were altered"),
]  # fmt: skip


def nodes(manifest: Any) -> Any:
    return manifest["program"]["nodes"]


def attrs(manifest: Any) -> Any:
    return nodes(manifest)[1]["attrs"]


def small(manifest: Any) -> Any:
    return attrs(manifest)["a"]["array"]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(("edit", "message"), FAULTS, ids=[m[:40] for _, m in FAULTS])
def test_a_malformed_manifest_gives_one_clear_error(edit: Edit, message: str) -> None:
    manifest, arrays = dumped()
    edit(manifest, arrays)
    with pytest.raises(SerialError, match=message):
        load(manifest, arrays)


def test_regions_nested_without_end_are_refused() -> None:
    manifest, arrays = dumped()
    body = nodes(manifest)[3]["regions"][0]
    for _ in range(60):
        body = {**body, "nodes": [{"op": "Scan", "in": [0], "out": [3], "regions": [body]}]}
    nodes(manifest)[3]["regions"] = [body]
    with pytest.raises(SerialError, match="nested more than 50 levels deep"):
        load(manifest, arrays)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every part of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = [path] if path else []
    for key, item in items:
        found += _paths(item, (*path, key)) if isinstance(item, (dict, list)) else [(*path, key)]
    return found


JUNK = [
    None, True, 0, -1, 2**70, 1.5, "", "n", "f32[2]", "MatMul", [], [0], [[]], {}, {"dim": "n"},
    {"array": "a0"}, {"array": {}}, {"attrs": {"x": []}}, deep(60),
]  # fmt: skip


def _graph_manifest() -> tuple[dict[str, Any], dict[str, Any]]:
    return dump_graph(parse_graph(TEXT, CATALOGUE, INITIALIZERS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["program", "graph"])
def test_no_mutation_of_a_manifest_escapes_as_another_error(kind: str) -> None:
    manifest, arrays = dumped() if kind == "program" else _graph_manifest()
    refused = 0
    paths = _paths(manifest)
    for number, path in enumerate(paths):
        for junk in JUNK[number % 3 :: 3]:
            mutated = copy.deepcopy(manifest)
            at: Any = mutated
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = junk
            try:
                if kind == "program":
                    load(mutated, arrays)
                else:
                    load_graph(mutated, arrays, CATALOGUE, INITIALIZERS)
            except SerialError as error:
                assert str(error)
                refused += 1
    assert refused > 3 * len(paths)  # some fields, such as names, accept any string


# -- files --------------------------------------------------------------------------------------


def test_what_is_no_file_of_ours_is_refused() -> None:
    data = to_bytes(*dumped())
    other = {"manifest": np.frombuffer(b"[1]", np.uint8)}
    for bad, message in [
        (b"", "not serialised IR"),
        (data[:100], "not serialised IR"),
        (data[:-1], "not serialised IR"),
        (b"\xff" * 100, "not serialised IR"),
        (safetensors.numpy.save({"a": np.zeros(3)}), "not serialised IR"),
        (safetensors.numpy.save(other), "the manifest is not a JSON object"),
        (
            safetensors.numpy.save({"manifest": np.frombuffer(b"[" * 10**5, np.uint8)}),
            "not serialised IR",
        ),
    ]:
        with pytest.raises(SerialError, match=message):
            from_bytes(bad)


def test_a_flipped_bit_in_a_constant_is_found() -> None:
    manifest, arrays = dumped()
    data = bytearray(to_bytes(manifest, arrays))
    at = bytes(data).index(arrays["a0"].tobytes()) + 700
    data[at] ^= 1
    with pytest.raises(SerialError, match="checksum does not match"):
        load(*from_bytes(bytes(data)))


# -- values that cannot be dumped ---------------------------------------------------------------


def test_what_cannot_be_serialised_is_named() -> None:
    op = CATALOGUE["Everything"]
    x = Tensor(TensorType(BY_SHORT["f32"], ()), "x")
    ports = (Port("x", "feed", x),)
    for value, message in [
        (object(), "Everything 'e', m: a value of type object cannot be serialised"),
        (np.array(["a"]), "Everything 'e', m: dtype <U1 is not one of graphc's"),
    ]:
        node = Node(op, (x,), (Tensor(x.type),), op.complete({"m": {"k": value}}), name="e")
        with pytest.raises(SerialError, match=message):
            dump_program(Program("p", ports, (node,), ()))
    node = Node(op, (Tensor(x.type, "stray"),), (Tensor(x.type),), op.complete({}))
    with pytest.raises(SerialError, match="tensor 'stray' is used and not defined"):
        dump_program(Program("p", ports, (node,), ()))


def test_faults_of_a_graph_are_named() -> None:
    graph = Graph()
    graph.restore_variable(Variable(graph, "v", parse_type("f32[2]"), Uniform()))
    for edit, message in [
        (lambda v: v["initial"].update(initializer="os.system"), "no initializer 'os.system'"),
        (lambda v: v["initial"].update(fields={"x": 1}), "Uniform: no field 'x'"),
        (lambda v: v["initial"].update(fields={"low": "a"}), "Uniform: low must be a number"),
        (lambda v: v.update(initial={"tensor": 0}), "the number of a tensor below 0"),
        (lambda v: v.update(initial={"value": 1.0}), r"an initial value of type f32\[2\]"),
        (lambda v: v.update(trainable=1), "trainable: expected true or false"),
        (lambda v: v.update(type=3), "the number of a type below 1"),
    ]:
        manifest, arrays = dump_graph(graph)
        edit(manifest["graph"]["variables"][0])
        with pytest.raises(SerialError, match=message):
            load_graph(manifest, arrays, CATALOGUE, INITIALIZERS)
    manifest, arrays = dump_graph(graph)
    manifest["graph"]["variables"] *= 2
    with pytest.raises(SerialError, match="two variables have the name 'v'"):
        load_graph(manifest, arrays, CATALOGUE, INITIALIZERS)
    manifest, arrays = _graph_manifest()
    manifest["graph"]["nodes"][3]["after"] = ["gone"]
    with pytest.raises(SerialError, match=r"not a valid graph: .*no node 'gone' to run after"):
        load_graph(manifest, arrays, CATALOGUE, INITIALIZERS)
