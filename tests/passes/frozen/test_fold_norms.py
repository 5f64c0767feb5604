"""Fold norms: which scales are folded into which kernels, and which stay."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from graphc.ir.program import Program
from graphc.lowering.emit_jax import to_function
from graphc.passes.core.validate import check_meaning
from graphc.passes.frozen.fold_norms import FoldNorms
from graphc.passes.frozen.remove_dropout import RemoveDropout
from graphc.passes.manager import PassManager
from graphc.passes.simplify.prune import Prune
from graphc.runtime.targets.prepare import evaluate
from tests.near import assert_near
from tests.passes.check import check_pair, program

FOLDS = {
    "a scale goes into the kernel": """
        x: f32[n, 3], w: state f32[3, 2], s: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Multiply(%0, s) : f32[n, 2]
          return out = %1
        =>
          %0 = Multiply(w, s) : f32[3, 2]
          %1 = MatMul(x, %0) : f32[n, 2]
          return out = %1
    """,
    "the bias is scaled too": """
        x: f32[n, 3], w: state f32[3, 2], b: state f32[2], s: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Add(%0, b) : f32[n, 2]
          %2 = Multiply(s, %1) : f32[n, 2]
          return out = %2
        =>
          %0 = Multiply(w, s) : f32[3, 2]
          %1 = MatMul(x, %0) : f32[n, 2]
          %2 = Multiply(b, s) : f32[2]
          %3 = Add(%1, %2) : f32[n, 2]
          return out = %3
    """,
    "two biases are one": """
        x: f32[n, 3], w: state f32[3, 2], b: state f32[2], c: state f32[1, 2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Add(%0, b) : f32[n, 2]
          %2 = Subtract(%1, c) : f32[n, 2]
          return out = %2
        =>
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Reshape(c) {shape=[2]} : f32[2]
          %2 = Negative(%1) : f32[2]
          %3 = Add(b, %2) : f32[2]
          %4 = Add(%0, %3) : f32[n, 2]
          return out = %4
    """,
    "batch normalisation": """
        x: f32[n, 3], w: state f32[3, 6], m: state f32[6], v: state f32[6], CHANNELS
          %0 = MatMul(x, w) : f32[n, 6]
          %1 = BatchNorm(%0, m, v, g, o) {epsilon=0.5} : f32[n, 6]
          return out = %1
        =>
          %0 = Constant() {value=f32[] 0.5} : f32[]
          %1 = Add(v, %0) : f32[6]
          %2 = Rsqrt(%1) : f32[6]
          %3 = Multiply(%2, g) : f32[6]
          %4 = Multiply(m, %3) : f32[6]
          %5 = Subtract(o, %4) : f32[6]
          %6 = Multiply(w, %3) : f32[3, 6]
          %7 = MatMul(x, %6) : f32[n, 6]
          %8 = Add(%7, %5) : f32[n, 6]
          return out = %8
    """,
}  # fmt: skip

STAYS = {
    "an activation between": """
        x: f32[n, 3], w: state f32[3, 2], s: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Relu(%0) : f32[n, 2]
          %2 = Multiply(%1, s) : f32[n, 2]
          return out = %2
        => stays
    """,
    "a padding between": """
        x: f32[n, 3], w: state f32[3, 2], s: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Constant() {value=f32[] 0.0} : f32[]
          %2 = Pad(%0, %1) {pads=[[1, 0, 0], [0, 0, 0]]} : f32[n + 1, 2]
          %3 = Multiply(%2, s) : f32[n + 1, 2]
          return out = %3
        => stays
    """,
    "the layer's result is used": """
        x: f32[n, 3], w: state f32[3, 2], s: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Multiply(%0, s) : f32[n, 2]
          %2 = Add(%1, %0) : f32[n, 2]
          return out = %2
        => stays
    """,
    "the layer's result is fetched": """
        x: f32[n, 3], w: state f32[3, 2], s: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Multiply(%0, s) : f32[n, 2]
          return out = %1, layer = %0
        => stays
    """,
    "a factor that is fed": """
        x: f32[n, 3], w: state f32[3, 2], s: f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Multiply(%0, s) : f32[n, 2]
          return out = %1
        => stays
    """,
    "a kernel that is fed": """
        x: f32[n, 3], w: f32[3, 2], s: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Multiply(%0, s) : f32[n, 2]
          return out = %1
        => stays
    """,
    "a factor for each row": """
        x: f32[2, 3], w: state f32[3, 2], s: state f32[2, 1]
          %0 = MatMul(x, w) : f32[2, 2]
          %1 = Multiply(%0, s) : f32[2, 2]
          return out = %1
        => stays
    """,
    "a layer with its own bias": """
        x: f32[n, 3], w: state f32[3, 2], b: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Add(%0, b) : f32[n, 2]
          return out = %1
        => stays
    """,
    "a division by the layer": """
        x: f32[n, 3], w: state f32[3, 2], b: state f32[2]
          %0 = MatMul(x, w) : f32[n, 2]
          %1 = Divide(b, %0) : f32[n, 2]
          return out = %1
        => stays
    """,
    "a reshape that mixes channels": """
        x: f32[4, 3], w: state f32[3, 2], s: state f32[4]
          %0 = MatMul(x, w) : f32[4, 2]
          %1 = Reshape(%0) {shape=[2, 4]} : f32[2, 4]
          %2 = Multiply(%1, s) : f32[2, 4]
          return out = %2
        => stays
    """,
}


@pytest.mark.parametrize("text", [*FOLDS.values(), *STAYS.values()], ids=[*FOLDS, *STAYS])
def test_rules(text: str) -> None:
    check_pair(FoldNorms(), text.replace("CHANNELS", "g: state f32[6], o: state f32[6]"))


CONV = "padding=[[1, 1], [1, 1]], strides=[1, 1], dilation=[1, 1]"
# Layers with six channels: (type of x, type of the kernel, the node, type of its result).
LAYERS = {
    "convolution": ("4, 5, 5, 3", "3, 3, 3, 6", f"Conv(x, w) {{{CONV}}}", "4, 5, 5, 6"),
    "strided": (
        "4, 5, 5, 3", "3, 3, 3, 6",
        "Conv(x, w) {padding=[[1, 1], [1, 1]], strides=[2, 2], dilation=[1, 1]}", "4, 3, 3, 6",
    ),
    "grouped": ("4, 5, 5, 4", "3, 3, 2, 6", f"Conv(x, w) {{{CONV}, groups=2}}", "4, 5, 5, 6"),
    "depthwise": ("4, 5, 5, 3", "3, 3, 1, 6", f"Conv(x, w) {{{CONV}, groups=3}}", "4, 5, 5, 6"),
    "transposed": (
        "4, 5, 5, 3", "3, 3, 6, 3", f"ConvInputGradient(x, w) {{size=[5, 5], {CONV}}}",
        "4, 5, 5, 6",
    ),
    "transposed in groups": (
        "4, 5, 5, 4", "3, 3, 3, 4", f"ConvInputGradient(x, w) {{size=[5, 5], {CONV}, groups=2}}",
        "4, 5, 5, 6",
    ),
    "product": ("4, 3", "3, 6", "MatMul(x, w)", "4, 6"),
    "product of a stack": ("2, 4, 3", "2, 3, 6", "MatMul(x, w)", "2, 4, 6"),
    "transposed kernel": ("4, 3", "6, 3", "MatMul(x, w) {transpose_b=true}", "4, 6"),
    "contraction": (
        "4, 3", "3, 6", "DotGeneral(x, w) {lhs_contract=[1], rhs_contract=[0]}", "4, 6",
    ),
    "contraction, kernel turned": (
        "4, 3", "2, 6, 3", "DotGeneral(x, w) {lhs_contract=[1], rhs_contract=[2]}", "4, 2, 6",
    ),
}  # fmt: skip
AFTER = {
    "norm": "%t = BatchNorm(%0, m, v, g, o) {epsilon=0.01} : T",
    "bias and norm": "%1 = Add(%0, b) : T\n%t = BatchNorm(%1, m, v, g, o) {epsilon=0.01} : T",
    "as users write it": (
        "%1 = Subtract(%0, m) : T\n%2 = Divide(%1, v) : T\n%3 = Multiply(g, %2) : T\n"
        "%4 = Negative(%3) : T\n%t = Subtract(o, %4) : T"
    ),
}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_every_kind_of_layer_means_the_same(layer: tuple[str, ...], after: str) -> None:
    x, w, node, y = layer
    steps = after.replace("T", f"f64[{y}]").replace("%t", "%9")
    channels = ", ".join(f"{name}: state f64[6]" for name in "mvgob")
    before = program(
        f"program p(x: f64[{x}], w: state f64[{w}], {channels}) {{\n"
        f"%0 = {node} : f64[{y}]\n{steps}\nreturn out = %9\n}}"
    )
    after_pass, _ = PassManager((FoldNorms(), Prune())).run(before)
    kinds = [n.op.name for n in after_pass.nodes]
    assert "BatchNorm" not in kinds
    # On the path of the data, only the layer and one sum remain.
    data = {before.inputs[0].tensor}
    path = []
    for n in after_pass.nodes:
        if not data.isdisjoint(n.inputs):
            path.append(n.op.name)
            data.update(n.outputs)
    assert path == [node.partition("(")[0], "Add"]

    def squares(p: object, values: list[np.ndarray]) -> list[np.ndarray]:
        variance = values[3] ** 2 + 0.5
        return evaluate(p, [*values[:3], variance, *values[4:]])  # type: ignore[arg-type]

    assert check_meaning(before, after_pass, squares, seed=1) is None


# Operations that may follow a layer, on the last value or on any earlier one.
STEPS = (
    "Add({x}, b)", "Add(o, {x})", "Subtract({x}, m)", "Subtract(m, {x})", "Multiply({x}, g)",
    "Divide({x}, v)", "Negative({x})", "BatchNorm({x}, m, v, g, o) {{epsilon=0.01}}",
    "Relu({x})", "Multiply({x}, fed)", "Add({x}, {y})", "Multiply({x}, s)", "Multiply({x}, g1)",
    "MatMul({x}, w2)", "Reshape({x}) {{shape=[n, 6]}}",
)  # fmt: skip


@st.composite
def chains(draw: st.DrawFn) -> Program:
    """A layer and some steps, which sometimes use an earlier value again."""
    lines = ["%0 = MatMul(x, w) : f64[n, 6]"]
    for i in range(1, draw(st.integers(1, 8))):
        step = STEPS[draw(st.integers(0, len(STEPS) - 1))]
        earlier = f"%{draw(st.integers(0, i - 1))}"
        lines.append(f"%{i} = {step.format(x=f'%{i - 1}', y=earlier)} : f64[n, 6]")
    last = f"return out = %{len(lines) - 1}"
    if draw(st.integers(0, 3)) == 0:
        last += f", other = %{draw(st.integers(0, len(lines) - 1))}"
    state = ", ".join(f"{name}: state f64[6]" for name in "mvgob")
    state += ", w: state f64[3, 6], w2: state f64[6, 6], s: state f64[], g1: state f64[1, 6]"
    return program(
        "program p(x: f64[n, 3], fed: f64[6], "
        + state
        + ") {\n"
        + "\n".join([*lines, last])
        + "\n}"
    )


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(before=chains())
def test_chains_mean_the_same(before: Program) -> None:
    after, _ = PassManager((FoldNorms(), Prune())).run(before)
    assert FoldNorms().run(after).program is after, "a second run finds nothing"
    variance = [port.name for port in before.inputs].index("v")

    def positive(p: Program, values: list[np.ndarray]) -> list[np.ndarray]:
        with_variance = [v**2 + 0.5 if i == variance else v for i, v in enumerate(values)]
        with jax.enable_x64(True):  # node by node, so that no program is compiled
            results = to_function(p)(*map(jnp.asarray, with_variance))
            return [np.asarray(value) for value in results]

    assert check_meaning(before, after, positive, seed=1) is None


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_layers_keep_their_dtypes(dtype: str) -> None:
    before = program(f"""
        program p(x: {dtype}[4, 3], w: state {dtype}[3, 6], m: state f32[6], v: state f32[6],
                  g: state f32[6], o: state f32[6]) {{
          %0 = MatMul(x, w) : {dtype}[4, 6]
          %1 = BatchNorm(%0, m, v, g, o) {{epsilon=0.01}} : {dtype}[4, 6]
          return out = %1
        }}""")
    after, _ = PassManager((FoldNorms(), Prune())).run(before)
    assert "BatchNorm" not in [n.op.name for n in after.nodes]
    rng = np.random.default_rng(0)
    types = [t.type for t in before.input_tensors()]
    values = [rng.standard_normal(type.shape).astype(type.dtype) for type in types]
    values[3] = values[3] ** 2 + np.float32(0.5)
    want, got = (evaluate(p, values)[0].astype(np.float32) for p in (before, after))
    assert_near(got, want, rtol=1e-7, atol=0.1)


DROPOUTS = {
    "dropout is its operand": """
        x: f32[n, 3], k: u32[2]
          %0, %1 = Dropout(x, k) {rate=0.5} : f32[n, 3], bool[n, 3]
          %2 = Relu(%0) : f32[n, 3]
          return out = %2
        =>
          %0 = Identity(x) : f32[n, 3]
          %1 = Relu(%0) : f32[n, 3]
          return out = %1
    """,
    "attention keeps its weights": """
        q: f32[2, 4, 1, 3], k: u32[2]
          %0, %1 = Attention(q, q, q, k) {scale=0.5, dropout=0.5} : BOTH
          return out = %0
        =>
          %0 = Attention(q, q, q) {scale=0.5} : f32[2, 4, 1, 3]
          return out = %0
    """,
    "a mask that is used stays": """
        x: f32[n, 3], k: u32[2]
          %0, %1 = Dropout(x, k) {rate=0.5} : f32[n, 3], bool[n, 3]
          return out = %0, mask = %1
        => stays
    """,
    "attention without dropout stays": """
        q: f32[2, 4, 1, 3]
          %0 = Attention(q, q, q) {scale=0.5} : f32[2, 4, 1, 3]
          return out = %0
        => stays
    """,
    "in bodies": """
        x: f32[3], xs: f32[5, 3], k: u32[2]
          %0 = Scan(k, x, xs) {consts=1, carries=1, length=5} : f32[3]
              with body(a0: u32[2], a1: f32[3], a2: f32[3]) {
            %0, %1 = Dropout(a2, a0) {rate=0.5} : f32[3], bool[3]
            %2 = Add(a1, %0) : f32[3]
            return r0 = %2
          }
          return out = %0
        =>
          %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Identity(a1) : f32[3]
            %1 = Add(a0, %0) : f32[3]
            return r0 = %1
          }
          return out = %0
    """,
}  # fmt: skip


@pytest.mark.parametrize("text", DROPOUTS.values(), ids=DROPOUTS)
def test_dropout(text: str) -> None:
    check_pair(RemoveDropout(), text.replace("BOTH", "f32[2, 4, 1, 3], bool[2, 1, 4, 4]"))
