"""Images as PNG files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from graphc.data.sources.images import import_pillow
from graphc.errors import DTypeError, ShapeError
from graphc.train.tensorboard.protos import protos
from graphc.train.tensorboard.summaries import strings, summary
from graphc.train.tensorboard.values import Array, Values, host_copy, require_rank

_HINT = (
    "[height, width], [height, width, channels] or [images, height, width, channels] with 1 to 4 "
    "channels: gray, gray and alpha, RGB, RGB and alpha"
)
_RED = (255, 0, 0)  # where a float is NaN or infinite


def _pillow() -> Any:
    return import_pillow("SummaryWriter.image", "tensorboard")


def checked_images(value: Values, most: int) -> Array:
    """At most `most` images, uint8 [images, height, width, channels].

    Raises:
        ShapeError: the value is no image.
        DTypeError: its dtype is not uint8, bool or a float.
    """
    _pillow()
    array = host_copy("image", value)
    require_rank("image", array, (2, 3, 4), _HINT)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3:
        array = array[None]
    count, height, width, channels = array.shape
    if not (count and height and width and 1 <= channels <= 4):
        raise ShapeError.here(
            f"SummaryWriter.image: not the shape of images: {np.shape(value)}", hint=_HINT
        )
    return _bytes_of(array[:most])


def _bytes_of(array: Array) -> Array:
    """Floats and bools in [0, 1] as bytes in [0, 255]."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind in "iu" or array.dtype.name in ("int2", "uint2", "int4", "uint4"):
        raise DTypeError.here(
            f"SummaryWriter.image: takes uint8, bool or floats, got {array.dtype}",
            hint='value.astype("uint8") if the pixels are 0 to 255',
        )
    floats = array.astype(np.float32)
    finite = np.isfinite(floats)
    pixels = np.rint(np.clip(np.where(finite, floats, 0.0), 0.0, 1.0) * 255.0).astype(np.uint8)
    bad: Array = ~np.asarray(finite.all(axis=-1))
    return _marked(pixels, bad) if bad.any() else pixels


def _marked(pixels: Array, bad: Array) -> Array:
    """The images with red pixels where `bad`, in color."""
    if pixels.shape[-1] <= 2:
        pixels = np.concatenate([pixels[..., :1].repeat(3, axis=-1), pixels[..., 1:]], axis=-1)
    pixels[bad, :3] = _RED
    if pixels.shape[-1] == 4:
        pixels[bad, 3] = 255
    return pixels


def image(tag: str, pixels: Array, description: str) -> Any:
    """The images as PNG files behind their width and height."""
    pillow = _pillow()
    files = []
    for picture in pixels:
        file = io.BytesIO()
        squeezed = np.ascontiguousarray(picture[..., 0] if picture.shape[-1] == 1 else picture)
        pillow.fromarray(squeezed).save(file, format="PNG")
        files.append(file.getvalue())
    height, width = pixels.shape[1:3]
    items = [str(width).encode(), str(height).encode(), *files]
    content = protos().image.ImagePluginData(version=0).SerializeToString()
    return summary(tag, strings(items, (len(items),)), "images", content, description)
