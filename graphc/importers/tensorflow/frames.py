"""The loops of version 1: Enter, Merge, Switch, NextIteration and Exit nodes form a frame."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphc.importers.tensorflow.graph import Edge, TFGraph, TFNode
from graphc.importers.tensorflow.registry import Unsupported
from graphc.train.tensorflow.tensors import broken


def base_op(node: TFNode) -> str:
    """The operator; those of references (RefSwitch, ...) are those of values."""
    return node.op.removeprefix("Ref") if node.op.startswith("Ref") else node.op


def behind(graph: TFGraph, edge: Edge, *ops: str) -> Edge:
    """The edge behind identities, and behind nodes of these operators."""
    for _ in range(len(graph.nodes)):
        node = graph.nodes.get(edge.node)
        if node is None or base_op(node) not in ("Identity", *ops) or not node.inputs:
            break
        edge = node.inputs[0]
    return edge


@dataclass
class Frame:
    """One loop.

    Attributes:
        name: of the frame.
        graph: that holds it.
        condition: what LoopCond takes.
        merges: for each carried value, the Merge that starts an iteration.
        switches: the Switch of each carried value: result 1 is for the body, result 0 leaves.
        entering_carried: the first value of each.
        following: the next value of each.
        invariants: the Enter nodes of values that all iterations share.
        exits: the Exit nodes by name, with the number of the carried value.
    """

    name: str
    graph: TFGraph
    condition: Edge = field(default_factory=lambda: Edge("", 0))
    merges: list[TFNode] = field(default_factory=list)
    switches: list[TFNode | None] = field(default_factory=list)
    entering_carried: list[Edge] = field(default_factory=list)
    following: list[Edge] = field(default_factory=list)
    invariants: list[TFNode] = field(default_factory=list)
    exits: dict[str, int] = field(default_factory=dict)

    @property
    def entering(self) -> list[Edge]:
        """What the loop takes from outside."""
        return [*self.entering_carried, *(enter.inputs[0] for enter in self.invariants)]

    def edges_of(self, number: int) -> list[Edge]:
        """The edges that have a carried value in an iteration."""
        found = [Edge(self.merges[number].name, 0)]
        switch = self.switches[number]
        return found if switch is None else [*found, Edge(switch.name, 1), Edge(switch.name, 0)]

    def is_same(self, number: int, edge: Edge) -> bool:
        """Whether an iteration hands a carried value on unchanged."""
        own = self.edges_of(number)
        for _ in range(8):
            if edge in own:
                return True
            node = self.graph.nodes.get(edge.node)
            if node is None or node.op not in ("Identity", "RefIdentity") or not node.inputs:
                return False
            edge = node.inputs[0]
        return False


class Frames:
    """The loops of a graph."""

    def __init__(self, graph: TFGraph) -> None:
        self._graph = graph
        self._exits: dict[str, str] = {}  # the name of an Exit -> that of its frame
        self._enters: dict[str, list[TFNode]] = {}
        self._frames: dict[str, Frame] = {}
        self.loop_merges: set[str] = set()
        for node in graph.nodes.values():
            if base_op(node) == "Enter":
                self._enters.setdefault(self._frame_name(node), []).append(node)
            elif base_op(node) == "Merge" and self._next_iteration(node) is not None:
                self.loop_merges.add(node.name)

    def _frame_name(self, enter: TFNode) -> str:
        name = enter.attr("frame_name")
        if not isinstance(name, bytes) or len(enter.inputs) != 1:
            raise broken(f"{enter} has no frame_name, or not one input")
        return name.decode("utf-8", "replace")

    def _next_iteration(self, merge: TFNode) -> TFNode | None:
        for edge in merge.inputs:
            node = self._graph.nodes.get(edge.node)
            if node is not None and base_op(node) == "NextIteration":
                return node
        return None

    def frame_of_exit(self, node: TFNode) -> Frame:
        """The loop that an Exit leaves.

        Raises:
            Unsupported, ModelFileError: it is not a loop of TensorFlow's form.
        """
        if node.name not in self._exits:
            switch = self._graph.node(node.inputs[0].node) if node.inputs else node
            merge = self._graph.node(switch.inputs[0].node) if switch.inputs else node
            if base_op(switch) != "Switch" or base_op(merge) != "Merge":
                raise broken(f"{node} does not follow the Switch of a loop")
            enter = self._enter_of(merge)
            self._exits[node.name] = self._frame_name(enter)
        name = self._exits[node.name]
        if name not in self._frames:
            self._frames[name] = self._read(name)
        frame = self._frames[name]
        if node.name not in frame.exits:
            raise broken(f"{node} does not belong to the loop {name!r}")
        return frame

    def _enter_of(self, merge: TFNode) -> TFNode:
        for edge in merge.inputs:
            node = self._graph.node(edge.node)
            if base_op(node) == "Enter":
                return node
        raise broken(f"{merge} of a loop has no Enter")

    def _read(self, name: str) -> Frame:
        consumers = self._graph.consumers
        frame = Frame(name, self._graph)
        for enter in self._enters[name]:
            merges = [n for n in consumers.get(enter.name, ()) if base_op(n) == "Merge"]
            merges = [n for n in merges if n.name in self.loop_merges]
            if not merges:
                frame.invariants.append(enter)
                continue
            merge = merges[0]
            following = self._next_iteration(merge)
            if following is None or len(following.inputs) != 1:
                raise broken(f"{merge} of a loop has no NextIteration")
            number = len(frame.merges)
            frame.merges.append(merge)
            frame.entering_carried.append(enter.inputs[0])
            frame.following.append(following.inputs[0])
            frame.switches.append(self._switch_of(merge, frame))
            switch = frame.switches[-1]
            for node in consumers.get(switch.name, ()) if switch is not None else ():
                if base_op(node) == "Exit":
                    frame.exits[node.name] = number
        if not frame.condition.node:
            raise Unsupported("leaves a loop without a condition")
        return frame

    def _switch_of(self, merge: TFNode, frame: Frame) -> TFNode | None:
        for node in self._graph.consumers.get(merge.name, ()):
            if base_op(node) == "Switch" and len(node.inputs) == 2:
                test = self._graph.nodes.get(node.inputs[1].node)
                if test is not None and test.op == "LoopCond" and len(test.inputs) == 1:
                    frame.condition = test.inputs[0]
                    return node
        return None


def frames_of(graph: TFGraph) -> Frames:
    """The loops of version 1 in a graph."""
    if "frames" not in graph.cache:
        graph.cache["frames"] = Frames(graph)
    found: Frames = graph.cache["frames"]
    return found
