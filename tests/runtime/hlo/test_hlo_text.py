"""The parts of a compiled program's text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphc.errors import ExecutionError
from graphc.runtime.hlo.hlo_cost import hlo_cost
from graphc.runtime.hlo.hlo_text import Shape, parse, parse_shape
from tests.runtime.hlo_snippets import (
    ATTENTION,
    CONVOLUTIONS,
    CUBLAS_LT,
    GEMM_PARAMETERS,
    HEADER,
    LOOP,
    LOOP_ENTRY,
    SCATTER,
    lines,
    module,
)


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


def test_two_modules_are_not_read_as_one() -> None:
    text = jax.jit(lambda x: x @ x).lower(jnp.ones((4, 4))).compile().as_text()
    with pytest.raises(ExecutionError, match="a second module begins"):
        hlo_cost(f"{text}\n{text}")
