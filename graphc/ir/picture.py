"""A picture of a graph for notebooks and browsers: `graph.show()`.

Nodes with a common name scope are one box. Boxes are placed in layers, from inputs to results.
The bodies of loops and branches are not drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from graphc.errors import AttributeValueError, GraphcError

if TYPE_CHECKING:
    from graphc.ir.graph import Graph
    from graphc.ir.node import Node

_MOST_BOXES = 300
_WIDTH, _HEIGHT = 150, 40  # of a box, in pixels
_GAP_X, _GAP_Y = 24, 46
_COLORS = {"Placeholder": "#dbeafe", "ReadVariable": "#fef3c7", "Assign": "#fee2e2"}
_SCOPE_COLOR, _NODE_COLOR = "#e5e7eb", "#ffffff"

# The mouse wheel zooms, and dragging moves. Without scripts, the picture is fixed.
_SCRIPT = """
const svg = document.querySelector("svg"), box = svg.viewBox.baseVal;
svg.addEventListener("wheel", e => {
  e.preventDefault();
  const f = e.deltaY > 0 ? 1.15 : 1 / 1.15, r = svg.getBoundingClientRect();
  box.x += box.width * (1 - f) * (e.clientX - r.left) / r.width;
  box.y += box.height * (1 - f) * (e.clientY - r.top) / r.height;
  box.width *= f; box.height *= f;
}, {passive: false});
svg.addEventListener("mousemove", e => {
  if (!e.buttons) return;
  const scale = Math.max(box.width / svg.clientWidth, box.height / svg.clientHeight);
  box.x -= e.movementX * scale; box.y -= e.movementY * scale;
});
"""


@dataclass(frozen=True, repr=False)
class Picture:
    """The result of `graph.show()`. Notebooks display it.

    Attributes:
        svg: the picture as SVG.
        title: the graph's name and its number of nodes.
    """

    svg: str
    title: str

    def html(self) -> str:
        """A page with the picture; the mouse wheel zooms, dragging moves."""
        return (
            f"<!DOCTYPE html><html><head><meta charset='utf-8'><title>{escape(self.title)}</title>"
            "<style>html, body {margin: 0; height: 100%} svg {width: 100%; height: 100%}</style>"
            f"</head><body>{self.svg}<script>{_SCRIPT}</script></body></html>"
        )

    def save(self, path: str | Path) -> None:
        """Writes the SVG, or the page if the name ends in `.html`.

        Raises:
            AttributeValueError: the name has another ending.
            GraphcError: the file cannot be written.
        """
        ending = Path(path).suffix.lower()
        if ending not in (".svg", ".html"):
            raise AttributeValueError.here(
                f"a picture of a graph is .svg or .html, got {str(path)!r}",
                hint='write picture.save("graph.svg")',
            )
        try:
            text = self.svg if ending == ".svg" else self.html()
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise GraphcError.here(
                f"cannot write {str(path)!r}: {error.strerror or error}",
                hint="give a file in a folder that exists",
            ) from error

    def _repr_html_(self) -> str:
        page = escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 420px; border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"<Picture of {self.title}: a notebook shows it, save(path) writes HTML or SVG>"


@dataclass(eq=False)
class _Box:
    """A node, or the nodes of a scope."""

    title: str
    nodes: list[Node] = field(default_factory=list)
    inputs: dict[_Box, str] = field(default_factory=dict)  # producer -> the first value it gives
    layer: int = 0
    x: float = 0.0

    @property
    def y(self) -> float:
        return self.layer * (_HEIGHT + _GAP_Y)


def _instead(depth: object) -> str:
    if isinstance(depth, str):
        return f"graph.show(path={depth!r}) writes a file"
    return "0 shows the outermost scopes; each further level opens one level of scopes"


def picture(graph: Graph, depth: int) -> Picture:
    """The picture of `graph`; see `Graph.show`."""
    if type(depth) is not int or depth < 0:
        raise AttributeValueError.here(
            f"Graph.show: depth must be an int of at least 0, got {depth!r}", hint=_instead(depth)
        )
    boxes = _boxes(graph, depth)
    left_out = len(boxes) - _MOST_BOXES
    boxes = boxes[:_MOST_BOXES]
    _place(boxes)
    count = len(graph.nodes)
    title = f"{graph.name}: {count} node{'' if count == 1 else 's'}"
    note = f"{left_out} more boxes are not shown: use name scopes, or a smaller depth"
    return Picture(_svg(boxes, note if left_out > 0 else ""), title)


def _boxes(graph: Graph, depth: int) -> list[_Box]:
    by_title: dict[str, _Box] = {}
    box_of: dict[Node, _Box] = {}
    paths = [node.name.split("/") for node in graph.nodes]
    folded = {"/".join(path[: depth + 1]) for path in paths if len(path) > depth + 1}
    for node, path in zip(graph.nodes, paths, strict=True):
        title = "/".join(path[: depth + 1])
        if title in folded:  # a node may also have the name of a scope: the result of gc.minimize
            title += "/"
        box = by_title.setdefault(title, _Box(title))
        box.nodes.append(node)
        box_of[node] = box
        for producer, text in _producers(graph, node):
            source = box_of.get(producer)
            if source is not None and source is not box:
                box.inputs.setdefault(source, text)
    return list(by_title.values())


def _producers(graph: Graph, node: Node) -> Iterator[tuple[Node, str]]:
    """The nodes that run before `node`, each with the value it gives to `node`."""
    for tensor in node.inputs:
        producer = graph.find_producer(tensor)
        if producer is not None:
            yield producer, tensor.type.shown()
    for name in node.control_inputs:
        yield graph.node(name), "runs before it"


def _place(boxes: list[_Box]) -> None:
    """Gives each box its layer and its position in the layer.

    Boxes of scopes may depend on each other in cycles. So only inputs from boxes that begin earlier
    move a box down.
    """
    layers: dict[int, list[_Box]] = {}
    rank = {box: i for i, box in enumerate(boxes)}
    for box in boxes:
        before = [source for source in box.inputs if rank.get(source, len(boxes)) < rank[box]]
        box.layer = 1 + max((source.layer for source in before), default=-1)
        layers.setdefault(box.layer, []).append(box)
    for _, row in sorted(layers.items()):
        row.sort(key=_mean_of_inputs)  # stable: boxes without inputs keep their order
        width = len(row) * (_WIDTH + _GAP_X) - _GAP_X
        for i, box in enumerate(row):
            box.x = i * (_WIDTH + _GAP_X) - width / 2


def _mean_of_inputs(box: _Box) -> float:
    places = [source.x for source in box.inputs if source.layer < box.layer]
    return sum(places) / len(places) if places else 0.0


def _svg(boxes: list[_Box], note: str) -> str:
    shown = set(boxes)
    left = min((box.x for box in boxes), default=0) - _GAP_X
    right = max((box.x + _WIDTH for box in boxes), default=_WIDTH) + _GAP_X
    bottom = max((box.y + _HEIGHT for box in boxes), default=0) + _GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} {-_GAP_Y} {right - left:g} '
        f'{bottom + _GAP_Y:g}" width="{right - left:g}" height="{bottom + _GAP_Y:g}" '
        'font-family="sans-serif" font-size="11">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#6b7280"/></marker></defs>',
        *(_line(source, box, text) for box in boxes for source, text in box.inputs.items()
          if source in shown),
        *map(_rectangle, boxes),
    ]  # fmt: skip
    if note:
        parts.append(f'<text x="{left + _GAP_X:g}" y="{bottom - 10:g}">{escape(note)}</text>')
    return "\n".join([*parts, "</svg>"])


def _line(source: _Box, box: _Box, text: str) -> str:
    dashes = "" if source.layer < box.layer else ' stroke-dasharray="4 3"'
    start = (source.x + _WIDTH / 2, source.y + _HEIGHT)
    end = (box.x + _WIDTH / 2, box.y)
    bend = _GAP_Y * 0.6
    path = (
        f"M{start[0]:g} {start[1]:g}C{start[0]:g} {start[1] + bend:g} "
        f"{end[0]:g} {end[1] - bend:g} {end[0]:g} {end[1]:g}"
    )
    return (
        f'<path d="{path}" fill="none" stroke="#9ca3af"{dashes} marker-end="url(#end)">'
        f"<title>{escape(f'{source.title} to {box.title}: {text}')}</title></path>"
    )


def _rectangle(box: _Box) -> str:
    first = box.nodes[0]
    if box.title.endswith("/"):
        color, below = _SCOPE_COLOR, f"{len(box.nodes)} node{'s' * (len(box.nodes) > 1)}"
    else:
        color = _COLORS.get(first.op.name, _NODE_COLOR)
        below = ", ".join(t.type.shown() for t in first.outputs) or first.op.name
    middle = box.x + _WIDTH / 2
    return (
        f'<g><title>{escape(_facts(box))}</title><rect x="{box.x:g}" y="{box.y:g}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{color}" stroke="#6b7280"/>'
        f'<text x="{middle:g}" y="{box.y + 16:g}" text-anchor="middle">'
        f"{escape(_short(box.title.rstrip('/')))}</text>"
        f'<text x="{middle:g}" y="{box.y + 31:g}" text-anchor="middle" fill="#6b7280">'
        f"{escape(_short(below))}</text></g>"
    )


def _facts(box: _Box) -> str:
    """The tooltip: a node and the user's line, or how many nodes each operator has."""
    if not box.title.endswith("/"):
        return f"{box.nodes[0]!r}\n{box.nodes[0].source or ''}".strip()
    counts = Counter(node.op.name for node in box.nodes).most_common(12)
    return "\n".join([box.title, *(f"{count} x {name}" for name, count in counts)])


def _short(text: str) -> str:
    return text if len(text) <= 24 else text[:11] + "…" + text[-12:]
