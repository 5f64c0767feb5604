"""The ambient state of graph building: current graph, name scope, device, control inputs.

Each thread has its own state. Everything here is entered and left by `with`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from graphc.errors import AttributeValueError, DeviceError, GraphError
from graphc.ir.device_spec import DeviceFunction, DeviceRequest, DeviceSpec, parse_device
from graphc.ir.names import check_length
from graphc.ir.source import Source
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.graph import Graph


class Ambient(threading.local):
    """The ambient state at the current point of the user's code."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.name_scope = ""  # "a/b/", with the trailing slash, or ""
        self.device = ""  # the merged names of all scopes
        self.devices: tuple[str | DeviceFunction, ...] = ()  # the scopes, if one is a function
        self.control_inputs: tuple[str, ...] = ()
        self.source: Source | None = None  # set while gradients and rewrites are written


AMBIENT = Ambient()


def current_graph() -> Graph:
    """The innermost graph entered by `with graph:`.

    Raises:
        GraphError: there is none.
    """
    if not AMBIENT.graphs:
        raise GraphError.here("no graph is being built here", hint="build inside `with graph:`")
    return AMBIENT.graphs[-1]


class _AmbientValues:
    """A context in which fields of the ambient state have other values."""

    __slots__ = ("_saved", "_values")

    def __init__(self, **values: Any) -> None:
        self._values = values

    def __enter__(self) -> None:
        state = AMBIENT.__dict__
        self._saved = {name: state[name] for name in self._values}
        state.update(self._values)

    def __exit__(self, *exc: object) -> None:
        AMBIENT.__dict__.update(self._saved)


@contextmanager
def building(graph: Graph) -> Iterator[Graph]:
    """Makes `graph` the current one. A top-level graph starts outside all name scopes.

    Control inputs belong to one graph. They apply again when that graph is entered again.
    """
    outer = AMBIENT.graphs[-1] if AMBIENT.graphs else None
    values: dict[str, Any] = {}
    if graph.parent is None and (outer is None or outer.root is not graph):
        values = {"name_scope": "", "device": "", "devices": ()}
    if outer is not graph:
        values["control_inputs"] = ()
    AMBIENT.graphs.append(graph)
    try:
        with _AmbientValues(**values):
            yield graph
    finally:
        AMBIENT.graphs.pop()


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Names of nodes and variables created inside start with `name/`; scopes nest.

    A scope that is entered twice is the same scope: a number makes the names of nodes and variables
    unique. Yields the full scope, with a trailing slash.

    Args:
        name: letters, digits and `_`; `a/b` is a scope inside a scope.

    Raises:
        AttributeValueError: `name` is not a name.

    Examples:
        >>> with gc.name_scope("hidden"):
        ...     x = gc.constant(1.0, name="one")
        >>> x.name
        'hidden/one:0'
    """
    given: Any = name
    if (
        not isinstance(given, str)
        or not name
        or name.startswith("/")
        or any(c in name for c in " :,()=")
    ):
        raise AttributeValueError.here(
            f"{name!r} is not a name scope", hint='use letters, digits and "_", such as "hidden"'
        )
    check_length(AMBIENT.name_scope + name, "name scope")
    full = f"{AMBIENT.name_scope}{name.rstrip('/')}/"
    with _AmbientValues(name_scope=full):
        yield full


def absolute_scope(scope: str) -> AbstractContextManager[None]:
    """Replaces the whole name scope: "" or a string with a trailing slash."""
    return _AmbientValues(name_scope=scope)


@contextmanager
def device(name: str | DeviceSpec | DeviceFunction | None) -> Iterator[None]:
    """Requests a device for the nodes and variables created inside.

    Names nest and merge: `/gpu:0` inside `/job:worker` gives `/job:worker/device:GPU:0`.

    Args:
        name: a device name, full or short; or a function, which is called with a
            `gc.devices.DeviceRequest` for each node and variable. It returns a name, or None to use
            the outer scopes. `None` as `name` ignores the outer scopes.

    Raises:
        DeviceError: the name, or a name that the function returned, does not parse.

    Examples:
        >>> with gc.device("/job:worker"), gc.device("/gpu:0"):
        ...     x = gc.constant(1.0)
        >>> x.node.device
        '/job:worker/device:GPU:0'
    """
    merged, scopes = AMBIENT.device, AMBIENT.devices
    if name is None:
        merged, scopes = "", ()
    elif callable(name):
        scopes = (*(scopes or (merged,)), name)
    else:
        text = str(parse_device(name) if isinstance(name, str) else _spec(name))
        merged = str(parse_device(merged).merge(parse_device(text)))
        scopes = scopes and (*scopes, text)
    with _AmbientValues(device=merged, devices=scopes):
        yield


def _spec(given: object) -> DeviceSpec:
    if isinstance(given, DeviceSpec):
        return given
    raise DeviceError.here(
        f"{given!r} is not a device name",
        hint='pass "/gpu:0", a function of a gc.devices.DeviceRequest, or None',
    )


def requested_device(op: str, name: str, types: Sequence[TensorType]) -> str:
    """The device that the scopes request for a node or variable that is being created.

    Raises:
        DeviceError: a device function returned something that is not a device name.
    """
    if not AMBIENT.devices:
        return AMBIENT.device
    request, merged = DeviceRequest(op, name, tuple(types)), DeviceSpec()
    for scope in AMBIENT.devices:
        asked = scope if isinstance(scope, str) else scope(request)
        if asked is not None:
            merged = merged.merge(parse_device(asked) if isinstance(asked, str) else _spec(asked))
    return str(merged)


def exact_device(name: str) -> AbstractContextManager[None]:
    """Nodes created inside request exactly this device, or none for "". Other scopes are
    ignored."""
    return _AmbientValues(device=name, devices=())


def control_inputs(names: tuple[str, ...]) -> AbstractContextManager[None]:
    """When a node created inside runs, the nodes with these names run too."""
    return _AmbientValues(control_inputs=tuple(dict.fromkeys(AMBIENT.control_inputs + names)))


def no_control_inputs() -> AbstractContextManager[None]:
    """Ignores the control inputs of outer scopes."""
    return _AmbientValues(control_inputs=())


def at_source(source: Source | None) -> AbstractContextManager[None]:
    """Nodes created inside carry `source`. Gradients carry the line of their forward node."""
    return _AmbientValues(source=source)
