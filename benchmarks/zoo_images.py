"""The models of the zoo for images."""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax import lax
from jax import numpy as jnp

from benchmarks.zoo_layers import (
    DIMS,
    Init,
    Model,
    batch_norm,
    conv,
    cross_entropy,
    dense,
    layer_norm,
    mlp,
    training,
    transformer_block,
)

SGD = optax.sgd(0.01, momentum=0.9)


def _classified(init: Init, logits: Any, params: Any, batch: int, side: int) -> Model:
    """Training of a classifier of `side` x `side` images in 10 classes."""

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return cross_entropy(logits(p, x), y)

    return training(loss, params, init.normal(batch, side, side, 3), init.below(10, batch), tx=SGD)


def _conv_norm(init: Init, size: int, n_in: int, n_out: int) -> Any:
    return {"w": init.conv(size, n_in, n_out), "norm": init.norm(n_out)}


def _normed(p: Any, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    return batch_norm(p["norm"], conv(p["w"], x, stride, groups))


def vit(tiny: bool) -> Model:
    """A vision transformer of 12 blocks."""
    init, (width, heads, blocks, side) = Init(), (16, 2, 2, 8) if tiny else (96, 4, 12, 32)
    patches = (side // 4) ** 2
    params = {
        "patch": init.dense(48, width),
        "position": init.normal(patches, width, scale=0.02),
        "blocks": [init.block(width) for _ in range(blocks)],
        "norm": init.norm(width),
        "head": init.dense(width, 10),
    }

    def logits(p: Any, x: jax.Array) -> jax.Array:
        x = x.reshape(-1, side // 4, 4, side // 4, 4, 3).transpose(0, 1, 3, 2, 4, 5)
        x = dense(p["patch"], x.reshape(-1, patches, 48)) + p["position"]
        for block in p["blocks"]:
            x = transformer_block(block, x, heads, causal=False)
        return dense(p["head"], layer_norm(p["norm"], x).mean(1))

    return _classified(init, logits, params, 2 if tiny else 4, side)


def mixer(tiny: bool) -> Model:
    """An MLP-mixer of 6 blocks."""
    init, (width, blocks, side) = Init(), (16, 2, 8) if tiny else (64, 6, 32)
    patches = (side // 4) ** 2

    def block() -> Any:
        return {
            "norm1": init.norm(width),
            "tokens": init.mlp(patches, 32, patches),
            "norm2": init.norm(width),
            "channels": init.mlp(width, 4 * width, width),
        }

    params = {
        "patch": init.dense(48, width),
        "blocks": [block() for _ in range(blocks)],
        "head": init.dense(width, 10),
    }

    def logits(p: Any, x: jax.Array) -> jax.Array:
        x = x.reshape(-1, side // 4, 4, side // 4, 4, 3).transpose(0, 1, 3, 2, 4, 5)
        x = dense(p["patch"], x.reshape(-1, patches, 48))
        for b in p["blocks"]:
            y = layer_norm(b["norm1"], x).swapaxes(1, 2)
            x = x + mlp(b["tokens"], y, jax.nn.gelu).swapaxes(1, 2)
            x = x + mlp(b["channels"], layer_norm(b["norm2"], x), jax.nn.gelu)
        return dense(p["head"], x.mean(1))

    return _classified(init, logits, params, 2 if tiny else 4, side)


def unet(tiny: bool) -> Model:
    """A U-Net of three levels with transposed convolutions, for segmentation."""
    init, (width, side, batch) = Init(), (4, 8, 2) if tiny else (16, 32, 2)
    widths = [width, 2 * width, 4 * width]

    def pair(a: int, b: int) -> list[Any]:
        return [_conv_norm(init, 3, a, b), _conv_norm(init, 3, b, b)]

    params = {
        "down": [pair(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True)],
        "up": [
            {"w": init.conv(2, 2 * w, w), "pair": pair(2 * w, w)} for w in reversed(widths[:-1])
        ],
        "head": init.conv(1, width, 2),
    }

    def convs(p: Any, x: jax.Array) -> jax.Array:
        return jax.nn.relu(_normed(p[1], jax.nn.relu(_normed(p[0], x))))

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        kept = []
        for level in p["down"]:
            if kept:
                x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            x = convs(level, x)
            kept.append(x)
        for level, skip in zip(p["up"], kept[-2::-1], strict=True):
            x = lax.conv_transpose(x, level["w"], (2, 2), "SAME", dimension_numbers=DIMS)
            x = convs(level["pair"], jnp.concatenate([x, skip], -1))
        return cross_entropy(conv(p["head"], x), y)

    return training(
        loss, params, init.normal(batch, side, side, 3), init.below(2, batch, side, side)
    )


def mobilenet(tiny: bool) -> Model:
    """MobileNet-V2: inverted residuals with depthwise convolutions."""
    stages = [(1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 3, 2), (6, 32, 4, 2), (6, 48, 3, 1)]
    if tiny:
        stages = stages[:2]
    init, blocks, n_in = Init(), [], 8
    for expand, n_out, count, stride in stages:
        for number in range(count):
            wide = n_in * expand
            blocks.append((stride if number == 0 else 1, n_in == n_out and number > 0, {
                "expand": _conv_norm(init, 1, n_in, wide),
                "depthwise": {"w": init.conv(3, 1, wide), "norm": init.norm(wide)},
                "project": _conv_norm(init, 1, wide, n_out),
            }))  # fmt: skip
            n_in = n_out
    params = {
        "stem": _conv_norm(init, 3, 3, 8),
        "blocks": [block for _, _, block in blocks],
        "head": init.dense(n_in, 10),
    }

    def logits(p: Any, x: jax.Array) -> jax.Array:
        x = jax.nn.relu6(_normed(p["stem"], x))
        for (stride, residual, _), b in zip(blocks, p["blocks"], strict=True):
            y = jax.nn.relu6(_normed(b["expand"], x))
            y = jax.nn.relu6(_normed(b["depthwise"], y, stride, groups=y.shape[-1]))
            y = _normed(b["project"], y)
            x = x + y if residual else y
        return dense(p["head"], x.mean((1, 2)))

    return _classified(init, logits, params, 2 if tiny else 4, 8 if tiny else 32)


def densenet(tiny: bool) -> Model:
    """A DenseNet: each layer gets the results of all previous layers."""
    init, growth, counts = Init(), 8, (2, 2) if tiny else (6, 8, 6)
    width, stages = 16, []
    for count in counts:
        layers = []
        for _ in range(count):
            layers.append({
                "norm1": init.norm(width), "w1": init.conv(1, width, 4 * growth),
                "norm2": init.norm(4 * growth), "w2": init.conv(3, 4 * growth, growth),
            })  # fmt: skip
            width += growth
        stages.append({"layers": layers, "between": _conv_norm(init, 1, width, width // 2)})
        width //= 2
    params = {"stem": init.conv(3, 3, 16), "stages": stages, "head": init.dense(width, 10)}

    def logits(p: Any, x: jax.Array) -> jax.Array:
        x = conv(p["stem"], x)
        for stage in p["stages"]:
            for layer in stage["layers"]:
                y = conv(layer["w1"], jax.nn.relu(batch_norm(layer["norm1"], x)))
                y = conv(layer["w2"], jax.nn.relu(batch_norm(layer["norm2"], y)))
                x = jnp.concatenate([x, y], -1)
            x = jax.nn.relu(_normed(stage["between"], x))
            x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        return dense(p["head"], x.mean((1, 2)))

    return _classified(init, logits, params, 2 if tiny else 4, 8 if tiny else 32)


def resnet20(tiny: bool) -> Model:
    """ResNet-20 in its form for CIFAR-10."""
    init, count = Init(), 1 if tiny else 3
    blocks, n_in = [], 16
    for width in (16, 32, 64):
        for _ in range(count):
            block = {"a": _conv_norm(init, 3, n_in, width), "b": _conv_norm(init, 3, width, width)}
            if n_in != width:
                block["shortcut"] = _conv_norm(init, 1, n_in, width)
            blocks.append(block)
            n_in = width
    params = {"stem": _conv_norm(init, 3, 3, 16), "blocks": blocks, "head": init.dense(64, 10)}

    def logits(p: Any, x: jax.Array) -> jax.Array:
        x = jax.nn.relu(_normed(p["stem"], x))
        for b in p["blocks"]:
            stride = 2 if "shortcut" in b else 1
            y = _normed(b["b"], jax.nn.relu(_normed(b["a"], x, stride)))
            x = jax.nn.relu(y + (_normed(b["shortcut"], x, stride) if "shortcut" in b else x))
        return dense(p["head"], x.mean((1, 2)))

    return _classified(init, logits, params, 2 if tiny else 4, 8 if tiny else 32)


def simclr(tiny: bool) -> Model:
    """SimCLR: two views of each image, and the contrastive loss over the batch."""
    init, (width, side, batch) = Init(), (4, 8, 4) if tiny else (16, 32, 32)
    params = {
        "convs": [_conv_norm(init, 3, a, b) for a, b in ((3, width), (width, 2 * width))],
        "head": init.mlp(2 * width, 64, 32),
    }

    def loss(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        x = jnp.concatenate([x, x[:, :, ::-1] + 0.1 * jax.random.normal(key, x.shape)])
        for layer in p["convs"]:
            x = jax.nn.relu(_normed(layer, x, 2))
        z = mlp(p["head"], x.mean((1, 2)))
        z = z / jnp.linalg.norm(z, axis=-1, keepdims=True)
        logits = jnp.where(jnp.eye(2 * batch, dtype=bool), -1e9, z @ z.T / 0.1)
        return cross_entropy(logits, jnp.roll(jnp.arange(2 * batch), batch))

    return training(loss, params, init.normal(batch, side, side, 3), jax.random.key(0))


def diffusion(tiny: bool) -> Model:
    """A denoiser of a diffusion model. The step draws noise and times."""
    init, (width, side, batch) = Init(), (8, 8, 2) if tiny else (32, 16, 8)

    def block() -> Any:
        return {
            "time": init.dense(width, width),
            "a": _conv_norm(init, 3, width, width),
            "b": _conv_norm(init, 3, width, width),
        }

    params = {
        "stem": init.conv(3, 3, width),
        "blocks": [block() for _ in range(2 if tiny else 4)],
        "head": init.conv(3, width, 3),
    }

    def loss(p: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        for_times, for_noise = jax.random.split(key)
        t = jax.random.uniform(for_times, (batch,))
        noise = jax.random.normal(for_noise, images.shape)
        level = jnp.cos(t * jnp.pi / 2)[:, None, None, None]
        x = conv(p["stem"], level * images + jnp.sqrt(1 - level**2) * noise)
        waves = t[:, None] * jnp.exp(jnp.linspace(0, 4, width // 2))
        embedded = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1)
        for b in p["blocks"]:
            y = jax.nn.silu(_normed(b["a"], x)) + dense(b["time"], embedded)[:, None, None]
            x = x + jax.nn.silu(_normed(b["b"], y))
        return ((conv(p["head"], x) - noise) ** 2).mean()

    return training(loss, params, init.normal(batch, side, side, 3), jax.random.key(0))


IMAGES = {
    "ViT": vit,
    "MLP-mixer": mixer,
    "U-Net": unet,
    "MobileNet-V2": mobilenet,
    "DenseNet": densenet,
    "ResNet-20": resnet20,
    "SimCLR": simclr,
    "diffusion denoiser": diffusion,
}
