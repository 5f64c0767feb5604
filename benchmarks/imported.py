"""Imported PyTorch models compared with PyTorch itself and with onnxruntime, on a CPU.

    python -m benchmarks.imported [MODEL ...]

A model is one of `MODELS` or any network of torchvision.models that takes an image. Each has random
weights and gets one input. It is imported by `gc.from_torch`, frozen and run by graphc, also with
the XLA library YNN, which XLA uses by default; run by PyTorch eagerly and by `torch.compile`; and
run by onnxruntime after `gc.to_onnx`.
All forms are timed in turn in one run, with a pause before each. The import time is compared with
the time of `torch.export`, which is a part of it. Needs torch, torchvision, transformers and
onnxruntime.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from benchmarks.cpu import ratios

Row = tuple[str, str, str]
CALLS, ROUNDS = 3, 7
REST = 0.3  # seconds


YNN = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,"
    "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION,LIBRARY_FUSION_TYPE_REDUCE"
}


def image_network(name: str) -> tuple[Any, Any]:
    import torch
    import torchvision

    size = 299 if name == "inception_v3" else 224
    return torchvision.models.get_model(name, weights=None), torch.randn(1, 3, size, size)


def vit_b_16() -> tuple[Any, Any]:
    import torch
    import torchvision

    module = torchvision.models.vit_b_16(weights=None)
    torch.nn.init.normal_(module.heads.head.weight)  # otherwise all results would be zero
    return module, torch.randn(1, 3, 224, 224)


def bert_base() -> tuple[Any, Any]:
    import torch
    import transformers

    bert = transformers.BertModel(transformers.BertConfig())
    return of_text(bert, "last_hidden_state"), torch.randint(0, 30_000, (1, 128))


def of_text(network: Any, result: str) -> Any:
    """A module that gives one result of a network of transformers, whose only input is the text."""
    import torch

    class OfText(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = network

        def forward(self, text: Any) -> Any:
            return getattr(self.bert(input_ids=text), result)

    return OfText()


MODELS = {"vit_b_16": vit_b_16, "bert_base": bert_base}


def rows(names: list[str]) -> Iterator[Row]:
    """Rows of each model: the ratios of graphc's time to that of the others, then the import."""
    for name in names:
        module, example = MODELS[name]() if name in MODELS else image_network(name)
        yield from model_rows(name, module.eval(), example)


def model_rows(name: str, module: Any, example: Any) -> Iterator[Row]:
    import torch

    begin = time.perf_counter()
    torch.export.export(module, (example,))
    export = time.perf_counter() - begin
    begin = time.perf_counter()
    made = gc.from_torch(module, (example,)).to_graph()
    taken = time.perf_counter() - begin
    forms: dict[str, Callable[[], Any]] = in_graphc(made, example.numpy())
    with torch.no_grad():
        forms["PyTorch"] = lambda: module(example).numpy()
        compiled = torch.compile(module)
        forms["torch.compile"] = lambda: compiled(example).numpy()
        forms |= in_onnxruntime(made, example.numpy())
        wanted = forms["PyTorch"]()
        for form, run in forms.items():
            away = np.abs(run() - wanted).max() / np.abs(wanted).max()
            assert away < 1e-3, (name, form, away)
        steps = {form: repeated(run) for form, run in forms.items()}
        found = ratios(steps, ROUNDS, base="graphc", rest=REST)
    milliseconds = 1e3 * found["seconds"] / CALLS
    for form in forms:
        if form != "graphc":
            what = f"{name}, inference ({milliseconds:.1f} ms), over {form}"
            yield what, f"{1 / found[form]:.2f}x", "at most 1.00x"
    what = f"{name}, from_torch ({taken:.1f} s), over torch.export"
    yield what, f"{taken / export:.2f}x", "at most 3.00x"


def repeated(run: Callable[[], Any]) -> Callable[[], None]:
    def several() -> None:
        for _ in range(CALLS):
            run()

    return several


def in_graphc(made: gc.ModelGraph, value: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The frozen graph, compiled by default, by pipeline "O3", and with the library YNN."""
    options = gc.CompileOptions(cache=None)
    frozen = gc.freeze(gc.Session(made.graph, options=options), made.inputs, made.outputs)
    (given,), (wanted, *_) = frozen.collection("inputs"), frozen.collection("outputs")

    def form(pipeline: str, xla_options: dict[str, Any]) -> Callable[[], Any]:
        options = gc.CompileOptions(cache=None, pipeline=pipeline, xla_options=xla_options)
        session = gc.Session(frozen, options=options)
        return lambda: np.asarray(session.run(wanted, {given: value}))

    return {"graphc": form("O2", {}), "graphc, O3": form("O3", {}), "graphc, YNN": form("O2", YNN)}


def in_onnxruntime(made: gc.ModelGraph, value: np.ndarray) -> dict[str, Callable[[], Any]]:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        session = gc.Session(made.graph, options=gc.CompileOptions(cache=None))
        gc.to_onnx(session, path, made.signature(freeze=True))
        run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = run.get_inputs()
    return {"onnxruntime": lambda: run.run(None, {given.name: value})[0]}


def main() -> None:
    warnings.simplefilter("ignore")  # of torch.export
    print("| what | measured | target |\n|---|---|---|")
    for row in rows(sys.argv[1:] or ["resnet50", *MODELS]):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
