"""The command line, in this process: each command, and errors for invalid input."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.artifacts import container
from graphc.cli import main
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.tuning import trials
from tests.artifacts.forge import entry, forge
from tests.cli.scripts import HELPER, SCRIPT
from tests.near import assert_near

COMMANDS = [
    *("train", "compile", "run", "inspect", "tune", "profile", "export", "plan", "scale"),
    "devices",
    *("cache", "opt", "serve"),
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys, monkeypatch) -> Run:
    """Runs a command line: exit code, standard output, standard error."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "argv", list(sys.argv))
            sys.modules.pop("helper", None)
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as stop:
                code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "helper.py").write_text(HELPER)
    path = folder / "regression.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def artifact(script: Path) -> Path:
    path = script.with_name("regression.gcx")
    assert main(["export", str(script), str(path)]) == 0
    return path


def as_script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


# -- help -----------------------------------------------------------------------------------


def test_help_explains_with_an_example(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0 and all(f"\n    {command} " in out for command in COMMANDS)
    for command in COMMANDS:
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"example:\n  graphc {command} " in out


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"graphc {gc.__version__}\n", "")


# -- train ----------------------------------------------------------------------------------


def test_train_says_what_ran_where(run: Run, script: Path, tmp_path: Path) -> None:
    saved = tmp_path / "model.gcx"
    code, out, err = run("train", script, "--save", saved)
    assert code == 0
    assert err == ""  # no progress bar: standard error is not a terminal
    lines = out.splitlines()
    assert lines[0] == "regression: 30 steps"
    assert [line.split()[0] for line in lines[1:]] == [
        *("ran", "compile", "step", "loss", "final", "saved")
    ]
    assert "/device:CPU:0" in lines[1] and "predict, train" in lines[-1]
    assert float(lines[-2].split()[-1]) < 0.01
    predict = gc.load(saved).signatures["predict"]
    assert_near(predict(x=np.eye(3))["y"][1], -2.0, rtol=1e-7, atol=0.1)


def test_train_on_several_devices_as_json(run: Run, script: Path) -> None:
    command = ("train", script, "--devices", 2, "--steps", 3, "--json", "--no-progress")
    code, out, err = run(*command)
    facts = json.loads(out)
    assert code == 0 and err == ""
    assert facts["steps"] == 3 and facts["parallel"] == "pmap" and len(facts["devices"]) == 2
    assert facts["metrics"]["loss"]["last"] < facts["metrics"]["loss"]["first"]
    assert facts["compile_seconds"] > 0 and facts["step_seconds"] > 0 and facts["notes"] == []
    alone = json.loads(run("train", script, "--steps", 3, "--json", "--no-progress")[1])
    assert alone["parallel"] is None
    assert alone["evaluation"] == pytest.approx(facts["evaluation"], rel=1e-5)


def test_train_finds_what_compile_kept_in_a_folder(run: Run, script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    facts = json.loads(run("compile", script, "--cache-dir", folder, "--json")[1])
    assert not facts["cached"] and list(folder.iterdir())
    again = json.loads(run("compile", script, "--cache-dir", folder, "--json")[1])
    assert again["cached"] and again["cache_key"] == facts["cache_key"]
    before = COUNTERS.snapshot()
    code, _, _ = run("train", script, "--steps", 3, "--cache-dir", folder, "--no-progress")
    assert code == 0 and COUNTERS.snapshot().cache_hits > before.cache_hits


def test_a_script_gets_its_arguments(run: Run, script: Path) -> None:
    command = ("train", script, "--steps", 2, "--json", "--no-progress")
    still = json.loads(run(*command, "--", "0.0")[1])["metrics"]["loss"]
    moving = json.loads(run(*command, "--", "0.2")[1])["metrics"]["loss"]
    assert still["first"] == moving["first"] and still["last"] != moving["last"]


def test_nan_is_null(run: Run, script: Path) -> None:
    code, out, _ = run("train", script, "--json", "--no-progress", "--", "1e30")
    assert code == 0
    facts = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert facts["metrics"]["loss"]["last"] is None


# -- compile, inspect -----------------------------------------------------------------------


def test_compile(run: Run, script: Path) -> None:
    code, out, _ = run("compile", script)
    assert code == 0
    for text in ("x: f32[16, 3], t: f32[16, 1]", "cache key", "FLOP", "temporaries", "prune"):
        assert text in out
    assert re.search("took +passes .*, layout .*, lower .*, compile ", out)
    assert " (found)" not in out
    command = ("compile", script, "--json")
    facts = json.loads(run(*command)[1])
    assert facts["cache_key"] in out
    assert facts["cost"]["flops"] > 0 and facts["memory"]["arguments"] > 0
    assert facts["cached"] and facts["seconds"].keys() == {"load"}  # the second time
    assert f"{facts['cache_key']} (found)\n" in run("compile", script)[1]
    assert {row["name"] for row in facts["passes"]} > {"prune"}
    logits = json.loads(run(*command, "--fetch", "y", "--feed", "x=5,3")[1])
    assert logits["feeds"] == {"x": "f32[5, 3]"} and logits["nodes"] < facts["nodes"]
    bound = json.loads(run(*command, "--feed", "x=4,3")[1])
    assert bound["feeds"] == {"x": "f32[4, 3]", "t": "f32[4, 1]"}
    several = json.loads(run(*command, "--devices", 2)[1])
    assert len(several["devices"]) == 2 and several["cache_key"] != facts["cache_key"]


def test_inspect_a_script(run: Run, script: Path) -> None:
    code, out, _ = run("inspect", script)
    assert code == 0
    assert "regression: " in out and "4 parameters" in out
    assert "fit/kernel  f32[3, 1]  trainable  regression.py:17" in out
    facts = json.loads(run("inspect", script, "--json")[1])
    assert facts["feeds"]["x"] == {"type": "f32[batch, 3]", "source": "regression.py:15"}
    assert facts["signatures"] == ["predict", "train"]


def test_inspect_the_parts_of_a_script(run: Run, script: Path) -> None:
    _, out, _ = run("inspect", script, "--graph")
    assert out.startswith("graph regression(") and "# regression.py:17" in out
    _, out, _ = run("inspect", script, "--passes")
    assert out.startswith("pass ") and "eliminate-common" in out
    _, out, _ = run("inspect", script, "--stablehlo", "--fetch", "y")
    assert "stablehlo.dot_general" in out and "tensor<16x3xf32>" in out
    _, out, _ = run("inspect", script, "--cost", "--feed", "x=100,3", "--fetch", "y")
    assert "700 FLOP" in out and "regression.py:17" in out  # 2 x 100 x 3, and 100 for the bias
    facts = json.loads(run("inspect", script, "--cost", "--passes", "--graph", "--json")[1])
    assert facts["cost"]["total"]["flops"] == sum(r["flops"] for r in facts["cost"]["nodes"])
    assert facts["cost"]["operators"][0]["operator"] == "MatMul"
    assert facts["passes"] and facts["text"].startswith("graph")


def test_inspect_before_and_after_a_pass(run: Run, script: Path) -> None:
    code, out, _ = run("inspect", script, "--passes", "--after", "simplify-algebra")
    assert code == 0
    assert "MFLOP" in out.splitlines()[0] and out.splitlines()[1].startswith("(start) ")
    assert "# after simplify-algebra\nprogram regression(" in out and "# regression.py:17" in out
    command = ("inspect", script, "--json", "--passes", "--before", "prune", "--after", "prune:2")
    facts = json.loads(run(*command)[1])
    assert facts["before"]["pass"] == "prune" and facts["after"]["pass"] == "prune:2"
    assert facts["before"]["text"] != facts["after"]["text"]
    assert all(row["flops"] > 0 and row["memory"] > 0 for row in facts["passes"])
    _, out, _ = run("inspect", script, "--after", "replicate", "--devices", 2)
    assert "AllReduce" in out and "x: f32[8, 3]" in out
    rows = json.loads(run("inspect", script, "--passes", "--pipeline", "O0", "--json")[1])["passes"]
    assert [row["name"] for row in rows] == ["(start)", "physical"]
    check_one_line(run("inspect", script, "--before", "prun"), "no pass 'prun' ran; did you mean")
    check_one_line(run("inspect", script, "--pipeline", "O9"), "invalid choice: 'O9'")


@pytest.mark.slow
def test_tune(run: Run, script: Path) -> None:
    code, out, err = run("tune", script, "--seconds", 2)
    assert code == 0 and "no YNN" in out and err == ""
    assert re.search("nothing is clearly faster than|; later compilations use it", out)
    quiet = ("tune", script, "--seconds", "0.01", "--no-progress", "--json")
    code, out, err = run(*quiet, "--devices", 2, "--loop", 3, "--fetch", "y")
    facts = json.loads(out)
    assert code == 0 and err == "" and facts["graph"] == "regression"
    assert facts["rows"] and {row["outcome"] for row in facts["rows"]} <= {
        *("no time left", "the same program")
    }
    assert (facts["name"], facts["ratio"], facts["kept"]) == (None, 1.0, False)
    text = script.read_text()
    batches = "gc.data.Batches(data, 16)"
    assert batches in text
    one = script.with_name("one_batch.py")
    one.write_text(text.replace(batches, f"iter([next(iter({batches}))])"))
    assert run("tune", one, "--seconds", "0.01", "--tolerance", "0", "--no-progress")[0] == 0
    check_one_line(run("tune", script, "--seconds", "0"), "'0' is not a number above 0")
    check_one_line(run("tune", script, "--feed", "z=3"), "'z'")


@pytest.mark.slow
def test_what_was_tuned_is_used_by_train(run: Run, script: Path, monkeypatch) -> None:
    def seconds(trial: trials.Trial) -> float:
        return 0.5 if trial.step.stages.compilation.options.xla_options else 1.0

    monkeypatch.setattr(trials.Trial, "seconds", seconds)
    assert "; later compilations use it" in run("tune", script, "--no-progress")[1]
    out = run("train", script, "--no-progress")[1]
    assert re.search(r"note +tuned: .*, 0.50 of the time without", out)
    assert "(tuned: " in run("cache", "list")[1]


def test_inspect_an_artifact(run: Run, artifact: Path) -> None:
    code, out, _ = run("inspect", artifact)
    assert code == 0
    for text in (
        "regression, ",
        f"graphc {gc.__version__}, jax ",
        "cpu, cuda",
        "predict(x: f32[batch, 3]) -> y: f32[batch, 1]",
        "-> loss: f32[]  updates 2 variables",
        "fit/kernel  f32[3, 1]",
        ", graph ",
        "here: stablehlo\n",
    ):
        assert text in out
    facts = json.loads(run("inspect", artifact, "--json")[1])
    assert facts["signatures"]["predict"]["forms"].keys() == {"stablehlo", "graph"}
    assert facts["signatures"]["predict"]["runs_as"] == "stablehlo"
    assert facts["signatures"]["train"]["updates"] == ["fit/kernel", "fit/bias"]
    assert facts["variables"]["fit/kernel"] == {"type": "f32[3, 1]", "bytes": 12}
    _, out, _ = run("inspect", artifact, "--stablehlo")
    assert out.startswith("// signature predict\n") and "stablehlo.dot_general" in out


def test_inspect_shows_examples_and_buckets(run: Run, tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, "time"), name="x")
        signature = gc.Signature(
            {"x": x}, {"y": x * 2}, buckets={"time": [4, 8]}, examples=[{"x": [[1, 2, 3]]}]
        )
    path = tmp_path / "model.gcx"
    gc.save(gc.Session(graph), path, signatures={"predict": signature}, platforms=["cpu"])
    _, out, _ = run("inspect", path)
    assert "predict(x: f32[?, time]) -> y: f32[?, time]  buckets of time: 4, 8\n" in out
    assert "examples\n  predict  x: f32[1, 3]\n" in out
    facts = json.loads(run("inspect", path, "--json")[1])["signatures"]["predict"]
    assert facts["examples"] == [{"x": "f32[1, 3]"}] and facts["buckets"] == {"time": [4, 8]}


# -- export, run, devices -------------------------------------------------------------------


def test_export_of_first_weights_and_after_training(run: Run, script: Path, tmp_path: Path) -> None:
    first, later = tmp_path / "first.gcx", tmp_path / "later.gcx"
    code, out, err = run("export", script, first, "--platforms", "cpu")
    assert code == 0 and err == ""
    assert out.startswith(f"saved {first} (") and out.endswith("predict, train; for cpu\n")
    facts = json.loads(run("export", script, later, "--steps", 5, "--json")[1])
    assert facts["steps"] == 5 and facts["bytes"] == later.stat().st_size
    kernels = [np.asarray(gc.load(path).state()["fit/kernel"]) for path in (first, later)]
    assert not np.array_equal(*kernels)
    assert gc.load(first).platforms == ("cpu",)


def test_inspect_says_which_form_runs_and_why(run: Run, artifact: Path, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        entry(manifest, "predict")["convention"] = 99
        entry(manifest, "train")["devices"] = 9

    forge(artifact, tmp_path / "m.gcx", change)
    code, out, _ = run("inspect", tmp_path / "m.gcx")
    assert code == 0
    assert "here: graph (stablehlo: its calling convention is 99, but jax" in out
    assert "for 9 devices  cannot run here ('train' was saved for 9 devices, but only" in out


def test_inspect_checks_every_member(run: Run, artifact: Path, tmp_path: Path) -> None:
    _, members = container.read(artifact)
    data = bytearray(artifact.read_bytes())
    data[data.index(bytes(members["weights.safetensors"])) + 100] ^= 1
    path = tmp_path / "m.gcx"
    path.write_bytes(data)
    check_one_line(run("inspect", path), "member 'weights.safetensors' was altered")


@pytest.mark.slow
def test_export_validates(run: Run, script: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    code, out, _ = run("export", script, path, "--platforms", "cpu", "--validate")
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split()[:2] == ["signature", "output"]
    assert [line.split()[:2] for line in lines[2:]] == [["predict", "y"], ["train", "loss"]]
    found = json.loads((tmp_path / "model.validation.json").read_text())
    assert found["ok"] is True and found["artifact"] == "model.gcx"
    predict = found["signatures"]["predict"]
    assert predict["way"] == "stablehlo" and predict["notes"] == []
    assert predict["inputs"] == {"x": "f32[16, 3]"}  # the first batch of the job
    row = predict["outputs"]["y"]
    assert row["max_rel"] <= row["tolerance"] == 1e-4 and row["max_abs"] >= 0
    for side in ("graph", "artifact"):
        times = predict["latency_ms"][side]
        assert 0 < times["p50"] <= times["p99"] and times["runs"] > 1
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["model.gcx", "model.validation.json"]


@pytest.mark.slow
@pytest.mark.one_jax
def test_export_fails_where_the_file_differs(
    run: Run, script: Path, tmp_path: Path, monkeypatch
) -> None:
    """The file is changed between its writing and its validation."""

    def save_and_alter(session: gc.Session, path: str, **options: Any) -> None:
        session.set("fit/bias", np.float32([0.5]))
        gc.save(session, path, **options)
        session.set("fit/bias", np.float32([0.0]))

    monkeypatch.setattr("graphc.cli.export.save", save_and_alter)
    path = tmp_path / "model.gcx"
    code, out, err = run("export", script, path, "--platforms", "cpu", "--validate", "--json")
    assert code == 1 and err.count("\n") == 1
    assert f"graphc export: {path} differs from the graph: predict, y: " in err
    assert "of its largest value, and 0.0001 is allowed; train, loss: " in err
    facts = json.loads(out)["validation"]
    assert facts["ok"] is False
    assert facts["signatures"]["predict"]["outputs"]["y"]["max_abs"] == pytest.approx(0.5)
    code, _, err = run(
        *("export", script, path, "--platforms", "cpu", "--validate", "--tolerance", "10")
    )
    assert code == 0 and err == ""


@pytest.mark.slow
def test_export_for_several_devices(run: Run, tmp_path: Path) -> None:
    text = SCRIPT.replace("updates=[train]", 'updates=[train], sizes={"batch": 8}, replicated=True')
    (tmp_path / "helper.py").write_text(HELPER)
    script, path = as_script(tmp_path, text), tmp_path / "m.gcx"
    command = ("export", script, path, "--platforms", "cpu")
    check_one_line(
        run(*command), "signature 'train' is replicated, but the session has no strategy"
    )
    code, out, _ = run(*command, "--devices", 2, "--steps", 2, "--no-progress", "--validate")
    assert code == 0 and "train      loss" in out
    assert gc.load(path).signatures["train"].devices == 2
    found = json.loads(path.with_suffix(".validation.json").read_text())
    assert found["signatures"]["train"]["inputs"] == {"x": "f32[8, 3]", "t": "f32[8, 1]"}


def test_run_prints_or_writes(run: Run, artifact: Path, tmp_path: Path) -> None:
    x = np.eye(3, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    expected = np.asarray(gc.load(artifact).signatures["predict"](x=x)["y"])
    command = ("run", artifact, "--signature", "predict", "--input", f"x={tmp_path / 'x.npy'}")
    code, out, _ = run(*command)
    assert code == 0 and out.startswith("y: f32[3, 1]\n[[")
    facts = json.loads(run(*command, "--json")[1])
    np.testing.assert_array_equal(np.float32(facts["outputs"]["y"]["values"]), expected)
    written = tmp_path / "results"  # the user's name, unchanged
    code, out, _ = run(*command, "--output", written)
    assert out == f"y: f32[3, 1]\nwrote {written}\n"
    with np.load(written) as results:
        np.testing.assert_array_equal(results["y"], expected)


def test_run_takes_and_returns_strings(run: Run, tmp_path: Path) -> None:
    with gc.Graph() as graph:
        word = gc.placeholder(("n",), "int32", name="word")
        known = gc.Vocabulary(["a", "größer"], default=0)
        signature = gc.Signature(
            {"word": word}, {"other": 1 - word}, vocabularies={"word": known, "other": known}
        )
    path, words, results = tmp_path / "m.gcx", tmp_path / "w.npy", tmp_path / "r.npz"
    gc.save(gc.Session(graph), path, signatures={"swap": signature}, platforms=["cpu"])
    np.save(words, np.array(["größer", "?"]))
    command = ("run", path, "--input", f"word={words}")
    assert run(*command)[1] == "other: string[2]\n['a' 'größer']\n"
    facts = json.loads(run(*command, "--json")[1])
    assert facts["outputs"]["other"] == {
        "dtype": "string", "shape": [2], "values": ["a", "größer"]
    }  # fmt: skip
    assert run(*command, "--output", results)[0] == 0
    with np.load(results) as found:
        assert found["other"].tolist() == ["a", "größer"]
    assert "swap(word: string[n]) -> other: string[n]" in run("inspect", path)[1]


def test_run_takes_a_training_step(run: Run, artifact: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(3))
    np.save(tmp_path / "t.npy", np.ones((3, 1)))
    inputs = [f"--input={name}={tmp_path / name}.npy" for name in ("x", "t")]
    code, out, _ = run("run", artifact, "--signature", "train", *inputs)
    assert code == 0
    assert out.startswith("loss: f32[]\n") and "the new state was not kept" in out


def test_run_writes_dtypes_that_numpy_lacks(run: Run, tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        values = {
            "file": gc.constant(np.array([1.5, -2.0], ml_dtypes.bfloat16)),
            "i4": gc.constant(np.array([-8, 7], ml_dtypes.int4)),
            "c": gc.constant(np.array([1 + 2j], np.complex64)),
        }
    path, results = tmp_path / "m.gcx", tmp_path / "r.npz"
    gc.save(gc.Session(graph), path, signatures={"all": gc.Signature({}, values)})
    assert run("run", path, "--output", results)[0] == 0
    with np.load(results) as found:
        assert found["file"].tolist() == [1.5, -2.0] and found["file"].dtype == np.float32
        assert found["i4"].tolist() == [-8, 7]
        assert found["c"].tolist() == [1 + 2j]
    facts = json.loads(run("run", path, "--json")[1])
    assert facts["outputs"]["c"]["values"] == [[1.0, 2.0]]
    assert facts["outputs"]["file"] == {"dtype": "bf16", "shape": [2], "values": [1.5, -2.0]}


@pytest.mark.slow
def test_scale_prints_each_strategy(run: Run, script: Path, tmp_path: Path) -> None:
    plot = tmp_path / "scaling.png"
    given = ("scale", script, "--machine", "8xh100", "--devices", "1..4")
    code, out, err = run(*given, "--plot", plot)
    assert code == 0, err
    lines = out.splitlines()
    assert sum("data parallel" in line for line in lines) == 3
    assert sum("best that fits" in line for line in lines) == 3
    assert plot.stat().st_size > 10_000
    code, out, err = run(*given, "--json", "--step-seconds", "0.5")
    assert code == 0, err
    facts = json.loads(out)
    assert list(facts["best"]) == ["1", "2", "4"]
    assert facts["best"]["1"]["seconds"] == 0.5


def test_devices(run: Run) -> None:
    code, out, _ = run("devices")
    assert code == 0 and out.splitlines()[0].split() == ["/device:CPU:0", "cpu"]
    facts = json.loads(run("devices", "--json")[1])
    assert [row["name"] for row in facts["devices"]] == list(gc.devices.available())


# -- bad input ------------------------------------------------------------------------------


def check_one_line(result: tuple[int, str, str], text: str) -> None:
    code, out, err = result
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1 and "Traceback" not in err
    assert text in err, err


PREDICT = "run {artifact} --signature predict"

BAD_INPUT = [
    ("", "the following arguments are required: COMMAND"),
    ("trian", "graphc: no command 'trian'; did you mean 'train'?"),
    ("train", "graphc train: the following arguments are required: SCRIPT"),
    ("train {script} --stesp 3", "unexpected '--stesp'; did you mean '--steps'?"),
    ("train {script} {script}", "unexpected '"),
    ("train {script} --steps 0", "'0' is not a number of at least 1"),
    ("train {script} --devices two", "'two' is not a number of at least 1"),
    ("train nothing.py", "script 'nothing.py' does not exist; give a Python file"),
    ("train {folder}", "is a folder"),
    ("train {script} --devices 99", "99 devices requested"),
    ("train {script} --save {folder}/no/where.gcx", "cannot write"),
    ("train {script} --save {folder}", "cannot write"),
    ("compile {script} --fetch los", "'los' in graph 'regression'; did you mean 'loss'"),
    ("compile {script} --feed x=a,b", "not of the form NAME=SIZE,SIZE"),
    ("compile {script} --feed xx=3", "no node 'xx'"),
    ("compile {script} --feed x=4,5", "expected size 3 on axis 1, got 5 (at regression.py:15)"),
    ("compile {script} --feed x=4", "expected rank 2, got rank 1"),
    ("compile {script} --feed x=4,3 --feed t=5,1", "expected size 4 on axis 0, got 5"),
    ("compile {script} --fetch y --feed t=4,1", "nothing fetched depends on it"),
    ("compile {script} --machine h10", "no GPU 'h10'; did you mean 'h100'?"),
    ("compile {script} --machine none.toml", "'none.toml' cannot be read"),
    ("compile {script} --machine 8xh100 --devices 0", "'0' is not a number of at least 1"),
    ("compile {script} --cache-dir {script}", "must be a folder"),
    ("plan {script}", "the following arguments are required: --machine"),
    ("plan {script} --machine 0xh100", "0 is not a number of GPUs"),
    ("scale {script}", "the following arguments are required: --machine"),
    ("scale {script} --machine none.json", "'none.json' cannot be read"),
    ("scale {script} --machine 8xh100 --devices 8..2", "'8..2' ends below its start"),
    ("scale {script} --machine 8xh100 --devices 0..8", "'0' is not a number of at least 1"),
    ("scale {script} --machine 8xh100 --plot {folder}/no/a.png", "cannot write"),
    ("devices --describe {folder}/machine.toml", "no GPUs to describe"),
    ("run nothing.gcx", "no file 'nothing.gcx'; check the path"),
    ("run {script}", "is not a graphc artifact"),
    ("run {artifact}", "has 2 signatures: predict, train; choose one"),
    ("run {artifact} --signature predcit", "did you mean 'predict'?"),
    (PREDICT, "input 'x' is missing"),
    (f"{PREDICT} --input x", "not of the form NAME=VALUE"),
    (f"{PREDICT} --input x=no.npy", "no file 'no.npy'"),
    (f"{PREDICT} --input x={{script}}", "not a NumPy file"),
    (f"{PREDICT} --input x={{objects}}", "Object arrays cannot be loaded"),
    (f"{PREDICT} --input x={{npz}}", "several arrays"),
    (f"{PREDICT} --input X={{npy}}", "no input 'X'"),
    (f"{PREDICT} --input x={{npy}}", "expected size 3 on axis 1"),
    (f"{PREDICT} --input x={{npy}} --input x={{npy}}", "input 'x' is given twice"),
    (f"{PREDICT} --input x={{good}} --output {{folder}}/no/where", "cannot write"),
    ("run {artifact} -- more", "no script that takes the arguments after --"),
    ("inspect nothing.gcx", "no file 'nothing.gcx'"),
    ("inspect {npz}", "is not a graphc artifact"),
    ("inspect {artifact} --graph", "--graph needs a script"),
    ("inspect {artifact} --feed x=1", "--feed needs a script"),
    ("inspect {script} --fetch loss", "--fetch selects a program, but no option that shows"),
    ("inspect {script} --before=", "no pass ''"),
    ("tune {artifact}", "is an archive of programs, as gc.save writes it; give the Python file"),
    ("tune {script} --seconds nan", "'nan' is not a number above 0"),
    ("export {script} {folder}/e.gcx --platforms gpu", "'gpu' is not a platform"),
    ("export {script} {folder}/e.gcx --tolerance 0.1", "--tolerance is for --validate"),
    (
        "export {script} {folder}/e.gcx --validate --tolerance x",
        "'x' is not a number of at least 0",
    ),
]


@pytest.mark.parametrize(("command", "text"), BAD_INPUT)
def test_invalid_input_is_reported_in_one_line(
    run: Run, script: Path, artifact: Path, tmp_path: Path, command: str, text: str
) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2), np.float32))
    np.save(tmp_path / "good.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "objects.npy", np.array(["a", None]))
    np.savez(tmp_path / "a.npz", a=np.zeros(2), b=np.zeros(2))
    places = {
        "script": script,
        "artifact": artifact,
        "folder": tmp_path,
        "npy": tmp_path / "a.npy",
        "npz": tmp_path / "a.npz",
        "objects": tmp_path / "objects.npy",
        "good": tmp_path / "good.npy",
    }
    check_one_line(run(*command.format(**places).split()), text)


JOB = """
import graphc as gc
import numpy as np

def build():
    graph = gc.Graph(name="small")
    with graph:
        x = gc.placeholder(("n",), name="x")
        w = gc.variable(np.float32(0), name="w")
        train = w.assign_add(gc.reduce_sum(x))
    return gc.train.Job(graph, train, {batches}, steps=3, metrics={{"w": train}}{more})
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has no function build(); define one that returns a gc.train.Job"),
        ("def biuld():\n    pass\n", "has no function build(); did you mean 'biuld'?"),
        ("build = 3\n", "has no function build()"),
        ("def build():\n    return {}\n", "must return a gc.train.Job, got dict"),
        (JOB.format(batches="[]", more=""), "the batches ended after 0 of 3 steps"),
        (
            JOB.format(batches="[{'x': np.ones(2, 'int32')}]", more=""),
            "'x' must be float32, got int32",
        ),
        (JOB.format(batches="[{'X': np.ones(2)}]", more=""), "no node 'X'"),
    ],
)
def test_scripts_that_do_not_fit(run: Run, tmp_path: Path, text: str, error: str) -> None:
    check_one_line(run("train", as_script(tmp_path, text), "--no-progress"), error)


def test_a_script_without_build_does_not_run(run: Run, tmp_path: Path) -> None:
    text = f"'built by'\nopen({str(tmp_path / 'ran')!r}, 'w')\ndef biuld(): pass\n"
    script = as_script(tmp_path, text)
    check_one_line(run("train", script), "did you mean 'biuld'?")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "line",
    [
        "from job import *",
        "from job import build",
        "import job as build",
        "exec('from job import build')",
        "import job; globals().update(vars(job))",
    ],
)
def test_build_may_come_from_elsewhere(run: Run, tmp_path: Path, line: str) -> None:
    (tmp_path / "job.py").write_text("def build():\n    return 7\n")
    error = "has no function build()" if "as build" in line else "must return a gc.train.Job"
    sys.modules.pop("job", None)
    check_one_line(run("train", as_script(tmp_path, line + "\n")), error)
    sys.modules.pop("job", None)


def test_run_shows_the_form_of_its_arguments(run: Run, artifact: Path) -> None:
    form = f"write graphc run {artifact} --signature predict --input x=FILE.npy"
    check_one_line(run("run", artifact, "--signature", "predict"), form)
    wrong = run("run", artifact, "--signature", "predict", "--input", "y=a.npy")
    check_one_line(wrong, "no input 'y'; it takes x f32[")
    check_one_line(wrong, form)
    code, _, err = run("run")
    assert code == 2 and "write graphc run [--signature NAME]" in err


def test_a_job_without_signatures_cannot_be_exported(run: Run, tmp_path: Path) -> None:
    script = as_script(tmp_path, JOB.format(batches="[]", more=""))
    check_one_line(run("export", script, tmp_path / "m.gcx"), "gives no signatures")


def test_undetermined_sizes_are_requested(run: Run, tmp_path: Path) -> None:
    script = as_script(tmp_path, JOB.format(batches="[]", more=""))
    text = "feed 'x' is f32[n], and its sizes are not known (at script.py:8); give them: --feed x=n"
    check_one_line(run("inspect", script, "--cost"), text)
    code, out, _ = run("inspect", script, "--cost", "--feed", "x=10")
    assert code == 0 and out.startswith("11 FLOP")


@pytest.mark.parametrize(
    ("text", "line", "error"),
    [
        ("x = 1\nraise ValueError('mine')\nbuild = 0", 2, "ValueError: mine"),
        ("def build():\n    return {}['key']\n", 2, "KeyError: 'key'"),
        ("import sys\nsys.exit(3)\nbuild = 0", 2, "SystemExit: 3"),
        ("def build(:\n", 1, "SyntaxError"),
        ("import graphc as gc\n\ndef build():\n    gc.exp(1.0)\n", 4, "GraphError"),
        (JOB.format(batches="(1 / 0 for _ in range(3))", more=""), 11, "ZeroDivisionError"),
        (
            JOB.format(
                batches="[{'x': np.ones(2)}] * 3",
                more=", evaluate=lambda session: [].nothing",
            ),
            11,
            "AttributeError",
        ),
    ],
)
def test_what_a_script_raises_is_shown_as_its_own(
    run: Run, tmp_path: Path, text: str, line: int, error: str
) -> None:
    script = as_script(tmp_path, text)
    code, out, err = run("train", script, "--no-progress")
    assert (code, out) == (2, "")
    name = error.partition(":")[0]
    assert err.endswith(f"graphc train: script.py raised {name}, see above\n")
    assert f'script.py", line {line}' in err and error in err
    assert "graphc/cli/" not in err and "importlib" not in err


def test_an_interrupt_is_no_traceback(run: Run, tmp_path: Path) -> None:
    code, out, err = run("train", as_script(tmp_path, "raise KeyboardInterrupt\nbuild = 0"))
    assert (code, out, err) == (130, "", "graphc train: interrupted\n")
