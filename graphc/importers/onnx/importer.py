"""Adds the nodes of an ONNX model to the graph being built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from graphc.errors import GraphcError
from graphc.importers.core.refusals import Refusal
from graphc.importers.onnx import host
from graphc.importers.onnx.call import Call, Refused
from graphc.importers.onnx.choices import check_choices
from graphc.importers.onnx.reading import File, array_of, attributes, broken
from graphc.importers.onnx.strings import results_of_strings
from graphc.importers.onnx.table import DOMAINS, find_rule
from graphc.importers.onnx.values import Value, WeightRef, flattened
from graphc.ir.scopes import at_source
from graphc.ir.source import Source

_WEIGHT = 1024  # elements from which integers are a weight, and not a constant of the program


UNKNOWN: Final = object()
"""The value of what could not be imported. What needs it is skipped."""


def is_weight(array: np.ndarray[Any, Any]) -> bool:
    """Whether an initializer is a weight: floats, and large arrays of integers."""
    if array.dtype == object:
        return False
    return array.dtype.kind in "fcV" or array.size >= _WEIGHT


class Importer:
    """One pass over a model. Collects what cannot be imported.

    Args:
        file: the model.
        weights: the initializers that are weights.
        constants: the other initializers.
        weight: gives the variable of a weight.

    Attributes:
        refusals: what could not be imported.
        needs: whether a refusal would not be there if more values were known at import.
    """

    def __init__(
        self,
        file: File,
        weights: Mapping[str, np.ndarray[Any, Any]],
        constants: Mapping[str, np.ndarray[Any, Any]],
        weight: Callable[[str], Any],
    ) -> None:
        self._file = file
        self._weight = weight
        self._versions = {_domain(o.domain): o.version for o in file.proto.opset_import}
        self._functions = {
            (_domain(f.domain), f.name, getattr(f, "overload", "")): f for f in file.proto.functions
        }
        self._outer: dict[str, Value] = {
            **{name: WeightRef(name, array) for name, array in weights.items()},
            **constants,
        }
        self._depth = 0
        self._line = 0
        self.refusals: list[Refusal] = []
        self.needs = False

    def run(self, inputs: Mapping[str, Value]) -> list[Value]:
        """Adds the nodes of the main graph; returns its results."""
        graph = self._file.proto.graph
        values = {**self._outer, **inputs}
        self._line = 0
        self._nodes(graph.node, values, self._versions)
        return [self._result(values, output.name) for output in graph.output]

    @property
    def outputs(self) -> list[str]:
        """The names of the results."""
        return [output.name for output in self._file.proto.graph.output]

    def _result(self, values: Mapping[str, Value], name: str) -> Value:
        if name not in values:
            raise broken(f"{self._file.name}: the result {name!r} is not computed by any node")
        return values[name]

    def _nodes(
        self, nodes: Sequence[Any], values: dict[str, Value], versions: Mapping[str, int]
    ) -> None:
        for node in nodes:
            self._line += 1
            line = self._line
            with at_source(Source(self._file.name, line)):
                results = self._node(node, values, versions)
            for name, value in zip(node.output, results, strict=False):
                if name:
                    values[name] = value

    def _node(self, node: Any, values: dict[str, Value], versions: Mapping[str, int]) -> Any:
        """The results of a node; `UNKNOWN` for those of a node that cannot be imported."""
        unknown = [UNKNOWN] * len(node.output)
        given: list[Value] = []
        for name in node.input:
            if name and name not in values:
                raise broken(
                    f"{self._file.name}: {node.op_type} {node.name!r} uses {name!r}, which nothing "
                    "computes before it"
                )
            given.append(values[name] if name else None)
        if any(value is UNKNOWN for value in flattened(given)):
            return unknown
        named = node.name or next(iter(node.output), "")
        where = f"{self._file.name}:{self._line}, node {named!r}"
        domain = _domain(node.domain)
        try:
            found = self._results(node, domain, given, values, versions)
        except Refused as refused:
            self.needs |= refused.needs
            name = node.op_type if not domain else f"{domain}.{node.op_type}"
            self.refusals.append(Refusal(name, refused.why, where))
            return unknown
        except GraphcError as error:
            if not error.details or not str(error.details[-1]).startswith("in "):
                error.details = (*error.details, f"in {node.op_type} ({where})")
            raise
        except Exception as error:  # a rule met operands or attributes that are not valid
            why = f"has operands or attributes that are not valid ({type(error).__name__}: {error})"
            self.refusals.append(Refusal(node.op_type, why, where))
            return unknown
        results = list(found) if isinstance(found, tuple) else [found]
        return [*results, *unknown[len(results) :]]

    def _results(
        self,
        node: Any,
        domain: str,
        given: Sequence[Value],
        values: Mapping[str, Value],
        versions: Mapping[str, int],
    ) -> Any:
        key = (domain, node.op_type, getattr(node, "overload", ""))
        function = self._functions.get(key)
        if function is not None:
            return self._call(function, node, given)
        version = versions.get(domain)
        if version is None:
            raise Refused(f"is of the domain {domain!r}, which the model does not import")
        call = Call(
            node.op_type,
            version,
            given,
            attributes(node, self._file.folder),
            list(node.output),
            self._weight,
            lambda graph, args: self._body(graph, args, values, versions),
        )
        if domain in DOMAINS:
            check_choices(call)
        rule = find_rule(domain, node.op_type)
        if host.can_compute(call) and domain in DOMAINS:
            computed = host.compute(call, node, domain, must=rule is None)
            if computed is not None:
                return tuple(computed)
        of_strings = results_of_strings(call, rule)
        if of_strings is not None:
            return of_strings
        if rule is not None:
            return rule(call)
        body = _function_of(node, domain, version, given)
        if body is None:
            raise Refused("is not imported")
        return self._call(body, node, given)

    def _call(self, function: Any, node: Any, given: Sequence[Value]) -> tuple[Value, ...]:
        """The results of a call of a function."""
        self._depth += 1
        if self._depth > 100:
            raise broken(f"{self._file.name}: its functions call each other more than 100 deep")
        values: dict[str, Value] = dict.fromkeys(function.input)
        values.update(zip(function.input, given, strict=False))
        nodes = [_bound(inner, function, node) for inner in function.node]
        versions = self._versions_of(function)
        line = self._line
        self._nodes(nodes, values, versions)
        self._line = line
        self._depth -= 1
        return tuple(values.get(name, UNKNOWN) for name in function.output)

    def _versions_of(self, function: Any) -> Mapping[str, int]:
        """The versions of the operators in a function. Functions of the standard may not say."""
        own = {_domain(o.domain): o.version for o in function.opset_import}
        if "" in own:
            return own
        from onnx import defs

        return {"": defs.onnx_opset_version(), **self._versions, **own}

    def _body(
        self,
        graph: Any,
        args: Sequence[Value],
        values: Mapping[str, Value],
        versions: Mapping[str, int],
    ) -> list[Value]:
        """The results of a subgraph."""
        inner = dict(values)
        for initializer in graph.initializer:
            inner[initializer.name] = array_of(initializer, self._file.folder)
        inner.update(zip([port.name for port in graph.input], args, strict=False))
        line, before = self._line, len(self.refusals)
        self._nodes(graph.node, inner, versions)
        self._line = line
        results = [self._result(inner, output.name) for output in graph.output]
        inside = self.refusals[before:]
        if inside:  # the node around the body may have another way
            del self.refusals[before:]
            reasons = "; ".join(f"{refusal.what} {refusal.why}" for refusal in inside)
            raise Refused(f"has a body in which {reasons}", needs=True)
        return results


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _function_of(node: Any, domain: str, version: int, given: Sequence[Value]) -> Any:
    """The body that the standard gives for an operator, in terms of other operators; or None."""
    from onnx import FunctionProto, defs

    try:
        schema: Any = defs.get_schema(node.op_type, version, domain)
    except Exception:  # there is no such operator
        return None
    function = FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        types = [_type_of(value).SerializeToString() for value in given]
        body = schema.get_context_dependent_function(node.SerializeToString(), types)
        function.ParseFromString(body)
    else:
        return None
    return function


def _type_of(value: Value) -> Any:
    """The type of a tensor, for functions that depend on it."""
    from onnx import TypeProto, helper

    array = value.array if isinstance(value, WeightRef) else value
    if array is None or isinstance(array, list):
        return TypeProto()
    dtype = np.dtype(np.int64) if array.dtype == object else np.dtype(array.dtype)
    dims = [d if isinstance(d, int) else str(d) for d in array.shape]
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), dims)


def _bound(inner: Any, function: Any, caller: Any) -> Any:
    """A node of a function with the attributes of its caller in place of references to them."""
    if not any(attr.ref_attr_name for attr in inner.attribute):
        return inner
    from onnx import NodeProto

    given = {attr.name: attr for attr in function.attribute_proto}
    given.update({attr.name: attr for attr in caller.attribute})
    bound = NodeProto()
    bound.CopyFrom(inner)
    del bound.attribute[:]
    for attr in inner.attribute:
        if not attr.ref_attr_name:
            bound.attribute.append(attr)
        elif attr.ref_attr_name in given:
            copied = bound.attribute.add()
            copied.CopyFrom(given[attr.ref_attr_name])
            copied.name = attr.name
    return bound
