"""Metric curves from log files, and parts of log files."""

import asyncio
from pathlib import Path

import pytest

from graphc.cluster.jobs import metrics
from graphc.cluster.jobs.logs import events, part_of
from graphc.cluster.jobs.metrics import curves_of


def test_json_lines(tmp_path: Path) -> None:
    lines = ['{"step": 1, "epoch": 0, "loss": 0.5}', '{"step": 2, "loss": "nan", "x": true}',
             "broken", "[1]", '{"step": 3, "loss": 0.25, "accu']  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    (tmp_path / "log.csv").write_text("step,other\n1,2\n")
    assert curves_of(tmp_path) == {"loss": [(1.0, 0.5), (2.0, None)]}


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("step,epoch,loss,note\n1,0,0.5,a\n2,0,,b\n3,0,inf,c\n4,")
    assert curves_of(tmp_path) == {"loss": [(1.0, 0.5), (3.0, None)]}


def test_rows_without_steps(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("loss\n3\n3\n2\n")
    assert curves_of(tmp_path) == {"loss": [(1.0, 3.0), (2.0, 3.0), (3.0, 2.0)]}


def test_odd_steps(tmp_path: Path) -> None:
    """Steps that are not finite are replaced, because JSON has no such numbers."""
    (tmp_path / "log.csv").write_text("step,epoch,loss\n0,5,1\nnan,3,2\ninf,,3\n")
    assert curves_of(tmp_path) == {"loss": [(0.0, 1.0), (3.0, 2.0), (3.0, 3.0)]}


def test_what_is_no_log(tmp_path: Path) -> None:
    assert curves_of(tmp_path) == curves_of(tmp_path / "missing") == {}
    secret = tmp_path / "secret"
    secret.write_text("step,loss\n1,2\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "log.csv").symlink_to(secret)
    assert curves_of(logs) == {}
    (logs / "bytes.csv").write_bytes(b"\xff\x00" * 100)
    (logs / "deep.jsonl").write_text("[" * 100_000)
    assert curves_of(logs) == {}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_long_files_are_thinned(tmp_path: Path, monkeypatch, form: str) -> None:
    """Long files that are read only in part are included; the curve keeps its start and its end."""
    rows = [(step, step / 10) for step in range(1, 5000)]
    text = "step,loss\n" + "".join(f"{a},{b}\n" for a, b in rows)
    if form == "jsonl":
        text = "".join(f'{{"step": {a}, "loss": {b}}}\n' for a, b in rows)
    (tmp_path / f"log.{form}").write_text(text)
    for most in (1 << 20, 1000):
        monkeypatch.setattr(metrics, "_MOST_BYTES", most)
        points = curves_of(tmp_path)["loss"]
        assert metrics._MOST_POINTS // 2 < len(points) <= metrics._MOST_POINTS + 1
        assert points[0] == (1.0, 0.1) and points[-1][0] > 4980
        assert all(value == step / 10 for step, value in points)
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps))


def test_many_columns_are_bounded(tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(200)]
    (tmp_path / "log.csv").write_text(f"{','.join(names)}\n{','.join('1' * 200)}\n")
    assert len(curves_of(tmp_path)) == metrics._MOST_CURVES


def test_parts_of_logs(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    assert part_of(path, 5) == (b"", 0)
    path.write_text("0123456789")
    assert part_of(path, 8, 1) == (b"8", 9)
    assert part_of(path, -100) == (b"0123456789", 10)


def test_events_of_a_log(tmp_path: Path, monkeypatch) -> None:
    """New text, a character that is written in two parts, another run, and the end."""
    monkeypatch.setattr("graphc.cluster.jobs.logs._TURN", 0.0)
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_bytes("grü".encode()[:-1])
    second.write_text("two\n\nlines")
    paths, looks = [first], []

    def has_ended() -> bool:
        looks.append(1)
        if len(looks) == 2:
            with first.open("ab") as file:
                file.write("ü".encode()[1:] + b"n")
        if len(looks) == 4:
            paths.append(second)
        return len(looks) > 5

    async def read() -> list[str]:
        found = events(lambda: paths[-1], 0, has_ended)
        return [event.decode() async for event in found if event]

    assert asyncio.run(read()) == [
        'id: 3\nevent: text\ndata: "gr"\n\n',
        'id: 5\nevent: text\ndata: "\\u00fcn"\n\n',
        "event: restart\ndata: {}\n\n",
        'id: 10\nevent: text\ndata: "two\\n\\nlines"\n\n',
        "event: end\ndata: {}\n\n",
    ]
