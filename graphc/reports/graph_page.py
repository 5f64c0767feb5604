"""The page of a graph: its data, its scripts and its style in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

# In the order in which they use each other.
_SCRIPTS = (
    *("vendor/dagre.min.js", "graph/format.js", "graph/model.js", "graph/tree.js"),
    *("graph/layout.js", "graph/colours.js", "graph/view.js", "graph/details.js"),
    *("graph/tables.js", "graph/charts.js", "graph/main.js"),
)


def page(data: Mapping[str, Any]) -> str:
    """The text of the page.

    Args:
        data: from `graph_data`.
    """
    parts = {
        "title": escape(str(data["title"])),
        "style": resource("graph/graph.css"),
        "data": embedded(data),
        "scripts": "\n".join(f"<script>{_script(name)}</script>" for name in _SCRIPTS),
    }
    before, *rest = resource("graph/graph.html").split("{{")
    made = [before]
    for part in rest:  # each begins with a name: values are put in once, and not read again
        name, _, text = part.partition("}}")
        made += [parts[name], text]
    return "".join(made)


def embedded(value: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element: it cannot end it, or open a comment in it."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII, so U+2028 is escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _script(name: str) -> str:
    """A script. Those of others stand below their licence, which each copy must have."""
    if not name.startswith("vendor/"):
        return resource(name)
    licence = resource(name.replace(".min.js", ".LICENSE.txt"))
    return f"/*! {name.removeprefix('vendor/')}\n{licence}*/\n{resource(name)}"


def resource(name: str) -> str:
    """A file of the folder `page`."""
    return files("graphc.reports").joinpath("page", *name.split("/")).read_text("utf-8")
