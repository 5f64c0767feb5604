"""Which work of a request runs in a thread, so that other requests do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

LARGE = 1 << 16
"""Bytes of a body; a larger one is read and written in a thread."""


async def in_thread_if(large: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function, which runs in a thread if its work is large."""
    if large:
        return await asyncio.to_thread(function, *arguments)
    return function(*arguments)


def is_large(outputs: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    """Whether writing the outputs takes long enough for a thread."""
    return sum([array.nbytes for array in outputs.values()]) > LARGE
