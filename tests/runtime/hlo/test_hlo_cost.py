"""The cost of a step from its HLO text: collectives, roofline time, and XLA's own figures."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import graphc as gc
from graphc.runtime.hlo.hlo_cost import HloCost, hlo_cost, roofline_seconds, timeline
from tests.runtime.hlo_snippets import (
    HEADER,
    SCATTER,
    cost,
    lines,
    loop,
    module,
)

# -- collectives and transfers ------------------------------------------------------------


def test_kinds_of_collectives() -> None:
    found = cost(
        """
        %x = f32[1024] parameter(0)
        %r = f32[1024] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add
        %s = f32[256] reduce-scatter(%r), replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%add
        %g = f32[1024] all-gather(%s), replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}
        %p = f32[1024] collective-permute(%g), source_target_pairs={{0,1},{1,0}}
        %t = f32[1024] all-to-all(%p), \
            replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}, dimensions={0}
        ROOT %e = f32[1024] all-reduce(%t), replica_groups={}, to_apply=%add
        """,
        SCATTER,
        header=HEADER + ", num_partitions=8",
    )
    assert {kind: (c.runs, c.bytes) for kind, c in found.collectives.items()} == {
        "all-reduce": (2, 8192),
        "reduce-scatter": (1, 4096),
        "all-gather": (1, 1024),
        "collective-permute": (1, 4096),
        "all-to-all": (1, 4096),
    }
    sent = [kernel.link_bytes for kernel in found.launches]
    assert sent == [1.5 * 4096, 0.75 * 4096, 3 * 1024, 4096, 0.75 * 4096, 1.75 * 4096]
    assert found.overlapped == 0
    assert found.launches[2].bytes == 1024 + 4096


def test_a_collective_in_one_kernel_with_a_slice() -> None:
    found = cost(
        """
        %x = f32[4,1024] parameter(0)
        %i = s32[] parameter(1)
        ROOT %f = f32[1,256] fusion(%x, %i), kind=kCustom, calls=%sliced
        """,
        """
%sliced (x: f32[4,1024], i: s32[]) -> f32[1,256] {
  %x = f32[4,1024] parameter(0)
  %i = s32[] parameter(1)
  %s = f32[1,1024] dynamic-slice(%x, %i, %i), dynamic_slice_sizes={1,1024}
  ROOT %r = f32[1,256] reduce-scatter(%s), replica_groups={{0,1,2,3}}, dimensions={1}
}
""",
    )
    assert found.collectives == {"reduce-scatter": (1, 4096)}
    assert found.kernels == 1


def test_the_number_of_replicas_can_be_given() -> None:
    entry = "%x = f32[1024] parameter(0)\nROOT %r = f32[1024] all-reduce(%x), replica_groups={}"
    (alone,) = cost(entry).launches
    (joined,) = hlo_cost(module(lines(entry)), replicas=4).launches
    assert (alone.link_bytes, joined.link_bytes) == (0, 1.5 * 4096)


def overlap(between: str, config: str = "", header: str = HEADER) -> HloCost:
    return cost(
        f"""
        %x = f32[1024] parameter(0)
        %s = f32[1024] all-reduce-start(%x), replica_groups={{{{0,1}}}}, to_apply=%add{config}
        {between}
        ROOT %d = f32[1024] all-reduce-done(%s)
        """,
        SCATTER,
        header=header,
    )


def test_overlap() -> None:
    beside = "%n = f32[1024] negate(%x)"
    assert overlap(beside).collectives == {"all-reduce": (1, 4096)}
    assert overlap(beside).overlapped == 1
    assert overlap("").overlapped == 0
    assert overlap("%b = f32[2,512] bitcast(%x)").overlapped == 0
    assert overlap("%r = f32[1024] all-reduce(%x), replica_groups={{0,1}}").overlapped == 0
    assert overlap(beside, ', backend_config={"is_sync":true}').overlapped == 0
    assert overlap(beside, header=HEADER.replace("is_scheduled=true, ", "")).overlapped == 0


@pytest.mark.parametrize(
    ("instruction", "transfers"),
    [
        ("%y = f32[8]{0:S(5)} copy(%x)", 1),
        (
            "%y = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(%x)\n"
            "%z = f32[8]{0:S(5)} copy-done(%y)",
            1,
        ),
        ("%y = (f32[8]{0}, token[]) infeed(%t)", 1),
        ("%y = token[] outfeed(%x, %t)", 1),
        ('%y = f32[8]{0} custom-call(%x), custom_call_target="xla_ffi_python_gpu_callback"', 1),
        ("%y = f32[8]{0} copy(%x)", 0),
        ("%y = f32[8]{0} negate(%x)", 0),
    ],
)
def test_host_transfers(instruction: str, transfers: int) -> None:
    found = cost(f"%x = f32[8]{{0}} parameter(0)\n%t = token[] after-all()\n{instruction}")
    assert found.host_transfers == transfers


# -- the roofline -------------------------------------------------------------------------


def test_each_kernel_takes_the_longest_of_its_times() -> None:
    gpu = gc.devices.Machine("h100").model
    n = 4096
    products = cost(f"""
        %x = bf16[{n},{n}] parameter(0)
        %d = bf16[{n},{n}] dot(%x, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT %n = bf16[{n},{n}] negate(%d)
    """)
    expected = 2 * n**3 / gpu.matrix_flops["bf16"] + 2 * 2 * n * n / gpu.memory_bandwidth
    assert math.isclose(roofline_seconds(products, gpu), expected)


def test_a_collective_hides_at_most_the_time_of_the_kernels_beside_it() -> None:
    gpu = gc.devices.Machine("h100").model
    assert gpu.link_bandwidth is not None
    # Two hops between two devices.
    exchange = 6.6e-6 + 2 * 0.6e-6 + 4096 / gpu.link_bandwidth
    access = 8192 / gpu.memory_bandwidth
    alone = timeline(overlap(""), gpu)
    assert math.isclose(alone.seconds, exchange)
    assert alone.hidden == 0
    beside = timeline(overlap("%n = f32[1024] negate(%x)"), gpu)
    assert math.isclose(beside.seconds, exchange)
    assert math.isclose(beside.waiting, exchange - access)
    assert math.isclose(beside.computing, access)
    large = timeline(overlap("%b = f32[8388608] broadcast(%x)\n%n = f32[8388608] negate(%b)"), gpu)
    assert large.waiting == 0
    assert large.hidden == 1
    assert large.seconds == large.computing


def test_collectives_take_turns_on_the_links() -> None:
    gpu = gc.devices.Machine("h100").model
    start = "f32[1048576] all-reduce-start(%x), replica_groups={{0,1,2,3,4,5,6,7}}"
    entry = f"""
        %x = f32[1048576] parameter(0)
        %s = {start}
        %t = {start}
        %b = f32[64,1048576] broadcast(%x)
        %d = f32[1048576] all-reduce-done(%s)
        %e = f32[1048576] all-reduce-done(%t)
        """
    found = timeline(cost(entry), gpu)
    # Both start before the broadcast, and the second waits for the first.
    assert math.isclose(found.waiting, max(0, found.communicating - found.computing))
    assert cost(entry).overlapped == 2
    assert [kernel.beside for kernel in cost(entry).launches] == [2, 1, 0]


def test_collectives_in_loops_are_waited_for_in_each_iteration() -> None:
    gpu = gc.devices.Machine("h100").model
    body = """
%body (p: (s32[], f32[1024])) -> (s32[], f32[1024]) {
  %p = (s32[], f32[1024]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[1024] get-tuple-element(%p), index=1
  %s = f32[1024] all-reduce-start(%x), replica_groups={{0,1}}
  %n = f32[1024] negate(%x)
  %d = f32[1024] all-reduce-done(%s)
  ROOT %t = (s32[], f32[1024]) tuple(%i, %d)
}

%condition (p: (s32[], f32[1024])) -> pred[] {
  ROOT %c = pred[] constant(true)
}
"""
    once, many = (
        timeline(
            cost(
                f"""
                %p = (s32[], f32[1024]) parameter(0)
                ROOT %w = (s32[], f32[1024]) while(%p), condition=%condition, body=%body, \
                    backend_config={{"known_trip_count":{{"n":"{trips}"}}}}
                """,
                body,
            ),
            gpu,
        )
        for trips in (1, 10)
    )
    assert once.waiting > 0
    assert math.isclose(many.waiting, 10 * once.waiting)
    assert math.isclose(many.seconds, 10 * once.seconds)


def test_a_missing_rate_is_that_of_a_wider_dtype() -> None:
    gpu = gc.devices.Machine("a100-80gb").model  # this GPU has no float8 units
    entry = """
        %x = f8e4m3fn[4096,4096] parameter(0)
        ROOT %d = f32[4096,4096] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        """
    assert math.isclose(roofline_seconds(cost(entry), gpu), 2 * 4096**3 / gpu.matrix_flops["f16"])


def test_loops_multiply_the_time() -> None:
    gpu = gc.devices.Machine("h100").model
    once, many = loop(bound=1), loop(bound=24)
    copy = 8 / gpu.memory_bandwidth
    assert math.isclose(
        roofline_seconds(many, gpu) - copy, 24 * (roofline_seconds(once, gpu) - copy)
    )


# -- against XLA's own figures ------------------------------------------------------------


def conv(stride: int, padding: str, dilation: int, groups: int) -> Any:
    def loss(x: Any, w: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            padding,
            rhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return y

    return loss, (2, 17, 15, 8), (3, 3, 8 // groups, 16)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: a @ b, [(64, 96), (96, 32)]),
        (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), [(4, 64, 96), (4, 96, 32)]),
        (lambda a: jnp.tanh(a) * 2 + a / 3, [(64, 96)]),
        (lambda a, b: jnp.maximum(a @ b, 0), [(64, 96), (96, 32)]),
        *[
            (f, list(shapes))
            for f, *shapes in (
                conv(1, "SAME", 1, 1),
                conv(2, "SAME", 1, 1),
                conv(2, "VALID", 2, 1),
                conv(1, "SAME", 1, 4),
            )
        ],
    ],
)
def test_xla_counts_as_many_flops_on_a_cpu(function: Any, shapes: list[tuple[int, ...]]) -> None:
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    compiled = jax.jit(function).lower(*given).compile()
    figures, found = compiled.cost_analysis(), hlo_cost(compiled.as_text())
    assert found.flops == figures.get("flops", 0) + figures.get("transcendentals", 0)
    assert found.bytes_accessed == figures["bytes accessed"]


def test_a_scan_on_a_cpu_counts_each_layer() -> None:
    def layers(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 16), (24, 16, 16))]
    found = hlo_cost(jax.jit(layers).lower(*given).compile().as_text())
    assert found.matrix_flops == {"tf32": 24 * 2 * 8 * 16 * 16}
