"""Narrow exchanges: a value that is cast before an exchange is exchanged in its original dtype."""

from __future__ import annotations

import pytest

from graphc.devices.narrow_exchanges import NarrowExchanges
from tests.passes.check import check, check_stays


def exchange(narrow: str, wide: str, collective: str) -> tuple[str, str]:
    """Returns the program with the cast before the exchange, and with the cast after it."""
    op = collective.partition(" ")[0]
    attrs, _, shape = collective.partition(" ")[2].partition("} ")
    attrs += "}"
    before = f"""program p(x: {narrow}[8, 4]) {{
  %0 = Cast(x) {{dtype={wide}}} : {wide}[8, 4]
  %1 = {op}(%0) {attrs} : {wide}{shape}
  return r = %1
}}"""
    after = f"""program p(x: {narrow}[8, 4]) {{
  %1 = {op}(x) {attrs} : {narrow}{shape}
  %2 = Cast(%1) {{dtype={wide}}} : {wide}{shape}
  return r = %2
}}"""
    return before, after


@pytest.mark.parametrize(
    "collective",
    [
        'AllReduce {op="sum"} [8, 4]',
        "ReduceScatter {axis=0, replicas=4} [2, 4]",
        "AllGather {axis=0, replicas=4} [32, 4]",
    ],
)
def test_a_cast_that_widens_goes_behind(collective: str) -> None:
    check(NarrowExchanges(), *exchange("bf16", "f32", collective))


@pytest.mark.parametrize(
    ("narrow", "wide", "collective"),
    [
        ("f16", "f32", 'AllReduce {op="sum"} [8, 4]'),  # a sum may overflow
        ("f32", "bf16", 'AllReduce {op="sum"} [8, 4]'),
        ("i32", "f32", 'AllReduce {op="sum"} [8, 4]'),
        ("bf16", "f32", 'AllReduce {op="max"} [8, 4]'),
    ],
)
def test_others_stay(narrow: str, wide: str, collective: str) -> None:
    check_stays(NarrowExchanges(), exchange(narrow, wide, collective)[0])
