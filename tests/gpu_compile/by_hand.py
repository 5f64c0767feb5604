"""Steps that tests write by hand in JAX, compiled for a GPU that is not here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import graphc as gc
from graphc.devices.topology import devices_of
from graphc.runtime.hlo_cost import HloCost, hlo_cost

OPTIONS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
LABELS = ("NHWC", "HWIO", "NHWC")


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    """A float32 array."""
    return jax.ShapeDtypeStruct(dims, np.float32)


def by_hand(
    step: Callable[..., Any], state: Any, feeds: Sequence[Any], count: int = 1
) -> tuple[str, HloCost]:
    """The HLO of `step(state, *feeds) -> (state, loss)` on H100s, and its cost. The state is
    donated and whole on each GPU, the feeds are cut along their first axis."""
    devices = devices_of(gc.devices.Machine("h100", count))
    mesh = jax.sharding.Mesh(np.array(devices), ("batch",))
    whole, cut = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((), ("batch",)))

    def on(values: Any, sharding: NamedSharding) -> Any:
        def one(a: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding)

        return jax.tree.map(one, values)

    jitted = jax.jit(step, donate_argnums=0, out_shardings=whole)
    lowered = jitted.lower(on(state, whole), *on(list(feeds), cut))
    text = str(lowered.compile(compiler_options=OPTIONS).as_text())
    return text, hlo_cost(text, count)
