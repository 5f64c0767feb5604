"""A BERT of transformers is trained, gets peft's LoRA adapters for another task, and goes back.

python examples/bert_lora.py

The model reads a piece of Python and predicts which module of the standard library it is from. It
starts with random weights, since nothing is downloaded, and is trained completely. Then peft adds
adapters to its queries and values, and a new head for four other modules. graphc trains only these,
since `gc.from_torch` makes only variables trainable that require a gradient. At the end the
adapters are loaded into a new peft model, which gives the same results.

Hu et al., "LoRA: Low-rank adaptation of large language models", 2021. Needs torch, transformers and
peft.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import optax
import peft
import safetensors.torch
import sources
import torch
import transformers

import graphc as gc

LENGTH, BATCH = 48, 32
FIRST = ("argparse.py", "inspect.py", "subprocess.py", "typing.py")
SECOND = ("ast.py", "calendar.py", "tarfile.py", "turtle.py")


def bert() -> Any:
    """A small BERT that distinguishes four classes."""
    config = transformers.BertConfig(
        vocab_size=len(sources.CHARACTERS),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=LENGTH,
        num_labels=4,
    )
    return transformers.BertForSequenceClassification(config)


def adapted(base: dict[str, Any]) -> Any:
    """The same model with adapters and a new head; its other values are those of `base`."""
    module = bert()
    body = {name: value for name, value in base.items() if not name.startswith("classifier")}
    module.load_state_dict(body, strict=False)
    return peft.get_peft_model(
        module,
        peft.LoraConfig("SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value"]),
    )


class Logits(torch.nn.Module):
    """A transformers model that returns only its logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, text: Any) -> Any:
        return self.model(input_ids=text).logits


def pieces(names: tuple[str, ...], seed: int) -> Any:
    """Endless batches: pieces of the modules, and the index of each piece's module."""
    windows = [
        sources.windows(sources.encode(sources.read([name])), LENGTH, BATCH // len(names), seed + i)
        for i, name in enumerate(names)
    ]
    labels = np.repeat(np.arange(len(names), dtype=np.int32), BATCH // len(names))
    for parts in zip(*windows, strict=True):
        yield {"text": np.concatenate(parts), "labels": labels}


def trained(module: Any, names: tuple[str, ...], steps: int, rate: float) -> gc.Session:
    """Trains the parameters that require a gradient; returns the session with all values."""
    graph = gc.Graph(seed=0)
    with graph:
        text = gc.placeholder(("batch", LENGTH), "int32", name="text")
        labels = gc.placeholder(("batch",), "int32", name="labels")
        shapes = ({0: torch.export.Dim("batch", min=2, max=4096)},)
        example = (torch.zeros(2, LENGTH, dtype=torch.int32),)
        network = gc.from_torch(Logits(module), example, dynamic_shapes=shapes, training=True)
        logits = network(text)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=labels))
        train = gc.minimize(loss, optax.adamw(rate), name="train")
    session = gc.Session(graph)
    losses = [session.run([train, loss], feeds)[1] for feeds in islice(pieces(names, 0), steps)]
    numbers = sum(np.prod(v.shape, dtype=int) for v in graph.variables.values() if v.trainable)
    print(f"{steps} steps of {numbers} numbers, last losses {float(np.mean(losses[-20:])):.3f}")
    return session


def save(session: gc.Session, module: Any, path: Path, *patterns: str) -> None:
    """Writes those variables of the module to a file whose names match one of the patterns, with
    the module's names."""
    names = {f"model.{name}": name for name in module.state_dict()}
    chosen = {
        variable: name
        for variable, name in names.items()
        if variable in session.graph.variables and any(p in name for p in patterns)
    }
    gc.to_safetensors(session, path, chosen)


def accuracy(module: Any, names: tuple[str, ...]) -> float:
    """The accuracy on pieces that the module was not trained on."""
    right = []
    with torch.no_grad():
        for feeds in islice(pieces(names, 1000), 10):
            found = Logits(module).eval()(torch.from_numpy(feeds["text"])).argmax(-1)
            right.append(float(np.mean(found.numpy() == feeds["labels"])))
    return float(np.mean(right))


def difference(module: Any) -> float:
    """The largest difference of the logits, relative to the largest logit."""
    logits = Logits(module).eval()
    text = next(pieces(SECOND, 1000))["text"]
    with torch.no_grad():
        theirs = logits(torch.from_numpy(text)).numpy()
    alone = gc.from_torch(logits, (torch.from_numpy(text),)).to_graph()
    with gc.Session(alone.graph) as session:
        ours = session.run(alone.outputs["output_0"], {alone.inputs["text"]: text})
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of torch.export
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        whole, adapter = Path(folder) / "model.safetensors", Path(folder) / "adapter.safetensors"
        base = bert()
        with trained(base, FIRST, options.steps, 1e-3) as session:
            save(session, base, whole, "")
        values = safetensors.torch.load_file(whole)
        base.load_state_dict(values)
        print(f"accuracy of the whole model: {accuracy(base, FIRST):.3f}")

        model = adapted(values)
        print(f"accuracy for the other modules before: {accuracy(model, SECOND):.3f}")
        with trained(model, SECOND, options.steps, 5e-3) as session:
            save(session, model, adapter, "lora_", "modules_to_save")
        print(f"{whole.stat().st_size} bytes, adapters and head {adapter.stat().st_size}")
        again = adapted(values)
        again.load_state_dict(safetensors.torch.load_file(adapter), strict=False)
        print(f"accuracy with adapters: {accuracy(again, SECOND):.3f}")
        print(f"largest difference between graphc and PyTorch: {difference(again):.1e}")


if __name__ == "__main__":
    main()
