"""Maps the instructions of an HLO text to nodes."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ExecutionError
from graphc.ir.capture import capture
from graphc.ops.catalogue import CATALOGUE
from graphc.reports.node_names import instruction_names, instructions_of

TEXT = """HloModule jit_graph, is_scheduled=true

%fused (p0: f32[8,8], p1: f32[8,8]) -> f32[8,8] {
  %p0 = f32[8,8]{1,0} parameter(0)
  %p1 = f32[8,8]{1,0} parameter(1)
  %dot.1 = f32[8,8]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(graph)/a/b/dot_general"}
  ROOT %add.1 = f32[8,8]{1,0} add(%dot.1, %p1), metadata={op_name="jit(graph)/b/add"}
}

%body (p: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %p = (s32[], f32[8,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %v = f32[8,8]{1,0} get-tuple-element(%p), index=1
  %exp.1 = f32[8,8]{1,0} exponential(%v), metadata={op_name="jit(graph)/loop/while/body/closed_call/inner/exp"}
  %copy.9 = f32[8,8]{1,0} copy(%v)
  ROOT %t = (s32[], f32[8,8]{1,0}) tuple(%i, %exp.1)
}

%cond (q: (s32[], f32[8,8])) -> pred[] {
  %q = (s32[], f32[8,8]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] compare(%j, %j), direction=LT, metadata={op_name="jit(graph)/loop/while/cond/lt"}
}

ENTRY %main (x: f32[8,8], y: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8]{1,0} parameter(0), metadata={op_name="x"}
  %y = f32[8,8]{1,0} parameter(1), metadata={op_name="y"}
  %fusion.1 = f32[8,8]{1,0} fusion(%x, %y), kind=kLoop, calls=%fused, metadata={op_name="jit(graph)/b/add"}
  %zero = s32[] constant(0)
  %copy.1 = f32[8,8]{1,0} copy(%fusion.1)
  %start = (s32[], f32[8,8]{1,0}) tuple(%zero, %copy.1)
  %while.1 = (s32[], f32[8,8]{1,0}) while(%start), condition=%cond, body=%body, metadata={op_name="jit(graph)/loop/while"}
  %last = f32[8,8]{1,0} get-tuple-element(%while.1), index=1
  %copy.2 = f32[8,8]{1,0} copy(%last)
  %neg = f32[8,8]{1,0} negate(%copy.2), metadata={op_name="jit(graph)/\\303\\251 \\"q\\"/neg"}
  ROOT %odd = f32[8,8]{1,0} abs(%neg), metadata={op_name="jit(graph)/unknown/abs"}
}
"""  # noqa: E501  one instruction, one line


@pytest.fixture(scope="module")
def program() -> gc.Program:
    graph = gc.Graph()
    with graph:
        x = gc.constant(np.ones((8, 8), "float32"), name="x")
        product = gc.matmul(x, x, name="a/b")
        total = gc.add(product, x, name="b")
        looped = gc.while_loop(
            lambda c: c[0] < 3,
            lambda c: (c[0] + 1, gc.exp(c[1], name="inner")),
            (0, total),
            name="loop",
        )[1]
        gc.negative(looped, name='é "q"')
    return capture(graph, [graph.nodes[-1].outputs[0]], [], CATALOGUE["ReadVariable"])


def owners(program: gc.Program | None, name: str) -> dict[str, float]:
    shares = instructions_of(TEXT, program)["jit_graph"].shares[name]
    return {owner.name: round(share, 3) for owner, share in shares.items()}


def test_fusion_is_shared_by_the_work_inside(program: gc.Program) -> None:
    assert owners(program, "fusion.1") == {"a/b": round(512 / 576, 3), "b": round(64 / 576, 3)}


@pytest.mark.parametrize(
    ("instruction", "owner"),
    [
        pytest.param("exp.1", "inner", id="in a loop"),
        pytest.param("copy.9", "loop", id="a copy in a loop without a user"),
        pytest.param("while.1", "loop", id="the loop itself"),
        pytest.param("copy.1", "loop", id="a copy for a loop"),
        pytest.param("copy.2", 'é "q"', id="a copy for a node"),
        pytest.param("neg", 'é "q"', id="an escaped name"),
        pytest.param("odd", 'é "q"', id="an unknown name takes that of its operand"),
    ],
)
def test_owner(program: gc.Program, instruction: str, owner: str) -> None:
    assert owners(program, instruction) == {owner: 1}


def test_containers(program: gc.Program) -> None:
    found = instructions_of(TEXT, program)["jit_graph"]
    assert found.containers.keys() == {"while.1"}
    assert "exp.1" in found.containers["while.1"] and "fusion.1" not in found.containers["while.1"]
    assert {owner.name for owner in found.whole["while.1"]} == {"inner", "loop"}
    assert (found.named - found.known) > 0


def test_without_a_program_the_names_are_the_nodes() -> None:
    assert owners(None, "fusion.1").keys() == {"a/b", "b"}
    assert owners(None, "neg") == {'é "q"': 1}


def test_two_modules_of_one_name_share(program: gc.Program) -> None:
    other = TEXT.replace('jit(graph)/\\303\\251 \\"q\\"/neg', "jit(graph)/b/neg")
    assert other != TEXT
    joined = instructions_of(f"// executable 0\n{TEXT}\n// executable 1\n{other}", program)
    shares = {o.name: share for o, share in joined["jit_graph"].shares["neg"].items()}
    assert shares == {'é "q"': 0.5, "b": 0.5}


def test_names_of_instructions() -> None:
    names = instruction_names(TEXT)
    assert names[:4] == ["p0", "p1", "dot.1", "add.1"] and names[-1] == "odd"


@pytest.mark.parametrize("text", ["", "no HLO", "HloModule m, x\n\nENTRY %e {\n  what\n}\n"])
def test_no_hlo(text: str) -> None:
    with pytest.raises(ExecutionError):
        instructions_of(text, None)
