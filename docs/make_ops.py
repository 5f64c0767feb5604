"""Writes docs/ops.md, the operator reference, from the catalogue: `python docs/make_ops.py`."""

from __future__ import annotations

from pathlib import Path

from graphc.ir.dtypes import short_name
from graphc.ir.opdef import REQUIRED, Attr, Effects, OpDef
from graphc.ops.catalogue import FAMILIES

PAGE = Path(__file__).with_name("ops.md")


def page() -> str:
    """The whole text."""
    parts = [
        "# Operators\n",
        "Made from the catalogue by `python docs/make_ops.py`; do not edit. These are the nodes of",
        "a graph; the functions that make them are documented by `help(gc.matmul)` and so on.",
        "Where a text speaks of conversions, the function converts its arguments, and the node has",
        "the dtypes that are named last.\n",
    ]
    for family in FAMILIES:
        name = family.__name__.rpartition(".")[2]
        parts.append(f"## {name}\n")
        parts.append((family.__doc__ or "").strip().splitlines()[0] + "\n")
        parts += [section(op) for op in family.OPS]
    return "\n".join(parts)


def section(op: OpDef) -> str:
    """What there is to know of one operator."""
    lines = [f"### {op.name}\n", f"`{op.signature}`\n", op.doc.strip() + "\n"]
    lines += [f"- `{name}`: {describe(attr)}" for name, attr in op.attrs.items()]
    lines.append(f"- gradient: {gradient(op)}")
    if op.effects is not Effects.PURE:
        lines.append(f"- effects: {op.effects.name}")
    return "\n".join(lines) + "\n"


def describe(attr: Attr) -> str:
    """Kind, default and meaning of an attribute."""
    default = "" if attr.default is REQUIRED else f", default {shown(attr.default)}"
    return f"{attr.kind}{default}" + (f"; {attr.doc}" if attr.doc else "")


def shown(value: object) -> str:
    """A default as one writes it."""
    return short_name(value) if hasattr(value, "itemsize") else repr(value)


def gradient(op: OpDef) -> str:
    """Where its derivative comes from."""
    if not op.differentiable:
        return "none"
    return "by a rule" if op.gradient is not None else "by `jax.vjp` of its lowering"


if __name__ == "__main__":
    PAGE.write_text(page())
