"""Steps that tests write in JAX, compiled for a GPU that is not present."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import gpu_hlo
from graphc.runtime.hlo.hlo_cost import HloCost, hlo_cost

LABELS = ("NHWC", "HWIO", "NHWC")


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    """A float32 array."""
    return jax.ShapeDtypeStruct(dims, np.float32)


def by_hand(
    step: Callable[..., Any], state: Any, feeds: Sequence[Any], count: int = 1
) -> tuple[str, HloCost]:
    """The HLO and the cost of `step(state, *feeds) -> (state, loss)` on H100s. The state is donated
    and replicated on each GPU; the feeds are sharded along their first axis."""
    text = str(gpu_hlo.by_hand(step, [state], feeds, count).as_text())
    return text, hlo_cost(text, count)
