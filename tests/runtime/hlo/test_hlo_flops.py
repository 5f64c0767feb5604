"""FLOPs of kernels, from a compiled program's text."""

import pytest

from tests.runtime.hlo_snippets import (
    ATTENTION,
    CONVOLUTIONS,
    CUBLAS_LT,
    GEMM_PARAMETERS,
    SCATTER,
    SLICED_GEMM,
    TRITON_CALL,
    TRITON_GEMM,
    cost,
)


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
    # Products with the padding of 16 x 16 do not count: 46 of 48 pairs remain along each axis.
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
