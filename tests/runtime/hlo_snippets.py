"""HLO texts for tests: shortened output of XLA for an H100, and a module to put them in."""

# ruff: noqa: E501  (lines of HLO are long)

from typing import Any

from graphc.runtime.hlo.hlo_cost import HloCost, hlo_cost

HEADER = "HloModule test, is_scheduled=true, entry_computation_layout={()->()}"


def module(entry: str, computations: str = "", header: str = HEADER) -> str:
    """A module whose ENTRY computation contains these instructions."""
    return f"{header}\n\n{computations}\n\nENTRY %main (p: f32[]) -> f32[] {{\n{entry}\n}}\n"


def lines(text: str) -> str:
    """Instructions, one per line, with the indentation of HLO text."""
    return "\n".join("  " + line.strip() for line in text.strip().splitlines())


def cost(entry: str, computations: str = "", **options: Any) -> HloCost:
    """The cost of a module that contains these instructions."""
    return hlo_cost(module(lines(entry), computations, **options))


GEMM_PARAMETERS = """
%x = f32[128,512]{1,0} parameter(0)
%w = f32[512,1024]{1,0} parameter(1)
%b = f32[1024]{0} parameter(2)
"""

# bias + x @ w with float32 operands, from jax 0.10.2. The second result is the workspace.
CUBLAS_LT = (
    "%cublas-lt-matmul.3 = (f32[128,1024]{1,0}, s8[33554432]{0}) custom-call(%x, %w, %b), "
    'custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(step)/dot_general" '
    'stack_frame_id=36}, backend_config={"operation_queue_id":"0","gemm_backend_config":{'
    '"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    '"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},'
    '"alpha_imag":0,"precision_config":{"operand_precision":["DEFAULT","DEFAULT"],"algorithm":'
    '"ALG_UNSET"},"epilogue":"BIAS","lhs_stride":"65536","rhs_stride":"524288","grad_x":false},'
    '"force_earliest_schedule":false,"reification_cost":[]}'
)

# The same product without cuBLAS autotuning: 512 contracted elements in 8 parts of 64.
TRITON_GEMM = """
%gemm_fusion_dot_computation (parameter_0: f32[256,8,64], parameter_1: f32[8,64,128]) -> f32[8,256,128] {
  %parameter_0 = f32[256,8,64]{2,1,0} parameter(0)
  %parameter_1 = f32[8,64,128]{2,1,0} parameter(1)
  ROOT %dot.2 = f32[8,256,128]{2,1,0} dot(%parameter_0, %parameter_1), lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}, backend_config={"sizes":["16"]}
}
"""
TRITON_CALL = (
    "%gemm_fusion_dot = f32[8,256,128]{2,1,0} fusion(%a, %b), kind=kCustom, "
    'calls=%gemm_fusion_dot_computation, backend_config={"fusion_backend_config":{"kind":'
    '"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"2","output_tiles":'
    '[{"sizes":["1","16","8"]}],"num_ctas":1,"num_stages":1}}}'
)

# A product with a slice of stacked weights, from jax 0.12.0.
SLICED_GEMM = """
%dynamic-slice-fusion.12 (p0.12: bf16[12,256,1024], p1.12: s32[], p2.12: bf16[1024,256]) -> (bf16[1024,1024], s8[33554432]) {
  %p2.12 = bf16[1024,256]{1,0} parameter(2)
  %p0.12 = bf16[12,256,1024]{2,1,0} parameter(0)
  %p1.12 = s32[] parameter(1)
  %constant_242 = s32[] constant(0)
  %dynamic_slice.79 = bf16[1,256,1024]{2,1,0} dynamic-slice(%p0.12, %p1.12, %constant_242, %constant_242), dynamic_slice_sizes={1,256,1024}
  %bitcast.893 = bf16[256,1024]{1,0} bitcast(%dynamic_slice.79)
  ROOT %custom-call.56 = (bf16[1024,1024]{1,0}, s8[33554432]{0}) custom-call(%p2.12, %bitcast.893), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
}
"""

CONVOLUTIONS = """
%x = bf16[32,16,16,64]{3,2,1,0} parameter(0)
%w = bf16[128,3,3,64]{3,2,1,0} parameter(1)
%dy = bf16[32,16,16,128]{3,2,1,0} parameter(2)
%cudnn-conv.4 = (bf16[32,16,16,128]{3,2,1,0}, u8[0]{0}) custom-call(%x, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward", backend_config={"cudnn_conv_backend_config":{"activation_mode":"kNone","conv_result_scale":1}}
%cudnn-conv-bw-input.3 = (bf16[32,16,16,64]{3,2,1,0}, u8[0]{0}) custom-call(%dy, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardInput", backend_config={"cudnn_conv_backend_config":{"activation_mode":"kNone"}}
%cudnn-conv-bw-filter.4 = (bf16[128,3,3,64]{3,2,1,0}, u8[0]{0}) custom-call(%x, %dy), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardFilter", backend_config={"cudnn_conv_backend_config":{"activation_mode":"kNone"}}
"""

# Grouped-query attention: 8 query heads, 2 key-value heads, 512 x 512 logits of depth 64.
ATTENTION = """
%q = bf16[4,512,8,64]{3,2,1,0} parameter(0)
%k = bf16[4,512,2,64]{3,2,1,0} parameter(1)
%v = bf16[4,512,2,64]{3,2,1,0} parameter(2)
%do = bf16[4,512,8,64]{3,2,1,0} parameter(3)
%fwd = (bf16[4,8,512,64]{3,1,2,0}, f32[4,8,512]{2,1,0}, u8[0]{0}) custom-call(%q, %k, %v), custom_call_target="__cudnn$fmhaSoftmax", operand_layout_constraints={bf16[4,512,8,64]{3,2,1,0}}, backend_config={"operation_queue_id": "0", "cudnn_fmha_backend_config": {"algorithm": {"algo_id": "0", "tuning_knobs": {"17": "1", "24": "0"}}, "fmha_scale": 0.125, "intermediate_tensor_shape": {"element_type": "BF16", "dimensions": ["4", "8", "512", "512"], "tuple_shapes": []}, "mask_type": "CAUSAL"}}
%stats = f32[4,8,512]{2,1,0} get-tuple-element(%fwd), index=1
%o = bf16[4,8,512,64]{3,1,2,0} get-tuple-element(%fwd), index=0
%bwd = (bf16[4,8,512,64]{3,1,2,0}, bf16[4,2,512,64]{3,1,2,0}, bf16[4,2,512,64]{3,1,2,0}, u8[0]{0}) custom-call(%q, %k, %v, %stats, %do, /*index=5*/%o), custom_call_target="__cudnn$fmhaSoftmaxBackward", backend_config={"cudnn_fmha_backend_config": {"intermediate_tensor_shape": {"element_type": "BF16", "dimensions": ["4", "8", "512", "512"], "tuple_shapes": []}, "mask_type": "CAUSAL"}}
"""

SCATTER = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%fused_scatter (param_0.2: f32[100000,64], param_1.3: f32[256,512], param_2.12: s32[2048,1]) -> f32[100000,64] {
  %param_0.2 = f32[100000,64]{1,0} parameter(0)
  %param_2.12 = s32[2048,1]{1,0} parameter(2)
  %param_1.3 = f32[256,512]{1,0} parameter(1)
  %bitcast.2.1 = f32[2048,1,64]{2,1,0} bitcast(%param_1.3)
  ROOT %scatter-add.5.1 = f32[100000,64]{1,0} scatter(%param_0.2, %param_2.12, %bitcast.2.1), update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add
}

%fused_gather (param_0.3: f32[100000,64], param_1.16: s32[2048,1]) -> f32[2048,1,64] {
  %param_0.3 = f32[100000,64]{1,0} parameter(0)
  %param_1.16 = s32[2048,1]{1,0} parameter(1)
  ROOT %gather.3 = f32[2048,1,64]{2,1,0} gather(%param_0.3, %param_1.16), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,64}
}
"""

# One iteration of a recurrent network writes its gates into the stack of all iterations.
UPDATE_IN_PLACE = """
%fused_dynamic_update_slice (param_0.2: f32[50,64,256], param_1.3: s32[], param_2.52: f32[64,1024]) -> f32[50,64,256] {
  %param_0.2 = f32[50,64,256]{2,1,0} parameter(0)
  %param_2.52 = f32[64,1024]{1,0} parameter(2)
  %split.0.7 = f32[64,256]{1,0} slice(%param_2.52), slice={[0:64], [768:1024]}
  %neg.0.7 = f32[64,256]{1,0} negate(%split.0.7)
  %bitcast.13.1 = f32[1,64,256]{2,1,0} bitcast(%neg.0.7)
  %param_1.3 = s32[] parameter(1)
  %constant_32_13 = s32[] constant(0)
  ROOT %dynamic_update_slice.23.1 = f32[50,64,256]{2,1,0} dynamic-update-slice(%param_0.2, %bitcast.13.1, %param_1.3, %constant_32_13, %constant_32_13)
}
"""

LOOP = """
%body (arg: (s32[], f32[8,16], f32[16,16])) -> (s32[], f32[8,16], f32[16,16]) {
  %arg = (s32[], f32[8,16]{1,0}, f32[16,16]{1,0}) parameter(0)
  %one = s32[] constant(1)
  %w = f32[16,16]{1,0} get-tuple-element(%arg), index=2
  %x = f32[8,16]{1,0} get-tuple-element(%arg), index=1
  %i = s32[] get-tuple-element(%arg), index=0
  %dot = f32[8,16]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %next = s32[] fusion(%i, %one), kind=kLoop, calls=%wrapped_add
  ROOT %tuple = (s32[], f32[8,16]{1,0}, f32[16,16]{1,0}) tuple(%next, %dot, %w)
}

%wrapped_add (p0: s32[], p1: s32[]) -> s32[] {
  %p0 = s32[] parameter(0)
  %p1 = s32[] parameter(1)
  ROOT %add.0 = s32[] add(%p0, %p1)
}

%wrapped_compare (p0: s32[], p1: s32[]) -> pred[] {
  %p0 = s32[] parameter(0)
  %p1 = s32[] parameter(1)
  ROOT %lt.0 = pred[] compare(%p0, %p1), direction=LT
}

%condition (arg: (s32[], f32[8,16], f32[16,16])) -> pred[] {
  %arg = (s32[], f32[8,16]{1,0}, f32[16,16]{1,0}) parameter(0)
  %bound = s32[] constant(BOUND)
  %i = s32[] get-tuple-element(%arg), index=0
  ROOT %wrapped_compare.1 = pred[] fusion(%i, %bound), kind=kLoop, calls=%wrapped_compare
}
"""
LOOP_ENTRY = """
%x.1 = f32[8,16]{1,0} parameter(0)
%w.1 = f32[16,16]{1,0} parameter(1)
%start = s32[] constant(START)
%copy.7 = s32[] copy(%start)
%tuple.1 = (s32[], f32[8,16]{1,0}, f32[16,16]{1,0}) tuple(%copy.7, %x.1, %w.1)
%while.5 = (s32[], f32[8,16]{1,0}, f32[16,16]{1,0}) while(%tuple.1), condition=%condition, body=%body
ROOT %r = f32[8,16]{1,0} get-tuple-element(%while.5), index=1
"""

KNOWN = ', backend_config={"known_trip_count":{"n":"24"},"known_init_step":{"init":"0","step":"1"}}'


def loop(start: int = 0, bound: int = 24, config: str = "", **changes: str) -> HloCost:
    """The cost of a loop that counts from `start` to `bound`."""
    entry = LOOP_ENTRY.replace("START", str(start)).replace("body=%body", f"body=%body{config}")
    computations = LOOP.replace("BOUND", str(bound))
    for old, new in changes.items():
        computations = computations.replace(old, new)
    return cost(entry, computations)
