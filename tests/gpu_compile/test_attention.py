"""Which attention runs in cuDNN, on which GPUs, and that all other attention runs elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

import graphc as gc


def calls(
    machine: str = "h100",
    query: tuple[int, ...] = (2, 512, 4, 64),
    key: tuple[int, ...] | None = None,
    depth: int | None = None,
    dtype: str = "bfloat16",
    mask: tuple[int, ...] | None = None,
    bias: tuple[int, ...] | None = None,
    bias_dtype: str | None = None,
    train: bool = True,
    **options: Any,
) -> tuple[bool, bool]:
    """Whether cuDNN's attention is called, forward and backward.

    Args:
        depth: the depth of the values.
    """
    key = key or query
    with gc.Graph(seed=0) as graph:
        q = gc.placeholder(query, dtype, name="q")
        k = gc.placeholder(key, dtype, name="k")
        v = gc.placeholder((*key[:3], depth or key[3]), dtype, name="v")
        feeds = {tensor: tensor.shape for tensor in (q, k, v)}
        if mask is not None:
            options["mask"] = gc.placeholder(mask, "bool", name="mask")
            feeds[options["mask"]] = mask
        if bias is not None:
            options["bias"] = gc.placeholder(bias, bias_dtype or dtype, name="bias")
            feeds[options["bias"]] = bias
        y = gc.nn.attention(q, k, v, **options)
        wanted = [t for t in (q, k, v, options.get("bias")) if t is not None]
        loss = gc.reduce_sum(gc.square(gc.cast(y, "float32")))
        fetches = [y, *gc.gradients(loss, wanted)] if train else [y]
    step = gc.compile(graph, fetches, feeds, machine=machine, options=gc.CompileOptions(cache=None))
    found = [name for name in step.hlo_cost().custom_calls if name.startswith("__cudnn$fmha")]
    backward = any(name.endswith("Backward") for name in found)
    return any(not name.endswith("Backward") for name in found), backward


BOTH, NEITHER, FORWARD = (True, True), (False, False), (True, False)


@pytest.mark.parametrize("machine", ["a100-40gb", "l4", "l40s", "h100", "b200"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_each_gpu_that_graphc_knows_has_it(machine: str, dtype: str) -> None:
    assert calls(machine, dtype=dtype, causal=True) == BOTH


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        (NEITHER, {"dtype": "float32"}),
        (BOTH, {"query": (2, 512, 4, 8)}),
        (BOTH, {"query": (2, 512, 4, 72)}),
        (BOTH, {"query": (2, 512, 4, 128)}),
        (NEITHER, {"query": (2, 512, 4, 60)}),
        (NEITHER, {"query": (2, 512, 4, 136)}),
        (NEITHER, {"query": (2, 512, 4, 256)}),
        (NEITHER, {"depth": 32}),
        (NEITHER, {"query": (2, 511, 4, 64)}),
        (NEITHER, {"key": (2, 511, 4, 64)}),
        (BOTH, {"key": (2, 256, 4, 64)}),
        (BOTH, {"key": (2, 512, 2, 64)}),  # heads share keys
        (BOTH, {"causal": True}),
        (BOTH, {"key": (2, 256, 4, 64), "causal": True}),
        (BOTH, {"mask": (2, 1, 1, 512)}),  # lengths of padded sequences
        (BOTH, {"mask": (1, 1, 512, 512)}),
        (BOTH, {"mask": (2, 4, 512, 512)}),
        (NEITHER, {"mask": (2, 1, 1, 512), "causal": True}),
        (BOTH, {"bias": (1, 4, 512, 512)}),
        (BOTH, {"bias": (2, 4, 512, 512), "causal": True}),
        (BOTH, {"bias": (1, 4, 1, 1)}),
        (BOTH, {"bias": (1, 4, 512, 512), "mask": (2, 1, 1, 512)}),
        (NEITHER, {"bias": (1, 4, 512, 512), "bias_dtype": "float32"}),
        (NEITHER, {"bias": (4, 512, 512)}),
        (NEITHER, {"dropout": 0.1, "seed": 1}),
        (FORWARD, {"train": False}),
        (BOTH, {"scale": 0.3}),
        (BOTH, {"query": (2, 2, 4, 64)}),
    ],
    ids=str,
)
def test_what_cudnn_takes_on_a_h100(wanted: tuple[bool, bool], options: dict[str, Any]) -> None:
    assert calls(**options) == wanted


@pytest.mark.parametrize("machine", ["l4", "b200"])
@pytest.mark.parametrize(
    "options",
    [
        {"mask": (2, 1, 1, 512)},
        {"bias": (1, 4, 512, 512)},
        {"query": (2, 512, 4, 128), "key": (2, 512, 2, 128)},
    ],
    ids=str,
)
def test_masks_and_biases_on_other_gpus(machine: str, options: dict[str, Any]) -> None:
    assert calls(machine, **options) == BOTH


def test_gpus_before_cudnns_attention_do_without(tmp_path: Any) -> None:
    text = gc.devices.Machine("l4").to_toml()
    file = tmp_path / "t4.toml"
    file.write_text(text.replace('"8.9"', '"7.5"').replace("NVIDIA L4", "Tesla T4"))
    assert calls(str(file), dtype="float16") == NEITHER
