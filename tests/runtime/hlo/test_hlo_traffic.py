"""Bytes that kernels move, from a compiled program's text."""

from tests.runtime.hlo_snippets import (
    SCATTER,
    UPDATE_IN_PLACE,
    cost,
)


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
    assert update.bytes_accessed == 3 * rows + ids  # the update, and the rows before and after
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
