"""Refuses what a rule does not read.

The standard fixes the inputs and attributes of its operators by version. The operators of ONNX
Runtime get new ones without a new version, so their rules name those that they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphc.importers.onnx.call import Call, Refused, Rule


def limited(rule: Rule, inputs: int | None, attrs: str = "", outputs: int = 1) -> Rule:
    """The rule, for nodes that have nothing else than what it reads.

    Args:
        rule: of an operator.
        inputs: how many inputs it reads; None for any number.
        attrs: the names of the attributes that it reads.
        outputs: how many results it gives.
    """
    known = frozenset(attrs.split())

    def checked(call: Call) -> Any:
        unknown = sorted(set(call.attrs) - known)
        if unknown:
            raise Refused(f"has the attribute {unknown[0]!r}, which is not supported")
        for i in range(len(call.inputs) if inputs is not None else 0):
            if i >= (inputs or 0) and call.has(i):
                raise Refused(f"has an input number {i}, which is not supported")
        for i in range(outputs, len(call.outputs)):
            if call.wants(i):
                raise Refused(f"has a result number {i} that is used, which is not supported")
        return rule(call)

    return checked


def without(call: Call, **unused: Any) -> None:
    """Refuses attributes with other values than those that mean nothing.

    Args:
        call: the node.
        unused: the value with which each attribute changes nothing.
    """
    for name, value in unused.items():
        if call.attr(name, value) != value:
            raise Refused(f"with {name}={call.attr(name)!r} is not supported")


def as_standard(call: Call, rule: Rule, version: int, **attrs: Any) -> Any:
    """The results of a rule of the standard for this node.

    Args:
        call: the node.
        rule: of an operator of the standard.
        version: the version of the standard whose meaning the node has.
        attrs: attributes in place of those of the node.
    """
    own: Mapping[str, Any] = {**call.attrs, **attrs}
    return rule(replace(call, version=version, attrs=dict(own)))
