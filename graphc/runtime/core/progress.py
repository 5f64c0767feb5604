"""Progress bars on standard error."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm


def progress_bar(shown: bool, total: int | None, unit: str, **options: Any) -> tqdm[Any]:
    """A bar of `total` units (None: unknown), shown only if standard error is a terminal.

    Args:
        shown: whether to show a bar at all.
        options: options of tqdm.
    """
    hidden = None if shown else True  # None: tqdm checks whether there is a terminal
    return tqdm(total=total, unit=unit, **{"disable": hidden, **options})
