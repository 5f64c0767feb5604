"""What a step costs, counted from its HLO text: each rule on text that XLA wrote for an H100, and
totals against XLA's own figures on a CPU."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphc as gc
from graphc.errors import ExecutionError
from graphc.runtime.hlo_cost import HloCost, hlo_cost, roofline_seconds, timeline
from graphc.runtime.hlo_text import Shape, parse, parse_shape
from tests.runtime.hlo_snippets import (
    ATTENTION,
    CONVOLUTIONS,
    CUBLAS_LT,
    HEADER,
    LOOP,
    LOOP_ENTRY,
    SCATTER,
    SLICED_GEMM,
    TRITON_CALL,
    TRITON_GEMM,
    UPDATE_IN_PLACE,
    lines,
    module,
)

GEMM_PARAMETERS = """
%x = f32[128,512]{1,0} parameter(0)
%w = f32[512,1024]{1,0} parameter(1)
%b = f32[1024]{0} parameter(2)
"""


def cost(entry: str, computations: str = "", **options: Any) -> HloCost:
    return hlo_cost(module(lines(entry), computations, **options))


# -- the text -------------------------------------------------------------------------------


def test_shapes() -> None:
    assert parse_shape("bf16[4,8]{1,0:T(8,128)}") == Shape("bf16", (4, 8))
    assert parse_shape("f32[2]{0:S(5)}").host
    assert parse_shape("f32[<=10,3]").elements == 30
    assert parse_shape("(f32[2]{0}, (s32[], pred[3]{0}))").bytes == 8 + 4 + 3
    assert parse_shape("s4[3]").bytes == 2
    assert parse_shape("token[]").bytes == 0
    assert parse_shape("c64[2]").bytes == 16
    assert parse_shape("f8e4m3fn[5]").bytes == 5


def test_an_instruction() -> None:
    found = parse(module(lines(GEMM_PARAMETERS + CUBLAS_LT))).entry.root
    assert found.operands == ("x", "w", "b")
    assert found.target == "__cublas$lt$matmul"
    assert found.shape.parts[0] == Shape("f32", (128, 1024))
    assert found.configured("epilogue") == "BIAS"
    assert found.configured("missing") is None


def test_index_comments_strings_and_constants_do_not_confuse_it() -> None:
    entry = parse(
        module(
            lines("""
            %c = f32[2,2]{1,0} constant({ { 1, 2 }, { 3, 4 } })
            %d = f32[2,2]{1,0} add(%c, /*index=1*/f32[2,2]{1,0} %c), metadata={op_name="b), c=(%x)"}
            ROOT %t = (f32[2,2]{1,0}, /*index=1*/f32[2,2]{1,0}) tuple(%c, %d)
            """)
        )
    ).entry
    assert [each.operands for each in entry.instructions] == [(), ("c", "c"), ("c", "d")]
    assert entry.root.name == "t"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not HLO",
        HEADER,
        HEADER + "\n\nENTRY %main () -> f32[] {\n",
        HEADER + "\n\nENTRY %main () -> f32[] {\n}\n",
        module("  %x = f32[2 parameter(0)"),
        module("  %x = what parameter(0)"),
        module("  nonsense"),
        module("  %x = f32[2] add(%missing, %missing)"),
        module("  %x = f32[2] fusion(), calls=%missing"),
        module("  %x = f32[2] fusion(), kind=kLoop"),
        module("  %x = f32[2] call(), to_apply=%main"),
        module("  %x = f32[2] fusion(), calls=%main"),
        module("  %x = f32[2] dot()"),
        module("  %x = f32[2] parameter(0)\n  %y = f32[] dot(%x, %x), lhs_contracting_dims={5}"),
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(ExecutionError, match="HLO text is malformed"):
        hlo_cost(text)


def test_text_that_was_cut_or_changed_never_crashes() -> None:
    rng = np.random.default_rng(0)
    whole = module(lines(ATTENTION + CONVOLUTIONS.replace("parameter", "copy")), LOOP + SCATTER)
    for text in (whole, module(lines(LOOP_ENTRY), LOOP), module(lines(CONVOLUTIONS))):
        for _ in range(100):
            start, length = rng.integers(len(text)), rng.integers(1, 20)
            changed = text[:start] + text[start + length :]
            try:
                hlo_cost(changed)
            except ExecutionError as error:
                assert "malformed" in str(error)


# -- FLOPs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "attributes", "matrix", "vector"),
    [
        ("f32", "", {"tf32": 1}, 0),
        ("f32", ", operand_precision={highest,highest}", {}, 1),
        ("f32", ", operand_precision={high,high}", {"tf32": 1}, 0),
        ("f32", ", algorithm=dot_bf16_bf16_f32_x3", {"bf16": 3}, 0),
        ("f32", ", algorithm=dot_f32_f32_f32", {}, 1),
        ("bf16", "", {"bf16": 1}, 0),
        ("bf16", ", operand_precision={highest,highest}", {"bf16": 1}, 0),
        ("f16", "", {"f16": 1}, 0),
        ("f64", "", {"f64": 1}, 0),
        ("c64", "", {"tf32": 4}, 0),
        ("s8", "", {"i8": 1}, 0),
        ("f8e5m2", "", {"f8": 1}, 0),
        ("s32", "", {}, 1),
    ],
)
def test_a_product_runs_in_the_units_of_its_dtype(
    dtype: str, attributes: str, matrix: dict[str, int], vector: int
) -> None:
    found = cost(f"""
        %a = {dtype}[5,4,8] parameter(0)
        %b = {dtype}[5,8,16] parameter(1)
        ROOT %d = {dtype}[5,4,16] dot(%a, %b), \
            lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, \
            rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}{attributes}
    """)
    once = 2 * 5 * 4 * 8 * 16
    assert found.matrix_flops == {name: times * once for name, times in matrix.items()}
    assert found.vector_flops == vector * once
    assert found.flops == once * sum([*matrix.values(), vector])


def test_products_of_cublas() -> None:
    found = cost(GEMM_PARAMETERS + CUBLAS_LT)
    assert found.matrix_flops == {"tf32": 2 * 128 * 512 * 1024}
    assert found.bytes_accessed == 4 * (128 * 512 + 512 * 1024 + 1024 + 128 * 1024)  # no workspace
    assert found.custom_calls == {"__cublas$lt$matmul": 1}
    exact = CUBLAS_LT.replace('["DEFAULT","DEFAULT"]', '["HIGHEST","HIGHEST"]')
    assert cost(GEMM_PARAMETERS + exact).vector_flops == 2 * 128 * 512 * 1024
    old = CUBLAS_LT.replace("$lt$matmul", "$gemm")
    assert cost(GEMM_PARAMETERS + old).matrix_flops == {"tf32": 2 * 128 * 512 * 1024}


def test_a_product_in_a_triton_fusion() -> None:
    parameters = "%a = f32[256,8,64] parameter(0)\n%b = f32[8,64,128] parameter(1)\n"
    found = cost(parameters + TRITON_CALL, TRITON_GEMM)
    assert found.matrix_flops == {"tf32": 2 * 256 * 512 * 128}
    assert found.kernels == 1


def test_a_product_with_a_slice_in_one_kernel() -> None:
    found = cost(
        """
        %w = bf16[12,256,1024] parameter(0)
        %i = s32[] parameter(1)
        %x = bf16[1024,256] parameter(2)
        ROOT %f = (bf16[1024,1024], s8[33554432]) fusion(%w, %i, %x), \
            kind=kCustom, calls=%dynamic-slice-fusion.12
        """,
        SLICED_GEMM,
    )
    assert found.matrix_flops == {"bf16": 2 * 1024 * 256 * 1024}
    assert found.bytes_accessed == 2 * (256 * 1024 + 1024 * 256 + 1024 * 1024) + 4
    assert found.custom_calls == {"__cublas$lt$matmul": 1}


def test_convolutions_of_cudnn() -> None:
    found = cost(CONVOLUTIONS)
    # The taps on the padding of 16 x 16 do not count: 46 of 48 pairs along each axis.
    assert found.matrix_flops == {"bf16": 3 * 2 * 32 * 128 * 64 * 46**2}
    assert {kernel.matrix_flops["bf16"] for kernel in found.launches} == {2 * 32 * 128 * 64 * 46**2}
    assert found.transposes == 0


@pytest.mark.parametrize(
    ("window", "groups", "expected"),
    [
        ("size=3x3 pad=1_1x1_1", 1, 2 * 2 * 8 * 4 * 13 * 13),
        ("size=3x3", 1, None),
        ("size=1x1 stride=2x2", 1, 2 * 2 * 8 * 4 * 3 * 3),
        ("size=1x1 lhs_dilate=2x2 pad=1_1x1_1", 1, 2 * 2 * 8 * 4 * 25),
        ("size=3x3 lhs_dilate=2x2 pad=1_1x1_1", 1, 2 * 2 * 8 * 4 * 13 * 13),
        ("size=3x3 lhs_dilate=2x2", 1, 2 * 2 * 8 * 4 * 11 * 11),
        ("size=1x1", 2, 2 * 2 * 8 * 2 * 25),
    ],
)
def test_a_convolution(window: str, groups: int, expected: int | None) -> None:
    size = int(window[5])
    results = {"size=3x3": 3, "size=1x1 stride=2x2": 3}.get(window, 5)
    if "lhs_dilate" in window:
        results = 11 if size == 1 else 9 if "pad" in window else 7
    found = cost(f"""
        %x = f32[2,5,5,4] parameter(0)
        %w = f32[{size},{size},{4 // groups},8] parameter(1)
        ROOT %y = f32[2,{results},{results},8] convolution(%x, %w), \
            window={{{window}}}, dim_labels=b01f_01io->b01f, \
            feature_group_count={groups}
    """)
    if expected is None:
        expected = 2 * 2 * 3 * 3 * 8 * 4 * 9
    assert found.matrix_flops == {"tf32": expected}


def test_attention_of_cudnn() -> None:
    found = cost(ATTENTION)
    forward = 4 * 4 * 8 * 512 * 512 * 64
    assert found.matrix_flops == {"bf16": 3.5 * forward}
    assert [kernel.matrix_flops["bf16"] for kernel in found.launches] == [forward, 2.5 * forward]
    query, keys, stats = 4 * 512 * 8 * 64 * 2, 4 * 512 * 2 * 64 * 2, 4 * 8 * 512 * 4
    assert found.launches[0].bytes == 2 * query + 2 * keys + stats
    assert found.launches[1].bytes == 4 * query + 4 * keys + stats


def test_vector_flops() -> None:
    found = cost(
        """
        %x = f32[6,8] parameter(0)
        %zero = f32[] constant(0)
        %e = f32[6,8] exponential(%x)
        %s = f32[6] reduce(%e, %zero), dimensions={1}, to_apply=%add
        %w = f32[6,7] reduce-window(%e, %zero), window={size=1x2}, to_apply=%add
        %t = f32[8,6] transpose(%e), dimensions={1,0}
        ROOT %n = f32[6] never-heard-of(%s)
        """,
        SCATTER,
    )
    assert found.vector_flops == 48 + 48 + 2 * 42 + 6
    assert found.kernels == 5
    assert found.notes == ()


def test_unknown_custom_calls_are_noted() -> None:
    found = cost("""
        %x = f32[8,8] parameter(0)
        ROOT %c = (f32[8,8], s32[]) custom-call(%x), custom_call_target="cusolver_potrf_ffi"
    """)
    assert found.notes == ("the FLOPs of the custom call cusolver_potrf_ffi are not known",)
    assert found.bytes_accessed == 2 * 256 + 4


# -- bytes ----------------------------------------------------------------------------------


def test_free_instructions_cost_nothing() -> None:
    found = cost("""
        %x = f32[8] parameter(0)
        %c = f32[8] constant({...})
        %b = f32[2,4] bitcast(%x)
        %t = (f32[2,4], f32[8]) tuple(%b, %c)
        %o = (f32[2,4], f32[8]) opt-barrier(%t)
        %a = token[] after-all()
        ROOT %g = f32[8] get-tuple-element(%o), index=1
    """)
    assert found.kernels == found.bytes_accessed == found.flops == 0


def test_an_operand_that_is_used_twice_is_read_once() -> None:
    found = cost("%x = f32[8] parameter(0)\nROOT %y = f32[8] multiply(%x, %x)")
    assert found.bytes_accessed == 2 * 32


def test_embedding_lookups_and_their_gradients() -> None:
    rows, ids = 2048 * 64 * 4, 2048 * 4
    lookup = cost(
        """
        %e = f32[100000,64] parameter(0)
        %ids = s32[2048,1] parameter(1)
        ROOT %f = f32[2048,1,64] fusion(%e, %ids), kind=kLoop, calls=%fused_gather
        """,
        SCATTER,
    )
    assert lookup.bytes_accessed == 2 * rows + ids
    taken = cost("""
        %e = f32[100000,64] parameter(0)
        %ids = s32[2048,1] parameter(1)
        ROOT %g = f32[2048,1,64] gather(%e, %ids), offset_dims={1,2}, slice_sizes={1,64}
    """)
    assert taken.bytes_accessed == 2 * rows + ids
    update = cost(
        """
        %e = f32[100000,64] parameter(0)
        %u = f32[256,512] parameter(1)
        %ids = s32[2048,1] parameter(2)
        ROOT %f = f32[100000,64] fusion(%e, %u, %ids), kind=kInput, calls=%fused_scatter
        """,
        SCATTER,
    )
    assert update.bytes_accessed == 3 * rows + ids  # the update; and the rows, before and after
    plain = cost(
        """
        %e = f32[100000,64] parameter(0)
        %u = f32[2048,1,64] parameter(1)
        %ids = s32[2048,1] parameter(2)
        ROOT %s = f32[100000,64] scatter(%e, %ids, %u), to_apply=%add
        """,
        SCATTER,
    )
    assert plain.bytes_accessed == 3 * rows + ids


UPDATE = """
%stack = f32[50,64,256] parameter(0)
%i = s32[] parameter(1)
%gates = f32[64,1024] parameter(2)
ROOT %f = f32[50,64,256] fusion(%stack, %i, %gates), kind=kLoop, calls=%fused_dynamic_update_slice
"""


def test_an_update_in_place_moves_only_the_update() -> None:
    row = 64 * 256 * 4
    assert cost(UPDATE, UPDATE_IN_PLACE).bytes_accessed == 2 * row + 4
    several = UPDATE_IN_PLACE.replace("ROOT %dynamic_update", "%dynamic_update").replace(
        "\n}",
        "\n  ROOT %t = (f32[50,64,256], f32[64,256]) "
        "tuple(%dynamic_update_slice.23.1, %neg.0.7)\n}",
    )
    assert cost(UPDATE, several).bytes_accessed == 3 * row + 4
    plain = cost("""
        %stack = f32[50,64,256] parameter(0)
        %u = f32[1,64,256] parameter(1)
        %i = s32[] parameter(2)
        ROOT %d = f32[50,64,256] dynamic-update-slice(%stack, %u, %i, %i, %i)
    """)
    assert plain.bytes_accessed == 2 * row + 4


def test_an_update_of_a_new_buffer_writes_all_of_it() -> None:
    copied = UPDATE_IN_PLACE.replace(
        "dynamic-update-slice(%param_0.2,", "dynamic-update-slice(%new,"
    ).replace("  %param_2.52", "  %new = f32[50,64,256] negate(%param_0.2)\n  %param_2.52", 1)
    row = 64 * 256 * 4
    assert cost(UPDATE, copied).bytes_accessed == (50 + 50 + 1) * row + 4


def test_slices_read_what_they_take() -> None:
    entry = """
        %x = f32[100,64] parameter(0)
        %i = s32[] parameter(1)
        ROOT %f = f32[1,64] fusion(%x, %i), kind=kLoop, calls=%body
        """
    body = """
%body (x: f32[100,64], i: s32[]) -> f32[1,64] {
  %x = f32[100,64] parameter(0)
  %i = s32[] parameter(1)
  %n = f32[100,64] negate(%x)
  ROOT %s = f32[1,64] dynamic-slice(%n, %i, %i), dynamic_slice_sizes={1,64}
}
"""
    assert cost(entry, body).bytes_accessed == 2 * 256 + 4
    whole = body.replace("ROOT %s", "%s").replace(
        "\n}", "\n  ROOT %t = (f32[1,64], f32[100,64]) tuple(%s, %n)\n}"
    )
    assert cost(entry, whole).bytes_accessed == 2 * 25600 + 256 + 4
    plain = cost(
        "%x = f32[100,64] parameter(0)\nROOT %s = f32[2,64] slice(%x), slice={[0:2], [0:64]}"
    )
    assert plain.bytes_accessed == 2 * 512


def test_transposes() -> None:
    body = """
%wrapped (x: f32[4,8]) -> f32[8,4] {
  %x = f32[4,8] parameter(0)
  %t = f32[8,4] transpose(%x), dimensions={1,0}
  ROOT %b = f32[8,4] bitcast(%t)
}

%useful (x: f32[4,8]) -> f32[4,8] {
  %x = f32[4,8] parameter(0)
  ROOT %n = f32[4,8] negate(%x)
}
"""
    found = cost(
        """
        %x = f32[4,8] parameter(0)
        %f = f32[8,4] fusion(%x), kind=kInput, calls=%wrapped
        %c = f32[8,4] copy(%f)
        ROOT %u = f32[4,8] fusion(%x), kind=kLoop, calls=%useful
        """,
        body,
    )
    assert (found.kernels, found.bytes_accessed, found.transposes) == (3, 3 * 256, 2 * 256)


# -- control flow ---------------------------------------------------------------------------

KNOWN = ', backend_config={"known_trip_count":{"n":"24"},"known_init_step":{"init":"0","step":"1"}}'


def loop(start: int = 0, bound: int = 24, config: str = "", **changes: str) -> HloCost:
    entry = LOOP_ENTRY.replace("START", str(start)).replace("body=%body", f"body=%body{config}")
    computations = LOOP.replace("BOUND", str(bound))
    for old, new in changes.items():
        computations = computations.replace(old, new)
    return cost(entry, computations)


def test_a_loop_counts_as_often_as_it_runs() -> None:
    found = loop(bound=1000, config=KNOWN)  # the record is believed
    assert found.matrix_flops == {"tf32": 24 * 2 * 8 * 16 * 16}
    assert found.kernels == 1 + 24 * 3  # a copy; a product, the counter, the condition
    assert found.bytes_accessed == 8 + 24 * (4 * (8 * 16 * 2 + 16 * 16) + 12 + 9)
    assert not found.notes


@pytest.mark.parametrize(("start", "bound", "trips"), [(0, 24, 24), (4, 24, 20), (30, 24, 0)])
def test_a_counter_tells_the_iterations(start: int, bound: int, trips: int) -> None:
    assert loop(start, bound).matrix_flops.get("tf32", 0) == trips * 2 * 8 * 16 * 16


def test_a_counter_may_take_larger_steps() -> None:
    changed = LOOP.replace("BOUND", "24").replace(
        "%one = s32[] constant(1)", "%one = s32[] constant(5)"
    )
    found = cost(LOOP_ENTRY.replace("START", "0"), changed)
    assert found.matrix_flops == {"tf32": 5 * 2 * 8 * 16 * 16}


def test_an_unknown_number_of_iterations_is_noted() -> None:
    found = loop(LT="GT")
    assert found.matrix_flops == {"tf32": 2 * 8 * 16 * 16}
    assert found.notes == ("the number of iterations of while.5 is not known: counted once",)


def test_loops_in_loops() -> None:
    inner = LOOP.replace("BOUND", "24").replace(
        "ROOT %tuple = ",
        "%w5 = (s32[], f32[8,16], f32[16,16]) while(%arg), condition=%c2, body=%b2"
        ', backend_config={"known_trip_count":{"n":"3"}}\n  ROOT %tuple = ',
    )
    extra = """
%c2 (arg: (s32[], f32[8,16], f32[16,16])) -> pred[] {
  %arg = (s32[], f32[8,16], f32[16,16]) parameter(0)
  ROOT %true = pred[] constant(true)
}

%b2 (arg: (s32[], f32[8,16], f32[16,16])) -> (s32[], f32[8,16], f32[16,16]) {
  %arg = (s32[], f32[8,16], f32[16,16]) parameter(0)
  %x = f32[8,16] get-tuple-element(%arg), index=1
  %y = f32[8,16] copy(%x)
  ROOT %t = (s32[], f32[8,16], f32[16,16]) tuple(%y, %y, %y)
}
"""
    found = cost(LOOP_ENTRY.replace("START", "0"), extra + inner)
    assert found.kernels == 1 + 24 * (3 + 3)


BRANCHES = """
%cheap (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64] parameter(0)
  ROOT %n = f32[64,64] negate(%x)
}

%dear (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64] parameter(0)
  ROOT %d = f32[64,64] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(
    "branches",
    [
        "branch_computations={%cheap, %dear, %cheap}",
        "true_computation=%dear, false_computation=%cheap",
        "true_computation=%cheap, false_computation=%dear",
    ],
)
def test_a_conditional_counts_as_its_costliest_branch(branches: str) -> None:
    found = cost(
        f"""
        %x = f32[64,64] parameter(0)
        %i = s32[] parameter(1)
        ROOT %c = f32[64,64] conditional(%i, %x, %x, %x), {branches}
        """,
        BRANCHES,
    )
    assert (found.matrix_flops, found.kernels) == ({"tf32": 2 * 64**3}, 1)


def test_calls_count_as_what_they_call() -> None:
    entry = "%x = f32[64,64] parameter(0)\nROOT %c = f32[64,64] call(%x), to_apply=%cheap"
    assert cost(entry, BRANCHES).vector_flops == 64 * 64


def test_asynchronous_kernels_count_once() -> None:
    found = cost(
        """
        %x = f32[64,64] parameter(0)
        %s = ((f32[64,64]), f32[64,64], u32[]) fusion-start(%x), kind=kLoop, calls=%cheap
        %d = f32[64,64] fusion-done(%s)
        %cs = (f32[64,64], f32[64,64], u32[]) copy-start(%d)
        ROOT %cd = f32[64,64] copy-done(%cs)
        """,
        BRANCHES,
    )
    assert (found.kernels, found.vector_flops) == (2, 64 * 64)
    assert found.bytes_accessed == 4 * 64 * 64 * 4


# -- collectives and transfers --------------------------------------------------------------


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


# -- the roofline ---------------------------------------------------------------------------


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
    # Both began before the broadcast, and the second waits for the first.
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
    gpu = gc.devices.Machine("a100-80gb").model  # no f8
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


# -- against XLA's own figures --------------------------------------------------------------


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


def test_two_modules_are_not_read_as_one() -> None:
    text = jax.jit(lambda x: x @ x).lower(jnp.ones((4, 4))).compile().as_text()
    with pytest.raises(ExecutionError, match="a second module begins"):
        hlo_cost(f"{text}\n{text}")
