"""The sizes that batches have, and how requests are laid out in them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from graphc.serving.config import BatchingConfig


def allowed_sizes(config: BatchingConfig, buckets: Sequence[int] = ()) -> tuple[int, ...]:
    """The numbers of rows that batches are padded to, in increasing order.

    Args:
        buckets: those that hold if the configuration names none.

    Examples:
        >>> from graphc.serving.config import BatchingConfig
        >>> allowed_sizes(BatchingConfig(max_batch_size=24))
        (1, 2, 4, 8, 16, 24)
    """
    if config.allowed_batch_sizes:
        return config.allowed_batch_sizes
    if buckets:
        return tuple(buckets)
    most = config.max_batch_size
    powers = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return (*powers, most)


def padded_size(rows: int, allowed: Sequence[int]) -> int:
    """The smallest allowed size that holds this many rows.

    Examples:
        >>> padded_size(3, (1, 4, 16))
        4
    """
    return allowed[bisect_left(allowed, rows)]


def next_power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`, which is at least 1.

    Examples:
        >>> [next_power_of_two(size) for size in (1, 3, 8, 9)]
        [1, 4, 8, 16]
    """
    return 1 << (size - 1).bit_length()


def pieces_of(rows: int, most: int) -> Iterator[tuple[int, int]]:
    """The first and last-plus-one row of each piece of a request. All but the last piece have
    `most` rows.

    Examples:
        >>> list(pieces_of(10, 4))
        [(0, 4), (4, 8), (8, 10)]
    """
    for start in range(0, rows, most):
        yield start, min(start + most, rows)
