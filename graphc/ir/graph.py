"""`Graph`: the graph that the user builds. Append-only, with nodes in program order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex

from graphc.errors import AttributeValueError, GraphError, GraphFinalizedError
from graphc.ir.dim_constraints import DimConstraints
from graphc.ir.dims import DimExpr, symbol, symbols_of
from graphc.ir.lookups import Lookups
from graphc.ir.name_errors import no_member
from graphc.ir.names import Names, check_length
from graphc.ir.node import EMPTY, Attrs, Node, Tensor, describe_tensors, same_items
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ir.scopes import AMBIENT, building, requested_device
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable

if TYPE_CHECKING:
    from graphc.ir.picture import Picture

DEEPEST_NEST: Final = 24
"""How deep bodies of `cond`, `scan`, functions and the like may be nested. JAX needs about twenty
nested Python calls to lower each level, and Python allows 1,000."""


class Graph(Lookups):
    """A static graph under construction.

    Args:
        seed: the seed of initial values and of every random operator's stream.
        name: for print-outs.

    Raises:
        AttributeValueError: `seed` is not an integer, or `name` is not a string or is too long.

    Enter the graph to build it (`with graph:`). The first run finalizes it; `with graph.extend():`
    opens it again. A body (of `scan`, ...) is a child graph. If it uses tensors of its ancestors,
    they become explicit inputs, which `captures` lists.

    Examples:
        >>> with gc.Graph(seed=1, name="squares") as squares:
        ...     x = gc.placeholder((), name="x")
        ...     y = gc.square(x, name="y")
        >>> squares
        <Graph squares: 2 nodes, 0 variables>
        >>> gc.Session(squares).run("y:0", {"x": 3.0})
        Array(9., dtype=float32)
    """

    def __init__(self, seed: int = 0, name: str = "graph", *, parent: Graph | None = None) -> None:
        self.name = _checked_name(name)
        self.seed = _checked_seed(seed)
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        if self.depth > DEEPEST_NEST:
            raise GraphError(
                f"the body {name!r} is nested {self.depth} deep in other bodies; at most "
                f"{DEEPEST_NEST} are allowed",
                source=AMBIENT.source or current_source(),
                hint="a function that calls itself to build a body never ends, because it runs "
                "while the graph is built; for repetition use gc.scan or gc.while_loop",
            )
        self.root: Graph = self if parent is None else parent.root
        self.nodes: list[Node] = []
        self.inputs: list[Tensor] = []  # of a child: its parameters, then its captures
        self.captures: dict[Tensor, Tensor] = {}  # outer tensor -> the input that represents it
        self.finalized = False
        self._has_run = False  # the same, but `extend()` does not change it
        self._extending = 0
        self._by_name: dict[str, Node] = {}
        self._producers: dict[Tensor, Node] = {}
        self._entered: list[AbstractContextManager[Graph]] = []
        # A graph and its bodies share these, so only those of the root are used.
        self.variables: dict[str, Variable] = {} if parent is None else parent.root.variables
        self.constraints: DimConstraints = (
            DimConstraints() if parent is None else parent.root.constraints
        )
        self._names: Names = Names() if parent is None else parent.root._names
        # Objects that are created once for a graph and its bodies, such as the bodies of functions.
        self.memo: dict[Any, Any] = {} if parent is None else parent.root.memo
        self._collections: dict[str, list[Any]] = {}
        self.draws = 0  # the number of random operators made so far in the whole graph
        # variable -> its last read; valid until the next assignment
        self.last_reads: dict[Variable, Tensor] = {}

    # -- building ---------------------------------------------------------------------------

    def __enter__(self) -> Graph:
        scope = building(self)
        self._entered.append(scope)
        return scope.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._entered.pop().__exit__(*exc)

    def add(
        self,
        op: OpDef,
        inputs: Sequence[Tensor] = (),
        attrs: Attrs = EMPTY,
        regions: tuple[Program, ...] = (),
        name: str | None = None,
    ) -> Node:
        """Appends a node, infers its types and records the user's line.

        Raises:
            ShapeError, DTypeError, AttributeValueError: the operands or attributes do not fit.
            GraphFinalizedError: the graph has run and is not being extended.
        """
        source = AMBIENT.source or current_source()
        if self.root.finalized:
            raise GraphFinalizedError(
                f"{op.name}: the graph has run, so nodes can no longer be added",
                source=source,
                hint="build the whole graph before the first run, or add nodes inside "
                "`with graph.extend():`",
            )
        operands = tuple(inputs)
        for tensor in operands:
            if tensor.graph is not self:
                operands = tuple(self.adopt(t) for t in operands)
                break
        attrs = op.complete(attrs, source)
        before = self.constraints.snapshot()
        try:
            types = op.infer_types(operands, attrs, self.constraints, source, regions)
        except BaseException:
            self.constraints.restore(before)
            raise
        full_name = self.unique_name(name or op.name)
        outputs = tuple([Tensor(type, f"{full_name}:{i}", self) for i, type in enumerate(types)])
        node = Node(
            op, operands, outputs, attrs, regions, full_name, source,
            requested_device(op.name, full_name, types), AMBIENT.control_inputs,
        )  # fmt: skip
        self.nodes.append(node)
        self._by_name[full_name] = node
        for tensor in outputs:
            self._producers[tensor] = node
        return node

    def restore(self, node: Node) -> None:
        """Appends a complete node. The parser and the loader create such nodes.

        Reserves the name of the node, the names in its regions and the named sizes of its results.

        Raises:
            GraphError: there is already a node of that name.
        """
        if node.name in self._by_name:
            raise GraphError(f"two nodes have the name {node.name!r}", source=node.source)
        check_length(node.name, source=node.source)
        self.nodes.append(node)
        self._by_name[node.name] = node
        self._names.reserve(node.name)
        for region in node.regions:
            for inner in region.walk():
                self._names.reserve(inner.name)
        for tensor in node.outputs:
            tensor.graph = self
            self._producers[tensor] = node
            for dim in tensor.type.shape:
                for name in symbols_of(dim):
                    self._names.reserve(name)

    def restore_variable(self, variable: Variable) -> None:
        """Adds a complete variable.

        Raises:
            GraphError: there is already a variable of that name.
        """
        if variable.name in self.variables:
            raise GraphError(
                f"two variables have the name {variable.name!r}", source=variable.source
            )
        check_length(variable.name, source=variable.source)
        self.variables[variable.name] = variable
        self._names.reserve(variable.name)

    def adopt(self, tensor: Tensor) -> Tensor:
        """`tensor` as an operand in this graph: itself, or the input that captures an outer tensor.

        Raises:
            GraphError: the tensor belongs to another graph.
        """
        if tensor.graph is self:
            return tensor
        captured = self.captures.get(tensor)
        if captured is not None:
            return captured
        if self.parent is None:
            other = "another graph" if tensor.graph is not None else "no graph"
            raise GraphError(
                f"tensor {tensor.name!r} belongs to {other}",
                details=describe_tensors({"tensor": tensor}),
                source=AMBIENT.source or current_source(),
                hint="a body's tensors can be used inside that body only; return them from it"
                if tensor.graph is not None and tensor.graph.root is self.root
                else "build both in one graph, or feed its value",
            )
        self.parent.adopt(tensor)  # every graph in between captures it too
        captured = self.add_input(tensor.type, tensor.name)
        self.captures[tensor] = captured
        return captured

    def add_input(self, type: TensorType, name: str) -> Tensor:
        """A new input of a body."""
        tensor = Tensor(type, name, self)
        self.inputs.append(tensor)
        return tensor

    def replace_node(self, old: Node, new: Node) -> None:
        """Replaces `old` by `new`, which must define the same tensors, and may define more.

        Only for adding results to an existing node (the saved values of a `scan`). Users see no
        difference.
        """
        if not same_items(new.outputs[: len(old.outputs)], old.outputs):
            raise GraphError(f"{old.name}: a replacement must keep the results")
        self.nodes[self.nodes.index(old)] = new
        self._by_name[old.name] = new
        for tensor in new.outputs:
            tensor.graph = self
            self._producers[tensor] = new

    def unique_name(self, base: str) -> str:
        """`base` in the current name scope, with a suffix `_1`, `_2`, ... if it is already used.

        Raises:
            AttributeValueError: `base` is not a text, or contains `:`, which precedes the number of
                a result.

        Examples:
            >>> y = gc.constant(1, name="y")
            >>> graph.unique_name("y"), graph.unique_name("z")
            ('y_1', 'z')
        """
        given: object = base
        if not isinstance(given, str) or ":" in given:
            raise AttributeValueError(
                f"{base!r} is not a name",
                source=AMBIENT.source or current_source(),
                hint='pass a text without ":", such as name="hidden"',
            )
        return self._names.unique(AMBIENT.name_scope + base)

    def fresh_dim(self, base: str) -> DimExpr:
        """A new named size: the meaning of `None` in a shape.

        Examples:
            >>> gc.placeholder((graph.fresh_dim("rows"), 4), name="x").shape
            (rows, 4)
        """
        return symbol(self._names.unique((AMBIENT.name_scope + base).replace("/", ".")))

    def next_draw(self) -> int:
        """The number of the next random operator of the whole graph: its default seed."""
        self.root.draws += 1
        return self.root.draws

    # -- finalizing -------------------------------------------------------------------------

    def finalize(self) -> None:
        """After this call, nodes can be added only inside `extend()`. The first run does this.

        Examples:
            >>> done = gc.Graph(name="done")
            >>> done.finalize()
            >>> done
            <Graph done: 0 nodes, 0 variables, finalized>
        """
        self.root._has_run = True
        self.root.finalized = not self.root._extending

    @contextmanager
    def extend(self) -> Iterator[Graph]:
        """Opens a finalized graph again, and enters it. Existing executables stay valid.

        Runs inside do not finalize it.

        Examples:
            >>> with gc.Graph() as g:
            ...     x = gc.constant(2.0)
            >>> session = gc.Session(g)
            >>> session.run(x)
            Array(2., dtype=float32)
            >>> with g.extend():
            ...     y = x * 10
            >>> session.run(y)
            Array(20., dtype=float32)
        """
        root = self.root
        root._extending += 1
        root.finalized = False
        try:
            with building(self):
                yield self
        finally:
            root._extending -= 1
            root.finalized = root._has_run and not root._extending

    def __len__(self) -> int:
        return len(self.nodes)

    def show(self, depth: int = 0, path: str | Path | None = None) -> Picture:
        """A picture of the graph, which notebooks display; name scopes are folded into one box.

        Args:
            depth: how many levels of scopes are open: 0 shows the outermost scopes as boxes.
            path: a file to write, `.svg` or `.html`.

        Raises:
            AttributeValueError: `depth` is not an int of at least 0, or another ending of `path`.
            GraphcError: the file cannot be written.

        Examples:
            >>> with gc.Graph(name="empty") as empty:
            ...     pass
            >>> empty.show()
            <Picture of empty: 0 nodes: a notebook shows it, save(path) writes HTML or SVG>
        """
        from graphc.ir.picture import picture

        shown = picture(self, depth)
        if path is not None:
            shown.save(path)
        return shown

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def __getattr__(self, name: str) -> NoReturn:
        raise no_member(self, ["Graph"], name)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes, {len(self.variables)} variables" + (
            ", finalized>" if self.finalized else ">"
        )


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise AttributeValueError.here(
            f"Graph: name must be a str, got {name!r}", hint='gc.Graph(seed=1, name="model")'
        )
    check_length(name, "name of a graph")
    return name


def _checked_seed(seed: object) -> int:
    if isinstance(seed, SupportsIndex):
        return index(seed)
    raise AttributeValueError.here(
        f"Graph: seed must be an int, got {seed!r}",
        hint=f"gc.Graph(name={seed!r})" if isinstance(seed, str) else "gc.Graph(seed=1)",
    )
