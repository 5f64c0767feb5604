"""Makes graphs functional: operators that change their operands become ones that do not.

`torch.export` leaves such operators in a program. A view of a tensor changes with it, so a change
of a view is put into the tensor that it is a view of, and views of a changed tensor are taken
again where they are used next. This is what `run_decompositions` of PyTorch does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from graphc.importers.torch.archive.graphs import Graph, GraphModule, Node, link, mapped, nodes_in
from graphc.importers.torch.archive.views import UNSURE, VIEW, has_alias, put_back
from graphc.importers.torch.table import RULES

_IN_PLACE: Final = re.compile(r"(aten\.\w*[^\W_])_\.(\w+)")
_OUT: Final = re.compile(r"aten\.\w+\.(\w+_)?out")
_OTHER_NAMES: Final = {
    "aten.bernoulli_.float": "aten.bernoulli.p",
    "aten.normal_.default": "aten.normal_functional.default",
    "aten.zero_.default": "aten.zeros_like.default",
}
_RESHAPING: Final = re.compile(
    r"aten\.(as_strided|resize|set|squeeze|swapaxes|swapdims|t|transpose|unsqueeze)_\."
)
NORMS: Final = {  # operator -> the place of its argument `training`
    "aten._native_batch_norm_legit.default": 5,
    "aten.batch_norm.default": 5,
    "aten.instance_norm.default": 5,
    "aten.native_batch_norm.default": 5,
}
_LARGEST: Final = 1000  # tensors that may share memory
_GROWTH: Final = 20  # new nodes for each node of the file


def make_functional(module: GraphModule, held: Mapping[str, str]) -> list[str]:
    """Changes a graph, and the graphs in it. What cannot be changed is marked as refused.

    Args:
        held: placeholder -> the parameter or buffer that it is. Other placeholders cannot be
            changed.

    Returns:
        The names of the changed ones, whose new values are further results of the graph.
    """
    return _functional(module, held).changed


def _functional(module: GraphModule, held: Mapping[str, str]) -> _Pass:
    pass_ = _Pass(module.graph, held)
    pass_.run()
    module.graph = Graph(pass_.nodes)
    return pass_


class _Pass:
    """One pass over a graph.

    Attributes:
        nodes: the new nodes.
        changed: the names of the changed parameters and buffers.
    """

    def __init__(self, graph: Graph, held: Mapping[str, str]) -> None:
        self._graph, self._held = graph, held
        self._same: dict[Node, Node] = {}  # the result of a change -> what it changed
        self._source: dict[Node, Node] = {}  # view -> what it is a view of
        self._roots: dict[Node, Node] = {}  # view -> what all is a view of
        self._version: dict[Node, int] = {}  # root -> the number of changes
        self._now: dict[Node, tuple[Node, int]] = {}  # node -> its value after some changes
        self._unsure: dict[Node, set[Node]] = {}  # roots that may share memory
        self._members: dict[Node, list[Node]] = {}  # root -> its views
        self._last: dict[Node, int] = {}  # node -> the place of its last use
        self._results: list[Node] = []
        self._place = 0
        self.nodes: list[Node] = []
        self.changed: list[str] = []

    def run(self) -> None:
        nodes = self._graph.nodes
        bases: dict[Node, Node] = {}  # the result of a change -> what was changed first
        for place, node in enumerate(nodes):
            for operand in nodes_in([node.args, node.kwargs]):
                self._last[operand] = self._last[bases.get(operand, operand)] = place
            if _IN_PLACE.fullmatch(node.target):
                for changed in nodes_in(list(node.args[:1])):
                    bases[node] = bases.get(changed, changed)
        for place, node in enumerate(nodes):
            self._place = place
            self._visit(node)
            if len(self.nodes) > _GROWTH * (len(nodes) + 50):
                raise ValueError("views are changed too often")
        output = self.nodes[-1]
        for node in nodes:
            if node.op == "placeholder" and self._version.get(node):
                self.changed.append(self._held[node.name])
                output.args[0].append(self._value(node))
        for node in self.nodes:
            node.users = {}
        link(self.nodes)

    def _visit(self, node: Node) -> None:
        original = list(node.args)
        if node.op == "output":
            self._results = list(nodes_in(original))
        node.args = mapped(node.args, self._value)
        node.kwargs = mapped(dict(node.kwargs), self._value)
        for body in (*node.args, *node.kwargs.values()):
            if isinstance(body, GraphModule):
                node.meta["fresh"] = _functional(body, {}).has_fresh_results()
        in_place = _IN_PLACE.fullmatch(node.target)
        if in_place:
            self._change(node, original, "".join((in_place[1], ".", in_place[2])))
        elif _OUT.fullmatch(node.target):
            self._refuse(node, "writes to one of its arguments")
        elif node.target in NORMS and original[NORMS[node.target]] and len(original) > 4:
            self._norm(node, original)
        else:
            self.nodes.append(node)
            self._note_views(node, original)

    def _note_views(self, node: Node, original: list[Any]) -> None:
        kind = has_alias(node)
        for operand in nodes_in(original):
            operand = self._same.get(operand, operand)
            if kind == VIEW:
                self._source[node] = operand
                root = self._roots[node] = self._root(operand)
                self._members.setdefault(root, []).append(node)
                self._now[node] = (node, self._version.get(root, 0))
                return
            if kind == UNSURE:
                a, b = node, self._root(operand)
                self._unsure.setdefault(a, set()).add(b)
                self._unsure.setdefault(b, set()).add(a)

    def _change(self, node: Node, original: list[Any], target: str) -> None:
        """An operator that changes its first argument."""
        target = _OTHER_NAMES.get(node.target, target)
        changed = original[0] if original else None
        if not isinstance(changed, Node) or _RESHAPING.match(node.target):
            return self._refuse(node, "changes its operand in a way that is not supported")
        changed = self._same.get(changed, changed)
        if target == "aten.detach.default":
            node.target = target
            self.nodes.append(node)
            return self._note_views(node, original)
        if target not in RULES:
            self.nodes.append(node)  # and the importer refuses it
            return None
        node.target = target
        self.nodes.append(node)
        why = self._write(changed, node)
        if why:
            node.meta["refused"] = why
        self._same[node] = changed
        return None

    def _refuse(self, node: Node, why: str) -> None:
        node.meta["refused"] = why
        self.nodes.append(node)

    def _norm(self, node: Node, original: list[Any]) -> None:
        """A batch norm in training mode, which changes its moving averages."""
        if not any(isinstance(moved, Node) for moved in original[3:5]):
            self.nodes.append(node)
            return
        if node.target != "aten.batch_norm.default":
            self._refuse(node, "changes its moving averages")
            return
        meta = {**node.meta, "val": [node.meta.get("val"), *[None] * 4]}
        target = "aten._native_batch_norm_legit_functional.default"
        whole = Node("call_function", node.name, target, node.args[:8], {}, meta)
        self.nodes.append(whole)
        for place, moved in ((3, original[3]), (4, original[4])):
            if isinstance(moved, Node):
                moved = self._same.get(moved, moved)
                item = self._made("getitem", [whole, place], moved)
                why = self._write(moved, item)
                if why:
                    whole.meta["refused"] = why
        node.target, node.args, node.kwargs = "getitem", [whole, 0], {}
        self.nodes.append(node)

    def _made(self, target: str, args: list[Any], like: Node) -> Node:
        meta = {key: value for key, value in like.meta.items() if key != "refused"}
        made = Node("call_function", like.name, target, args, {}, meta)
        self.nodes.append(made)
        return made

    def _root(self, node: Node) -> Node:
        return self._roots.get(node, node)

    def _value(self, node: Node) -> Node:
        """The node that has the value of `node` now."""
        node = self._same.get(node, node)
        chain = [node]
        version = self._version.get(self._root(node), 0)
        while (found := self._now.get(chain[-1], (chain[-1], 0)))[1] != version:
            chain.append(self._source[chain[-1]])
        value = found[0]
        for view in reversed(chain[:-1]):  # taken again
            fresh = self._made(view.target, [value, *view.args[1:]], view)
            fresh.kwargs = view.kwargs
            self._now[view] = (fresh, version)
            value = fresh
        return value

    def _write(self, node: Node, value: Node) -> str:
        """Gives a tensor a new value. Returns why this is not possible, or ""."""
        root = self._root(node)
        if root.op == "placeholder" and root.name not in self._held:
            return "changes an input or a constant of its graph"
        if self._may_be_seen(root):
            return "changes a tensor that may share its memory with another one that is used later"
        version = self._version.get(root, 0) + 1
        written = [(node, value)]
        while node in self._source:
            source = self._source[node]
            put = put_back(node, self._value(source), value)
            if put is None:
                maker = source if node.target == "getitem" else node
                return f"changes a view that {maker.target} makes"
            target, args = put
            value, node = self._made(target, args, source), source
            written.append((node, value))
        for view, its_value in written:
            self._now[view] = (its_value, version)
        self._version[root] = version
        return ""

    def has_fresh_results(self) -> bool:
        """Whether no result shares memory with another one, or with a placeholder."""
        seen: set[Node] = set()
        for result in self._results:
            group = self._group(self._root(self._same.get(result, result)))
            if seen & group or any(node.op == "placeholder" for node in group):
                return False
            seen |= group
        return True

    def _group(self, root: Node) -> set[Node]:
        """The roots that may share memory with this one, and itself."""
        seen, waiting = {root}, [root]
        while waiting and len(seen) <= _LARGEST:
            new = self._unsure.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen

    def _may_be_seen(self, root: Node) -> bool:
        """Whether a tensor that may share memory with this one is used after this node."""
        group = self._group(root) - {root}
        if len(group) > _LARGEST:
            return True
        for other in group:
            used = [self._last.get(n, 0) for n in (other, *self._members.get(other, ()))]
            if other.op == "placeholder" or max(used) > self._place:
                return True
        return False
