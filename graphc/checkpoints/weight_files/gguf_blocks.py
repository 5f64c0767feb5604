"""Decodes the quantised blocks of GGUF files. Each function takes bytes and gives float32.

Source: the definitions of the blocks in ggml (ggml-common.h).
"""

from __future__ import annotations

import numpy as np

from graphc.ir.dtypes import Array


def _half(data: Array) -> Array:
    """float16 numbers, of which each takes two bytes, as float32."""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def q8_0(data: Array) -> Array:
    """32 elements: a scale, then a byte for each."""
    blocks = data.reshape(-1, 34)
    decoded: Array = _half(blocks[:, :2]) * blocks[:, 2:].view(np.int8).astype(np.float32)
    return decoded


def q4_0(data: Array) -> Array:
    """32 elements: a scale, then four bits for each: the first half in the low bits."""
    blocks = data.reshape(-1, 18)
    packed = blocks[:, 2:]
    numbers = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32) - 8.0
    decoded: Array = _half(blocks[:, :2]) * numbers
    return decoded


def q4_k(data: Array) -> Array:
    """256 elements: a scale of scales and of offsets; eight of each, in six bits; then four bits
    for each element, in groups of 64: the first half of a group in the low bits."""
    blocks = data.reshape(-1, 144)
    scale, offset = _half(blocks[:, :2]), _half(blocks[:, 2:4])
    packed = blocks[:, 4:16]
    first, second, both = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (both & 15) | (first >> 6 << 4)], axis=1)
    offsets = np.concatenate([second & 63, (both >> 4) | (second >> 6 << 4)], axis=1)
    groups = blocks[:, 16:].reshape(-1, 4, 1, 32)
    numbers = np.concatenate([groups & 15, groups >> 4], axis=2).reshape(-1, 8, 32)
    factor = (scale * scales.astype(np.float32))[:, :, None]
    shift = (offset * offsets.astype(np.float32))[:, :, None]
    decoded: Array = factor * numbers.astype(np.float32) - shift
    return decoded


def q6_k(data: Array) -> Array:
    """256 elements: the low four bits, the high two bits, a scale for each 16, and a scale of
    scales. Each half of the block has four groups of 32 elements."""
    blocks = data.reshape(-1, 210)
    low = blocks[:, :128].reshape(-1, 2, 2, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    low_bits = np.concatenate([low & 15, low >> 4], axis=2)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    numbers = (low_bits | ((high >> shifts & 3) << 4)).astype(np.float32) - 32.0
    factor = (_half(blocks[:, 208:]) * scales)[:, :, None]
    decoded: Array = factor * numbers.reshape(-1, 16, 16)
    return decoded
