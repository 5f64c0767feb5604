"""Images in folders, one subfolder for each class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError, DataError
from graphc.ir.extras import importing
from graphc.ir.source import Source

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

MODES = ("RGB", "L", "RGBA", "1", "CMYK", "F", "HSV", "I", "LAB", "LA", "YCbCr")


class Images:
    """Records of an image and the number of its class.

    Attributes:
        classes: the names of the classes, in the order of their numbers.
    """

    def __init__(
        self,
        folder: str,
        classes: Sequence[str],
        size: tuple[int, int] | None,
        mode: str,
        workers: int,
        processes: bool,
        made_at: Source | None,
    ) -> None:
        self.classes = tuple(classes)
        self.workers, self.processes = workers, processes
        self._size, self._mode, self._made_at = size, mode, made_at
        self._files = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted(_images_in(Path(folder) / name))
        ]
        if not self._files:
            raise DataError(
                f"from_images: no images in {folder}",
                details=[f"classes: {', '.join(self.classes) or 'none'}"],
                source=made_at,
                hint="one subfolder for each class, with files that end in " + ", ".join(ENDINGS),
            )

    def __len__(self) -> int:
        return len(self._files)

    def record(self, index: int) -> dict[str, Any]:
        """Reads and decodes one file.

        Raises:
            DataError: it is damaged or no image.
        """
        pillow = import_pillow("from_images")
        path, label = self._files[index]
        try:
            with pillow.open(path) as file:
                image = file.convert(self._mode)
                if self._size is not None and image.size != self._size[::-1]:
                    image = image.resize(self._size[::-1], pillow.Resampling.BILINEAR)
                pixels = np.array(image)
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(
                f"{path}: {error}",
                source=self._made_at,
                hint="the file is damaged or not an image: remove it, or convert it anew",
            ) from error
        return {
            "image": pixels if pixels.ndim == 3 else pixels[..., None],
            "label": np.int32(label),
        }

    def gather(self, indices: np.ndarray[Any, Any]) -> None:
        """Images are stacked from their records."""

    def origin(self, index: int) -> str:
        """The file."""
        return self._files[index][0]


def _images_in(folder: Path) -> list[str]:
    found = []
    for here, _, names in os.walk(folder):
        found += [os.path.join(here, name) for name in names if name.lower().endswith(ENDINGS)]
    return found


def classes_in(folder: str) -> list[str]:
    """The names of the subfolders, sorted.

    Raises:
        DataError: there is no such folder.
    """
    if not os.path.isdir(folder):
        raise DataError.here(f"from_images: there is no folder {folder}")
    return sorted(each.name for each in os.scandir(folder) if each.is_dir())


def checked_pixels(size: Any, mode: Any) -> None:
    """Refuses sizes and modes that no image has.

    Raises:
        AttributeValueError: one of them is invalid.
    """
    numbers = size is None or (
        isinstance(size, (tuple, list))
        and len(size) == 2
        and all(type(n) is int and n > 0 for n in size)
    )
    if not numbers:
        raise AttributeValueError.here(f"from_images: size must be (height, width), got {size!r}")
    if mode not in MODES:
        raise AttributeValueError.here(
            f"from_images: no mode {mode!r}", hint=f"the modes of Pillow: {', '.join(MODES)}"
        )


def import_pillow(name: str, extra: str = "images") -> Any:
    """The module PIL.Image, which `name` needs and `extra` installs.

    Raises:
        MissingExtraError: it is not installed.
    """
    with importing(f"{name} needs Pillow, which is not installed", extra):
        from PIL import Image
    return Image
