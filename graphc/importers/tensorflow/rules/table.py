"""All rules in one table, by the name of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from graphc.importers.tensorflow.branches import FunctionBranch, LoneSwitch, SwitchMerge
from graphc.importers.tensorflow.evaluation import Special
from graphc.importers.tensorflow.functions import IGNORED, FunctionCall, Ignored
from graphc.importers.tensorflow.loops import FrameEnter, FrameExit, FunctionLoop
from graphc.importers.tensorflow.registry import Rule
from graphc.importers.tensorflow.rules import (
    elementwise,
    gradients,
    host,
    images,
    indexing,
    lists,
    matrices,
    networks,
    programs,
    quantization,
    randomness,
    reductions,
    shapes,
    state,
    strings,
    tables,
    training,
)

FAMILIES = (
    elementwise,
    reductions,
    shapes,
    indexing,
    matrices,
    networks,
    images,
    randomness,
    state,
    lists,
    tables,
    quantization,
    gradients,
    training,
    programs,
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {name: rule for family in FAMILIES for name, rule in family.FAMILY.rules.items()}
)

_LOOP, _BRANCH, _MERGE = FunctionLoop(), FunctionBranch(), SwitchMerge()
SPECIAL: Mapping[str, Special] = MappingProxyType(
    {
        "PartitionedCall": FunctionCall(), "StatefulPartitionedCall": FunctionCall(),
        "While": _LOOP, "StatelessWhile": _LOOP, "If": _BRANCH, "StatelessIf": _BRANCH,
        "Case": _BRANCH, "StatelessCase": _BRANCH, "Enter": FrameEnter(), "RefEnter": FrameEnter(),
        "Exit": FrameExit(), "RefExit": FrameExit(), "Merge": _MERGE, "RefMerge": _MERGE,
        "Switch": LoneSwitch(), "RefSwitch": LoneSwitch(), **dict.fromkeys(IGNORED, Ignored()),
    }
)  # fmt: skip
"""Control flow: operators whose inputs are not simply evaluated before them."""

CUT: frozenset[str] = frozenset(
    (
        "Placeholder", "PlaceholderV2", "IteratorGetNext", "IteratorGetNextSync",
        "IteratorFromStringHandle", "QueueDequeueV2", "QueueDequeue", "QueueDequeueManyV2",
        "QueueDequeueMany", "QueueDequeueUpToV2", "ReaderReadV2", "ReaderRead",
        "ReaderReadUpToV2", "ReadFile", "ParseExample", "ParseExampleV2", "ParseSingleExample",
        "DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeGif", "Unstage",
        "FIFOQueueV2", "GetSessionTensor",
    )
)  # fmt: skip
"""What reads files, queues and iterators: the model's inputs begin at their results."""


class _Tables:
    rules = RULES
    host: Mapping[str, Any] = host.HOST
    special = SPECIAL
    writes = frozenset((*state.WRITES, *training.FAMILY.rules))
    results_of_strings = staticmethod(strings.results_of_strings)


TABLES = _Tables()


def operators_by_family() -> dict[str, list[str]]:
    """The names of the operators that are imported, by the first words of their file."""
    found = {
        (family.__doc__ or "").partition(".")[0].replace("\n", " "): sorted(family.FAMILY.rules)
        for family in FAMILIES
    }
    found["Control flow, functions, and what computes nothing"] = sorted(
        {*SPECIAL, "NextIteration", "RefNextIteration", "LoopCond"}
    )
    found["At import only"] = sorted(host.HOST.keys() - RULES.keys())
    found["Cut off: their results are inputs"] = sorted(CUT)
    return found


def output_index(op: str, argument: str) -> int | None:
    """The position of an output argument of an operator; None if it has only one."""
    rule = RULES.get(op)
    if rule is None or argument not in rule.outputs:
        return None
    return rule.outputs.index(argument)
