"""The model of text files: little padding without effect, and training resumes exactly."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import text_buckets

import graphc as gc

LINES = ["x" * n for n in (3, 20, 30, 31, 40, 55, 60, 63)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        rows = [f"{number}{line}" for line in LINES * 6]
        (tmp_path / f"{number}.txt").write_text("\n".join(["", *rows, "z" * 200]))
    return tmp_path


def test_every_line_comes_once_in_an_epoch(folder: Path) -> None:
    buckets = gc.Bucketing({"batch": [4], "time": list(text_buckets.BOUNDS)})
    paths = sorted(folder.glob("*.txt"))
    found = []
    endless = text_buckets.batches(paths, buckets, 4)
    for batch in islice(endless, 50):
        rows = [text_buckets.sources.decode(row) for row in batch["lines"]]
        bound = min(b for b in text_buckets.BOUNDS if b >= max(map(len, rows)))
        assert min(map(len, rows)) > bound - 16  # all lengths of one bucket
        found += rows
    want = {f"{n}{line}\n" for n in range(5) for line in LINES if len(line) < 63}
    assert set(found) <= want and len(set(found)) > 25


@pytest.mark.slow
def test_training_continues_at_the_same_line(folder: Path) -> None:
    def make() -> text_buckets.Text:
        return text_buckets.make_text(str(folder), pattern="*.txt", units=8, batch=4)

    text = make()
    session = gc.Session(text.job.graph)
    whole, end = text_buckets.train(session, text, 12, None)
    again = make()
    other = gc.Session(again.job.graph)
    first, position = text_buckets.train(other, again, 5, None)
    second, last = text_buckets.train(other, again, 7, position)
    assert [*first, *second] == whole and last["count"] == end["count"] == 12
    for name, value in session.values().items():
        assert np.array_equal(value, other.get(name)), name


@pytest.mark.slow
def test_it_learns(capsys: pytest.CaptureFixture[str]) -> None:
    text_buckets.main(["--steps", "60", "--units", "32"])
    output = capsys.readouterr().out
    assert "60 batches" in output
    first, last = output.split("bits a character ")[1].split(" at first, ")
    assert float(last.split()[0]) < float(first) - 1
