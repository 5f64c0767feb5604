"""Which comparators the sorts of a program from a file may have.

On CPU, XLA passes the comparator of a sort to `std::sort`, which reads and writes out of bounds or
never ends if the comparator is not a strict weak order. So only comparators of the form that
`jax.lax.sort` writes are allowed: a lexicographic order of keys. A key is an operand, or its real
or imaginary part; for floats, all zeros may be replaced by one zero and all NaNs by one NaN. Both
sides compute their keys by the same function, and each key has a total order, so the whole is an
order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_ORDERS = ("LT", "GT")
_ATTRIBUTES = {  # operation -> the attributes that it has
    "stablehlo.compare": {"comparison_direction", "compare_type"},
    "stablehlo.constant": {"value"},
    "stablehlo.select": set(),
    "stablehlo.and": set(),
    "stablehlo.or": set(),
    "stablehlo.real": set(),
    "stablehlo.imag": set(),
}
_OPTIONAL = {"stablehlo.compare": {"compare_type"}}
_ZERO = re.compile(r"dense<0\.0+e\+00> : tensor<\w+>")
_NAN = re.compile(r"dense<0x[0-9A-F]+> : tensor<\w+>")
_SCALAR = re.compile(r"tensor<(\w+)>")

Key = tuple[int, str, str]  # operand, its part, the NaN that stands for all NaNs


def is_order(comparator: Mapping[str, Any]) -> bool:
    """Whether the region of a sort is a lexicographic order as `jax.lax.sort` writes it.

    Args:
        comparator: see `untrusted.findings`.
    """
    region = _Region(comparator)
    if not region.plain:
        return False
    value = region.returned
    while region.compared(value, _ORDERS) is None:
        # the first key is less, or it is equal and the rest is less
        before, both = region.operands(value, "stablehlo.or", 2)
        same, rest = region.operands(both, "stablehlo.and", 2)
        key = region.compared(before, _ORDERS)
        if key is None or region.compared(same, ("EQ",)) != key or not -1 < rest < value:
            return False
        value = rest
    return True


def is_choice(comparator: Mapping[str, Any], dtype: str) -> bool:
    """Whether a function compares as `jax.lax.approx_max_k` or `approx_min_k` does.

    Args:
        comparator: see `untrusted.findings`.
        dtype: the dtype of the values, as MLIR prints it.
    """
    types = [f"tensor<{dtype}>"] * 2 + ["tensor<i32>"] * 2
    region = _Region(comparator)
    attributes = region.attributes(region.returned)
    return (
        comparator["arguments"] == types
        and len(comparator["rows"]) == 1
        and region.operands(region.returned, "stablehlo.compare", 2) == [0, 1]
        and _word(attributes.get("comparison_direction", "")) in _ORDERS
        and _word(attributes.get("compare_type", "FLOAT>")) in ("FLOAT", "NOTYPE", "TOTALORDER")
    )


class _Region:
    """The operations of a comparator. Its values are numbered, the arguments first."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._types: Sequence[str] = found["arguments"]
        self._rows: Sequence[Any] = found["rows"]
        self.returned: int = found["returned"]
        self.plain = all(
            attributes.keys() | _OPTIONAL.get(name, set()) == _ATTRIBUTES.get(name)
            for name, _, attributes, _ in self._rows
        )

    def operands(self, value: int, name: str, count: int) -> list[int]:
        """The operands of the operation `name` that computes `value`; all -1 if another does."""
        row = self._row(value)
        if row is None or row[0] != name or len(row[1]) != count:
            return [-1] * count
        return list(row[1])

    def attributes(self, value: int) -> Mapping[str, str]:
        row = self._row(value)
        return row[2] if row is not None else {}

    def compared(self, value: int, directions: Sequence[str]) -> Key | None:
        """The key that `value` compares in a total order; None if it does something else."""
        left, right = self.operands(value, "stablehlo.compare", 2)
        attributes = self.attributes(value)
        if left < 0 or _word(attributes["comparison_direction"]) not in directions:
            return None
        if _word(attributes.get("compare_type", "NOTYPE>")) not in _total(self._type(left)):
            return None
        one, other = self._key(left), self._key(right)
        if one is None or other is None or one[0] % 2 or other != (one[0] + 1, *one[1:]):
            return None
        return one

    def _key(self, value: int) -> Key | None:
        is_nan, nan, number = self.operands(value, "stablehlo.select", 3)
        if is_nan < 0:
            return self._part(value, "")
        is_zero, zero, part = self.operands(number, "stablehlo.select", 3)
        text = self._constant(nan)
        right = (
            self._floats(is_nan, "NE") == [part, part]
            and self._floats(is_zero, "EQ")[0] == part
            and _ZERO.fullmatch(self._constant(self._floats(is_zero, "EQ")[1]))
            and _ZERO.fullmatch(self._constant(zero))
            and _NAN.fullmatch(text)
        )
        return self._part(part, text) if right else None

    def _part(self, value: int, nan: str) -> Key | None:
        for name in ("real", "imag"):
            [whole] = self.operands(value, f"stablehlo.{name}", 1)
            if 0 <= whole < len(self._types):
                return whole, name, nan
        return (value, "", nan) if 0 <= value < len(self._types) else None

    def _floats(self, value: int, direction: str) -> list[int]:
        """The two values that `value` compares as floats in this direction; -1 if it does not."""
        found = self.operands(value, "stablehlo.compare", 2)
        attributes = self.attributes(value)
        words = [_word(attributes.get(key, "")) for key in ("comparison_direction", "compare_type")]
        return found if words == [direction, "FLOAT"] else [-1, -1]

    def _constant(self, value: int) -> str:
        row = self._row(value)
        return row[2]["value"] if row is not None and row[0] == "stablehlo.constant" else ""

    def _type(self, value: int) -> str:
        row = self._row(value)
        return row[3] if row is not None else self._types[value]

    def _row(self, value: int) -> Any:
        place = value - len(self._types)
        return self._rows[place] if 0 <= place < len(self._rows) else None


def _total(type: str) -> tuple[str, ...]:
    """The comparison types that order all scalars of this type; for integers, "NOTYPE" too."""
    found = _SCALAR.fullmatch(type)
    element = found[1] if found else ""
    if element == "i1" or element.startswith("ui"):
        return "UNSIGNED", "NOTYPE"
    if element.startswith("i"):
        return "SIGNED", "NOTYPE"
    return ("TOTALORDER",) if element.startswith(("f", "bf")) else ()


def _word(attribute: str) -> str:
    """The last word of an attribute that MLIR prints as `#stablehlo<kind WORD>`."""
    return attribute.rstrip(">").rpartition(" ")[2]
