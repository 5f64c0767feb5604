"""Adds the nodes of an exported program to the graph being built."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from graphc.errors import GraphcError
from graphc.importers.core.refusals import Refusal
from graphc.importers.torch.call import Call, Refused
from graphc.importers.torch.dtypes import array_of, dtype_of
from graphc.importers.torch.table import RULES
from graphc.ir.node import Tensor
from graphc.ir.scopes import at_source
from graphc.ir.source import Source
from graphc.ops import cast, constant, stop_gradient
from graphc.ops.control.custom_gradient import with_gradient

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_IN_TORCH = re.compile(r"-packages[/\\]torch[/\\]|^torch[/\\]")  # of any machine


_NONE: Final[Mapping[Any, Any]] = {}

UNKNOWN: Final = object()
"""The value of what could not be imported. What needs it is skipped."""


def line_of(node: Any) -> Source | None:
    """The line of the model's source that made a node."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not _IN_TORCH.search(frame[0])]
    for file, line in reversed(own or frames):
        return Source(file, int(line))
    return None


class Importer:
    """One pass over a program. Collects what cannot be imported.

    Args:
        name: of the model, for errors.
        renewed: nodes that compute a new value of a parameter -> the parameter's placeholder.

    Attributes:
        refusals: what could not be imported.
        made: the tensors by the names of the nodes of the program, without those in bodies.
    """

    def __init__(self, name: str, renewed: Mapping[Any, Any] = _NONE) -> None:
        self._name, self._renewed = name, renewed
        self.refusals: list[Refusal] = []
        self.made: dict[str, Tensor] = {}

    def run(self, module: Any, values: Sequence[Any]) -> list[Any]:
        """Adds the nodes of a graph module; returns its results.

        Args:
            values: of its placeholders.
        """
        env: dict[Any, Any] = {}
        given = iter(values)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, node.target)
            elif node.op == "call_function":
                with at_source(line_of(node)):
                    env[node] = self._result(node, env)
                    if node in self._renewed and env[node] is not UNKNOWN:
                        env[node] = _renewed(env[self._renewed[node]], env[node])
            elif node.op == "output":
                self.made = {n.name: v for n, v in env.items() if isinstance(v, Tensor)}
                results = node.args[0]  # a body may return one value that is not in a tuple
                results = results if isinstance(results, (list, tuple)) else [results]
                return [_filled(result, env) for result in results]
        return []

    def _attribute(self, module: Any, path: str) -> Any:
        found = operator.attrgetter(path)(module)
        return constant(array_of(found)) if hasattr(found, "dtype") else found

    def _result(self, node: Any, env: Mapping[Any, Any]) -> Any:
        args, kwargs = _filled(node.args, env), _filled(node.kwargs, env)
        if _has_unknown((args, kwargs)):
            return UNKNOWN
        rule = RULES.get(str(node.target)) or RULES.get(_plain(node))
        source = line_of(node)
        where = f"{self._name}, {node.name}" if source is None else f"{source}"
        if "refused" in node.meta:
            self.refusals.append(Refusal(str(node.target), node.meta["refused"], where))
            return UNKNOWN
        if rule is None:
            self.refusals.append(Refusal(str(node.target), where=where))
            return UNKNOWN
        try:
            call = Call(_dtypes(node), self._body, node)
            return _typed(rule(call, *args, **kwargs), call.dtypes)
        except Refused as refused:
            self.refusals.append(Refusal(str(node.target), str(refused), where))
            return UNKNOWN
        except GraphcError as error:
            if not error.details or not str(error.details[-1]).startswith("in "):
                error.details = (*error.details, f"in {node.target} ({where})")
            raise
        except Exception as error:  # a rule met arguments that are not valid
            why = f"has arguments that are not valid ({type(error).__name__}: {error})"
            self.refusals.append(Refusal(str(node.target), why, where))
            return UNKNOWN

    def _body(self, module: Any, values: Sequence[Any]) -> list[Any]:
        before = len(self.refusals)
        results = self.run(module, values)
        inside = self.refusals[before:]
        if inside:
            del self.refusals[before:]
            raise Refused(f"has a body in which {'; '.join(f'{r.what} {r.why}' for r in inside)}")
        return results


def _renewed(old: Tensor, new: Tensor) -> Tensor:
    """The new value of a parameter that was changed in place, which PyTorch allows only in regions
    without gradients. Gradients of what uses it are those of the parameter."""
    return with_gradient([stop_gradient(new)], [old], lambda _, dys: dys)[0]


def _plain(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _filled(value: Any, env: Mapping[Any, Any]) -> Any:
    """Arguments with the values of nodes in place of nodes."""
    if isinstance(value, (list, tuple)):
        return [_filled(item, env) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, env) for key, item in value.items()}
    return env[value] if type(value).__name__ == "Node" else value


def _has_unknown(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_unknown, value))
    if isinstance(value, dict):
        return any(map(_has_unknown, value.values()))
    return value is UNKNOWN


def _dtypes(node: Any) -> tuple[np.dtype[Any] | None, ...]:
    """The dtypes of the results, as PyTorch computed them."""
    found = node.meta.get("val")
    values = found if isinstance(found, (list, tuple)) else [found]
    return tuple(dtype_of(v.dtype) if hasattr(v, "dtype") else None for v in values)


def _typed(result: Any, dtypes: Sequence[np.dtype[Any] | None]) -> Any:
    """Results in the dtypes that PyTorch gives them."""
    if isinstance(result, (list, tuple)):
        pairs = zip(result, [*dtypes, *[None] * len(result)], strict=False)
        return type(result)(_in_dtype(value, dtype) for value, dtype in pairs)
    return _in_dtype(result, dtypes[0] if dtypes else None)


def _in_dtype(value: Any, dtype: np.dtype[Any] | None) -> Any:
    if dtype is None or not isinstance(value, Tensor) or value.dtype == dtype:
        return value
    return cast(value, dtype)
