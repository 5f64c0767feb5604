"""Training steps for GPUs that are not present: the programs that XLA compiles from graphc and from
hand-written JAX, for the same machine in one run. Nothing is executed.

In hand-written JAX, layers are unrolled, or scanned if the row says so. They compute in bf16 with
parameters in float32. Attention uses cuDNN (`jax.nn.dot_product_attention`). On 8 GPUs, `jax.jit`
splits the batch along a mesh. FLOPs, bytes, kernels and collectives are counted from the HLO
(`graphc.runtime.hlo.hlo_cost`). The roofline time is an estimate from the machine's record.

    JAX_PLATFORMS=cpu python -m benchmarks.run gpu_hlo
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

import graphc as gc
from benchmarks import gpu_models, networks, transformer
from graphc.devices.topology import devices_of
from graphc.runtime.hlo.hlo_cost import HloCost, hlo_cost, roofline_seconds

Row = tuple[str, str, str]
OPTIONS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
MACHINE = "h100"
COUNTS = (1, 8)

# The models by the name of their rows. Each is enough work for one GPU.
TRANSFORMERS = {
    "GPT-2 small, 8 x 1024 tokens": transformer.Size(12, 768, 12, 1024, 8),
    "24 blocks of width 1024, 4 x 2048 tokens": transformer.Size(24, 1024, 16, 2048, 4),
}
MODELS: dict[str, tuple[Callable[[int], gpu_models.Model], int]] = {
    "ViT-B/16, batch 64": (gpu_models.vit, 64),
    "DLRM, 8 tables of a million rows, batch 2048": (gpu_models.dlrm, 2048),
    "LSTM, 2 x 1024 units, 64 x 128 bytes": (gpu_models.lstm, 64),
}
RESNET_BATCH = 64
DEPTHS = (24, 48, 96)
# The forms of hand-written transformers.
CUDNN = "JAX, cuDNN's attention"
WRITTEN_OUT = "JAX, attention written out"
SCANNED = "JAX, cuDNN's attention, blocks scanned"


class Compiled(NamedTuple):
    """A step compiled for a machine.

    Attributes:
        cost: the cost of one run on one GPU.
        temporaries: the bytes of temporaries.
        seconds: the time of passes, tracing, lowering and compiling.
    """

    cost: HloCost
    temporaries: int
    seconds: float


def rows() -> Iterator[Row]:
    """Rows: each model on one GPU and on eight; then transformers by depth."""
    in_jax(lambda state, x: (state, x @ x), [np.float32(0)], [_shape((8, 8))], 1)  # loads libraries
    for count in COUNTS:
        for what, size in TRANSFORMERS.items():
            size = size._replace(batch=size.batch * count)
            yield from compared(what, count, transformers(size, count))
        yield from compared(
            f"ResNet-50, batch {RESNET_BATCH}", count, resnets(RESNET_BATCH * count, count)
        )
        for what, (make, batch) in MODELS.items():
            yield from compared(what, count, models(make(batch * count), count))
    yield from by_depth()


def by_depth() -> Iterator[Row]:
    """Transformers with increasing numbers of blocks, and graphc's compile time for each."""
    found = {}
    for blocks in DEPTHS:
        made = transformers(transformer.Size(blocks, 512, 8, 512, 8), 1, (CUDNN, SCANNED))
        found[blocks] = made["graphc"].seconds
        yield from compared(f"{blocks} blocks of width 512, 8 x 512 tokens", 1, made)
    times = ", ".join(f"{seconds:.1f} s with {n}" for n, seconds in found.items())
    ratio = found[DEPTHS[-1]] / found[DEPTHS[0]]
    yield f"compile a transformer by its blocks: {times}", f"{ratio:.2f}x", "flat"


def _shape(shape: Sequence[int]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


def models(model: gpu_models.Model, count: int) -> dict[str, Compiled]:
    """The step of one of `gpu_models` in each form."""
    shapes = {name: feed.shape for name, feed in model.feeds.items()}
    state = jax.eval_shape(model.optimizer.init, model.params)
    feeds = list(model.feeds.values())
    return {
        "graphc": in_graphc(model.graph, model.fetches, shapes, count),
        "JAX": in_jax(model.step, [model.params, state], feeds, count),
    }


def transformers(
    size: transformer.Size, count: int, forms: Sequence[str] = (CUDNN, WRITTEN_OUT, SCANNED)
) -> dict[str, Compiled]:
    """The step of a transformer in graphc and in each form of hand-written JAX."""
    model = transformer.graphc_model(size)
    tokens = {"text": (size.batch, size.sequence + 1)}
    start = transformer.initial(size)
    feeds = [jax.ShapeDtypeStruct(tokens["text"], np.int32)]

    def by_hand(form: str) -> Compiled:
        scan = form == SCANNED
        attention = transformer.jax_attention if form == WRITTEN_OUT else transformer.jax_flash
        values = (transformer.stacked if scan else transformer.nested)(start, size)
        state = jax.eval_shape(transformer.optimizer().init, values)
        step = transformer.jax_step(size, scan=scan, dtype=jnp.bfloat16, attention=attention)
        return in_jax(step, [values, state], feeds, count)

    ours = in_graphc(model.graph, [model.train, model.loss], tokens, count)
    return {"graphc": ours, **{form: by_hand(form) for form in forms}}


def resnets(batch: int, count: int) -> dict[str, Compiled]:
    """The step of ResNet-50 on 224x224 images in each form."""
    network = networks.resnet50()
    x, y = networks.data(network, 1)
    params, averages = networks.start(network)
    state = jax.eval_shape(network.optimizer.init, params)
    feeds = [jax.ShapeDtypeStruct((batch, *a.shape[1:]), a.dtype) for a in (x, y)]
    shapes = dict(zip("xy", [feed.shape for feed in feeds], strict=True))
    step = networks.jax_step(network, jnp.bfloat16)
    return {
        "graphc": in_graphc(network.graph, [network.train, network.loss], shapes, count),
        "JAX": in_jax(step, [params, averages, state], feeds, count),
    }


def in_graphc(graph: gc.Graph, fetches: Any, feeds: dict[str, Any], count: int) -> Compiled:
    """graphc's step in bf16, data parallel on more than one GPU."""
    start = time.perf_counter()
    step = gc.compile(
        graph,
        fetches,
        feeds,
        machine=gc.devices.Machine(MACHINE, count),
        strategy=gc.devices.DataParallel(count) if count > 1 else None,
        options=gc.CompileOptions(precision="bf16", cache=None),
    ).wait()
    seconds = time.perf_counter() - start
    return Compiled(hlo_cost(step.hlo(), count), step.memory()["temporaries"], seconds)


def in_jax(
    step: Callable[..., Any], state: Sequence[Any], feeds: Sequence[Any], count: int
) -> Compiled:
    """A hand-written step. Its state is donated and replicated, and its feeds are split."""
    start = time.perf_counter()
    compiled = by_hand(step, state, feeds, count)
    seconds = time.perf_counter() - start
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    return Compiled(hlo_cost(compiled.as_text(), count), temporaries, seconds)


def by_hand(
    step: Callable[..., Any], state: Sequence[Any], feeds: Sequence[Any], count: int
) -> Any:
    """`step(*state, *feeds)` compiled by JAX; see `in_jax`."""
    devices = devices_of(gc.devices.Machine(MACHINE, count))
    mesh = jax.sharding.Mesh(np.array(devices), ("batch",))
    whole, cut = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((), ("batch",)))

    def on(values: Any, sharding: NamedSharding) -> Any:
        def one(a: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding)

        return jax.tree.map(one, values)

    jitted = jax.jit(step, donate_argnums=range(len(state)), out_shardings=whole)
    arguments = [*on(list(state), whole), *on(list(feeds), cut)]
    return jitted.lower(*arguments).compile(compiler_options=OPTIONS)


def compared(what: str, count: int, made: dict[str, Compiled]) -> Iterator[Row]:
    """The ratios of graphc's figures to those of each other form."""
    ours = made["graphc"]
    gpu = gc.devices.Machine(MACHINE).model
    for form, theirs in made.items():
        if form == "graphc":
            continue
        pairs = {
            "roofline": (roofline_seconds(ours.cost, gpu), roofline_seconds(theirs.cost, gpu)),
            "FLOPs": (ours.cost.flops, theirs.cost.flops),
            "bytes": (ours.cost.bytes_accessed, theirs.cost.bytes_accessed),
            "kernels": (ours.cost.kernels, theirs.cost.kernels),
            "temporaries": (ours.temporaries, theirs.temporaries),
            "compile": (ours.seconds, theirs.seconds),
        }
        ratios = [f"{name} {mine / max(other, 1e-9):.2f}x" for name, (mine, other) in pairs.items()]
        if count > 1:
            ratios.append(f"all-reduces {_exchanged(ours.cost)}, {_exchanged(theirs.cost)}")
        label = (
            f"{what} a GPU, {count} H100 ({1e3 * pairs['roofline'][0]:.2f} ms, "
            f"{ours.temporaries / 1e9:.2f} GB, compiled in {ours.seconds:.1f} s), over {form}"
        )
        yield label, ", ".join(ratios), "at most 1.02x"


def _exchanged(cost: HloCost) -> str:
    """The number of collectives, their bytes, and how many overlap with other kernels."""
    runs = sum(kind.runs for kind in cost.collectives.values())
    size = sum(kind.bytes for kind in cost.collectives.values())
    return f"{runs} of {size / 1e6:.0f} MB, {cost.overlapped} overlapped"
