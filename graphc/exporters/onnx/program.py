"""A program as the nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.errors import ModelExportError
from graphc.exporters.onnx.aside import Aside, tensor_of
from graphc.exporters.onnx.call import Call
from graphc.exporters.onnx.dtypes import number_of
from graphc.exporters.onnx.legal import Schemas
from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.sizes import Place, Sizes
from graphc.exporters.onnx.table import RULES, WITHOUT_RULE
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import Shared, Writer
from graphc.ir.dims import as_multiple
from graphc.ir.dtypes import Array
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ops.matrices.narrow_operands import PRODUCTS, widens


class ProgramWriter:
    """Writes one program.

    Args:
        program: its feeds become inputs, its state initializers.
        arrays: the values of its state.
        opset: the version of ONNX's operators.
        names: feed or output -> its name in the model.
    """

    def __init__(
        self, program: Program, arrays: Mapping[str, Array], opset: int, names: Mapping[str, str]
    ) -> None:
        self._shared = Shared(Schemas(opset))
        self._program = program
        self._root = Writer(self._shared)
        self._refused: list[str] = []
        self._values: dict[Tensor, Value] = {}
        for name in names.values():
            self._shared.names.reserve(name)
        self._feeds = [self._feed(port, names[port.name]) for port in program.ports("feed")]
        for port in program.ports("state"):
            self._values[port.tensor] = self._root.known(port.name, arrays[port.name])
        self._sizes = Sizes(self._root, self._places())

    def _feed(self, port: Port, name: str) -> Value:
        type_ = port.tensor.type
        self._check_input(name, port.tensor)
        value = self._values[port.tensor] = Value(name, type_.dtype, type_.rank)
        return value

    def _check_input(self, name: str, tensor: Tensor) -> None:
        try:
            number_of(tensor.dtype)
        except Refused as why:
            self._refused.append(f"the input {name!r}: {why}")

    def _places(self) -> dict[str, Place]:
        """Named size -> where inputs have it, or a multiple of it."""
        found: dict[str, Place] = {}
        for port in self._program.ports("feed"):
            for axis, dim in enumerate(port.tensor.type.shape):
                multiple = as_multiple(dim)
                if multiple is not None:
                    name, factor = multiple
                    found.setdefault(name, Place(self._values[port.tensor], axis, factor))
        return found

    def write(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[tuple[str, Tensor]],
        unused: Mapping[str, Tensor],
        aside: Aside,
    ) -> Any:
        """The graph.

        Args:
            inputs: the names of the inputs, in their order.
            outputs: name -> the tensor of the program that has it.
            unused: inputs that the program has not, with their tensors.
            aside: takes the large tensors, if the model is to have them in another file.

        Raises:
            ModelExportError: ONNX cannot express some nodes; the error names them all.
        """
        for unfed, tensor in unused.items():
            self._check_input(unfed, tensor)
        self._body(self._root, self._program.nodes, self._values)
        if self._refused:
            raise ModelExportError.here(
                "to_onnx: ONNX cannot express some nodes",
                details=self._refused,
                hint="give the signature outputs that do not depend on them",
            )
        results = [self._result(name, self._values[tensor]) for name, tensor in outputs]
        ports = dict(
            zip([v.name for v in self._feeds], self._program.input_tensors("feed"), strict=True)
        )
        tensors = {**ports, **unused}
        infos = [_info(name, tensors[name]) for name in inputs]
        ends = [_info(v.name, t) for v, (_, t) in zip(results, outputs, strict=True)]
        return self._graph(name, infos, ends, aside)

    # -- nodes ---------------------------------------------------------------------------------

    def _body(self, writer: Writer, nodes: Iterable[Node], values: dict[Tensor, Value]) -> None:
        """Writes nodes; adds their results to `values`."""
        widened: dict[Tensor, Value] = {}  # int32 -> the int8 that it is a cast of
        for node in nodes:
            writer.prefix = node.name or node.op.name
            xs = [values[tensor] for tensor in node.inputs]
            if widens(node) and xs[0].dtype == np.int8:
                widened[node.outputs[0]] = xs[0]
            all_are = node.op in PRODUCTS and all(t in widened for t in node.inputs)
            narrow = [widened[t] for t in node.inputs] if all_are else ()
            call = Call(node, xs, writer, self._sizes, self._region, narrow)
            try:
                found = self._results(call)
            except Refused as why:
                self._refused.append(_described(node, str(why)))
                # Stand-ins, so that all refusals are found at once.
                found = [Value("", t.dtype, t.ndim) for t in node.outputs]
            values.update(zip(node.outputs, found, strict=True))

    def _results(self, call: Call) -> list[Value]:
        node, writer = call.node, call.w
        rule = RULES.get(node.op.name)
        if rule is None:
            raise Refused(WITHOUT_RULE[node.op.name])
        for tensor in (*node.inputs, *node.outputs):
            number_of(tensor.dtype)
        made = rule(call)
        found = [made] if isinstance(made, Value) else list(made)
        return [
            writer.cast(value, tensor.dtype)
            for value, tensor in zip(found, node.outputs, strict=True)
        ]

    def _region(self, writer: Writer, region: Program, operands: Sequence[Value]) -> list[Value]:
        values = dict(zip(region.input_tensors(), operands, strict=True))
        prefix = writer.prefix
        self._body(writer, region.nodes, values)
        writer.prefix = prefix
        return [values[tensor] for tensor in region.output_tensors()]

    # -- the graph -----------------------------------------------------------------------------

    def _result(self, name: str, value: Value) -> Value:
        """The value under the name of an output."""
        root = self._root
        root.nodes.append(_identity(value.name, name))
        return Value(name, value.dtype, value.rank)

    def _graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any], aside: Aside) -> Any:
        from onnx import helper

        ends = {info.name for info in outputs}
        nodes = _without_identities(_used(self._root.nodes, ends), ends)
        taken = _names_in(nodes)
        arrays = {n: a for n, a in self._shared.arrays.items() if n in taken}
        aside.decide(sum(array.nbytes for array in arrays.values()))
        tensors = [aside.taken(n, a) or tensor_of(n, a) for n, a in arrays.items()]
        return helper.make_graph(nodes, name, inputs, outputs, tensors)


def _described(node: Node, why: str) -> str:
    where = f"  {node.source}" if node.source else ""
    return f"{node.op.name} {node.name!r} {why}{where}"


def _identity(before: str, after: str) -> Any:
    from onnx import helper

    return helper.make_node("Identity", [before], [after], after)


def _bodies(node: Any) -> list[Any]:
    """The graphs among the attributes of a node."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _names_in(nodes: Iterable[Any]) -> set[str]:
    """The names that nodes read, also those that their bodies read."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for graph in _bodies(node):
            found |= _names_in(graph.node) | {value.name for value in graph.output}
    return found


def _used(nodes: Sequence[Any], outputs: Iterable[str]) -> list[Any]:
    """The nodes that the outputs need, in their order; bodies likewise."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if needed.isdisjoint(node.output):
            continue
        for graph in _bodies(node):
            inner = _used(list(graph.node), [value.name for value in graph.output])
            del graph.node[:]
            graph.node.extend(inner)
        needed |= _names_in([node])
        kept.append(node)
    return kept[::-1]


def _without_identities(nodes: list[Any], outputs: set[str]) -> list[Any]:
    """The nodes, with the names of outputs given to the results that they copy."""
    made = {name for node in nodes if node.op_type != "Identity" for name in node.output}
    renamed: dict[str, str] = {}
    kept = []
    for node in reversed(nodes):
        if node.op_type == "Identity" and node.output[0] in outputs:
            before, after = node.input[0], node.output[0]
            if before in made and before not in renamed and before not in outputs:
                renamed[before] = after
                continue
        kept.append(node)
    _rename(kept, renamed)
    return kept[::-1]


def _rename(nodes: Iterable[Any], renamed: Mapping[str, str]) -> None:
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
        for graph in _bodies(node):
            _rename(graph.node, renamed)


def _info(name: str, tensor: Tensor) -> Any:
    from onnx import helper

    dims = [dim if isinstance(dim, int) else str(dim) for dim in tensor.type.shape]
    return helper.make_tensor_value_info(name, number_of(tensor.dtype), dims)
