"""`register_op`: a user's operator from one Python function of JAX arrays."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.tree_util import all_leaves

from graphc.build.specs import TensorSpec
from graphc.errors import AttributeValueError, GradientError, LoweringError, TextError
from graphc.ir.dims import Shape
from graphc.ir.dtypes import is_inexact
from graphc.ir.layouts import LayoutRule
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ir.values import write_value
from graphc.jaxpr.callbacks import RULES as CALLBACKS
from graphc.jaxpr.keys import is_key, words_of
from graphc.jaxpr.tracing import Traced, trace
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, emit

_NAME = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

Gradient = Callable[..., Sequence[Any]]


def register_op(
    name: str,
    fn: Callable[..., Any],
    *,
    infer: Callable[..., Any] | None = None,
    gradient: Gradient | None = None,
    layout: LayoutRule | None = None,
    doc: str = "",
) -> Callable[..., Any]:
    """Registers a new operator `name`, and returns the function that adds its nodes to the graph.

    The nodes are opaque: passes move and merge them but do not look inside (use `gc.from_jax` for
    that). Caches identify the operator by the jaxpr of `fn`. They store no executable if the jaxpr
    is unknown, or if a `layout` rule has split the operator. Texts, graphs and artifacts identify
    it by its name, so their readers must register it too.

    Args:
        name: in CamelCase; no other operator may have it.
        fn: `(*arrays, **options) -> array`, or a tuple of arrays: pure JAX, without callbacks.
        infer: `(*types, **options) -> type`, or a tuple of types. A type is an object with a shape
            and a dtype, such as `gc.TensorSpec`. By default `fn` is traced for the types, with
            JAX's symbolic sizes for named ones.
        gradient: `(node, *adjoints) -> [adjoint or None for each of node.inputs]`. It computes the
            adjoints with gc's operators from `node.inputs`, `node.outputs` and
            `node.attrs["options"]`. An adjoint has the type of its input. By default the derivative
            is `jax.vjp` of `fn`, which follows `jax.custom_vjp`.
        layout: the rule for data parallelism; without a rule, operands are gathered.
        doc: a sentence that describes what it computes.

    Returns:
        A function `(*tensors, name=None, **options)` of a tensor, or of a tuple of them. Options
        are numbers, strings, dtypes, sizes, arrays, and tuples and mappings of these.

    Raises:
        AttributeValueError: the name is invalid or in use, or `fn` is not a function. Later: an
            option has another kind, or `fn` returns an invalid value or calls back.
        GradientError: later: an adjoint has another type than the input.
        LoweringError: later: `fn` returns other types than `infer` gives.
        JaxImportError: later: `fn` cannot be traced for named sizes. Errors that
            `fn` raises are passed on.

    Examples:
        >>> import jax
        >>> swish2 = gc.register_op("Swish2", lambda x, *, beta=1.0: x * jax.nn.sigmoid(beta * x))
        >>> y = swish2([0.0, 10.0], beta=2.0)
        >>> y.node.op.name, run(y)
        ('Swish2', Array([ 0., 10.], dtype=float32))
    """
    if not _NAME.match(str(name)):
        raise AttributeValueError.here(
            f"register_op: {name!r} is not a name for an operator",
            hint="use CamelCase: letters and digits, starting with a capital letter",
        )
    if not callable(fn):
        raise AttributeValueError.here(
            f"register_op: {fn!r} is not a function", hint="pass a function of JAX arrays"
        )
    own = _Registered(name, fn, infer, has_gradient=gradient is not None)
    op = OpDef(
        name=name,
        signature="*operands -> *results",
        attrs={"options": Attr("attrs", default={})},
        infer=own.infer,
        lower=own.lower,
        gradient=None if gradient is None else _rule(gradient),
        layout=layout,
        content=own.content,
        doc=doc or f"Registered from {getattr(fn, '__qualname__', name)}.",
    )
    CATALOGUE.register(op)

    def add(*operands: Any, name: str | None = None, **options: Any) -> Any:
        return emit(op, [convert(x) for x in operands], name=name, options=_checked(op, options))

    add.__name__ = add.__qualname__ = name
    add.__doc__ = op.doc
    return add


def _checked(op: OpDef, options: Mapping[str, Any]) -> Mapping[str, Any]:
    for key, value in options.items():
        try:
            write_value(value)
        except TextError as error:
            raise AttributeValueError.here(
                f"{op.name}: option {key} is a {type(value).__name__}, which no text can hold",
                hint=error.hint,
            ) from error
    return options


def _rule(gradient: Gradient) -> Callable[..., Sequence[Tensor | None]]:
    def rule(ctx: GradientContext, node: Node, *adjoints: Tensor | None) -> list[Tensor | None]:
        found = list(gradient(node, *adjoints))
        for i, (x, dx) in enumerate(zip(node.inputs, found, strict=False)):  # counted elsewhere
            if dx is not None:
                found[i] = _checked_adjoint(node, i, x, convert(dx, x.dtype))
        return found

    return rule


def _checked_adjoint(node: Node, i: int, x: Tensor, dx: Tensor) -> Tensor:
    if not _fits(x.type, dx.type.dtype, dx.type.shape):
        refuse(
            f"{node.op.name}: the gradient rule gave {dx.type} as the adjoint of operand {i}, "
            f"which is {x.type}",
            error=GradientError,
            hint="an adjoint has the dtype and the sizes of its operand; None where there is none",
        )
    return dx


def _fits(type: TensorType, dtype: Any, shape: Sequence[Any]) -> bool:
    """Whether dtype, rank and the sizes that are ints on both sides are those of `type`."""
    if type.dtype != dtype or type.rank != len(shape):
        return False
    pairs = zip(type.shape, shape, strict=True)
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


@dataclass(frozen=True)
class _Registered:
    """The parts of the record of a registered operator."""

    name: str
    fn: Callable[..., Any]
    shape_rule: Callable[..., Any] | None
    has_gradient: bool
    _traced: dict[Any, Traced] = field(default_factory=dict)

    def infer(
        self, ctx: InferContext, *types: TensorType, options: Mapping[str, Any]
    ) -> tuple[TensorType, ...]:
        types = tuple([t.map_dims(ctx.constraints.find) for t in types])
        if self.shape_rule is None:
            return tuple(self._traced_once(types, options).out_types())
        given = self.shape_rule(*types, **options)
        specs = [TensorSpec.of(s) for s in (given if type(given) is tuple else (given,))]
        for spec in specs:
            ctx.require(
                None not in spec.shape,
                f"the shape rule must give sizes, got {spec.shape}",
                hint="take named sizes from the types that the rule is given",
            )
        return tuple([TensorType(spec.dtype, cast(Shape, spec.shape)) for spec in specs])

    def lower(self, ctx: LowerContext, *values: Any, options: Mapping[str, Any]) -> tuple[Any, ...]:
        found = self._call(list(map(jnp.asarray, values)), options)
        results = tuple(map(jnp.asarray, found))
        if self.shape_rule is not None and ctx.node.op.name == self.name:  # not for its VJP node
            self._check_declared(ctx, results)
        return results

    def _call(self, values: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, ...]:
        """The results of `fn`, always as a tuple."""
        given = self.fn(*values, **options)
        results = given if type(given) is tuple else (given,)
        if not results or not all_leaves(results):
            refuse(
                f"{self.name}: the function returned {jax.tree.structure(given)}",
                error=AttributeValueError,
                hint="return an array, or a flat tuple of arrays",
            )
        return results

    def _check_declared(self, ctx: LowerContext, results: Sequence[Any]) -> None:
        declared = [t.type for t in ctx.node.outputs]
        same = len(declared) == len(results) and all(
            _fits(type, y.dtype, y.shape) for type, y in zip(declared, results, strict=True)
        )
        if not same:
            said = ", ".join(map(str, declared))
            found = ", ".join(f"{y.dtype.name}{list(y.shape)}" for y in results)
            raise LoweringError(
                f"{self.name}: the shape rule says {said}, and the function gives {found}",
                source=ctx.node.source,
                hint="let `infer` say what the function gives",
            )

    def content(self, node: Node) -> str | None:
        """A digest of the current jaxpr of `fn` for these operands, including its derivatives.

        None if it is unknown: JAX cannot trace `fn` for these types, or it calls back.
        """
        types = tuple([t.type for t in node.inputs])
        options = node.attrs["options"]
        try:
            jaxprs = [self._trace(types, options).jaxpr]
            if "custom_" in str(jaxprs[0]) and not self.has_gradient:
                # In the forward jaxpr, the derivative is a Python function.
                jaxprs.append(self._backward(types, options))
        except Exception:  # an error of the user's function: lowering raises it again if it matters
            return None
        return None if any(_called_back(jaxpr) for jaxpr in jaxprs) else digest(jaxprs)

    def _backward(self, types: tuple[TensorType, ...], options: Mapping[str, Any]) -> Any:
        moving = [i for i, type in enumerate(types) if is_inexact(type.dtype)]

        def backward(*values: Any) -> Any:
            def of_moving(*moved: Any) -> Any:
                given = dict(zip(moving, moved, strict=True))
                results = self._call([given.get(i, x) for i, x in enumerate(values)], options)
                return [y for y in map(jnp.asarray, results) if is_inexact(y.dtype)]

            ys, pull = jax.vjp(of_moving, *[values[i] for i in moving])
            return pull([jnp.ones_like(y) for y in ys])

        return trace(backward, types).jaxpr

    def _trace(self, types: tuple[TensorType, ...], options: Mapping[str, Any]) -> Traced:
        """Traces `fn` again, because values that it closes over may have changed."""
        return trace(lambda *values: self._call(values, options), types)

    def _traced_once(self, types: tuple[TensorType, ...], options: Mapping[str, Any]) -> Traced:
        """`fn` traced for the types of its results."""
        key = (types, write_value(options))
        if key not in self._traced:
            traced = self._trace(types, options)
            if called := _called_back(traced.jaxpr):
                refuse(
                    f"{self.name}: the function calls back to Python: {called}",
                    error=AttributeValueError,
                    hint="use gc.py_callback beside the operator",
                )
            self._traced[key] = traced
        return self._traced[key]


def digest(jaxprs: Sequence[Any]) -> str:
    """A digest of closed jaxprs: their text, and the constants that it does not show."""
    found = hashlib.sha256()
    for jaxpr in jaxprs:
        found.update(_ADDRESS.sub("", str(jaxpr)).encode())
        for constant in _constants(jaxpr):
            array = words_of(constant) if is_key(constant.dtype) else np.asarray(constant)
            found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def _called_back(jaxpr: Any) -> str:
    """The primitives that call back to Python, as text; empty if there are none."""
    names = {eqn.primitive.name for inner in _jaxprs(jaxpr) for eqn in inner.eqns}
    return ", ".join(sorted(names & CALLBACKS.keys()))


def _constants(jaxpr: Any) -> Iterator[Any]:
    """The constants of a jaxpr, and of those inside its equations."""
    for inner in _jaxprs(jaxpr):
        yield from getattr(inner, "consts", ())


def _jaxprs(value: Any) -> Iterator[Any]:
    """A jaxpr, and those inside its equations."""
    if isinstance(value, (ClosedJaxpr, Jaxpr)):  # one class from jax 0.12 on
        yield value
        for eqn in value.eqns:
            yield from _jaxprs(tuple(eqn.params.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _jaxprs(item)
