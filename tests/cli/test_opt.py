"""`graphc opt`: passes on the text form of a program, and errors for invalid input."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphc.cli import main
from graphc.cli.pass_texts import known_passes, options_of, parse_passes
from graphc.passes.attention.attention_steps import StepAttention
from graphc.passes.core.target import Target

PROGRAM = """\
program mlp(x: f32[batch, 4], w: state f32[4, 2]) {
  # adds a zero
  %0 = MatMul(x, w) : f32[batch, 2] as product on /device:CPU:0
  %1 = Constant() {value=f32[] 0.0} : f32[]
  %2 = Add(%0, %1) : f32[batch, 2]
  return y = %2
}
"""
SIMPLER = """\
program mlp(x: f32[batch, 4], w: state f32[4, 2]) {
  %0 = MatMul(x, w) : f32[batch, 2] as product on /device:CPU:0
  return y = %0
}
"""
SIMPLIFY = ("--passes", "simplify-algebra,prune")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def opt(capsys, monkeypatch, tmp_path: Path) -> Run:
    """Runs `graphc opt` on a file with this text: exit code, standard output, standard error."""

    def call(text: str | None, *arguments: str, file: str | None = None) -> tuple[int, str, str]:
        path = tmp_path / "program.txt"
        if text is not None:
            path.write_text(text)
            monkeypatch.setattr(sys, "stdin", io.StringIO(text))
            arguments = (file or str(path), *arguments)
        try:
            code = main(["opt", *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_without_passes_it_prints_the_program(opt: Run) -> None:
    code, out, err = opt(PROGRAM, "--round-trip", "--verify")
    assert (code, err) == (0, "")
    assert "%2 = Add(%0, %1)" in out and "as product on /device:CPU:0" in out
    assert opt(out)[1] == out


def test_passes_run_in_order(opt: Run) -> None:
    assert opt(PROGRAM, *SIMPLIFY, "--verify", "--round-trip") == (0, SIMPLER, "")
    _, out, _ = opt(PROGRAM, "--passes", "prune,simplify-algebra")
    assert "Constant" in out  # prune ran too early


def test_it_reads_standard_input(opt: Run) -> None:
    assert opt(PROGRAM, *SIMPLIFY, file="-") == (0, SIMPLER, "")


def test_options_reach_the_pass(opt: Run) -> None:
    text = """\
program p() {
  %0 = Constant() {value=f32[2] [1.0, 2.0]} : f32[2]
  %1 = Negative(%0) : f32[2]
  return y = %1
}
"""
    assert "Negative" not in opt(text, "--passes", "fold-constants")[1]
    assert "Negative" in opt(text, "--passes", "fold-constants{limit=0},prune")[1]


def test_sizes_are_bound_before_passes(opt: Run) -> None:
    code, out, _ = opt(PROGRAM, *SIMPLIFY, "--size", "batch=3")
    assert code == 0 and "x: f32[3, 4]" in out and ": f32[3, 2]" in out


@pytest.mark.parametrize("platform", ["any", "cpu", "gpu"])
@pytest.mark.parametrize("pipeline", ["O0", "O1", "O2", "O3"])
def test_a_pipeline(opt: Run, pipeline: str, platform: str) -> None:
    code, out, err = opt(
        PROGRAM, *("--pipeline", pipeline, "--platform", platform, "--verify"), "--size", "batch=3"
    )
    assert code == 0 and err == "" and ("Add" in out) == (pipeline == "O0")
    assert "x: f32[3, 4]" in out


def test_a_pipeline_binds_sizes_late_and_runs_until_nothing_changes(opt: Run) -> None:
    """exp(0) becomes 1 in the first round, and x * 1 becomes x in the second."""
    text = """\
program p(x: f32[n, 4]) {
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = Exp(%0) : f32[]
  %2 = Multiply(x, %1) : f32[n, 4]
  return y = %2
}
"""
    arguments = ("--pipeline", "O2", "--size", "n=3", "--print-after", "simplify-algebra")
    code, out, err = opt(text, *arguments)
    assert code == 0 and "x: f32[3, 4]" in out and "Multiply" not in out
    assert "# after simplify-algebra, round 2: 1 changes" in err
    assert "x: f32[n, 4]" in err and "x: f32[3, 4]" not in err


def test_passes_receive_the_target() -> None:
    (found,) = parse_passes("step-attention", Target("gpu"))
    assert isinstance(found, StepAttention) and found.target == Target("gpu")


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ("program p() {\n  return\n}\n", "parsing the printed program gives a different program"),
        ("program", "the printed program does not parse"),
    ],
)
def test_a_round_trip_that_fails_is_reported(
    opt: Run, monkeypatch: pytest.MonkeyPatch, printed: str, text: str
) -> None:
    monkeypatch.setattr("graphc.cli.opt.print_program", lambda program, **how: printed)
    assert opt(PROGRAM)[0] == 0
    code, out, err = opt(PROGRAM, "--round-trip")
    assert code == 2 and out == "" and f"--round-trip: {text}" in err


def test_a_pipeline_says_which_passes_need_sizes(opt: Run) -> None:
    code, out, err = opt(PROGRAM, "--pipeline", "O2", "--platform", "cpu")
    assert (code, out) == (0, SIMPLER)
    assert err.startswith("not run, because sizes are unknown: move-transposes, simplify-shapes,")
    assert err.endswith("(add --size batch=N)\n")


def test_a_pipeline_takes_programs_with_effects(opt: Run) -> None:
    text = """\
program p() {
  %0 = ReadVariable() {variable="w", dtype=f32, shape=[2]} : f32[2]
  %1 = Negative(%0) : f32[2]
  return y = %1
}
"""
    code, out, err = opt(text, "--pipeline", "O2", "--verify")
    assert code == 0 and err == "" and "w: state f32[2]" in out
    code, out, _ = opt(text, "--passes", "prune,functionalize,prune", "--verify")
    assert code == 0 and "w: state f32[2]" in out
    code, out, _ = opt(text, "--passes", "prune", "--verify")
    assert code == 0 and "ReadVariable" in out


def test_print_after(opt: Run) -> None:
    code, out, err = opt(PROGRAM, *SIMPLIFY, "--print-after", "simplify-algebra")
    assert (code, out) == (0, SIMPLER)
    assert err.startswith("# after simplify-algebra, round 1: 1 changes\nprogram mlp(")
    assert "Constant" in err and err.count("# after") == 1
    _, _, err = opt(PROGRAM, "--passes", "prune,simplify-algebra,prune", "--print-after", "all")
    assert err.count("# after") == 2  # the first prune changed nothing


def test_list_has_every_pass_with_its_options(opt: Run) -> None:
    code, out, _ = opt(None, "--list")
    names = [line.split()[0] for line in out.splitlines()]
    assert code == 0 and names == list(known_passes()) == sorted(names)
    assert {"prune", "functionalize", "fold-norms", "replicate", "check-numerics"} <= set(names)
    assert "limit=65536" in out and "lazy=false, fewest=4" in out
    assert all(line.rstrip() == line and len(line) < 200 for line in out.splitlines())


def test_every_pass_can_be_named(opt: Run) -> None:
    for name, kind in known_passes().items():
        forms = options_of(kind)
        text = ",".join(f"{option}={form.example}" for option, (_, form) in forms.items())
        code, _, err = opt("program p() {\n  return\n}\n", "--passes", f"{name}{{{text}}}")
        known_refusals = ("needs the", "no feed has a batch axis")
        assert code == 0 or any(refusal in err for refusal in known_refusals), (name, err)


@pytest.mark.parametrize(
    ("passes", "texts"),
    [
        ("fold-constant", ["no pass 'fold-constant'", "did you mean 'fold-constants'?", "--list"]),
        ("fold-constants{limt=1}", ["has no option 'limt'", "did you mean 'limit'?"]),
        ("prune{x=1}", ["prune has no option 'x'", "prune has no options"]),
        ("fold-constants{limit=a}", ["limit must be an integer, got a", "write limit=4"]),
        ("fold-constants{limit=true}", ["limit must be an integer, got true"]),
        ("hoist-sums{always=1}", ["always must be true or false, got 1", "write always=true"]),
        ("fold-norms{moving=[1]}", ["moving must be a list of names, got [1]"]),
        ("fold-constants{limit=1,limit=2}", ["the option 'limit' is given twice"]),
        (
            "fold-constants{limit}",
            ["the text of its options does not parse at character 1", "limit\n  ^"],
        ),
        ("recompute", ["recompute needs the option 'budget'", "write recompute{budget=4}"]),
        ("prune,,prune", ["--passes does not parse at character 7", "prune,,prune\n        ^"]),
        ("prune{limit=1", ["--passes does not parse at character 1"]),
        ("prune,", ["--passes ends with a comma"]),
    ],
)
def test_wrong_passes_are_reported(opt: Run, passes: str, texts: list[str]) -> None:
    code, out, err = opt(PROGRAM, "--passes", passes)
    assert code == 2 and out == "" and err.startswith("graphc opt: ")
    assert all(text in err for text in texts), err


def test_other_wrong_options_are_reported(opt: Run) -> None:
    assert "no size 'bath'" in opt(PROGRAM, "--size", "bath=3")[2]
    twice = opt(PROGRAM, "--size", "batch=3", "--size", "batch=4")
    assert twice[0] == 2 and "--size: batch is 3 and 4" in twice[2]
    assert "did you mean 'batch'?" in opt(PROGRAM, "--size", "bath=3")[2]
    assert "'batch' is not of the form NAME=N" in opt(PROGRAM, "--size", "batch")[2]
    err = opt(PROGRAM, *SIMPLIFY, "--print-after", "prun")[2]
    assert "no pass 'prun' runs" in err and "did you mean 'prune'?" in err
    assert opt(None)[0] == 2
    assert "not allowed with" in opt(PROGRAM, *SIMPLIFY, "--pipeline", "O2")[2]


def test_text_that_does_not_parse_is_reported_with_its_line(opt: Run) -> None:
    code, out, err = opt(PROGRAM.replace("MatMul", "MatMull"))
    assert code == 2 and out == ""
    assert "line 3: no operator 'MatMull'" in err and "at program.txt:3" in err
    assert "hint: did you mean 'MatMul'?" in err


def test_an_invalid_program_is_reported_with_its_line(opt: Run) -> None:
    wrong = PROGRAM.replace(": f32[batch, 2] as", ": f32[batch, 3] as")
    code, out, err = opt(wrong, "--verify")
    assert code == 2 and out == ""
    for text in ("expected f32[batch, 2]", "got      f32[batch, 3]", "at program.txt:3"):
        assert text in err
    assert opt(wrong)[0] == 0  # only --verify checks


def test_files_that_cannot_be_read_are_reported(opt: Run, tmp_path: Path) -> None:
    assert "cannot be read: No such file" in opt(None, str(tmp_path / "none.txt"))[2]
    assert "cannot be read: Is a directory" in opt(None, str(tmp_path))[2]
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert "is not text in UTF-8" in opt(None, str(tmp_path / "bytes"))[2]
    err = opt("# made by hand\ngraph g(seed=0, draws=0) {\n}\n")[2]
    assert "contains a graph, but passes work on programs" in err and "--before prune" in err
