"""`docs/make_models.py`: the page counts results, and names unequal ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "make_models.py"


def test_the_page_counts_and_names() -> None:
    spec = importlib.util.spec_from_file_location("make_models", PAGE)
    assert spec is not None and spec.loader is not None
    make_models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_models)
    suite = {"node/a": "run", "node/b": "all fixed", "light/c": "ValueError: it | is 'wrong'"}
    back = {"node/a": "equal", "node/b": "not imported: x", "light/c": "not exported: no Bitcast"}
    zoo = {
        "timm/a": "ok, trained",
        "timm/b": "error 1.0e-02",
        "torchvision/c": "skipped: too large",
    }
    page = make_models.page(suite, back, zoo)
    assert "2 of 3 cases pass (66.7 %)" in page
    assert "| node | 1 | 0 | 1 | 0 |" in page and "| light | 0 | 0 | 0 | 1 |" in page
    assert "| 1 | ValueError: it / is ... |" in page
    assert "Of the 2 cases that are imported as graphs, 1 (50.0 %)" in page
    assert "| 1 | not exported: no Bitcast |" in page
    assert "| timm | 1 | 1 | 50.0 % | 0 | 0 |" in page
    assert "| timm/b | error 1.0e-02 |" in page
    assert "jax " in page
