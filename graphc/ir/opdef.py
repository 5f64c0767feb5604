"""`OpDef`: one record with everything about one operator.

The functions of a record share one calling convention: first a context, then the operands as
positional arguments, then the node's attributes as keyword arguments.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from graphc.errors import AttributeValueError, DTypeError, GraphcError, ShapeError, nearest
from graphc.ir.attr_kinds import KINDS, WITHOUT_SIZES
from graphc.ir.costs import CostRule, one_per_result
from graphc.ir.dim_constraints import DimConstraints
from graphc.ir.dims import Dim, Shape
from graphc.ir.dtypes import DType, is_complex
from graphc.ir.functions import Functions
from graphc.ir.hints import usual_hint
from graphc.ir.layouts import LayoutRule, is_of_elements
from graphc.ir.node import EMPTY, Tensor, describe_tensors
from graphc.ir.rows import ByRows, by_rows
from graphc.ir.source import Source
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.node import Node
    from graphc.ir.program import Program


class Effects(enum.Flag):
    """Side effects of an operator: everything except computing its results from its operands."""

    PURE = 0
    READ = enum.auto()  # reads the variable named by the attribute `variable`
    WRITE = enum.auto()  # assigns it
    RANDOM = enum.auto()  # draws from the run's random key
    HOST = enum.auto()  # prints or calls back to Python: ordered, never removed once selected
    FEED = enum.auto()  # gets its value from the caller: a placeholder


PURE = Effects.PURE

# How an operator takes part in mixed precision: see `OpDef.precision`.
PRECISIONS = ("narrow", "follow", "inside", "wide")

REQUIRED: Any = object()


@dataclass(frozen=True)
class Attr:
    """One attribute of an operator.

    Attributes:
        kind: one of int, float, bool, str, dtype, dim, ints, dims, pairs (a tuple of tuples of
            dims), spec (see `ir.sharding`), array (a NumPy array), attrs (another operator's
            attributes), function (a Python function; its text form cannot be parsed).
        default: the value used if none is given; `REQUIRED` means there is no default. None is
            allowed as a value if it is the default.
        check: a predicate that the value must satisfy in addition to the kind.
        must: the wording of that requirement in an error.
        hint: how to fix a value that does not meet it.
    """

    kind: str
    default: Any = REQUIRED
    check: Callable[[Any], bool] | None = None
    must: str = ""
    doc: str = ""
    hint: str = ""

    def accepts(self, value: Any) -> bool:
        if value is None:
            return self.default is None
        return KINDS[self.kind](value) and (self.check is None or self.check(value))


@dataclass(eq=False, repr=False, slots=True)
class InferContext:
    """The context of `infer`: broadcasting, equal dims, and errors that name the operands."""

    op: OpDef
    inputs: Sequence[Tensor]
    constraints: DimConstraints
    source: Source | None = None
    regions: Sequence[Program] = ()

    def unify(self, a: Dim, b: Dim, what: str, *, hint: str | None = None) -> Dim:
        """Requires `a == b` and returns the known size of the two. If a size is not known, the
        equality is recorded.

        Raises:
            ShapeError: two known sizes differ. `what` names them, e.g. "inner dimensions".
        """
        if a is b or a == b:
            return a
        if not self.constraints.unify(a, b):
            self.fail(f"{what} differ, {a} and {b}", hint=hint)
        return self.constraints.find(a)

    def unify_types(self, given: TensorType, wanted: TensorType, what: str) -> None:
        """Requires equal dtypes and equal shapes. Unknown sizes are recorded as equal.

        Raises:
            ShapeError, DTypeError: the types differ. The error calls `given` by the name `what`,
                e.g. "dy".
        """
        if given == wanted:
            return
        alike = given.dtype == wanted.dtype
        self.require(
            alike and self.constraints.unify_shapes(given.shape, wanted.shape),
            f"{what} must be {wanted}, got {given}",
            dtype=not alike,
        )

    def broadcast(self, *shapes: Shape) -> Shape:
        """The shape that `shapes` broadcast to, as in NumPy. A named size never counts as 1."""
        first = shapes[0]
        if all(shape == first for shape in shapes):
            return first
        rank = max(map(len, shapes))
        result: list[Dim] = []
        for axis in range(-rank, 0):
            size: Dim = 1
            for shape in shapes:
                if len(shape) < -axis or shape[axis] == 1 or shape[axis] == size:
                    continue
                if size == 1:
                    size = shape[axis]
                else:
                    size = self._unify_broadcast(size, shape[axis], shapes)
            result.append(size)
        return tuple(result)

    def _unify_broadcast(self, a: Dim, b: Dim, shapes: Sequence[Shape]) -> Dim:
        if not self.constraints.unify(a, b):
            listed = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            hint = "aligned from the right, sizes must be equal or 1"
            if self.op.name in ("Equal", "NotEqual"):
                hint += "; `x in [a, b]` compares elements: a set finds the tensor itself"
            self.fail(f"shapes {listed} do not broadcast together: {a} against {b}", hint=hint)
        return self.constraints.find(a)

    def require(
        self, condition: bool, what: str, *, hint: str | None = None, dtype: bool = False
    ) -> None:
        """Raises `ShapeError` (or `DTypeError`) with `what` unless `condition` holds."""
        if not condition:
            self.fail(what, hint=hint, error=DTypeError if dtype else ShapeError)

    def require_dtype(
        self, types: Iterable[TensorType], allowed: Callable[[DType], bool], words: str
    ) -> None:
        """Raises `DTypeError` unless the dtype of each type is `allowed`. `words` describe the
        allowed dtypes."""
        for position, type in enumerate(types):
            if not allowed(type.dtype):
                label = self.op.operand_label(position)
                self.fail(
                    f"{label} must be {words}, got {type.dtype.name}",
                    error=DTypeError,
                    hint=_cast_hint(label, words, type.dtype),
                )

    def fail(
        self, what: str, *, hint: str | None = None, error: type[GraphcError] = ShapeError
    ) -> NoReturn:
        """Raises `error` naming the operator, its operands and the user's line."""
        labelled = {self.op.operand_label(i): t for i, t in enumerate(self.inputs)}
        raise error(
            f"{self.op.name}: {what}",
            details=describe_tensors(labelled),
            source=self.source,
            hint=hint or usual_hint(what, error),
        )


def _cast_hint(label: str, words: str, dtype: DType) -> str:
    """A hint: how to give an operand a dtype that the words describe."""
    if is_complex(dtype):
        return f"gc.real({label}), gc.imag({label}) and gc.abs({label}) are real"
    if words.startswith("bool"):
        return f"compare: {label} > 0, or gc.not_equal({label}, 0)"
    if words.startswith("integer"):
        return f'gc.cast({label}, "int32")'
    return f'gc.cast({label}, "float32")'


class LowerContext(Protocol):
    """The context of `lower`: the information beyond the operator's operands and attributes."""

    axis_name: str | None  # the replica axis in a data-parallel run, otherwise None
    replicas: int
    mesh: Any  # the `jax.sharding.Mesh` if the run uses one, otherwise None
    node: Node
    in_loop: bool  # whether the node is in the body of a loop or in a branch
    catalogue: Mapping[str, OpDef]

    def dim(self, dim: Dim) -> Any:
        """An int; in a symbolic export, JAX's symbolic dim."""

    def shape(self, shape: Shape) -> tuple[Any, ...]:
        """`dim` applied to each dim of a shape."""

    def lower_region(
        self, region: Program, args: Sequence[Any], *, loop: bool = False
    ) -> list[Any]:
        """Emits the body of `region` for the JAX values `args` and returns its outputs. `loop` is
        True if it becomes the body of a loop or a branch. The nodes inside see it as `in_loop`."""

    def call_region(self, region: Program, args: Sequence[Any]) -> list[Any]:
        """Emits a call of `region`. All calls of the same body share one function."""


class GradientContext(Protocol):
    """The context of `gradient`, which adds graph nodes."""

    @property
    def ops(self) -> Functions:
        """The operator functions, e.g. `ctx.ops.matmul(a, b)`."""

    def gradients(
        self, ys: Sequence[Tensor], xs: Sequence[Tensor], grad_ys: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Adds gradients to the current graph. A gradient is None if no y depends on its x."""

    def by_vjp(self, node: Node, *adjoints: Tensor | None) -> Sequence[Tensor | None]:
        """Adjoints from `jax.vjp` of the node's lowering, as for an operator without a rule."""


@dataclass(frozen=True, eq=False)
class OpDef:
    """One operator. Operators are compared by identity and found by name in a `Catalogue`.

    Attributes:
        name: CamelCase, unique in the catalogue.
        signature: operand and result names: "x, y -> z"; "*xs" for any number.
        infer: `(ctx, *input_types, **attrs) -> TensorType`, or a tuple of types if the number
            of results is not one.
        lower: `(ctx, *jax_values, **attrs) -> value`, or a tuple in the same case.
        attrs: the attributes by name.
        gradient: `(ctx, node, *adjoints) -> [adjoint or None per input]`, written with graph
            operators. The adjoint of a result that the loss does not depend on is None. If
            `gradient` is None, a VJP node is used.
        differentiable: False where the derivative is zero or undefined everywhere.
        layout: the layout rule. None means that the operands are gathered first.
        cost: the cost rule; see `graphc.ir.costs`. The default is one operation for each element
            of the results.
        effects: the side effects.
        fold: `(*numpy_arrays, **attrs) -> array` for constant folding. None means that the
            operator is not folded.
        doc: one paragraph: meaning, dtypes, shapes, source.
        precision: what `passes.mixed_precision` does with float32 operands. "narrow": they become
            bf16 or f16, because most of the run time is spent here. "follow": the operator uses
            the dtype of its operands. "inside": it computes in float32, and the result gets the
            dtype of the first operand. "wide": it uses float32, or no floats at all; this is also
            the meaning of None. In a variadic "narrow" operator, operands beyond the named ones
            keep their dtype.
        thread_state: for operators with regions; see `passes.functionalize`.
        prune_outputs: for operators with regions: `(node, used) -> node`. It removes the results
            that are not used.
        is_elementwise: whether each element of the results depends only on the operands' elements
            at the same position, apart from broadcasting. The layout rule determines this; see
            `of_elements`.
        cpu_only: whether JAX can compute it on CPUs only.
        content: `(node) -> text` that identifies the computation in fingerprints; it returns None
            if no text identifies it. The field is None if the operator's name is sufficient.
    """

    name: str
    signature: str
    infer: Callable[..., TensorType | tuple[TensorType, ...]]
    lower: Callable[..., Any]
    doc: str
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    gradient: Callable[..., Sequence[Tensor | None]] | None = None
    differentiable: bool = True
    layout: LayoutRule | None = None
    cost: CostRule = one_per_result
    effects: Effects = PURE
    fold: Callable[..., Any] | None = None
    commutative: bool = False
    thread_state: Callable[..., Any] | None = None
    prune_outputs: Callable[..., Node] | None = None
    content: Callable[[Node], str | None] | None = None
    precision: str | None = None
    cpu_only: bool = False
    operand_names: tuple[str, ...] = field(init=False)
    is_elementwise: bool = field(init=False)
    _defaults: Mapping[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.precision not in (None, *PRECISIONS):
            allowed = ", ".join(PRECISIONS)
            raise AttributeValueError(
                f"{self.name}: precision must be one of {allowed}, got {self.precision!r}"
            )
        operands = self.signature.partition("->")[0].split(",")
        names = tuple(name.strip() for name in operands if name.strip())
        object.__setattr__(self, "operand_names", names)
        defaults = {k: a.default for k, a in self.attrs.items() if a.default is not REQUIRED}
        object.__setattr__(self, "_defaults", defaults)
        sizes = any(attr.kind not in WITHOUT_SIZES for attr in self.attrs.values())
        object.__setattr__(self, "is_elementwise", is_of_elements(self.layout) and not sizes)

    @property
    def is_variadic(self) -> bool:
        return bool(self.operand_names) and self.operand_names[-1].startswith("*")

    def operand_label(self, position: int) -> str:
        """The name of an operand for errors: `x`, or `xs[2]` for a variadic operand."""
        names = self.operand_names
        if position < len(names) and not names[position].startswith("*"):
            return names[position]
        if self.is_variadic:
            return f"{names[-1][1:]}[{position - len(names) + 1}]"
        return f"operand {position}"

    def complete(
        self, attrs: Mapping[str, Any] = EMPTY, source: Source | None = None
    ) -> Mapping[str, Any]:
        """Returns `attrs` with the defaults filled in. Each given value is checked.

        Raises:
            AttributeValueError: an attribute is missing, unknown or invalid.
        """
        if not self.attrs and not attrs:
            return EMPTY
        full = {**self._defaults, **attrs}
        for name, value in attrs.items():
            attr = self.attrs.get(name)
            if attr is None:
                raise AttributeValueError(
                    f"{self.name} has no attribute {name!r}",
                    source=source,
                    hint=nearest(name, self.attrs),
                )
            if not attr.accepts(value):
                must = attr.must or f"be of kind {attr.kind}"
                raise AttributeValueError(
                    f"{self.name}: {name} must {must}, got {value!r}",
                    source=source,
                    hint=attr.hint or ("True or False" if attr.kind == "bool" else None),
                )
        if len(full) != len(self.attrs):
            missing = next(name for name in self.attrs if name not in full)
            raise AttributeValueError(f"{self.name} needs the attribute {missing!r}", source=source)
        return full

    def infer_types(
        self,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any],
        constraints: DimConstraints,
        source: Source | None = None,
        regions: Sequence[Program] = (),
    ) -> tuple[TensorType, ...]:
        """The types of the results, always as a tuple.

        Raises:
            ShapeError, DTypeError: the operands do not fit. The error names them.
        """
        context = InferContext(self, inputs, constraints, source, regions)
        names = self.operand_names
        if len(inputs) != len(names) and not (self.is_variadic and len(inputs) >= len(names) - 1):
            context.fail(f"takes {len(names)} operands ({self.signature}), got {len(inputs)}")
        result = self.infer(context, *[tensor.type for tensor in inputs], **attrs)
        return (result,) if isinstance(result, TensorType) else result

    def by_rows(
        self, node: Node, axes: Sequence[int | None], rows: int, catalogue: Mapping[str, OpDef]
    ) -> ByRows | None:
        """How `node` computes each row of its result from the same row of its operands; None if
        it does not. `axes` gives the axis of the rows of each operand. None means that the axis is
        unknown, or that the whole operand is needed. The layout rule determines the result; see
        `ir.rows`."""
        if self.layout is None or self.effects is not PURE or node.regions:
            return None
        return by_rows(self.layout, catalogue, node, axes, rows)

    def __repr__(self) -> str:
        return f"<OpDef {self.name}: {self.signature}>"
