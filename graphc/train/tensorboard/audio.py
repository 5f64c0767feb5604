"""Sounds as WAV files."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.train.tensorboard.protos import protos
from graphc.train.tensorboard.summaries import strings, summary
from graphc.train.tensorboard.values import Array, Values, host_copy, require_rank

_HINT = "[samples], [samples, channels] or [sounds, samples, channels], with 1 or 2 channels"


def checked_sounds(value: Values, most: int) -> Array:
    """At most `most` sounds, int16 [sounds, samples, channels].

    Raises:
        ShapeError: the value is no sound.
        DTypeError: its dtype is neither int16 nor a float.
    """
    array = host_copy("audio", value)
    require_rank("audio", array, (1, 2, 3), _HINT)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 2:
        array = array[None]
    if not array.shape[0] or array.shape[2] not in (1, 2):
        raise ShapeError.here(
            f"SummaryWriter.audio: not the shape of sounds: {np.shape(value)}", hint=_HINT
        )
    array = array[:most]
    if array.dtype == np.int16:
        return array
    if array.dtype.kind in "biu" or array.dtype.name in ("int2", "uint2", "int4", "uint4"):
        raise DTypeError.here(
            f"SummaryWriter.audio: takes floats from -1 to 1, or int16, got {array.dtype}"
        )
    # A NaN is silence, an infinity as loud as possible.
    floats = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
    samples: Array = np.rint(np.clip(floats, -1.0, 1.0) * 32767.0).astype(np.int16)
    return samples


def audio(tag: str, sounds: Array, rate: int, description: str) -> Any:
    """The sounds as WAV files, each with an empty label."""
    items = []
    for sound in sounds:
        file = io.BytesIO()
        with wave.open(file, "wb") as writer:
            writer.setnchannels(sound.shape[1])
            writer.setsampwidth(2)
            writer.setframerate(rate)
            writer.writeframes(sound.astype("<i2").tobytes())
        items += [file.getvalue(), b""]
    message = protos().audio.AudioPluginData
    content = message(version=0, encoding=message.WAV).SerializeToString()
    return summary(tag, strings(items, (len(sounds), 2)), "audio", content, description)
