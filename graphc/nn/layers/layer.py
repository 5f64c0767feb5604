"""`Layer`: an object that owns variables under its own name scope."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from graphc.build.specs import check_name
from graphc.build.variable_definition import InitialValue, variable
from graphc.errors import AttributeValueError, GraphError, ShapeError, UnknownAttributeError
from graphc.ir.calls import explained
from graphc.ir.dtypes import BOOL, as_dtype
from graphc.ir.graph import Graph
from graphc.ir.name_errors import no_assignment, no_member
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.scopes import AMBIENT, absolute_scope, building
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.nn.layers.summary import summary_of
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, graph_of
from graphc.typing import DTypeLike, TensorLike, TensorTree

__all__ = ["Layer"]

Regularizer: TypeAlias = Callable[[Any], TensorLike]
"""Gives the penalty of a variable, a scalar tensor."""

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Matches the boundaries of the words in a class's name: Batch|Norm, LSTM|Cell."""

_CALLS = {"__call__", "with_state", "with_cache"}
"""The methods that calculate a layer's output."""


# Attributes that users set in Keras and PyTorch, and that no layer of graphc reads.
_NEVER_READ = frozenset(
    ["trainable", "requires_grad", "training", "kernel", "bias", "weight", "weights"]
)

# The attributes that `Layer.__init__` sets.
_STATE = frozenset(
    ["_base", "_graph", "_own", "_output", "_regularizers", "_scope", "_views", "dtype"]
)


class Layer:
    """Base of all layers, including those that users define.

    A layer makes its variables at its first call, in the graph being built, as
    `<name scope>/<name>/<variable>`; later calls share them. A subclass defines its calculation
    inside `with self.scope(x):` and gets its variables by `self.variable`.

    Args:
        name: of its scope; by default that of the class, such as "batch_norm". If the name is
            already used where the layer is first called, it gets a suffix `_1`, `_2`, ...
        dtype: of its variables.

    Raises:
        AttributeValueError: `name` is not a name.
        DTypeError: `dtype` is not a dtype.

    Examples:
        >>> class Scale(gc.nn.Layer):
        ...     def __call__(self, x):
        ...         with self.scope(x):
        ...             return x * self.variable("factor", 2.0, ())
        >>> scale = Scale()
        >>> run(scale([1.0, 3.0]))
        Array([2., 6.], dtype=float32)
        >>> scale.variables
        [<Variable scale/factor f32[]>]
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = "float32") -> None:
        own = _WORDS.sub("_", type(self).__name__).lower()
        self._base = own if name is None else check_name(name, type(self).__name__)
        self.dtype = as_dtype(dtype)
        self._graph: Graph | None = None
        self._scope = ""  # "encoder/dense/", once called
        self._own: dict[str, Variable] = {}
        self._regularizers: dict[str, Regularizer] = {}
        self._views: dict[str, Callable[[Variable], Tensor]] = {}
        self._output: TensorType | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method in _CALLS & vars(cls).keys():
            setattr(cls, method, explained(_noting_output(vars(cls)[method])))
        if "__init__" in vars(cls):
            cls.__init__ = explained(cls.__init__)  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The full name, with the scopes around it, once the layer has been called.

        Examples:
            >>> with gc.name_scope("net"):
            ...     dense = gc.nn.Dense(2)
            ...     y = dense(gc.ones((1, 3)))
            >>> dense.name
            'net/dense'
        """
        return self._scope.rstrip("/") or self._base

    @property
    def built(self) -> bool:
        """Whether the layer has been called. The call determines its name and variables.

        Examples:
            >>> dense = gc.nn.Dense(2)
            >>> before, y = dense.built, dense(gc.ones((1, 3)))
            >>> before, dense.built
            (False, True)
        """
        return self._graph is not None

    @property
    def variables(self) -> list[Variable]:
        """Its variables and those of the layers in its attributes; empty before the first call.

        Examples:
            >>> dense = gc.nn.Dense(2)
            >>> y = dense(gc.ones((1, 3)))
            >>> dense.variables
            [<Variable dense/kernel f32[3, 2]>, <Variable dense/bias f32[2]>]
        """
        found = [v for layer in self.inner_layers for v in layer.variables]
        return list(dict.fromkeys([*self._own.values(), *found]))

    @property
    def regularized(self) -> dict[Variable, Regularizer]:
        """Variable -> its regularizer, for the variables of this layer and of the layers in its
        attributes. `gc.nn.penalty` adds up the penalties.

        Examples:
            >>> dense = gc.nn.Dense(2, kernel_regularizer=gc.nn.L2(0.1))
            >>> y = dense(gc.ones((1, 3)))
            >>> dense.regularized
            {<Variable dense/kernel f32[3, 2]>: L2(rate=0.1)}
        """
        found = {v: r for layer in self.inner_layers for v, r in layer.regularized.items()}
        return {self._own[name]: r for name, r in self._regularizers.items()} | found

    @property
    def inner_layers(self) -> list[Layer]:
        """The layers in its attributes, including those in lists, tuples and dicts.

        Examples:
            >>> gc.nn.Sequential([gc.nn.Flatten(), gc.nn.Dense(2)]).inner_layers
            [<Flatten 'flatten', not called yet>, <Dense 'dense', not called yet>]
        """
        return list(_layers_in(list(vars(self).values())))

    @property
    def output_type(self) -> TensorType | None:
        """The type of the first result of its last call; None before the first call.

        Examples:
            >>> dense = gc.nn.Dense(2)
            >>> y = dense(gc.ones((1, 3)))
            >>> dense.output_type.shape
            (1, 2)
        """
        return self._output

    @property
    def trainable_variables(self) -> list[Variable]:
        """Those of `variables` that are trainable.

        Examples:
            >>> norm = gc.nn.BatchNorm()
            >>> y = norm(gc.ones((4, 3)), training=True)
            >>> [v.name for v in norm.trainable_variables]
            ['batch_norm/scale', 'batch_norm/offset']
        """
        return [v for v in self.variables if v.trainable]

    def summary(self) -> str:
        """A table of the layer and its inner layers: name, output type and number of parameters.

        Raises:
            GraphError: the layer has not been called, so these are not known.

        Examples:
            >>> dense = gc.nn.Dense(2)
            >>> y = dense(gc.ones((1, 3)))
            >>> print(dense.summary())
            layer          output     parameters
            ------------------------------------
            dense (Dense)  f32[1, 2]           8
            ------------------------------------
            8 parameters, 8 of them trainable
        """
        return summary_of(self)

    @contextmanager
    def scope(self, *operands: TensorLike) -> Iterator[None]:
        """The layer's name scope, in the graph being built, or otherwise in that of the operands.

        Raises:
            GraphError: the layer's variables are in another graph; or there is no graph.

        Examples:
            >>> class Double(gc.nn.Layer):
            ...     def __call__(self, x):
            ...         with self.scope(x):
            ...             return gc.multiply(x, 2, name="twice")
            >>> Double()(gc.ones(3))
            <Tensor double/twice:0 f32[3]>
        """
        graph = graph_of(operands)
        if self._graph is not graph.root:
            if self._own and self._graph is not None:
                raise GraphError.here(
                    f"{self}: its variables belong to another graph, {self._graph.name!r}",
                    hint="make a new layer for each graph",
                )
            self._graph = graph.root
            self._scope = self._new_scope(graph)
        with nullcontext() if AMBIENT.graphs else building(graph), absolute_scope(self._scope):
            yield

    def _new_scope(self, graph: Graph) -> str:
        """The name scope of the layer's variables in the graph of its first call."""
        return f"{graph.unique_name(self._base)}/"

    def variable(
        self,
        name: str,
        init: InitialValue,
        shape: tuple[int, ...],
        *,
        trainable: bool = True,
        regularizer: Regularizer | None = None,
    ) -> Variable | Tensor:
        """The layer's variable of this name. The first call makes it. For use inside `scope`.

        If a wrapper such as `SpectralNorm` replaces the variable, the result is its tensor.

        Args:
            init, shape, trainable: see `gc.variable`.
            regularizer: gives the penalty of the variable; see `regularized`.

        Raises:
            ShapeError: the variable already exists with another shape.

        Examples:
            >>> class Shift(gc.nn.Layer):
            ...     def __call__(self, x):
            ...         with self.scope(x):
            ...             return x + self.variable("shift", "zeros", (3,))
            >>> shift = Shift()
            >>> y = shift(gc.ones(3))
            >>> shift.variables
            [<Variable shift/shift f32[3]>]
        """
        found = self._own.get(name)
        if found is None:
            found = variable(init, shape=shape, dtype=self.dtype, name=name, trainable=trainable)
            self._own[name] = found
            if regularizer is not None:
                self._regularizers[name] = regularizer
        elif found.type.shape != shape:
            raise ShapeError.here(
                f"{self}: its {name} has the shape {found.type.shape} from the first call, "
                f"and would need {shape} now",
                details=[f"{found.name}  {found.type}  {found.source}"],
                hint="call it on inputs with the same number of features, or make another layer",
            )
        view = self._views.get(name)
        return found if view is None else view(found)

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.name!r}"

    def __getattr__(self, name: str) -> NoReturn:
        if name in _STATE:
            raise UnknownAttributeError.here(
                f"{type(self).__name__} is not initialised as a layer",
                hint="call super().__init__() at the start of its __init__",
            )
        raise no_member(self, ["Layer"], name)

    if not TYPE_CHECKING:  # type checkers find such assignments; subclasses choose the arguments

        def __setattr__(self, name: str, value: Any) -> None:
            own = type(self).__module__.startswith("graphc.")
            if name == "name" or (own and name in _NEVER_READ):
                raise no_assignment(self, name)
            object.__setattr__(self, name, value)

        def __call__(self, *args: TensorTree, **kwargs: TensorTree) -> NoReturn:
            raise GraphError.here(
                f"{type(self).__name__} does not define its calculation",
                hint="write it in the method __call__(self, x), inside `with self.scope(x):`; "
                "methods named call or forward are not called",
            )

    def __repr__(self) -> str:
        return f"<{self}{'' if self.built else ', not called yet'}>"


def _layers_in(value: Any) -> Iterator[Layer]:
    if isinstance(value, Layer):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _layers_in(item)
    elif isinstance(value, dict):
        yield from _layers_in(list(value.values()))


def _noting_output(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method `call` so that the layer stores the type of its first result."""

    @functools.wraps(call)
    def noting(self: Layer, *args: Any, **kwargs: Any) -> Any:
        result = call(self, *args, **kwargs)
        first = result[0] if isinstance(result, tuple) else result
        if isinstance(first, Tensor):
            self._output = first.type
        return result

    return noting


def positive(layer: str, what: str, value: Any) -> int:
    """Returns `value` if it is an int of 1 or more.

    Raises:
        AttributeValueError: it is not.
    """
    if type(value) is not int or value < 1:
        refuse(
            f"{layer}: {what} must be an int of 1 or more, got {value!r}",
            error=AttributeValueError,
            hint=f"make the layer, then call it: layer = {layer}(64), y = layer(x)"
            if isinstance(value, Operand)
            else f"{what} is the first argument, a number: {layer}(64)",
        )
    return value


def check_rank(layer: Layer, x: Tensor, ranks: Container[int], layout: str) -> None:
    """Raises `ShapeError` unless the rank of `x` is in `ranks`. The error quotes `layout`."""
    rank = x.type.rank
    if rank not in ranks:
        steps = "gc.nn.TimeDistributed(layer)(x) calls it for each step of [batch, time, ...]; or "
        refuse(
            f"{layer}: the input must be {layout}, got rank {rank}",
            hint=(steps if rank - 1 in ranks else "") + "gc.reshape or gc.expand_dims the input",
            x=x,
        )


def features_of(layer: Layer, x: Tensor) -> int:
    """The size of the last axis, which determines the shapes of variables.

    Raises:
        ShapeError: it is known only when the input is fed.
    """
    features = x.type.shape[-1]
    if not isinstance(features, int):
        refuse(
            f"{layer}: the number of features (the last axis) must be known, got {features}",
            hint="give the placeholder a fixed last size",
            x=x,
        )
    return features


def check_training(layer: Layer, training: Any) -> bool | Tensor:
    """Returns `training`: a bool, or a scalar tensor of bool, such as a placeholder.

    Raises:
        AttributeValueError: it was left out, or is something else.
    """
    if isinstance(training, Operand) and training.shape == () and training.dtype == BOOL:
        return convert(training)
    if type(training) is not bool:
        got = "it is missing" if training is None else f"got {training!r}"
        refuse(
            f"{layer}: training must be True, False or a scalar tensor of bool, {got}",
            error=AttributeValueError,
            hint="call it with training=True, and once more with training=False for the "
            "outputs to serve: both calls share the variables. "
            'gc.placeholder((), "bool") decides in each run',
        )
    return training
