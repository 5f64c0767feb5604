"""A call that the user named with `cache_key=`: its program is found without tracing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.tree_util import tree_structure

from graphc.build.placeholders import placeholder
from graphc.build.variable_definition import variable
from graphc.config import CompileOptions
from graphc.devices.environment import environment_of
from graphc.devices.mesh import Strategy
from graphc.errors import GraphcError, GraphError, SerialError
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.types import TensorType, parse_type
from graphc.ir.variable import Variable
from graphc.jaxpr.keys import is_key
from graphc.jitted.arguments import Call, Form
from graphc.jitted.importing import Imported, Leaf, type_of
from graphc.jitted.program import JitProgram
from graphc.jitted.surroundings import Place
from graphc.jitted.trees import decoded, described, encoded
from graphc.jitted.values import stated
from graphc.passes.manager import PassReport
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.feeds.fetches import FetchSet
from graphc.runtime.pipeline.executable_cache import load_entry
from graphc.runtime.step.executable import Executable
from graphc.runtime.targets.executors import Executor
from graphc.runtime.targets.interface import Interface
from graphc.store.folder import ExecutableCache, open_cache


class StoredCall:
    """The record of one call in the cache of compiled programs.

    It states which entry has the executable, and how arguments and results relate to it. Its key
    consists of the user's `cache_key`, the forms of the arguments, the options and the environment.

    Args:
        cache_key: the user's name for the function and everything that it depends on.
        more: the other factors on which the program depends: the strategy, the roles of arguments.

    Raises:
        SerialError: a static argument, or the metadata of a pytree, cannot be identified in another
            process.
    """

    def __init__(
        self,
        cache_key: str,
        name: str,
        call: Call,
        forms: Sequence[Form],
        options: CompileOptions,
        strategy: Strategy | None,
        place: Place | None,
        more: Sequence[Any],
    ) -> None:
        self._name, self._forms, self._options = name, forms, options
        alone = [] if place is None else [place.device]
        self._devices = alone if strategy is None else list(strategy.resolve())
        self._environment = environment_of(self._devices)
        arguments = [
            [described(form.tree, strictly=True), [str(aval) for aval in form.avals]]
            for form in forms
        ]
        statics = [[label, stated(value)] for label, _, value in call.statics]
        facts = [
            "call", cache_key, call.labels, statics, arguments, options.meaning(), repr(strategy),
            repr(more), place is not None and place.commits, self._environment,
        ]  # fmt: skip
        text = json.dumps(facts, sort_keys=True, default=repr)
        self._key = hashlib.sha256(text.encode()).hexdigest()

    def find(self, layouts: dict[Any, StateLayout]) -> JitProgram | None:
        """The program, if the cache has it. `layouts` is as for `JitProgram`."""
        cache = self._cache()
        record = None if cache is None else cache.get(self._key)
        if cache is None or record is None:
            return None
        try:
            return self._program(record.metadata["call"], cache, layouts)
        except (GraphcError, KeyError, TypeError, ValueError, IndexError, AttributeError):
            return None  # the function is then traced, and the record replaced

    def keep(self, program: JitProgram) -> None:
        """Records the call, if its executable is in the cache and needs no other data."""
        cache, imported = self._cache(), program.imported
        executable = program.executable
        if cache is None or executable.cache_key is None or imported.held:
            return
        entry = cache.get(executable.cache_key)
        own = json.loads(json.dumps(executable.interface.to_json()))
        if entry is None or entry.metadata.get("interface") != own:
            return
        try:
            tree = encoded(imported.out_tree, [form.tree for form in self._forms])
        except SerialError:
            return
        fetched = {tensor: i for i, tensor in enumerate(dict.fromkeys(imported.fetched()))}
        call = {
            "executable": executable.cache_key,
            "variables": [
                [leaf.argument, leaf.number, v.name, str(v.type)]
                for leaf, v in imported.variables.items()
            ],
            "feeds": [[leaf.argument, leaf.number] for leaf in program.sources],
            "results": [
                result.name if isinstance(result, Variable) else fetched[result]
                for result in imported.results
            ],
            "tree": tree,
            "avals": [
                [is_key(aval.dtype), str(aval.dtype), list(aval.shape), aval.weak_type]
                for aval in imported.out_avals
            ],
            "segments": [[argument, first] for argument, first in imported.segments.items()],
        }
        metadata = {
            "program": f"{self._name} (call)",
            "environment": self._environment,
            "call": call,
        }
        cache.put(self._key, metadata, b"")

    def _cache(self) -> ExecutableCache | None:
        if self._options.validate or self._options.dump is not None or jax.process_count() > 1:
            return None
        return open_cache(self._options)

    def _program(
        self, call: Mapping[str, Any], cache: ExecutableCache, layouts: dict[Any, StateLayout]
    ) -> JitProgram | None:
        entry = cache.get(call["executable"])
        if entry is None:
            return None
        types = {name: parse_type(text) for _, _, name, text in call["variables"]}
        known = layouts.get(frozenset(types.items()), StateLayout(types))
        found = load_entry(entry, known, self._devices)
        if found is None:
            return None
        imported, feeds = self._skeleton(call, found.interface, types)
        fetches = FetchSet.of(imported.graph, imported.fetched(), feeds)
        COUNTERS.add(cache_hits=1)
        executable = Executable(
            fetches,
            Executor(
                found.interface,
                lambda: found.compiled,
                self._devices,
                self._options.max_in_flight,
            ),
            layout=found.layout,
            report=found.report,
            key=call["executable"],
            stages=_Untraced(found.report),  # type: ignore[arg-type]
            load_seconds=found.seconds,
        )
        return JitProgram(imported, self._forms, executable.wait(), layouts)

    def _skeleton(
        self, call: Mapping[str, Any], interface: Interface, types: Mapping[str, TensorType]
    ) -> tuple[Imported, list[Tensor]]:
        """A graph with the ports of the function but no nodes between them; and its feeds."""
        graph = Graph(name=interface.name)
        avals = [_aval(row) for row in call["avals"]]
        tree = tree_structure(decoded(call["tree"], [form.tree for form in self._forms], avals))
        imported = Imported(graph, {}, [], {}, [], [], tree, avals)
        imported.segments = {argument: first for argument, first in call["segments"]}
        with graph:
            for argument, number, name, _ in call["variables"]:
                type = types[name]
                made = variable("zeros", shape=type.shape, dtype=type.dtype, name=name)
                imported.variables[Leaf(argument, number)] = made
            feeds = [_port(value) for value in interface.feeds]
            fetched = [_port(value) for value in interface.fetches]
        by_name = {v.name: v for v in imported.variables.values()}
        leaves = [Leaf(argument, number) for argument, number in call["feeds"]]
        imported.feeds = dict(zip(leaves, feeds, strict=True))
        found: dict[Any, Tensor | Variable] = {**by_name, **dict(enumerate(fetched))}
        imported.results = [found[result] for result in call["results"]]
        self._check(imported)
        return imported, feeds

    def _check(self, imported: Imported) -> None:
        """Raises `SerialError` unless the parts of a record match each other and the arguments."""
        ports = [*imported.variables.items(), *imported.feeds.items()]
        for leaf, port in ports:
            aval = self._forms[leaf.argument].avals[leaf.number]
            if leaf.number < 0 or port.type != type_of(aval):
                raise SerialError(f"the record has another type for leaf {leaf}")
        count = imported.out_tree.num_leaves
        if not len(imported.results) == len(imported.out_avals) == count:
            raise SerialError("the record has another number of results than their structure")
        for result, aval in zip(imported.results, imported.out_avals, strict=True):
            if result.type != type_of(aval):
                raise SerialError("the record has another type for a result")
        for argument, first in imported.segments.items():
            leaves = [Leaf(argument, n) for n in range(len(self._forms[argument].avals))]
            replaced = [imported.variables[leaf] for leaf in leaves]
            if imported.results[first : first + len(leaves)] != replaced:
                raise SerialError("the record replaces an argument by something else")


def _port(value: Any) -> Tensor:
    name = value.name.rpartition(":")[0] or value.name
    return placeholder(value.type.shape, value.type.dtype, name=name, batch_axis=None)


def _aval(row: Sequence[Any]) -> Any:
    """A substitute for the abstract value of a leaf of the result, with its dtype and weak type."""
    typed_key, dtype, shape, weak = row
    kind = _key_dtype() if typed_key else jax.numpy.dtype(dtype)
    return jax.ShapeDtypeStruct(tuple(shape), kind, weak_type=weak)


def _key_dtype() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype


class _Untraced:
    """A substitute for the stages of a program that was found without tracing its function."""

    def __init__(self, report: PassReport) -> None:
        self.report = report

    def __getattr__(self, name: str) -> Any:
        raise GraphError(
            "the program was found by its cache_key, and its function was not traced",
            hint="look at it with memory(), hlo(), cost() and pass_report(); or call gc.jit "
            "without cache_key=",
        )
