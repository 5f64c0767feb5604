"""`graphc inspect`: the content of a script's graph, or of an artifact."""

from __future__ import annotations

import argparse
from typing import Any

from graphc.cli.inspect_artifact import show_artifact
from graphc.cli.report import amount, check_writable, print_result, table
from graphc.cli.script import load_job
from graphc.cli.targets import Target, ask_for_devices, strategy_for, target_of
from graphc.config import CompileOptions
from graphc.errors import ArtifactError, GraphcError
from graphc.ir.costs import Cost
from graphc.ir.dims import product
from graphc.ir.opdef import Effects
from graphc.ir.program import Program
from graphc.ir.text import print_graph, print_program
from graphc.passes.core.costs import program_costs, total
from graphc.reports.graph_report import write_page
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.state.initial import state_types
from graphc.runtime.step.compiler import compile
from graphc.runtime.step.pass_history import layout_for, pass_history
from graphc.runtime.targets.prepare import prepare
from graphc.train.job import Job

_NODES = 25  # how many of the most expensive nodes are shown
_OF_FETCHES = ("passes", "before", "after", "cost", "stablehlo", "html")


def run(options: argparse.Namespace) -> None:
    """Prints a summary, or the parts that were requested."""
    if not options.target.endswith(".py"):
        if options.html is not None:
            raise ArtifactError(
                f"--html shows a script's graph, and {options.target!r} is not a script",
                hint="an artifact keeps no passes and no lines of the program",
            )
        return show_artifact(options)
    check_writable(options.html)
    asked = _asked(options)
    for part in ("fetch", "feed"):
        if getattr(options, part) and not asked:
            raise GraphcError(
                f"--{part} selects a program, but no option that shows one was given",
                hint=f"add one of {', '.join(f'--{part}' for part in _OF_FETCHES)}",
            )
    ask_for_devices(options.devices)
    job = load_job(options.target, options.arguments)
    facts: dict[str, Any] = {"graph": job.graph.name}
    texts: list[str] = []
    if options.graph:
        facts["text"] = print_graph(job.graph, elide=True)
        texts.append(facts["text"])
    if asked:
        target = target_of(job, options.fetch, options.feed)
        texts += _show_program(options, job, target, facts)
    if not texts:
        facts |= _summary(job)
        texts = _summary_text(job, facts)
    print_result(facts, texts, as_json=options.json)


def _asked(options: argparse.Namespace) -> list[str]:
    """The requested parts that show the programs of fetches."""
    return [part for part in _OF_FETCHES if getattr(options, part) not in (None, False)]


def _show_program(
    options: argparse.Namespace, job: Job, target: Target, facts: dict[str, Any]
) -> list[str]:
    """The parts that show the program of a set of fetches."""
    texts = []
    if options.html is not None:
        write_page(options.html, _compilation(options, job, target), state_types(job.graph))
        facts["html"] = options.html
        texts.append(f"wrote {options.html}")
    if any(part not in ("stablehlo", "html") for part in _asked(options)):
        compilation = _compilation(options, job, target)
        history = pass_history(compilation, layout_for(job.graph, compilation))
        if options.passes:
            facts["passes"] = history.report.to_json()
            texts.append(str(history))
        for which in ("before", "after"):
            name = getattr(options, which)
            if name is not None:
                text = print_program(getattr(history, which)(name), elide=True)
                facts[which] = {"pass": name, "text": text}
                texts += [f"# {which} {name}", text]
        if options.cost:
            facts["cost"] = _costs(compilation.program)
            texts += _cost_text(facts["cost"])
    if options.stablehlo:
        strategy = strategy_for(options.devices)
        compiling = CompileOptions(pipeline=options.pipeline)
        feeds = dict(target.feeds)
        step = compile(job.graph, target.fetches, feeds, strategy=strategy, options=compiling)
        facts["stablehlo"] = step.stablehlo()
        texts.append(facts["stablehlo"])
    return texts


def _compilation(options: argparse.Namespace, job: Job, target: Target) -> Compilation:
    """The compilation for an executable of the fetches, before any pass has run."""
    compiling = CompileOptions(pipeline=options.pipeline)
    prepared = prepare(job.graph, target.nest.distinct, list(target.feeds), compiling)
    shapes = list(target.feeds.values())
    request = CompileRequest(prepared, shapes, compiling, strategy_for(options.devices))
    return Compilation(request)


# -- costs ----------------------------------------------------------------------------------


def _costs(program: Program) -> dict[str, Any]:
    costs = program_costs(program)
    by_operator: dict[str, list[Cost]] = {}
    for node, cost in costs:
        by_operator.setdefault(node.op.name, []).append(cost)
    operators = [
        {"operator": name, "count": len(found), **total(found)._asdict()}
        for name, found in by_operator.items()
    ]
    nodes = [
        {
            "node": node.name,
            "operator": node.op.name,
            "type": ", ".join(str(t.type) for t in node.outputs),
            **cost._asdict(),
            "source": str(node.source or ""),
        }
        for node, cost in costs
    ]
    return {
        "total": total(cost for _, cost in costs)._asdict(),
        "operators": sorted(operators, key=_costliest),
        "nodes": sorted(nodes, key=_costliest),
    }


def _costliest(row: dict[str, Any]) -> tuple[int, int]:
    return -row["flops"], -row["bytes"]


def _cost_text(costs: dict[str, Any]) -> list[str]:
    whole = costs["total"]
    operators = [("operator", "nodes", "FLOP", "%", "bytes")]
    operators += [
        (row["operator"], str(row["count"]), *_figures(row, whole)) for row in costs["operators"]
    ]
    shown = costs["nodes"][:_NODES]
    nodes = [("node", "FLOP", "%", "bytes", "operator", "result", "made at")]
    nodes += [
        (r["node"], *_figures(r, whole), r["operator"], r["type"], r["source"]) for r in shown
    ]
    rest = len(costs["nodes"]) - len(shown)
    return [
        f"{amount(whole['flops'], 'FLOP')}, {amount(whole['bytes'], 'B')} before fusion "
        "(estimated from shapes)",
        *table(operators, right=(1, 2, 3, 4)),
        "costliest nodes",
        *table(nodes, right=(1, 2, 3)),
        *([f"  and {rest} more"] if rest else []),
    ]


def _figures(row: dict[str, Any], whole: dict[str, int]) -> tuple[str, str, str]:
    share = 100 * row["flops"] / max(whole["flops"], 1)
    return amount(row["flops"], ""), f"{share:.1f}", amount(row["bytes"], "B")


# -- summary --------------------------------------------------------------------------------


def _summary(job: Job) -> dict[str, Any]:
    graph = job.graph
    return {
        "nodes": len(graph.nodes),
        "feeds": {
            node.name: {"type": str(node.outputs[0].type), "source": str(node.source or "")}
            for node in graph.nodes
            if node.op.effects & Effects.FEED
        },
        "variables": {
            variable.name: {
                "type": str(variable.type),
                "trainable": variable.trainable,
                "source": str(variable.source or ""),
            }
            for variable in graph.variables.values()
        },
        "parameters": sum(
            int(str(product(v.type.shape))) for v in graph.variables.values() if v.trainable
        ),
        "steps": job.steps,
        "metrics": list(job.metrics),
        "signatures": list(job.signatures),
    }


def _summary_text(job: Job, facts: dict[str, Any]) -> list[str]:
    feeds = [(name, row["type"], row["source"]) for name, row in facts["feeds"].items()]
    variables = [
        (name, row["type"], "trainable" if row["trainable"] else "", row["source"])
        for name, row in facts["variables"].items()
    ]
    rows = [
        ("steps", str(job.steps)),
        ("metrics", ", ".join(job.metrics) or "none"),
        ("signatures", ", ".join(job.signatures) or "none"),
    ]
    return [
        f"{job.graph.name}: {facts['nodes']} nodes, {facts['parameters']:,} parameters",
        *table(rows),
        "feeds",
        *table(feeds),
        "variables",
        *table(variables),
    ]
