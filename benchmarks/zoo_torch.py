"""Architectures of torchvision, timm and transformers, imported by `gc.from_torch`.

    python -m benchmarks.zoo_torch --out build/zoo_torch.json [--only REGEX] [--failed] [--steps]

Each has random weights and a small configuration, is exported by torch.export, imported, and run in
float32 on the same input. The error is the largest difference over the largest result. With
--steps, both also run ten steps of AdamW in float64. Results are kept in a JSON file after each
model; a second call continues. Needs torch, torchvision, timm and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # much is compiled, little is run

import numpy as np

LIMIT = 90  # seconds for one model
LARGEST = 20_000_000  # parameters
MEMORY = 16 << 30  # bytes of address space: some configurations have large parts
CLOSE = 1e-5

Maker = Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]


def torchvision_models() -> Iterator[tuple[str, Maker]]:
    """The models for classification, segmentation and video."""
    import torch
    import torchvision

    for name in torchvision.models.list_models():
        home = torchvision.models.get_model_builder(name).__module__
        if ".detection." in home or ".quantization." in home or ".optical_flow." in home:
            continue
        video = ".video." in home
        size = 299 if name == "inception_v3" else 224 if name.startswith(("vit_", "maxvit")) else 64

        def make(
            name: str = name,
            size: int = size,
            video: bool = video,
            segmentation: bool = ".segmentation." in home,
        ) -> Any:
            extra: dict[str, Any] = {"weights_backbone": None} if segmentation else {}
            if name == "inception_v3" or name == "googlenet":
                extra = {"init_weights": False, "aux_logits": False}
            model = torchvision.models.get_model(name, weights=None, **extra)
            shape = (1, 3, 8, size, size) if video else (2, 3, size, size)
            return model, (torch.randn(shape),), {}

        yield f"torchvision/{name}", make


def timm_models() -> Iterator[tuple[str, Maker]]:
    """Two models of each of timm's modules: the first, and one from the middle."""
    import timm
    import torch

    for module in timm.list_modules():
        names = timm.list_models(module=module)
        for name in dict.fromkeys(names[:1] + names[len(names) // 2 : len(names) // 2 + 1]):

            def make(name: str = name) -> Any:
                model = timm.create_model(name, pretrained=False)
                size = model.default_cfg.get("input_size", (3, 224, 224))
                if not model.default_cfg.get("fixed_input_size", False):
                    size = (3, min(size[1], 128), min(size[2], 128))
                return model, (torch.randn(1, *size),), {}

            yield f"timm/{name}", make


SMALL = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 32,
    "embed_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "n_inner": 64, "d_ff": 64, "ffn_dim": 64,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "hidden_dim": 64, "d_kv": 8, "head_dim": 8,
    "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "pad_token_id": 0,
    "image_size": 32, "patch_size": 8, "num_experts": 4, "num_local_experts": 4,
    "moe_intermediate_size": 32, "projection_dim": 16, "use_cache": False, "rotary_dim": 4,
}  # fmt: skip


def transformers_models() -> Iterator[tuple[str, Maker]]:
    """Every architecture that `AutoModel` knows, two layers deep."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    transformers.logging.set_verbosity_error()
    for kind in sorted(CONFIG_MAPPING):
        try:
            config_class = CONFIG_MAPPING[kind]
            if config_class not in MODEL_MAPPING:
                continue
        except Exception:
            continue

        def make(config_class: Any = config_class) -> Any:
            known = config_class()
            config = config_class(**{k: v for k, v in SMALL.items() if hasattr(known, k)})
            config._attn_implementation = "sdpa"
            model = transformers.AutoModel.from_config(config)
            named = model.main_input_name
            if named == "pixel_values":
                size = getattr(config, "image_size", 32)
                size = size if isinstance(size, int) else size[0]
                inputs: dict[str, Any] = {
                    "pixel_values": torch.randn(1, getattr(config, "num_channels", 3), size, size)
                }
            elif named == "input_ids":
                inputs = {"input_ids": torch.randint(1, 99, (2, 7))}
                if getattr(config, "is_encoder_decoder", False):
                    inputs["decoder_input_ids"] = torch.randint(1, 99, (2, 5))
            else:
                raise NotImplementedError(f"takes {named}")
            return model, (), inputs

        yield f"transformers/{kind}", make


def largest_error(make: Maker, steps: bool) -> str:
    """ "ok", "no export: ..." if PyTorch itself cannot export it, or the error."""
    import torch

    import graphc as gc

    torch.manual_seed(0)
    try:
        model, args, kwargs = make()
        model = model.eval()
        if sum(p.numel() for p in model.parameters()) > LARGEST:
            return "skipped: too large"
        with torch.no_grad():
            want = leaves(model(*args, **kwargs))
    except Exception as error:
        return f"skipped: {type(error).__name__}: {str(error)[:100]}"
    try:
        program = torch.export.export(model, args, kwargs, strict=False)
    except Exception as error:
        return f"no export: {type(error).__name__}: {' '.join(str(error).split())[:100]}"
    layer = gc.from_torch(program)
    alone = layer.to_graph()
    flat = [t.numpy() for t in leaves([*args, kwargs])]
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        feeds = dict(zip(alone.inputs.values(), flat, strict=True))
        got = session.run(list(alone.outputs.values()), feeds)
    worst = 0.0
    for a, b in zip(got, want, strict=False):
        b = b.detach().numpy()
        if np.asarray(a).shape != b.shape:
            return f"the shape {np.asarray(a).shape} in place of {b.shape}"
        away = np.abs(np.asarray(a, np.float64) - b).max(initial=0)
        worst = max(worst, away / max(np.abs(b).max(initial=0), 1e-6))
    if not worst <= CLOSE:
        return f"error {worst:.1e}"
    return trained(make) if steps else "ok"


def trained(make: Maker) -> str:
    """Ten steps of AdamW in float64, in both: "ok" if the parameters agree to 1e-9."""
    import optax
    import torch

    import graphc as gc

    torch.manual_seed(0)
    model, args, kwargs = make()
    model = model.double().eval()
    args = tuple(a.double() if a.is_floating_point() else a for a in args)
    kwargs = {k: v.double() if v.is_floating_point() else v for k, v in kwargs.items()}
    layer = gc.from_torch(model, args, kwargs)
    flat = [t.numpy() for t in leaves([*args, kwargs])]
    alone = layer.to_graph()
    with alone.graph:
        losses = [
            gc.reduce_mean(gc.square(t)) for t in alone.outputs.values() if t.dtype.kind == "f"
        ]
        loss = gc.add_n(losses)
        train = gc.minimize(loss, optax.adamw(1e-3, weight_decay=0.01))
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3, weight_decay=0.01)
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        feeds = dict(zip(alone.inputs.values(), flat, strict=True))
        for _ in range(10):
            session.run(train, feeds)
            optimizer.zero_grad()
            results = [t for t in leaves(model(*args, **kwargs)) if t.is_floating_point()]
            sum((t.square().mean() for t in results), torch.zeros(())).backward()
            optimizer.step()
        worst = 0.0
        for name, variable in alone.variables.items():
            if name in parameters and parameters[name].grad is not None:
                other = parameters[name].detach().numpy()
                away = np.abs(np.asarray(session.get(variable)) - other).max(initial=0)
                worst = max(worst, away / max(np.abs(other).max(initial=0), 1e-6))
    return "ok, trained" if worst < 1e-9 else f"trained: error {worst:.1e}"


def leaves(value: Any) -> list[Any]:
    """The tensors of a nest."""
    import torch

    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/zoo_torch.json"))
    parser.add_argument("--only", default="")
    parser.add_argument("--failed", action="store_true", help="again those that failed")
    parser.add_argument("--steps", action="store_true", help="train those that agree")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for source in (torchvision_models, timm_models, transformers_models):
        for name, make in source():
            done = found.get(name, "")
            again = (options.failed and _is_bad(done)) or (options.steps and done == "ok")
            if not re.search(options.only, name) or (done and not again):
                continue
            begin = time.monotonic()
            signal.alarm(LIMIT)
            try:
                found[name] = largest_error(make, options.steps)
            except Exception as error:  # the table shows it
                lines = " ".join(str(error).split())
                found[name] = f"{type(error).__name__}: {lines[:300]}"
            finally:
                signal.alarm(0)
            print(f"{name:<60} {time.monotonic() - begin:6.1f} s  {found[name][:120]}", flush=True)
            options.out.write_text(json.dumps(found, indent=1))
    print(Counter(v.split(":")[0].split(" ")[0] for v in found.values()))


def _is_bad(result: str) -> bool:
    return not result.startswith(("ok", "no export", "skipped"))


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {LIMIT} s")


if __name__ == "__main__":
    main()
