"""Specs, and annotations of variables and programs: round trips, comparison, and cache keys."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import LayoutError, SerialError, TextError, VerifyError
from graphc.ir.compare import difference
from graphc.ir.dtypes import FLOAT32
from graphc.ir.fingerprint import cache_key, fingerprint
from graphc.ir.graph import Graph
from graphc.ir.parse import parse_graph, parse_program
from graphc.ir.serial import dump_graph, dump_program, load_graph, load_program
from graphc.ir.sharding import as_spec, check_on_mesh, is_spec, names_in, trimmed
from graphc.ir.text import print_graph, print_program
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.core.elementwise import is_elementwise
from graphc.passes.core.rowwise import by_rows

TEXT = """
program p(x: f32[4, 6], w: state f32[6, 8]) {
  shard w=[["data", "model"], none]
  %0 = Shard(x) {spec=[none, "model"]} : f32[4, 6]
  %1 = MatMul(%0, w)                   : f32[4, 8]
  return y = %1
}
"""


def parsed(text: str = TEXT) -> Any:
    return parse_program(text, CATALOGUE)


@pytest.mark.parametrize("spec", [(), (None,), ("a", None), (("a", "b"), "c")])
def test_what_is_a_spec(spec: Any) -> None:
    assert is_spec(spec)


@pytest.mark.parametrize("spec", ["a", ["a"], ("a", "a"), (("a", "b"), "b"), ((),), (1,), ("",)])
def test_what_is_none(spec: Any) -> None:
    assert not is_spec(spec)


def test_what_users_give_becomes_one_entry_for_each_axis() -> None:
    type = TensorType(FLOAT32, (4, 6, 8))
    assert as_spec([["a", "b"]], type, "shard", None) == (("a", "b"), None, None)
    assert as_spec((), type, "shard", None) == (None, None, None)
    assert trimmed((None, "a", None)) == (None, "a")
    assert trimmed((None, None)) == ()
    assert names_in((("a", "b"), None, "c")) == ["a", "b", "c"]


def test_named_sizes_are_not_refused_before_they_are_bound() -> None:
    with Graph():
        x = gc.placeholder((None, 6), name="x")
    check_on_mesh(("data",), x.type, {"data": 4}, "x", None)
    with pytest.raises(
        LayoutError, match=r"axis 1 of .* has 6 elements, which do not divide by the mesh's data=4"
    ):
        check_on_mesh((None, "data"), x.type, {"data": 4}, "x", None)


def test_programs_are_read_back() -> None:
    program = parsed()
    assert program.shards == {"w": (("data", "model"), None)}
    verify(program, "bound")
    assert print_program(program) == TEXT.strip()
    manifest, arrays = json.loads(json.dumps(dump_program(program)[0])), dump_program(program)[1]
    loaded = load_program(manifest, arrays, CATALOGUE)
    assert difference(program, loaded) is None
    assert fingerprint(loaded) == fingerprint(program)
    manifest["program"]["shards"]["w"] = [["data", "data"], None]
    with pytest.raises(SerialError, match=r"shards.w: expected the mesh axes to split along"):
        load_program(manifest, arrays, CATALOGUE)


def test_what_no_spec_is_is_refused_in_text() -> None:
    with pytest.raises(TextError, match="expected a spec"):
        parsed(TEXT.replace('["data", "model"], none', '"data", "data"'))
    with pytest.raises(VerifyError, match="is not a valid spec for 'w'"):
        verify(parsed(TEXT.replace('[["data", "model"], none]', '["data"]')), "bound")


def test_annotations_are_part_of_a_program() -> None:
    program = parsed()
    other = program.replace(shards={"w": ("data", None)})
    assert "shards differ" in str(difference(program, other))
    keys = [cache_key(p, bindings={}, options={}, extra={}) for p in (program, other, parsed())]
    assert keys[0] == keys[2] != keys[1]
    node = parsed(TEXT.replace('[none, "model"]', '["model", none]'))
    assert fingerprint(node) != fingerprint(program)


def test_variables_are_read_back() -> None:
    with Graph(seed=3) as graph:
        kernel = gc.variable(np.ones((2, 4), np.float32), name="w", collections=["c"])
        assert gc.shard(kernel, (None, ["data", "model"])) is kernel
        gc.variable(1.0, name="v")
    text = print_graph(graph)
    assert 'trainable shard [none, ["data", "model"]] in [c]' in text
    manifest, arrays = dump_graph(graph)
    manifest = json.loads(json.dumps(manifest))
    for read in (
        parse_graph(text, CATALOGUE),
        load_graph(manifest, arrays, CATALOGUE, {}),
    ):
        assert read.variable("w").shard == (None, ("data", "model"))
        assert read.variable("v").shard is None
        assert read.variable("w").collections == ("c",)
    manifest["graph"]["variables"][0]["shard"] = "data"
    with pytest.raises(SerialError, match="expected the mesh axes to split along"):
        load_graph(manifest, arrays, CATALOGUE, {})


def test_no_pass_takes_an_annotation_for_an_operator_on_any_piece() -> None:
    """An update by rows, or of joined parameters, may have sizes that the mesh does not divide."""
    node = parsed().nodes[0]
    assert not is_elementwise(node)
    assert by_rows(node, [0], 4) is None
