"""Pages of unusual graphs in headless Chromium: forged names, and 5,000 nodes."""

from pathlib import Path
from typing import Any

import optax
import pytest

import graphc as gc
from tests.reports.chromium import FOUND
from tests.reports.graph_pages import GraphPage

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason="chromium is not installed"),
    pytest.mark.xdist_group("chromium"),
]

FORGED = (
    "</script><img src=x onerror=alert(1)>",
    "<b>bold</b>",
    "`${1}'\"&amp;",
    "é✓\u202e",
    "a" * 3900,
)


@pytest.mark.slow
def test_forged_names(graph_page: GraphPage, tmp_path: Path) -> None:
    graph = gc.Graph(name="<img src=x onerror=alert(1)>")
    with graph:
        x = gc.placeholder((2,), name="x")
        made = [gc.exp(x, name=name) for name in FORGED]
        made += [gc.exp(x, name="/".join(["scope" * 40] * 18 + [str(i)])) for i in range(2)]
        made += [gc.exp(x, name=f"__proto__/{i}") for i in range(2)]
        made += [gc.exp(x, name="a/" * 1900 + str(i)) for i in range(2)]
    gc.report(graph, tmp_path / "r.html", made, {x: (2,)})
    page = graph_page.open(tmp_path / "r.html")
    for tab in ("nodes", "memory", "devices", "passes", "placement", "graph"):
        page.tab(tab)
        assert page.count("img") == page.count("b") == 0
    for name in FORGED:
        page.search(name[:60].lower())
        page.page.key("Enter")
        assert page.selected() == name
        assert page.count("#details img") == page.count("#details b") == 0
    page.page.click("#unfold")
    assert page.colours() > 5
    page.search("a/a/a/a")
    page.page.key("Enter")
    assert page.selected() == "a/" * 1900 + "0" and page.colours() > 5


# -- large graphs ------------------------------------------------------------------------------


def scoped() -> tuple[Any, ...]:
    graph = gc.Graph(seed=0)
    with graph:
        x = h = gc.placeholder(("batch", 16), name="x")
        for i in range(9):
            with gc.name_scope(f"stage{i // 3}"), gc.name_scope(f"block{i}"):
                for j in range(5):
                    with gc.name_scope(f"unit{j}"):
                        width = 16 + (i * 7 + j) % 5
                        y = gc.nn.Dense(width, activation=gc.nn.relu, name="a")(h)
                        h = h + gc.tanh(gc.nn.Dense(16, name="b")(y)) * 0.5
        loss = gc.reduce_mean(gc.square(h - x), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    return graph, [train, loss], {x: (8, 16)}


def flat() -> tuple[Any, ...]:
    graph = gc.Graph(seed=0)
    with graph:
        x = h = gc.placeholder((8, 8), name="x")
        for i in range(5000):
            h = gc.tanh(h) if i % 2 else h + x
    return graph, h, {x: (8, 8)}


_TIMED = """(async () => {{ const start = performance.now(); {action};
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start; }})()"""
_FRAMES = """(async () => { const times = []; let last = performance.now();
  for (let i = 0; i < 60; i++) { view.zoom(i % 40 < 20 ? 1.1 : 1 / 1.1);
    await new Promise(done => requestAnimationFrame(done));
    const now = performance.now(); times.push(now - last); last = now; }
  return times.sort((a, b) => a - b)[30]; })()"""


def test_long_graph_begins_at_its_top(graph_page: GraphPage, tmp_path: Path) -> None:
    """A node with many users is above them, and not among nodes without edges."""
    graph = gc.Graph()
    with graph:
        x = h = gc.placeholder((2,), name="x")
        for i in range(1000):
            h = gc.tanh(h) if i % 2 else h + x
    gc.report(graph, tmp_path / "r.html", h, {x: (2,)})
    page = graph_page.open(tmp_path / "r.html")
    tops = page.eval(
        "app.tree.root.children.map(child => app.layouts.place(app.tree.root).places.get(child)[1])"
    )
    assert len(tops) == 14 and tops == sorted(tops)


@pytest.mark.slow
@pytest.mark.parametrize("build", [scoped, flat], ids=["scoped", "flat"])
def test_five_thousand_nodes(graph_page: GraphPage, tmp_path: Path, build: Any) -> None:
    """The limits are several times the measured times, because test machines are busy."""
    graph, fetches, feeds = build()
    assert len(graph.nodes) >= 5000
    gc.report(graph, tmp_path / "r.html", fetches, feeds)
    page = graph_page.open(tmp_path / "r.html")

    def timed(action: str) -> float:
        return float(page.eval(_TIMED.format(action=action)))

    opened = page.eval("performance.getEntriesByType('navigation')[0].domComplete")
    assert opened < 6000
    assert timed("unfoldLevel()") < 3000
    assert timed("toggle(app.layouts.folded()[0])") < 1500
    assert timed("byId('search').value = 'tanh'; search()") < 600
    assert timed("reveal(app.code.nodes[app.code.nodes.length >> 1])") < 1500
    assert page.eval(_FRAMES) < 100
    assert timed("showStep(DATA.steps.length - 1)") < 3000
