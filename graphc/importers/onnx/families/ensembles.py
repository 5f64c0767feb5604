"""Ensembles of trees: all trees walk down at the same time, one level in each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Refused
from graphc.ir.dtypes import Array

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@dataclass(frozen=True)
class Ensemble:
    """The nodes of all trees in one table.

    Attributes:
        roots: the first node of each tree.
        feature, threshold, mode, yes, no, missing: of each node; a leaf leads to itself.
        leaves: [nodes, targets]: what a leaf adds.
        reached: [nodes, targets]: whether a leaf has a value for a target.
        depth: the most steps to a leaf.
        ids, weights: the targets and weights as the model lists them.
    """

    roots: Array
    feature: Array
    threshold: Array
    mode: Array
    yes: Array
    no: Array
    missing: Array
    leaves: Array
    reached: Array
    depth: int
    ids: list[int]
    weights: list[float]


def read_ensemble(call: Call, kind: str) -> Ensemble:
    """The trees of a TreeEnsembleRegressor ("target") or TreeEnsembleClassifier ("class")."""
    trees, nodes = call.attr("nodes_treeids"), call.attr("nodes_nodeids")
    place = {(tree, node): i for i, (tree, node) in enumerate(zip(trees, nodes, strict=True))}
    modes = call.attr("nodes_modes")
    values = call.attr("nodes_values", call.attr("nodes_values_as_tensor"))
    count = len(nodes)
    own = np.arange(count)
    yes, no = own.copy(), own.copy()
    for i, mode in enumerate(modes):
        if mode == "LEAF":
            continue
        if mode not in _MODES:
            raise Refused(f"has the node mode {mode!r}, which is not supported")
        try:
            yes[i] = place[trees[i], call.attr("nodes_truenodeids")[i]]
            no[i] = place[trees[i], call.attr("nodes_falsenodeids")[i]]
        except KeyError as error:
            raise Refused(f"refers to a node {error.args[0]} that is not there") from error
    ids = [int(i) for i in call.attr(f"{kind}_ids")]
    weights = call.attr(f"{kind}_weights", call.attr(f"{kind}_weights_as_tensor"))
    width = max(call.attr("n_targets", 0), max(ids) + 1)
    leaves, reached = np.zeros((count, width)), np.zeros((count, width), bool)
    listed = zip(
        call.attr(f"{kind}_treeids"), call.attr(f"{kind}_nodeids"), ids, weights, strict=True
    )
    for tree, node, target, weight in listed:
        leaves[place[tree, node], target] += weight
        reached[place[tree, node], target] = True
    roots = np.array([place[tree, nodes[trees.index(tree)]] for tree in dict.fromkeys(trees)])
    return Ensemble(
        roots=roots,
        feature=np.array(call.attr("nodes_featureids"), np.int64),
        threshold=np.array(values),
        mode=np.array([_MODES.index(m) if m in _MODES else -1 for m in modes]),
        yes=yes,
        no=no,
        missing=np.array(call.attr("nodes_missing_value_tracks_true") or [0] * count, bool),
        leaves=leaves,
        reached=reached,
        depth=_depth(roots, yes, no),
        ids=ids,
        weights=[float(w) for w in weights],
    )


def _depth(roots: Array, yes: Array, no: Array) -> int:
    level, depth, seen = set(roots.tolist()), 0, 0
    while True:
        below = {int(n) for i in level for n in (yes[i], no[i]) if n != i}
        if not below:
            return depth
        level, depth = below, depth + 1
        seen += len(below)
        if seen > 4 * len(yes) + 4:
            raise Refused("has trees whose nodes form a circle")


def aggregated(ensemble: Ensemble, x: Any, function: str, width: int | None = None) -> Any:
    """[examples, targets]: the sum (or another aggregate) over the leaves that x reaches."""
    place = ops.broadcast_to(ensemble.roots, (x.shape[0], len(ensemble.roots)))
    threshold = ensemble.threshold.astype(x.dtype)
    for _ in range(ensemble.depth):
        value = ops.take_along_axis(x, ops.take(ensemble.feature, place), axis=1)
        limit, mode = ops.take(threshold, place), ops.take(ensemble.mode, place)
        held: Any = ops.zeros_like(value, dtype="bool")
        tests = (ops.less_equal, ops.less, ops.greater_equal, ops.greater, ops.equal, ops.not_equal)
        for number, test in enumerate(tests):
            if (ensemble.mode == number).any():
                held = ops.where(mode == number, test(value, limit), held)
        held = ops.logical_or(
            held, ops.logical_and(ops.isnan(value), ops.take(ensemble.missing, place))
        )
        place = ops.where(held, ops.take(ensemble.yes, place), ops.take(ensemble.no, place))
    leaves = ops.take(ensemble.leaves.astype(np.float32), place, axis=0)
    if function in ("SUM", "AVERAGE"):
        total = ops.reduce_sum(leaves, axis=1)
        if function == "AVERAGE":
            total = total / len(ensemble.roots)
    else:
        reached = ops.take(ensemble.reached, place, axis=0)
        far = np.inf if function == "MIN" else -np.inf
        reduce = ops.reduce_min if function == "MIN" else ops.reduce_max
        total = reduce(ops.where(reached, leaves, np.float32(far)), axis=1)
    if width is not None and width > ensemble.leaves.shape[1]:
        total = ops.pad(total, [(0, 0), (0, width - ensemble.leaves.shape[1])])
    return total
