"""The facts about a StableHLO module that decide whether it may run."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

_DEEPEST = 200  # nested regions, which recursive C++ code reads
MOST_CALLS = 10_000  # the maximum number of different custom calls, composites or comparators
_LONGEST_COMPARATOR = 10_000  # operations
_MOST_OPERATIONS = 1 << 60  # larger counts are replaced by this one

_TENSOR = re.compile(r"tensor<((?:[0-9?]+x)*)[^<>x]")
_WHOLE_TENSOR = re.compile(r"tensor<(?:[0-9?]+x)*(.*)>")
_CALLS = {  # operation -> the attribute that names the functions it calls
    "func.call": "callee",
    "stablehlo.composite": "decomposition",
    "stablehlo.custom_call": "called_computations",
}
_GUARDS = {"stablehlo.case", "stablehlo.if", "stablehlo.while"}
_ACROSS_DEVICES = {
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.reduce_scatter",
}
_APPLYING = {  # operations that apply their regions to scalars
    "stablehlo.all_reduce",
    "stablehlo.reduce",
    "stablehlo.reduce_scatter",
    "stablehlo.reduce_window",
    "stablehlo.scatter",
    "stablehlo.select_and_scatter",
    "stablehlo.sort",
}
_DESCRIBED = {"stablehlo.custom_call": "call_target_name", "stablehlo.composite": "name"}


def findings(module: Any) -> dict[str, Any]:
    """The facts about a StableHLO module (`jax.extend.mlir.ir.Module`) that decide whether it may
    run.

    Returns:
        "calls": each different custom call and composite, see `_call`.
        "operations": the name of every operation -> the number of its occurrences in the module.
        "work": the number of operations when all functions are inlined; None if a function calls
            itself, or one that does not exist.
        "types": the element type of every tensor, and every other type.
        "comparators": the region of each different sort, see `_comparator`.
        "called": name -> body, in the same form, of each function that a custom call names.
        "applied": the names of the operations in regions of reductions, scatters and sorts.
        "elements": the number of elements of the largest tensor, counting open sizes as 1.
        "open": whether any tensor has an open size.
        "groups": the groups of devices that operations across devices name, as MLIR prints them.
        "meshes": the attributes of each mesh of devices, as MLIR prints them.
        "guarded": whether an operation across devices is in a loop or condition.
        "main": the types of the arguments and results of the main function.
    """
    walk = _Walk()
    walk.visit(module.operation, "", 0, False)
    return {
        "calls": list(walk.calls.values()),
        "operations": dict(walk.operations),
        "work": walk.work(),
        "types": sorted(walk.types()),
        "comparators": list(walk.comparators.values()),
        "called": walk.called(),
        "applied": sorted(walk.applied),
        "elements": max(map(_elements, walk.shapes), default=1),
        "open": any("?" in shape for shape in walk.shapes),
        "groups": sorted(walk.groups),
        "meshes": sorted(walk.meshes),
        "guarded": walk.guarded(),
        "main": walk.main,
    }


class _Walk:
    """One walk over all operations of a module."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, Any]] = {}
        self.comparators: dict[str, dict[str, Any]] = {}
        self.applied: set[str] = set()
        self.operations: Counter[str] = Counter()
        self.shapes: set[str] = set()
        self.main: list[list[str]] | None = None
        self.groups: set[str] = set()
        self.meshes: set[str] = set()
        # Functions with operations across devices; "?" if such an operation is guarded.
        self._across: set[str] = set()
        self._guarded: set[str] = set()  # functions called in loops and conditions
        self._own: Counter[str] = Counter()  # function -> the number of operations in its body
        self._callees: dict[str, Counter[str]] = {}  # function -> callee -> number of calls
        self._types: dict[Any, str] = {}
        self._functions: dict[str, Any] = {}
        self._called: set[str] = set()  # functions that custom calls name

    def visit(self, operation: Any, function: str, depth: int, guarded: bool) -> None:
        """Records an operation of `function`, and the operations inside it.

        Args:
            guarded: whether it is in a loop or condition of that function.
        """
        if depth > _DEEPEST:
            raise ValueError(f"operations are nested more than {_DEEPEST} deep")
        name = operation.name
        self.operations[name] += 1
        types = [self._text(value.type) for value in (*operation.operands, *operation.results)]
        for text in types:
            self.shapes.update(_TENSOR.findall(text))
        if name == "func.func":
            function = self._enter(operation)
        self._own[function] += 1
        for callee in _callees(operation):
            self._callees.setdefault(function, Counter())[callee] += 1
            if guarded:
                self._guarded.add(callee)
        if name == "sdy.mesh":
            kept = [key for key in operation.attributes if key != "sym_name"]
            self.meshes.update(str(operation.attributes[key])[:10_000] for key in kept)
        if name in _ACROSS_DEVICES:
            self._across.add("?" if guarded else function)
            self.groups.add(str(operation.attributes["replica_groups"])[:10_000])
        if name in _DESCRIBED and len(self.calls) < MOST_CALLS:
            call = _call(operation, types)
            self.calls.setdefault(json.dumps(call), call)
        if name == "stablehlo.custom_call":
            self._called.update(_callees(operation))
        if name == "stablehlo.sort" and len(self.comparators) < MOST_CALLS:
            region = _comparator(operation)
            self.comparators.setdefault(json.dumps(region), region)
        inside = guarded or name in _GUARDS
        for region in operation.regions:
            for block in region.blocks:
                if name in _APPLYING:
                    self.applied.update(inner.operation.name for inner in block.operations)
                for argument in block.arguments:
                    self.shapes.update(_TENSOR.findall(self._text(argument.type)))
                for inner in block.operations:
                    self.visit(inner.operation, function, depth + 1, inside)

    def types(self) -> set[str]:
        """The element types of all tensors, and all other types, as MLIR prints them."""
        found = ((_WHOLE_TENSOR.fullmatch(text), text) for text in self._types.values())
        return {(tensor[1] if tensor else text)[:100] for tensor, text in found}

    def called(self) -> dict[str, Any]:
        """The functions that custom calls name, in the form that `_comparator` returns."""
        names = sorted(self._called & self._functions.keys())[:MOST_CALLS]
        return {name: _comparator(self._functions[name]) for name in names}

    def guarded(self) -> bool:
        """Whether an operation across devices is in a loop or condition."""
        reached, waiting = {"?"}, list(self._guarded)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self._callees.get(name, ())
        return not reached.isdisjoint(self._across)

    def _enter(self, operation: Any) -> str:
        name = _plain(operation.attributes["sym_name"])
        self._functions[name] = operation
        if name == "main":
            entry = operation.regions[0].blocks[0]
            arguments = [self._text(argument.type) for argument in entry.arguments]
            last = entry.operations[len(entry.operations) - 1]
            self.main = [arguments, [self._text(value.type) for value in last.operands]]
        return name

    def _text(self, type: Any) -> str:
        found = self._types.get(type)
        if found is None:
            found = self._types[type] = str(type)
        return found

    def work(self) -> int | None:
        """The number of operations in "main" after all calls are inlined, or None if this is
        impossible."""
        totals: dict[str, int] = {}
        open_calls: set[str] = set()
        waiting = ["main"]
        while waiting:  # no recursion: chains of calls may be long
            name = waiting[-1]
            callees = self._callees.get(name, Counter())
            missing = [callee for callee in callees if callee not in totals]
            if name not in self._own or open_calls.intersection(missing):
                return None
            if missing:
                open_calls.add(name)
                waiting.append(missing[0])
                continue
            inner = sum(totals[callee] * count for callee, count in callees.items())
            totals[name] = min(self._own[name] + inner, _MOST_OPERATIONS)
            open_calls.discard(name)
            waiting.pop()
        return totals["main"]


def _callees(operation: Any) -> list[str]:
    """The functions that an operation calls."""
    key = _CALLS.get(operation.name)
    if key is None or key not in operation.attributes:
        return []
    named = operation.attributes[key]
    return [str(one.value) for one in (named if key == "called_computations" else [named])]


def _call(operation: Any, types: list[str]) -> dict[str, Any]:
    """A custom call or composite.

    Returns:
        "target": the name of what it calls; "?" if that is not a string.
        "operands", "results": the types as MLIR prints them.
        "attributes": every other attribute by name, as MLIR prints it. Different attributes have
            different texts, so equal texts mean equal attributes.
    """
    named = _DESCRIBED[operation.name]
    texts = {key: str(operation.attributes[key])[:10_000] for key in operation.attributes}
    texts.pop(named, None)
    count = len(operation.operands)
    return {
        "operation": operation.name,
        "target": _plain(operation.attributes[named]),
        "operands": types[:count],
        "results": types[count:],
        "attributes": texts,
    }


def _comparator(operation: Any) -> dict[str, Any]:
    """The only block of an operation. Its values are numbered: the arguments, then the rows.

    Returns:
        "arguments": the types.
        "rows": for each operation its name, the numbers of its operands (-1 for a value from
            outside that is not a constant), its attributes as MLIR prints them, and the type of
            its result. Constants from outside are rows too.
        "returned": the number of the only value that is returned; -1 if there is no such value.
    """
    none: dict[str, Any] = {"arguments": [], "rows": [], "returned": -1}
    blocks = [block for region in operation.regions for block in region.blocks]
    if len(blocks) != 1 or len(blocks[0].operations) > _LONGEST_COMPARATOR:
        return none
    numbers = {value: i for i, value in enumerate(blocks[0].arguments)}
    rows: list[Any] = []

    def add(inner: Any) -> None:
        taken = [number(value) for value in inner.operands]
        texts = {key: str(inner.attributes[key])[:1000] for key in inner.attributes}
        numbers[inner.results[0]] = len(blocks[0].arguments) + len(rows)
        rows.append([inner.name, taken, texts, str(inner.results[0].type)])

    def number(value: Any) -> int:
        owner = getattr(value.owner, "operation", value.owner)
        if value not in numbers and getattr(owner, "name", "") == "stablehlo.constant":
            add(owner)
        return numbers.get(value, -1)

    *body, last = [inner.operation for inner in blocks[0].operations]
    for inner in body:
        if len(inner.results) != 1 or len(inner.regions):
            return none
        add(inner)
    returned = [number(value) for value in last.operands]
    return {
        "arguments": [str(argument.type) for argument in blocks[0].arguments],
        "rows": rows,
        "returned": returned[0] if len(returned) == 1 else -1,
    }


def _plain(attribute: Any) -> str:
    from jax.extend.mlir import ir

    return str(attribute.value) if isinstance(attribute, ir.StringAttr) else "?"


def _elements(shape: str) -> int:
    sizes = [int(size) for size in shape.split("x")[:-1] if size != "?"]
    return math.prod(max(size, 1) for size in sizes)
