"""The data of a graph's page, compared with the programs, costs and placement of graphc."""

import json
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.cli import main
from graphc.ir.program import Program
from graphc.reports.graph_page import page
from tests.cli.scripts import HELPER, SCRIPT
from tests.reports.models import Model, mlp, transformer
from tests.reports.page_data import Data, edges, numbers, read, rows

MODELS = {"mlp": lambda: mlp(16, 8), "rolled transformer": transformer}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def step(model: Model) -> gc.Executable:
    return gc.compile(model.graph, model.fetches, {k: v.shape for k, v in model.feeds.items()})


@pytest.fixture(scope="module")
def data(step: gc.Executable, tmp_path_factory: pytest.TempPathFactory) -> Data:
    path = tmp_path_factory.mktemp("report") / "report.html"
    gc.report(step, path)
    return read(path)


def written(tmp_path: Path, *args: Any, **options: Any) -> Data:
    gc.report(args[0], tmp_path / "r.html", *args[1:], **options)
    return read(tmp_path / "r.html")


def edges_of(program: Program) -> set[tuple[str, str]]:
    makers = {port.tensor: f"{port.kind}:{port.name}" for port in program.inputs}
    found = set()
    for node in program.nodes:
        found |= {(makers[tensor], node.name) for tensor in node.inputs}
        makers |= dict.fromkeys(node.outputs, node.name)
    return found | {(makers[p.tensor], f"{p.kind}:{p.name}") for p in program.outputs}


# -- programs and passes -----------------------------------------------------------------------


def test_every_pass_is_there_with_its_program(step: gc.Executable, data: Data) -> None:
    history = step.pass_history()
    kept = [s for s in data["steps"] if not s["name"].startswith("(") or s is data["steps"][0]]
    assert [s["name"] for s in kept] == [s.row.name for s in (history.start, *history.steps)]
    for shown, made in zip(kept, (history.start, *history.steps), strict=True):
        found = list(rows(data, data["programs"][shown["program"]]))
        nodes = list(made.after.walk())
        assert len(found) == len(nodes) == shown["after"], shown["name"]
        operators = [data["operators"][row["o"]] for row in found]
        assert sorted(operators) == sorted(node.op.name for node in nodes), shown["name"]
        assert sorted(row["n"] for row in found) == sorted(node.name for node in nodes)


def test_edges_of_every_program(step: gc.Executable, data: Data) -> None:
    history = step.pass_history()
    named = {s["name"]: s for s in data["steps"]}  # the last run of each pass
    last = {made.row.name: made.after for made in (history.start, *history.steps)}
    assert len(last) > 10
    for name, program in last.items():
        assert edges(data, data["programs"][named[name]["program"]]) == edges_of(program), name


def test_passes_that_change_nothing_have_no_program_of_their_own(data: Data) -> None:
    for one, other in zip(data["programs"], data["programs"][1:], strict=False):
        assert one != other
    programs = [s["program"] for s in data["steps"]]
    assert programs == sorted(programs) and set(programs) == set(range(len(data["programs"])))


def test_a_node_is_one_row_in_all_programs(data: Data) -> None:
    """The size of the file must not grow with the number of passes."""
    used = [set(numbers(program)) for program in data["programs"]]
    assert sum(map(len, used)) > 2 * len(set().union(*used))
    texts = [json.dumps(row, sort_keys=True) for row in data["nodes"]]
    assert len(set(texts)) == len(texts)


def test_lines_of_the_user(data: Data) -> None:
    row = next(r for r in data["nodes"] if data["operators"][r["o"]] == "MatMul")
    file, line = data["lines"][row["s"]]
    assert data["files"][file]["name"].endswith("models.py")
    assert "gc.nn.Dense" in data["files"][file]["code"][str(line)]


def test_nodes_of_rolled_blocks_say_what_they_stand_for(tmp_path: Path) -> None:
    model = transformer()
    found = written(tmp_path, model.graph, model.fetches, {"x": (4, 8, 16)})
    last = found["programs"][-1]
    loop = next(found["nodes"][n] for n in numbers(last) if "r" in found["nodes"][n])
    stands_for = [
        row["t"] for row in rows(found, loop["r"][0]) if row["n"].endswith("query/MatMul")
    ]
    assert [name for name, _ in stands_for[0]] == [f"block{i}/query/MatMul" for i in range(1, 6)]


# -- costs and memory --------------------------------------------------------------------------


def test_memory_over_the_step_has_the_peak_of_the_pass_report(
    step: gc.Executable, data: Data
) -> None:
    memory, row = data["memory"], step.pass_history().report.rows[-1]
    assert max(memory["live"]) == row.memory == data["steps"][-1]["memory"] > 0
    nodes = numbers({"nodes": memory["nodes"]})
    assert len(nodes) == len(memory["live"]) == len(memory["inside"])
    assert nodes == numbers(data["programs"][-1])


def test_values_in_memory_explain_the_live_bytes(data: Data) -> None:
    """The values add up to at least the live bytes: a value written over an operand counts once."""
    memory = data["memory"]
    for i, (live, inside) in enumerate(zip(memory["live"], memory["inside"], strict=True)):
        held = [size for start, end, size, _ in memory["values"] if start <= i <= end]
        assert live - inside <= sum(held)
    made = {tensor for row in data["nodes"] for tensor in row["u"]}
    for _, _, size, tensor in memory["values"]:
        assert tensor in made and size == data["tensors"][tensor][1]


def test_costs_of_nodes_are_those_of_the_pass_report(step: gc.Executable, data: Data) -> None:
    row = step.pass_history().report.rows[-1]
    found = [data["nodes"][number] for number in numbers(data["programs"][-1])]
    assert sum(node["f"] for node in found) == row.flops
    assert sum(node["b"] for node in found) == row.bytes


# -- devices -----------------------------------------------------------------------------------


def test_lanes_of_a_pipeline(tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = h = gc.placeholder(("batch", 8), name="x")
        for i in range(2):
            with gc.device(f"/cpu:{i}"):
                h = gc.nn.Dense(8, name=f"stage{i}")(h)
        loss = gc.reduce_mean(gc.square(h))
        train = gc.minimize(loss, optax.sgd(0.1), accumulate=2, name="train")
    step = gc.compile(graph, [train], {x: (8, 8)})
    lanes = written(tmp_path, step)["lanes"]
    clusters = step.partition.clusters
    assert len(lanes["clusters"]) == len(clusters)
    assert len(lanes["sends"]) == len(step.partition.sends)
    assert {c["turn"] for c in lanes["clusters"]} == {c.micro_batch for c in clusters}
    for row in lanes["clusters"]:
        assert 0 <= row["start"] <= row["end"] <= 1
        assert len(row["nodes"]) == len(clusters[row["cluster"]].program.nodes)
    assert max(row["end"] for row in lanes["clusters"]) == 1
    data = written(tmp_path, graph, [train], {x: (8, 8)})  # without an executable
    assert data["lanes"]["clusters"] == lanes["clusters"]
    placed = {name: devices for name, _, devices in data["placement"]["rows"]}
    kernels = [placed[f"stage{i}/kernel"] for i in range(2)]
    assert [[data["devices"][d] for d in row] for row in kernels] == [
        ["/device:CPU:0"],
        ["/device:CPU:1"],
    ]


def test_devices_that_run_the_same(tmp_path: Path) -> None:
    model = mlp(16, 8)
    strategy = gc.devices.DataParallel(2)
    data = written(tmp_path, model.graph, model.fetches, {"x": (8, 16)}, strategy=strategy)
    assert len(data["lanes"]["same"]) == 2
    assert "replicate" in [s["name"] for s in data["steps"]]


# -- targets -----------------------------------------------------------------------------------


def test_graph_without_fetches(tmp_path: Path) -> None:
    graph = mlp(16, 8).graph
    data = written(tmp_path, graph)
    assert len(numbers(data["programs"][0])) == len(graph.nodes)
    assert (data["memory"], data["lanes"], data["placement"]["rows"]) == (None, None, [])
    assert {row["n"] for row in data["nodes"]} == {node.name for node in graph.nodes}


def test_empty_graph_and_odd_types(tmp_path: Path) -> None:
    assert written(tmp_path, gc.Graph())["nodes"] == []
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((0, 3), "int8", name="x")
        kinds = ["bool", "bfloat16", "complex64", "int4", "float8_e4m3fn"]
        made = [gc.cast(x, kind, name=kind) for kind in kinds] + [gc.reduce_sum(x)]
    data = written(tmp_path, graph, made, {x: (0, 3)})
    assert {"bool[0, 3]", "bf16[0, 3]", "c64[0, 3]"} <= set(data["types"])


def test_session(tmp_path: Path) -> None:
    model = mlp(16, 8)
    session = model.session()
    with pytest.raises(gc.errors.AttributeValueError, match="has not compiled anything"):
        gc.report(session, tmp_path / "r.html")
    session.run(model.fetches, model.feeds)
    ran = written(tmp_path, session)
    asked = written(tmp_path, session, model.fetches, {"x": (8, 16)})
    assert [s["name"] for s in ran["steps"]] == [s["name"] for s in asked["steps"]]


def test_variables_are_not_changed(tmp_path: Path) -> None:
    model = mlp(16, 8)
    session = model.session()
    session.run(model.fetches, model.feeds)
    before = session.state()
    gc.report(session, tmp_path / "r.html", model.fetches, {"x": (8, 16)})
    for name, value in session.state().items():
        np.testing.assert_array_equal(value, before[name])


# -- the page ----------------------------------------------------------------------------------

FORGED = ("</script><b>", "<!--<script>", "{{style}}", "\u2028&amp;\"'`${1}", "é\ud800")


def test_forged_names_stay_text(tmp_path: Path) -> None:
    graph = gc.Graph(name="<img src=x onerror=alert(1)>{{data}}")
    with graph:
        x = gc.placeholder((2,), name="x")
        made = [gc.exp(x, name=name) for name in FORGED]
    gc.report(graph, tmp_path / "r.html", made, {x: (2,)})
    text = (tmp_path / "r.html").read_text("utf-8", errors="replace")
    assert text.count("<b>") == 0 and "<img" not in text and "<!--" not in text
    assert text.lower().count("<script") == text.lower().count("</script") == 12
    data = read(tmp_path / "r.html")
    assert set(FORGED) <= {row["n"] for row in data["nodes"]}
    assert data["title"] == graph.name


def test_page_needs_no_network(tmp_path: Path) -> None:
    gc.report(mlp(16, 8).graph, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    for word in ("src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", "<link"):
        assert word not in text, word
    assert "sourceMappingURL" not in text


def test_installed_package_has_the_files_of_the_page() -> None:
    root = Path(gc.__file__).parent
    settings = tomllib.loads((root.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["graphc"]
    found = [path for path in (root / "reports" / "page").rglob("*") if path.is_file()]
    assert len(found) > 14
    for path in found:
        name = path.relative_to(root)
        depth = [p for p in patterns if p.count("/") == len(name.parts) - 1]  # * matches no slash
        assert any(fnmatch(name.as_posix(), pattern) for pattern in depth), name


def test_licence_of_the_layout_library_is_in_the_page(tmp_path: Path) -> None:
    gc.report(gc.Graph(), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "Copyright (c) 2012-2014 Chris Pettitt" in text and "dagre.min.js" in text


def test_values_of_the_page_are_put_in_once() -> None:
    text = page({"title": "{{scripts}}", "nodes": ["{{style}}"]})
    assert "<title>{{scripts}}</title>" in text and '["{{style}}"]' in text


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "regression.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "regression.py"


def test_command(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "regression.py", "--html", "r.html"]) == 0
    assert capsys.readouterr().out == "wrote r.html\n"
    data = read(script.parent / "r.html")
    assert data["title"] == "regression"
    arguments = ["inspect", "regression.py", "--json", "--cost", "--passes", "--html", "r.html"]
    assert main(arguments) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["html"] == "r.html"
    assert facts["passes"][-1]["memory"] == max(data["memory"]["live"])
    before = next(s for s in reversed(data["steps"]) if s["name"] == "group-alike")
    found = [data["nodes"][n] for n in numbers(data["programs"][before["program"]])]
    assert facts["cost"]["total"]["flops"] == sum(row["f"] for row in found)


def test_command_for_several_devices(script: Path) -> None:
    assert main(["inspect", "regression.py", "--devices", "2", "--html", "r.html"]) == 0
    assert len(read(script.parent / "r.html")["lanes"]["same"]) == 2


def test_command_refuses(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "regression.py", "--html", "none/r.html"]) != 0
    assert "cannot write 'none/r.html'" in capsys.readouterr().err
    assert main(["inspect", "some.gcx", "--html", "r.html"]) != 0
    assert "is not a script" in capsys.readouterr().err
    assert not (script.parent / "r.html").exists()
