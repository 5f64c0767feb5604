"""The architectures of torchvision and timm that `zoo_torch` tries, with random weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

Maker: TypeAlias = Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]
"""Makes a module, and the arguments that it is called with."""


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


SMALLEST = (
    *("test", "zepto", "atto", "femto", "pico", "nano", "xxxs", "xxtiny", "xxs", "xtiny", "xs"),
    *("tiny", "mini", "lite", "050", "s050", "s0", "b0", "a0", "t0", "m0", "f0", "l1", "18", "10"),
    *("14d", "26t", "small", "12", "t", "s", "m1", "s1", "t1", "b1", "100", "s18", "s24", "d1"),
)  # parts of names, from the smallest on


def timm_models() -> Iterator[tuple[str, Maker]]:
    """Two models of each of timm's modules, the smallest by their names, and those for tests."""
    import timm

    for module in timm.list_modules():
        names = timm.list_models(module=module)
        chosen = sorted(names, key=_rank)[:2]
        for name in dict.fromkeys([*chosen, *(n for n in names if n.startswith("test_"))]):
            yield f"timm/{name}", _timm_maker(name)


def _rank(name: str) -> tuple[bool, int, int]:
    parts: Sequence[str] = re.split(r"[_.]", re.sub(r"(?<=[a-z]{4})(?=\d+$)", "_", name))
    large = any(p in parts for p in ("336", "384", "448", "m", "l"))  # pictures or variants
    return large, min((SMALLEST.index(p) for p in parts if p in SMALLEST), default=99), len(name)


SHALLOW: tuple[dict[str, Any], ...] = (
    {"depth": 2},
    {"depths": (1, 1, 1, 1)},
    {"layers": (1, 1, 1, 1)},
    {"depths": (1, 1, 1)},
    {"layers": (1, 1, 1)},
)  # what the constructors of many architectures take


def _timm_model(name: str) -> Any:
    """A model with few layers, if its constructor takes how many; a deep one otherwise."""
    import timm

    for fewer in SHALLOW:
        try:
            return timm.create_model(name, pretrained=False, **fewer)
        except Exception:  # the constructor has another argument, or checks the number of stages
            continue
    return timm.create_model(name, pretrained=False)


def _timm_maker(name: str) -> Maker:
    def make() -> Any:
        import torch

        model = _timm_model(name).eval()
        large = model.default_cfg.get("input_size", (3, 224, 224))
        size = (3, min(large[1], 128), min(large[2], 128))
        if not model.default_cfg.get("fixed_input_size", False):
            try:
                with torch.no_grad():
                    model(torch.zeros(1, *size))
                large = size
            except Exception:  # its windows do not fit into the small picture
                pass
        return model, (torch.randn(1, *large),), {}

    return make
