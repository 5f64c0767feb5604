"""A user's actions on the page of a graph, for tests in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.reports.chromium import Page

# Finds the item with a name: a unit of the shown program, or else a group by its key.
_FIND = """name => [...app.code.all()].find(u => u.name === name && u.row)
  ?? app.code.byKey.get(name) ?? app.tree.groups.get(name)"""


class GraphPage:
    """The page of a graph in a browser.

    Args:
        page: the browser page that shows it.
    """

    def __init__(self, page: Page) -> None:
        self.page = page

    def open(self, path: Path) -> GraphPage:
        self.page.open(path)
        self.page.wait("typeof app !== 'undefined' && app.layouts !== null")
        self.page.frame()
        return self

    def eval(self, script: str) -> Any:
        return self.page.eval(script)

    # -- the graph ---------------------------------------------------------------------------

    def point(self, name: str, dx: float | None = None, dy: float | None = None) -> list[float]:
        """The position of an item in the window: its center, or a point relative to its corner."""
        at = f"[{json.dumps(dx)}, {json.dumps(dy)}]"
        script = f"""(() => {{
          const item = app.layouts.visible(({_FIND})({json.dumps(name)}));
          const [x, y, w, h] = app.layouts.rectangle(item);
          const [dx, dy] = {at}, box = view.canvas.getBoundingClientRect();
          return [box.x + (x + (dx ?? w / 2) - view.x) * view.scale,
                  box.y + (y + (dy ?? h / 2) - view.y) * view.scale]; }})()"""
        return [float(value) for value in self.eval(script)]

    def click(self, name: str, count: int = 1) -> None:
        self.page.click_at(*self.point(name), count=count)

    def click_sign(self, name: str) -> None:
        """Clicks the + or - of a group."""
        self.page.click_at(*self.point(name, 12, 12))

    def visible(self) -> set[str]:
        """The names of visible nodes, and the keys of visible groups."""
        script = """(() => { const found = [];
          (function walk(group) { for (const child of group.children) {
            found.push(child instanceof Group ? child.key : child.name || child.op);
            if (app.layouts.isOpen(child)) walk(child); } })(app.tree.root);
          return found; })()"""
        return set(self.eval(script))

    def names(self) -> list[str]:
        """The names of the nodes of the shown program, sorted."""
        return sorted(self.eval("[...app.code.all()].filter(u => u.row).map(u => u.name)"))

    def selected(self) -> str | None:
        found = self.eval("view.selected && (view.selected.name ?? view.selected.key)")
        return None if found is None else str(found)

    def details(self) -> str:
        return self.text("#details")

    # -- other parts of the page -------------------------------------------------------------

    def text(self, selector: str) -> str:
        return str(self.eval(f"document.querySelector({json.dumps(selector)}).innerText"))

    def count(self, selector: str) -> int:
        return int(self.eval(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def tab(self, name: str) -> None:
        self.page.click(f"#show-{name}")

    def search(self, text: str) -> None:
        self.page.key("/")
        self.eval("byId('search').select()")
        self.page.type(text)

    def colours(self) -> int:
        """The number of different colors in the picture of the graph."""
        script = """(() => { const found = new Set(), { width, height } = view.canvas;
          const { data } = view.context.getImageData(0, 0, width, height);
          for (const pixel of new Uint32Array(data.buffer)) found.add(pixel);
          return found.size; })()"""
        return int(self.eval(script))

    def window(self, width: int, height: int) -> None:
        self.page.send(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        self.page.frame()
