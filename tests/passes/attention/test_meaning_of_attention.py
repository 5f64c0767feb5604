"""FuseAttention preserves the results of randomly written attention and of its derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

import graphc as gc
from tests.passes.attention.test_fuse_attention import FUSE, check_meaning, in_graph

SIZES = {"b": 2, "h": 3, "g": 2, "t": 4, "s": 5, "d": 3, "e": 2}


class Spelling(NamedTuple):
    """One way to write an attention.

    Attributes:
        query, key, value: the axes of these operands.
        logits: the axes of the softmax's operand, the keys last.
        result: the axes of the result.
        scaled: what has a constant factor: "query", "key", "product", "divided", "value" or "".
        masks: the axes of masks: added ("+ts"), chosen by `where` ("?bs") or causal ("^").
        softmax: "operator", "jax" or "by hand".
    """

    query: str
    key: str
    value: str
    logits: str
    result: str
    scaled: str
    masks: tuple[str, ...]
    softmax: str


@st.composite
def spellings(draw: st.DrawFn) -> Spelling:
    """Axes in any order, with or without heads, and with or without groups that share heads."""
    outer = draw(st.sampled_from(["", "b", "bh"]))
    group = draw(st.sampled_from(["", "g"])) if outer else ""

    def shuffled(axes: str) -> str:
        return "".join(draw(st.permutations(axes)))

    places = st.sampled_from(
        ["+ts", "+s", "+t", "?s", "?ts", f"+{outer}{group}s", f"?{outer}{group}ts", "^"]
    )
    masks = draw(st.lists(places, max_size=2, unique=True))
    masks.sort(key=lambda mask: mask[0] != "+")  # biases first: a mask must hide biases, too
    if sum(mask[0] == "?" or mask == "^" for mask in masks) > 1:
        masks = masks[:1]
    return Spelling(
        shuffled(f"{outer}{group}td"),
        shuffled(f"{outer}sd"),
        shuffled(f"{outer}se"),
        f"{outer}{group}ts",
        shuffled(f"{outer}{group}te"),
        draw(st.sampled_from(["", "query", "key", "product", "divided", "value"])),
        tuple(masks),
        draw(st.sampled_from(["operator", "jax", "by hand"])),
    )


def by_hand(x: Any) -> Any:
    exponentials = jnp.exp(x - jax.lax.stop_gradient(x.max(-1, keepdims=True)))
    return exponentials / exponentials.sum(-1, keepdims=True)


def written(spelling: Spelling, q: Any, k: Any, v: Any, *masks: Any) -> Any:
    q = q * 0.7 if spelling.scaled == "query" else q
    k = k * 0.7 if spelling.scaled == "key" else k
    v = v * 0.7 if spelling.scaled == "value" else v
    logits = gc.einsum(f"{spelling.query},{spelling.key}->{spelling.logits}", q, k)
    if spelling.scaled in ("product", "divided"):
        logits = logits * 0.7 if spelling.scaled == "product" else logits / 0.7
    given_masks = iter(masks)
    for mask in spelling.masks:
        if mask == "^":
            lower = np.tri(SIZES["t"], SIZES["s"], dtype=bool)
            logits = gc.where(lower, logits, -1e9)
            continue
        value = next(given_masks)
        logits = logits + value if mask[0] == "+" else gc.where(value, logits, -1e9)
    softmax = {
        "operator": gc.nn.softmax,
        "jax": gc.from_jax(jax.nn.softmax),
        "by hand": gc.from_jax(by_hand),
    }[spelling.softmax]
    return gc.einsum(f"{spelling.logits},{spelling.value}->{spelling.result}", softmax(logits), v)


def specs(spelling: Spelling) -> list[Any]:
    """The types of query, key, value and masks."""
    found: list[Any] = [
        gc.TensorSpec([SIZES[axis] for axis in axes], "float32")
        for axes in (spelling.query, spelling.key, spelling.value)
    ]
    for mask in spelling.masks:
        if mask != "^":
            shape = [SIZES[axis] if axis in mask else 1 for axis in spelling.logits]
            found.append(gc.TensorSpec(shape, "float32" if mask[0] == "+" else "bool"))
    return found


@settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(spelling=spellings())
def test_meaning(spelling: Spelling) -> None:
    before = in_graph(lambda *x: written(spelling, *x), specs(spelling))
    result = FUSE.run(before)
    assert result.changed == 1
    check_meaning(before, result.program, 1e-4)
