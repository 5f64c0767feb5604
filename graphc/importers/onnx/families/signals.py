"""Fourier transforms."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.ir.node import Tensor
from graphc.ops import fft


def _dft(call: Call) -> Any:
    x = call.x()
    inverse, one_sided = bool(call.attr("inverse", 0)), bool(call.attr("onesided", 0))
    if call.version < 20:
        axis = call.attr("axis", 1)
    else:
        axis = int(call.need(2, "the axis").reshape(-1)[0]) if call.has(2) else -2
    length = int(call.need(1, "the length").reshape(-1)[0]) if call.has(1) else None
    axis = axis % x.ndim

    signal = _complex(x)
    if inverse and one_sided:  # of a one-sided spectrum; the result is real
        return ops.expand_dims(ops.cast(fft.irfft(signal, length, axis), x.dtype), -1)
    found = (fft.ifft if inverse else fft.fft)(signal, length, axis)
    if one_sided:
        whole = signal.shape[axis] if length is None else length
        found = found[(slice(None),) * axis + (slice(whole // 2 + 1),)]
    return _parts(found, x.dtype)


def _complex(x: Tensor) -> Any:
    """Numbers whose parts are on the last axis: only real ones, or real and imaginary ones."""
    return x[..., 0] if x.shape[-1] == 1 else ops.complex(x[..., 0], x[..., 1])


def _parts(x: Tensor, dtype: Any) -> Any:
    """The real and the imaginary parts on a new last axis."""
    return ops.cast(ops.stack([ops.real(x), ops.imag(x)], -1), dtype)


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

    count = (x.shape[1] - length) // step + 1
    places = ops.expand_dims(ops.arange(count) * step, 1) + ops.arange(length)
    frames = ops.take(x, places, axis=1)  # [batch, count, length], or with an axis of parts

    if x.ndim == 3:
        frames = _complex(frames)
    found = fft.fft(frames * call.x(2) if call.has(2) else frames, axis=-1)
    if one_sided:
        found = found[..., : length // 2 + 1]
    return _parts(found, x.dtype)


def _mel(call: Call) -> Any:
    raise Refused("needs its inputs at import", needs=True)


RULES: Final[dict[str, Rule]] = {"DFT": _dft, "MelWeightMatrix": _mel, "STFT": _stft}
