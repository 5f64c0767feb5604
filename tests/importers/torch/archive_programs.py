"""Writes .pt2 files of one operator, without PyTorch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_CONFIG = json.dumps({"config": {}})
_TREE = json.dumps([1, {"type": None, "context": None, "children_spec": []}])


def _named(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def _meta(shape: Sequence[int]) -> dict[str, Any]:
    return {
        "dtype": 7,
        "sizes": [{"as_int": size} for size in shape],
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": 1} for _ in shape],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def argument(value: Any) -> dict[str, Any]:
    """An argument as the file has it: "x" is the input."""
    if value == "x":
        return _named("x")
    kind = "as_ints" if isinstance(value, list) else f"as_{type(value).__name__}"
    return {kind: value}


def write(path: Path, target: str, args: Sequence[Any], shape: Sequence[int]) -> None:
    """A program that applies an operator to an input "x" of a shape, among other arguments."""
    node = {
        "target": f"torch.ops.{target}",
        "inputs": [{"name": "a", "arg": argument(arg), "kind": 1} for arg in args],
        "outputs": [_named("y")],
        "metadata": {},
        "name": "y",
    }
    graph = {
        "inputs": [_named("x")],
        "outputs": [_named("y")],
        "nodes": [node],
        "tensor_values": {"x": _meta(shape), "y": _meta([1])},
    }
    program = {
        "graph_module": {
            "graph": graph,
            "signature": {
                "input_specs": [{"user_input": {"arg": _named("x")}}],
                "output_specs": [{"user_output": {"arg": _named("y")}}],
            },
            "module_call_graph": [{"fqn": "", "signature": {"out_spec": _TREE}}],
        },
        "schema_version": {"major": 8, "minor": 20},
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/byteorder", "little")
        archive.writestr("m/models/model.json", json.dumps(program))
        for kind in ("weights", "constants"):
            archive.writestr(f"m/data/{kind}/model_{kind}_config.json", _CONFIG)
