"""`docs/make_models.py`: the page counts results, and names unequal ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "make_models.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("make_models", PAGE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUITE = {"node/a": "run", "node/b": "all fixed", "light/c": "ValueError: it | is 'wrong'"}
BACK = {"node/a": "equal", "node/b": "not imported: x", "light/c": "not exported: no Bitcast"}
ZOO = {
    "timm/a": "ok, trained",
    "timm/b": "error 1.0e-02",
    "timm/d": "ok, trained with error 1.0e-03 of head.weight",
    "timm/e": "ok",
    "timm/h": "ok, trained with error 2e-08 of k.bias; from others in the last bit: 1e-08",
    "timm/i": "ok, trained with error 2e-03 of k.bias; from others in the last bit: 1e-08",
    "timm/f": "rounding: error 2.0e-05 in float32, 1.0e-14 in float64",
    "timm/j": "not reached",
    "torchvision/c": "skipped: 200 million parameters",
    "torchvision/g": "no export: it has a branch",
}


def test_the_page_counts_and_names() -> None:
    models = load()
    page = models.page("", models.onnx_in(SUITE), models.onnx_back(BACK), models.torch_zoo(ZOO))
    assert "2 of 3 cases pass (66.7 %)" in page
    assert "| node | 1 | 0 | 1 | 0 |" in page and "| light | 0 | 0 | 0 | 1 |" in page
    assert "| 1 | ValueError: it / is ... |" in page
    assert "Of the 2 cases that are imported as graphs, 1 (50.0 %)" in page
    assert "| 1 | not exported: no Bitcast |" in page
    assert "| timm | 5 | 1 | 1 | 71.4 % | 0 | 0 | 1 |" in page
    assert "| torchvision | 0 | 0 | 0 | 0.0 % | 1 | 1 | 0 |" in page
    assert "| timm/b | error 1.0e-02 |" in page and "| timm/f | rounding: error 2.0e-05" in page
    assert "| timm | 1 | 1 | 2 |" in page  # alike, rounding, apart
    assert "| timm/d | trained with error 1.0e-03 of head.weight |" in page
    assert "| 1 | skipped: 200 million parameters |" in page
    assert "jax " in page


def test_a_section_without_new_results_stays() -> None:
    models = load()
    old = models.page("", models.onnx_in(SUITE), models.onnx_back(BACK), models.torch_zoo(ZOO))
    new = models.page(old, models.torch_zoo({"timm/z": "ok"}))
    head, _, zoo = new.partition("## PyTorch in")
    assert head == old.partition("## PyTorch in")[0]
    assert "| timm | 1 | 0 | 0 | 100.0 % | 0 | 0 | 0 |" in zoo and "timm/b" not in zoo
    assert models.page(new) == new
