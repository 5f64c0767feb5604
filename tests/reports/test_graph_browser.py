"""The page of a graph in headless Chromium: clicks, folding, search, passes and other tabs."""

from pathlib import Path
from typing import Any

import optax
import pytest

import graphc as gc
from tests.reports.chromium import FOUND
from tests.reports.graph_pages import GraphPage
from tests.reports.models import mlp, transformer
from tests.reports.page_data import Data, read, rows

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason="chromium is not installed"),
    pytest.mark.xdist_group("chromium"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, model in (("mlp", mlp(16, 8)), ("rolled", transformer())):
        made[name] = folder / f"{name}.html"
        shapes = {key: value.shape for key, value in model.feeds.items()}
        gc.report(model.graph, made[name], model.fetches, shapes)
    made["pipeline"] = folder / "pipeline.html"
    gc.report(*pipeline(made["pipeline"]))
    return made


def pipeline(path: Path) -> tuple[Any, ...]:
    graph = gc.Graph(seed=0, name="two stages")
    with graph:
        x = h = gc.placeholder(("batch", 8), name="x")
        for i in range(2):
            with gc.device(f"/cpu:{i}"):
                h = gc.nn.Dense(8, name=f"stage{i}")(h)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1), accumulate=2, name="train")
    return graph, path, [train], {x: (8, 8)}


@pytest.fixture
def mlp_page(graph_page: GraphPage, files: dict[str, Path]) -> GraphPage:
    return graph_page.open(files["mlp"])


@pytest.fixture
def rolled_page(graph_page: GraphPage, files: dict[str, Path]) -> GraphPage:
    return graph_page.open(files["rolled"])


@pytest.fixture
def pipeline_page(graph_page: GraphPage, files: dict[str, Path]) -> GraphPage:
    return graph_page.open(files["pipeline"])


def names_of(data: Data, step: int) -> list[str]:
    return sorted(row["n"] for row in rows(data, data["programs"][data["steps"][step]["program"]]))


def test_page_is_drawn_and_asks_for_nothing(mlp_page: GraphPage, files: dict[str, Path]) -> None:
    assert mlp_page.colours() > 10
    assert mlp_page.text("#title") == read(files["mlp"])["title"]
    others = [url for url in mlp_page.page.requests if not url.startswith("file:")]
    assert not others
    assert len([url for url in mlp_page.page.requests if url.endswith("mlp.html")]) >= 1


# -- selecting ---------------------------------------------------------------------------------


def test_click_shows_the_users_line_and_the_cost(mlp_page: GraphPage) -> None:
    mlp_page.search("hidden matmul")
    mlp_page.page.key("Enter")
    mlp_page.page.key("Escape")
    mlp_page.click("hidden/MatMul")
    assert mlp_page.selected() == "hidden/MatMul"
    text = mlp_page.details()
    assert "Made at models.py:" in text and "FLOP" in text and "bytes moved" in text
    assert "f32[batch, 16] (512 B)" in text  # the memory of its result
    here = mlp_page.text("#details .code.here")
    assert 'gc.nn.Dense(width, activation=gc.nn.relu, name="hidden")(x)' in here
    mlp_page.page.key("Escape")
    assert mlp_page.selected() is None


def test_lowered_node_says_how_long_its_result_is_in_memory(
    mlp_page: GraphPage, files: dict[str, Path]
) -> None:
    data = read(files["mlp"])
    single = {row["u"][0] for row in data["nodes"] if len(row["u"]) == 1}
    start, end, _, tensor = next(v for v in data["memory"]["values"] if v[3] in single)
    mlp_page.eval("showStep(DATA.steps.length - 1)")
    mlp_page.eval(f"reveal(app.code.nodes.find(u => u.outputs.includes({tensor})))")
    last = end + 1 if end < len(data["memory"]["live"]) else "the end"
    assert f"from node {start + 1} to {last} of" in mlp_page.details()


def test_links_of_a_node_go_to_its_neighbours(mlp_page: GraphPage) -> None:
    mlp_page.search("hidden matmul")
    mlp_page.page.key("Enter")
    assert mlp_page.selected() == "hidden/MatMul"
    mlp_page.page.click("#details .list .link")
    assert mlp_page.selected() == "x"


def test_nodes_of_a_rolled_block_name_what_they_stand_for(rolled_page: GraphPage) -> None:
    rolled_page.eval("showStep(DATA.steps.length - 1)")
    rolled_page.search("block5/query/matmul")  # in the loop, no node has this name
    rolled_page.page.key("Enter")
    text = rolled_page.details()
    assert "Stands for" in text and "block5/query/MatMul" in text


# -- folding -----------------------------------------------------------------------------------


def test_scopes_fold(rolled_page: GraphPage) -> None:
    rolled_page.page.click("#fold-all")
    folded = rolled_page.visible()
    assert "block0/" in folded and "block0/query/" not in folded
    rolled_page.click("block0/", count=2)
    assert "block0/query/" in rolled_page.visible()
    rolled_page.click_sign("block0/query/")
    assert "block0/query/MatMul" in rolled_page.visible()
    rolled_page.click_sign("block0/")
    assert rolled_page.visible() == folded
    rolled_page.click("block0/")  # selects and does not fold
    assert rolled_page.visible() == folded and rolled_page.selected() == "block0/"
    assert "Operators" in rolled_page.details()
    rolled_page.page.key("u")
    assert "block0/query/MatMul" in rolled_page.visible()  # as before it was folded
    rolled_page.page.key("u")
    assert rolled_page.visible() == folded


def test_unfolding_all_levels_shows_every_node(mlp_page: GraphPage) -> None:
    mlp_page.page.click("#fold-all")
    for _ in range(8):
        mlp_page.page.click("#unfold")
    assert set(mlp_page.names()) <= mlp_page.visible()


def test_what_is_folded_stays_so_after_another_pass(rolled_page: GraphPage) -> None:
    rolled_page.page.click("#fold-all")
    rolled_page.click("block1/", count=2)
    rolled_page.eval("showStep(DATA.steps.findIndex(s => s.program === 1))")
    found = rolled_page.visible()
    assert "block1/query/" in found and "block0/query/" not in found


# -- search ------------------------------------------------------------------------------------


def test_search_finds_what_the_data_has(mlp_page: GraphPage, files: dict[str, Path]) -> None:
    data = read(files["mlp"])
    found = [r for r in rows(data, data["programs"][0]) if data["operators"][r["o"]] == "MatMul"]
    mlp_page.search("matmul")
    shown = int(mlp_page.text("#found").split()[0])
    assert shown == mlp_page.count("#results li") >= len(found) > 0
    mlp_page.search("models.py:")
    assert int(mlp_page.text("#found").split()[0]) > len(found)
    mlp_page.search("no such node")
    assert mlp_page.text("#found") == "0 found" and mlp_page.count("#results:not([hidden])") == 0


def test_search_unfolds_and_selects(rolled_page: GraphPage) -> None:
    rolled_page.page.click("#fold-all")
    rolled_page.search("block3/up/matmul")
    rolled_page.page.click("#results li button")
    assert rolled_page.selected() == "block3/up/MatMul"
    assert {"block3/up/MatMul", "block3/query/"} <= rolled_page.visible()
    assert "block2/query/" not in rolled_page.visible()
    x, y = rolled_page.point("block3/up/MatMul")
    inside = rolled_page.eval(
        "(r => [r.left, r.top, r.right, r.bottom])(view.canvas.getBoundingClientRect())"
    )
    assert inside[0] < x < inside[2] and inside[1] < y < inside[3]


# -- passes ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "rolled"])
def test_every_pass_shows_its_nodes(
    graph_page: GraphPage, files: dict[str, Path], name: str
) -> None:
    page, data = graph_page.open(files[name]), read(files[name])
    page.page.click("#only-changed")
    assert page.count("#pass-list li") == len(data["steps"]) > 10
    for step in range(len(data["steps"])):
        page.eval(f"byId('pass-list').children[{step}].click()")
        assert page.names() == names_of(data, step)
        page.page.frame()
        assert page.colours() > 5


def test_keys_and_buttons_change_the_pass(mlp_page: GraphPage, files: dict[str, Path]) -> None:
    data = read(files["mlp"])
    changes = [
        i
        for i, s in enumerate(data["steps"])
        if i and s["program"] != data["steps"][i - 1]["program"]
    ]
    mlp_page.page.key("ArrowRight")
    assert mlp_page.eval("app.step") == changes[0]
    mlp_page.page.click("#pass-after")
    assert mlp_page.eval("app.step") == changes[1]
    assert mlp_page.names() == names_of(data, changes[1])
    mlp_page.page.key("ArrowLeft")
    mlp_page.page.click("#pass-before")
    assert mlp_page.eval("app.step") == 0 and mlp_page.names() == names_of(data, 0)
    mlp_page.page.click(f"#pass-list li[data-step='{changes[1]}']")
    assert mlp_page.eval("app.step") == changes[1]


def test_selection_stays_where_the_pass_keeps_the_node(mlp_page: GraphPage) -> None:
    mlp_page.search("hidden/matmul")
    mlp_page.page.key("Enter")
    mlp_page.eval("document.activeElement.blur()")
    mlp_page.page.key("ArrowRight")
    assert mlp_page.selected() == "hidden/MatMul"


# -- the window --------------------------------------------------------------------------------


def test_wheel_zooms_at_the_mouse_and_a_drag_moves(mlp_page: GraphPage) -> None:
    before = mlp_page.point("loss")
    scale = mlp_page.eval("view.scale")
    mlp_page.page.mouse("mouseWheel", *before, deltaX=0, deltaY=-200)
    mlp_page.page.wait(f"view.scale > {scale}")
    assert mlp_page.point("loss") == pytest.approx(before, abs=1)
    mlp_page.page.drag((700, 400), (640, 430))
    moved = mlp_page.point("loss")
    assert moved == pytest.approx([before[0] - 60, before[1] + 30], abs=1.5)
    mlp_page.page.key("f")
    mlp_page.page.key("-")
    assert mlp_page.eval("view.scale") == pytest.approx(0.8 * scale, rel=0.01)


@pytest.mark.parametrize("size", [(640, 480), (1000, 700), (2560, 1300)], ids=str)
def test_windows_of_all_sizes(rolled_page: GraphPage, size: tuple[int, int]) -> None:
    rolled_page.window(*size)
    try:
        wide = rolled_page.eval("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]
        canvas = rolled_page.eval("[view.canvas.clientWidth, view.canvas.clientHeight]")
        assert canvas[0] > 250 and canvas[1] > 150
        rolled_page.page.click("#fit")
        assert rolled_page.colours() > 10
    finally:
        rolled_page.page.send("Emulation.clearDeviceMetricsOverride")


def test_colours_of_boxes_and_of_the_page(mlp_page: GraphPage) -> None:
    seen = {mlp_page.page.screenshot()}
    for way in ("flops", "bytes", "made", "device", "change"):
        mlp_page.eval(
            f"byId('colour').value = '{way}'; byId('colour').dispatchEvent(new Event('change'))"
        )
        seen.add(mlp_page.page.screenshot())
    assert len(seen) == 6
    mlp_page.page.colours("dark")
    dark = mlp_page.eval("getComputedStyle(document.body).backgroundColor")
    mlp_page.page.colours("light")
    assert dark != mlp_page.eval("getComputedStyle(document.body).backgroundColor")


# -- the other tabs ----------------------------------------------------------------------------


def test_nodes(mlp_page: GraphPage) -> None:
    mlp_page.tab("nodes")
    first = mlp_page.text("#tab-nodes tbody tr")
    assert "MatMul" in first  # the most expensive is first
    mlp_page.page.click("#tab-nodes th")
    assert mlp_page.text("#tab-nodes tbody tr") != first
    mlp_page.page.click("#node-filter")
    mlp_page.page.type("out matmul")
    mlp_page.page.click("#tab-nodes tbody tr")
    assert mlp_page.count("#tab-graph:not([hidden])") == 1
    selected = mlp_page.selected()
    assert selected is not None and "out" in selected and "MatMul" in selected


def test_memory(mlp_page: GraphPage, files: dict[str, Path]) -> None:
    memory = read(files["mlp"])["memory"]
    mlp_page.tab("memory")
    peak = memory["live"].index(max(memory["live"])) + 1
    assert f"at node {peak} of {len(memory['live'])}" in mlp_page.text("#tab-memory")
    assert f"while node {peak} runs" in mlp_page.text("#holders")
    box = mlp_page.eval(
        "(b => [b.x, b.y, b.width, b.height])(byId('memory-chart').getBoundingClientRect())"
    )
    mlp_page.page.click_at(box[0] + 1, box[1] + box[3] / 2)
    assert "while node 1 runs" in mlp_page.text("#holders")
    held = sum(1 for start, end, _, _ in memory["values"] if start <= 0 <= end)
    assert mlp_page.count("#holders tbody tr") == held
    name = mlp_page.text("#holders h3 button")
    mlp_page.page.click("#holders h3 button")
    assert mlp_page.selected() == name


def test_lanes_of_a_pipeline(pipeline_page: GraphPage, files: dict[str, Path]) -> None:
    clusters = read(files["pipeline"])["lanes"]["clusters"]
    pipeline_page.tab("devices")
    assert pipeline_page.count(".lane") == len({row["device"] for row in clusters}) == 2
    assert pipeline_page.count(".block") == len(clusters)
    pipeline_page.page.click(".lane:nth-child(2) .block")
    assert "on /device:CPU:1" in pipeline_page.text("#cluster h3")
    name = pipeline_page.text("#cluster .names button")
    pipeline_page.page.click("#cluster .names button")
    assert pipeline_page.selected() == name


def test_passes_and_placement(pipeline_page: GraphPage, files: dict[str, Path]) -> None:
    data = read(files["pipeline"])
    pipeline_page.tab("passes")
    assert pipeline_page.count("#tab-passes tbody tr") == len(data["steps"])
    last = len(data["steps"]) - 1
    pipeline_page.page.click("#tab-passes tbody tr:last-child")
    assert pipeline_page.eval("app.step") == last and pipeline_page.names() == names_of(data, last)
    pipeline_page.tab("placement")
    assert pipeline_page.count("#tab-placement tbody tr") == len(data["placement"]["rows"]) > 0
    assert "/device:CPU:1" in pipeline_page.text("#tab-placement")
    name = pipeline_page.text("#tab-placement tbody td")
    pipeline_page.page.click("#tab-placement tbody tr")
    assert pipeline_page.selected() == name


@pytest.mark.slow
def test_every_tab_without_fetches_or_passes(graph_page: GraphPage, tmp_path: Path) -> None:
    model, none = mlp(16, 8), gc.CompileOptions(pipeline="O0")
    shapes = {"x": (8, 16)}
    path = tmp_path / "r.html"
    pages: list[tuple[Any, ...]] = [(gc.Graph(),), (model.graph,), (model.graph, [], {})]
    pages.append((model.graph, model.fetches, shapes))
    for target, *rest in pages:
        gc.report(target, path, *rest, options=none if rest else None)
        page = graph_page.open(path)
        for tab in ("nodes", "memory", "devices", "passes", "placement", "graph"):
            page.tab(tab)
            assert page.text(f"#tab-{tab}")
        for key in ("f", "+", "u", "ArrowRight", "ArrowLeft", "Escape"):
            page.page.key(key)
        page.page.click("#unfold")
        page.page.click("#fold-all")
        data = read(path)
        assert page.names() == names_of(data, page.eval("app.step"))
