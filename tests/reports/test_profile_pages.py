"""A profile as text, as a page and as a trace, made from a recording that the test writes."""

import json
import os
import re
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from graphc.errors import GraphcError
from graphc.ir.source import Source
from graphc.reports.profile import HostTime, NodeTime, Profile
from graphc.reports.xplane import Mark, Recording, Run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCRIPT = """import graphc as gc
x = gc.placeholder((2,), name="x")
y = gc.exp(x, name="<b>&</script>")  # <i>not a tag</i>
z = gc.tanh(y)
train = gc.minimize(z)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train <1>.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def profile(script: Path) -> Profile:
    def at(line: int) -> Source:
        return Source(str(script), line)

    nodes = [
        NodeTime("<b>&</script>", "Exp", 4e-3, 1, 8e6, 16.0, at(3)),
        NodeTime("train/gradients/Tanh", "Tanh", 3e-3, 2, 0.0, 8.0, at(4), "backward", at(5)),
        NodeTime("train/update/Add", "Add", 1e-3, 1, 2.0, 8.0, at(5), "update", at(5)),
        NodeTime("nowhere", "Copy", 2e-6, 1, 0.0, 8.0),
    ]
    recording = Recording(
        [
            Run("m", "exp.1", 0, 1e6, 5e6, "worker"),
            Run("m", "tanh.1", 0, 4e6, 8e6, "worker"),
            Run("m", "tanh.1", 1, 4e6, 8e6, "other"),
        ],
        [Mark("graphc.step", 0, 1e7), Mark("graphc.feeds", 0, 1e6)],
    )
    return Profile(
        {node.name: node for node in nodes},
        HostTime(1e-3, 2e-3, 7e-3),
        step_seconds=0.01,
        plain_seconds=0.009,
        unattributed_seconds=1e-3,
        idle_seconds=0.998e-3,
        steps=20,
        devices=2,
        unattributed={"copy.<7>": 1e-3},
        notes=("a <note>",),
        recording=recording,
        owners={("m", "exp.1"): "<b>&</script>"},
    )


def test_text(profile: Profile) -> None:
    text = profile.text()
    assert text.startswith(
        "10 ms a step (9 ms without the profiler), the mean of 20 steps on 2 dev"
    )
    assert "note: a <note>" in text
    assert re.search(r"40\.0% +4 ms +4 ms +train <1>\.py:3 +y = gc\.exp\(x", text)
    assert re.search(r"30\.0% +3 ms +3 ms .*z = gc\.tanh\(y\)  \(backward pass of train <1>", text)
    assert re.search(r"40\.0% +4 ms +1 +2 GFLOP/s +<b>&</script> +Exp", text)
    assert re.search(r"10\.0% +1 ms +5  train = gc\.minimize\(z\)", text)
    assert str(profile) == text
    assert repr(profile) == "<Profile of 20 steps: 10 ms a step, 4 nodes>"


def test_lines(profile: Profile, script: Path) -> None:
    assert list(profile.lines) == [f"{script}:{n}" for n in (3, 4, 5)]
    line = profile.lines[f"{script}:4"]
    assert (line.seconds, line.share, line.nodes) == (3e-3, 0.3, ("train/gradients/Tanh",))
    assert [str(caller) for caller in line.callers] == ["train <1>.py:5"]


def test_json(profile: Profile) -> None:
    facts = json.loads(json.dumps(profile.to_json(), allow_nan=False))
    assert facts["nodes"]["train/update/Add"]["phase"] == "update"
    assert facts["host"] == {"feeds": 1e-3, "dispatch": 2e-3, "wait": 7e-3}


def test_page_is_one_file_without_network(profile: Profile, tmp_path: Path) -> None:
    profile.html(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert not re.search(r"(src|href)=['\"]?(https?:)?//|@import|url\(", text)
    assert text.count("</script>") == 2, "a name must not end the script"
    assert "<i>not a tag" not in text and "&lt;i&gt;not a tag" in text
    assert "a &lt;note&gt;" in text and "copy.&lt;7&gt;" in text
    assert os.listdir(tmp_path) == ["p.html", "train <1>.py"] or len(os.listdir(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_page_in_a_browser(profile: Profile, tmp_path: Path) -> None:
    """The page's script fills the table of nodes, and a click on a line opens its nodes."""
    page = tmp_path / "p.html"
    profile.html(page)
    click = (
        "<script>for (const row of document.querySelectorAll('tr.timed')) row.click();"
        "const f = document.getElementById('filter'); f.value = 'backward';"
        "f.dispatchEvent(new Event('input'));</script></body>"
    )
    page.write_text(page.read_text().replace("</body>", click))
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={tmp_path / 'user'}", "--dump-dom", page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    text = done.stdout
    assert text.count('class="inside"') == 3
    assert "its backward pass was asked for at train &lt;1&gt;.py:5" in text
    nodes = text[text.index('id="nodes"') :].partition("</table>")[0]
    assert nodes.count("<tr>") == 2 and "train/gradients/Tanh" in nodes
    assert ">1 nodes.<" in text


def test_source_that_cannot_be_read(profile: Profile, script: Path, tmp_path: Path) -> None:
    script.unlink()
    text = profile.text()
    assert "train <1>.py: the source is not available" in text and "train <1>.py:3" in text
    profile.html(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert "The file cannot be read here" in page
    assert page.count("class='timed'") == 3


def test_trace(profile: Profile, tmp_path: Path) -> None:
    profile.trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {(e["pid"], e["args"]["name"]) for e in events if e["ph"] == "M"}
    assert names >= {(0, "host"), (1, "device 0"), (2, "device 1"), (1, "lane 2"), (2, "lane 1")}
    exp = next(e for e in events if e["name"] == "<b>&</script>")
    assert (exp["ph"], exp["ts"], exp["dur"], exp["pid"]) == ("X", 1e3, 4e3, 1)
    assert exp["args"]["line"].endswith("train <1>.py:3") and exp["args"]["phase"] == "forward"
    steps = [e for e in events if e["name"] == "step"]
    assert [(e["pid"], e["dur"]) for e in steps] == [(0, 1e4)]
    others = [(e["pid"], e["tid"]) for e in events if e["name"] == "tanh.1"]
    assert others == [(1, 1), (2, 0)], "the first overlaps exp.1"


def test_events_in_a_loop_are_below_it_in_the_trace(profile: Profile, tmp_path: Path) -> None:
    rows = [("loop", 0, 100), ("a", 10, 40), ("b", 20, 30), ("c", 50, 90), ("d", 95, 120)]
    runs = [Run("m", name, 0, start, end, "t") for name, start, end in rows]
    looped = replace(profile, recording=Recording(runs, []), containers=frozenset([("m", "loop")]))
    looped.trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lanes = {e["name"]: e["tid"] for e in events if e["ph"] == "X"}
    assert lanes == {"loop": 0, "a": 0, "b": 1, "c": 0, "d": 1}


@pytest.mark.parametrize("write", [Profile.html, Profile.trace], ids=["html", "trace"])
def test_file_that_cannot_be_written(profile: Profile, tmp_path: Path, write) -> None:
    with pytest.raises(GraphcError, match=r"cannot write .*No such file"):
        write(profile, tmp_path / "none" / "p")
    (tmp_path / "folder").mkdir()
    with pytest.raises(GraphcError, match="cannot write"):
        write(profile, tmp_path / "folder")
    assert len(os.listdir(tmp_path)) == 2, "no temporary file is left"


def test_file_has_the_usual_mode(profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    profile.html(str(tmp_path / "p.html"))
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "p.html")}
    assert len(modes) == 1


def test_no_recording_at_all() -> None:
    empty = Profile({}, HostTime(0, 0, 0), 0.0, 0.0, 0.0, 0.0, 0, 1)
    assert "no instruction was recorded" in empty.text()
    assert isinstance(empty.to_json(), dict)
