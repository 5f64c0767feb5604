"""Writes sections of docs/models.md from the results of suites of models, which take hours:

python -m benchmarks.onnx_suite && python -m benchmarks.onnx_back
python -m benchmarks.zoo_torch && python -m benchmarks.zoo_torch --steps
python docs/make_models.py --onnx build/onnx_suite.json --back build/onnx_back.json
python docs/make_models.py --zoo build/zoo_torch.json

A section whose results are not given stays as it is.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
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


def _short(text: str, limit: int = 110) -> str:
    text = re.sub(r"'[^']*'", "...", text)
    text = re.sub(r"(model|test_\w+):\d+|\.? ?Mismatched elements.*", "", text)
    return text.replace("|", "/").strip()[:limit]


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


KINDS = ("ok", "rounding", "skipped", "no export", "not reached")
HEAD = ("library", "equal", "rounding", "not equal or refused", "share", "torch cannot export")


def torch_zoo(results: Results) -> list[str]:
    """Architectures of torchvision, timm and transformers."""
    families: dict[str, Counter[str]] = defaultdict(Counter)
    failed, left = {}, {}
    for name, text in results.items():
        kind = next((w for w in KINDS if text.startswith(w)), "failed")
        families[name.partition("/")[0]][kind] += 1
        if kind in ("rounding", "failed"):
            failed[name] = text
        elif kind not in ("ok", "not reached"):
            left[name] = text
    rows = []
    for family, count in families.items():
        right, rounding, wrong = count["ok"], count["rounding"], count["failed"]
        share = percent(right, right + rounding + wrong)
        counts = (count["no export"], count["skipped"], count["not reached"])
        rows.append((family, right, rounding, wrong, share, *counts))
    return [
        "## PyTorch in",
        "",
        "Architectures with random weights, in small configurations, through `torch.export` and "
        "`gc.from_torch`, against PyTorch's own results in float32, to 1e-5 of the largest. Where "
        "the error is larger, the same is done in float64: an error below 1e-9 there is called "
        "rounding. Left out is what PyTorch does not run in the configuration and with the inputs "
        "that `benchmarks/zoo_torch.py` chooses, and what is too large for it. The run ended "
        "before it came to those that were not reached.",
        "",
        *table((*HEAD, "left out", "not reached"), rows),
        "",
        *_named(failed),
        *torch_steps(results),
        "Why PyTorch does not export a model, or it is left out:",
        "",
        *reasons(left, limit=60),
        "",
    ]


def torch_steps(results: Results) -> list[str]:
    """Which of the architectures were trained."""
    tried = {n: t.removeprefix("ok, ") for n, t in results.items() if t.startswith("ok, ")}
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for name, text in tried.items():
        families[name.partition("/")[0]][_trained(text)] += 1
    words = ("alike", "rounding", "apart")
    rows = [(family, *(count[word] for word in words)) for family, count in families.items()]
    if not rows:
        return []
    return [
        "Ten steps of AdamW in float64 (the loss is the sum of the means of the squared results), "
        "by both, on small models that are equal, until the parameters agree to 1e-9 of the "
        "largest of each. Where they do not, PyTorch is compared with itself, from parameters "
        "that differ in the last bit: AdamW divides each gradient by its size, so that the "
        "rounding of a gradient that is nearly zero moves its parameter. In the second column are "
        "models whose error is at most ten times as large as that.",
        "",
        *table(("library", "alike", "as PyTorch from itself", "apart, or not trained"), rows),
        "",
        *_named({name: text for name, text in tried.items() if text != "trained"}),
    ]


def _trained(text: str) -> str:
    """Whether the parameters are alike, differ by rounding, or are apart."""
    sizes = re.findall(r"error (\S+) of .* in the last bit: (\S+)", text)
    if sizes:
        error, own = map(float, sizes[0])
        return "rounding" if error <= 10 * own else "apart"
    return "alike" if text == "trained" else "apart"


def _named(failed: Results) -> list[str]:
    rows = [(name, _short(text, 200)) for name, text in failed.items()]
    return [*table(("model", "result"), rows), ""] if rows else []


TOP = """# Models that were tried

<!-- Written by docs/make_models.py; do not edit. -->

"""
HEADINGS = ("## ONNX in", "## ONNX in and out again", "## PyTorch in")


def dated(lines: Sequence[str]) -> list[str]:
    """A section that says when it was written, with which versions."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return [*lines[:2], f"On {today}, with {versions()}, on CPU.", "", *lines[2:]]


def page(old: str, *sections: Sequence[str]) -> str:
    """The text of the page: these sections, and those of the old page that are not among them."""
    kept = dict.fromkeys(HEADINGS, "")
    for text in re.split(r"^(?=## )", old, flags=re.MULTILINE)[1:]:
        kept[text.partition("\n")[0]] = text
    for lines in sections:
        kept[lines[0]] = "\n".join(dated(lines))
    return TOP + "\n".join(text.strip("\n") + "\n" for text in kept.values() if text)


PARTS = {"onnx": onnx_in, "back": onnx_back, "zoo": torch_zoo}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, part in PARTS.items():
        parser.add_argument(f"--{name}", type=Path, metavar="JSON", help=part.__doc__)
    options = vars(parser.parse_args())
    files = {part: options[name] for name, part in PARTS.items() if options[name]}
    sections = [part(json.loads(file.read_text())) for part, file in files.items()]
    PAGE.write_text(page(PAGE.read_text(), *sections))


if __name__ == "__main__":
    main()
