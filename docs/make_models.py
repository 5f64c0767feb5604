"""Writes docs/models.md from the results of the suites of models, which take hours:

python -m benchmarks.onnx_suite && python -m benchmarks.onnx_back
python -m benchmarks.zoo_torch
python docs/make_models.py build/onnx_suite.json build/onnx_back.json build/zoo_torch.json
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAGE = Path(__file__).with_name("models.md")
PACKAGES = ("jax", "onnx", "onnxruntime", "torch", "torchvision", "timm", "transformers")
Results = Mapping[str, str]


def versions() -> str:
    """The versions of the packages that are installed."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def percent(part: int, whole: int) -> str:
    """A share as text."""
    return f"{100 * part / max(whole, 1):.1f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table of Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def reasons(results: Results, limit: int = 40) -> list[str]:
    """The results that are no successes, counted by their text."""
    counted = Counter(_short(text) for text in results.values())
    return table(["cases", "result"], [(n, text) for text, n in counted.most_common(limit)])


def _short(text: str) -> str:
    text = re.sub(r"'[^']*'", "...", text)
    text = re.sub(r"(model|test_\w+):\d+|\.? ?Mismatched elements.*", "", text)
    return text.replace("|", "/").strip()[:110]


def onnx_in(results: Results) -> list[str]:
    """ONNX's backend tests, imported."""
    words = {
        "run": "imported and run",
        "some fixed": "run with some inputs as constants",
        "all fixed": "computed at import",
    }
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for name, text in results.items():
        kinds[name.partition("/")[0]][text if text in words else "failed"] += 1
    rows = [(kind, *(count[key] for key in (*words, "failed"))) for kind, count in kinds.items()]
    passed = sum(text in words for text in results.values())
    failed = {name: text for name, text in results.items() if text not in words}
    return [
        "## ONNX in",
        "",
        f"ONNX's backend tests: {passed} of {len(results)} cases pass "
        f"({percent(passed, len(results))}).",
        "",
        *table(["part of the suite", *words.values(), "failed"], rows),
        "",
        *reasons(failed),
        "",
    ]


def onnx_back(results: Results) -> list[str]:
    """ONNX's backend tests, imported and written again."""
    tried = {n: text for n, text in results.items() if not text.startswith("not imported")}
    equal = sum(text == "equal" for text in tried.values())
    others = {n: text for n, text in tried.items() if text != "equal"}
    return [
        "## ONNX in and out again",
        "",
        f"Of the {len(tried)} cases that are imported as graphs, {equal} "
        f"({percent(equal, len(tried))}) give the expected outputs after `gc.from_onnx` and "
        "`gc.to_onnx`.",
        "",
        *reasons(others),
        "",
    ]


def torch_zoo(results: Results) -> list[str]:
    """Architectures of torchvision, timm and transformers."""
    families: dict[str, Counter[str]] = defaultdict(Counter)
    failed = {}
    for name, text in results.items():
        kind = next((w for w in ("ok", "skipped", "no export") if text.startswith(w)), "failed")
        families[name.partition("/")[0]][kind] += 1
        if kind == "failed":
            failed[name] = text
    rows = []
    for family, count in families.items():
        right, wrong = count["ok"], count["failed"]
        share = percent(right, right + wrong)
        rows.append((family, right, wrong, share, count["no export"], count["skipped"]))
    head = ("library", "equal", "not equal or refused", "share", "torch cannot export", "left out")
    return [
        "## PyTorch in",
        "",
        "Architectures with random weights, in small configurations, through `torch.export` and "
        "`gc.from_torch`, against PyTorch's own results in float32, to 1e-5 of the largest. Left "
        "out are models with more than 20 million parameters, and those whose inputs are not "
        "images or words.",
        "",
        *table(head, rows),
        "",
        *(
            table(["model", "result"], [(n, _short(t)) for n, t in failed.items()])
            if failed
            else []
        ),
        "",
    ]


def page(suite: Results, back: Results, zoo: Results) -> str:
    """The text of the page."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return "\n".join(
        [
            "# Models that were tried",
            "",
            f"<!-- Written by docs/make_models.py on {today}; do not edit. -->",
            "",
            f"On {today}, with {versions()}, on CPU.",
            "",
            *onnx_in(suite),
            *onnx_back(back),
            *torch_zoo(zoo),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(*(json.loads(Path(name).read_text()) for name in sys.argv[1:4])))
