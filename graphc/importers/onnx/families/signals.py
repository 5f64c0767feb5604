"""Fourier transforms."""

from __future__ import annotations

from typing import Any, Final

from jax import numpy as jnp

from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.jaxpr.function import from_jax


def _dft(call: Call) -> Any:
    x = call.x()
    inverse, one_sided = bool(call.attr("inverse", 0)), bool(call.attr("onesided", 0))
    if call.version < 20:
        axis = call.attr("axis", 1)
    else:
        axis = int(call.need(2, "the axis").reshape(-1)[0]) if call.has(2) else -2
    length = int(call.need(1, "the length").reshape(-1)[0]) if call.has(1) else None
    rank = x.ndim
    axis = axis % rank

    def transform(x: Any) -> Any:
        signal = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
        size = length or signal.shape[axis]
        if inverse and one_sided:
            # Of a one-sided spectrum; the result is real.
            found = jnp.fft.irfft(signal, size, axis)
            return found[..., None]
        found = (jnp.fft.ifft if inverse else jnp.fft.fft)(signal, size, axis)
        if one_sided:
            found = jnp.take(found, jnp.arange(size // 2 + 1), axis)
        return jnp.stack([found.real, found.imag], -1).astype(x.dtype)

    return from_jax(transform, name=call.op)(x)


def _stft(call: Call) -> Any:
    x = call.x()
    step = int(call.need(1, "the step").reshape(-1)[0])
    one_sided = bool(call.attr("onesided", 1))
    if call.has(3):
        length = int(call.need(3, "the length of frames").reshape(-1)[0])
    elif call.has(2):
        size = call.x(2).shape[0]
        if not isinstance(size, int):
            raise Refused("needs a known size of its window")
        length = size
    else:
        raise Refused("has neither a window nor a length of frames")

    def transform(x: Any, window: Any) -> Any:
        signal = x[..., 0] if x.ndim == 3 and x.shape[-1] == 1 else x
        if x.ndim == 3 and x.shape[-1] == 2:
            signal = x[..., 0] + 1j * x[..., 1]
        count = (signal.shape[1] - length) // step + 1
        places = jnp.arange(count)[:, None] * step + jnp.arange(length)
        frames = signal[:, places]
        found = jnp.fft.fft(frames if window is None else frames * window, axis=-1)
        if one_sided:
            found = found[..., : length // 2 + 1]
        return jnp.stack([found.real, found.imag], -1).astype(x.dtype)

    return from_jax(transform, name=call.op)(x, call.x(2) if call.has(2) else None)


def _mel(call: Call) -> Any:
    raise Refused("needs its inputs at import", needs=True)


RULES: Final[dict[str, Rule]] = {"DFT": _dft, "MelWeightMatrix": _mel, "STFT": _stft}
