"""Training steps of imported PyTorch models compared with PyTorch itself, on a CPU.

    python -m benchmarks.trained [--compile] [MODEL ...]

Each model has random weights and no dropout, and is trained with AdamW on one batch. Forms: graphc
by default, with pipeline "O3", and without passes, which is the program as JAX would compile it;
PyTorch eagerly and, with `--compile`, by `torch.compile`. All forms begin with the same weights,
and their first losses must agree. They are timed in turn in one run. Needs torch, torchvision and
transformers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optax

import graphc as gc
from benchmarks.cpu import ratios
from benchmarks.imported import Row, of_text

ROUNDS = 5
CLASSES = 1000
RATE = 1e-4


def _torchvision(name: str, batch: int) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        import torch
        import torchvision

        module = getattr(torchvision.models, name)(weights=None)
        for part in module.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        return module, torch.randn(batch, 3, 224, 224)

    return make


def _bert() -> tuple[Any, Any]:
    import torch
    import transformers

    config = transformers.BertConfig(
        num_labels=CLASSES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    bert = transformers.BertForSequenceClassification(config)
    return of_text(bert, "logits"), torch.randint(0, 30_000, (4, 128))


def _unet() -> tuple[Any, Any]:
    """U-Net (Ronneberger et al., 2015) with batch norm and padding, 64 to 1024 channels. It gives
    the logits of each pixel as a row."""
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> Any:
        layers: list[Any] = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [64, 128, 256, 512, 1024]
            self.down = nn.ModuleList(map(block, [3, *widths], widths))
            self.up = nn.ModuleList(
                nn.ConvTranspose2d(2 * width, width, 2, 2) for width in widths[-2::-1]
            )
            self.join = nn.ModuleList(block(2 * width, width) for width in widths[-2::-1])
            self.last = nn.Conv2d(64, 2, 1)

        def forward(self, x: Any) -> Any:
            skipped = []
            for level, down in enumerate(self.down):
                x = down(nn.functional.max_pool2d(x, 2) if level else x)
                skipped.append(x)
            for up, join, skip in zip(self.up, self.join, skipped[-2::-1], strict=True):
                x = join(torch.cat([skip, up(x)], 1))
            return self.last(x).permute(0, 2, 3, 1).reshape(-1, 2)

    return UNet(), torch.randn(1, 3, 256, 256)


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "resnet50": _torchvision("resnet50", 8),
    "vit_b_16": _torchvision("vit_b_16", 4),
    "bert_base": _bert,
    "densenet121": _torchvision("densenet121", 8),
    "mobilenet_v2": _torchvision("mobilenet_v2", 8),
    "unet": _unet,
}


def rows(names: list[str], compile: bool) -> Iterator[Row]:
    """One row for each model and form."""
    for name in names:
        module, example = MODELS[name]()
        rows_of_logits, classes = module(example).shape
        labels = np.arange(rows_of_logits, dtype=np.int32) * 7 % classes
        forms = {
            "graphc": in_graphc(module, example, labels, "O2"),
            "graphc, O3": in_graphc(module, example, labels, "O3"),
            "graphc without passes": in_graphc(module, example, labels, "O0"),
        }
        if compile:
            forms["torch.compile"] = in_torch(module, example, labels, compile=True)
        forms["PyTorch"] = in_torch(module, example, labels)
        first = {form: step() for form, step in forms.items()}
        for form, loss in first.items():
            assert abs(loss / first["PyTorch"] - 1) < 1e-3, (name, form, first)
        found = ratios(forms, ROUNDS, base="graphc")
        seconds = found["seconds"]
        for form in forms:
            if form != "graphc":
                what = f"{name}, training step of {len(example)} ({seconds:.2f} s), over {form}"
                target = "at most 1.00x" if "torch" in form.lower() else ""
                yield what, f"{1 / found[form]:.2f}x", target


def in_graphc(module: Any, example: Any, labels: np.ndarray, pipeline: str) -> Callable[[], float]:
    """A step, which returns its loss."""
    graph = gc.Graph(seed=0)
    with graph:
        dtype = str(example.numpy().dtype)
        given = gc.placeholder(tuple(example.shape), dtype, name="given")
        wanted = gc.placeholder(labels.shape, "int32", name="wanted")
        logits = gc.from_torch(module, (example,), training=True)(given)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=wanted))
        train = gc.minimize(loss, optax.adamw(RATE, weight_decay=0.01), name="train")
    session = gc.Session(graph, options=gc.CompileOptions(cache=None, pipeline=pipeline))
    feeds = session.put({given: example.numpy(), wanted: labels})
    return lambda: float(session.run([train, loss], feeds)[1])


def in_torch(
    module: Any, example: Any, labels: np.ndarray, compile: bool = False
) -> Callable[[], float]:
    """The same in PyTorch, on a copy of the module."""
    import copy

    import torch

    own = copy.deepcopy(module).train()
    optimizer = torch.optim.AdamW(own.parameters(), RATE, weight_decay=0.01)
    wanted = torch.from_numpy(labels.astype(np.int64))
    forward = torch.compile(own) if compile else own

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(example), wanted)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def main() -> None:
    warnings.simplefilter("ignore")  # of torch.export
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    print("| what | measured | target |\n|---|---|---|")
    for row in rows(names or list(MODELS), "--compile" in sys.argv):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
