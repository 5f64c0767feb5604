"""Writers when processes end: kills, interrupts, forks, several writers at once."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import graphc as gc
from tests.train.tensorboard.events import files, scalars

pytestmark = pytest.mark.slow
Writer = gc.train.SummaryWriter


def python(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_graphc_does_not_import_tensorboard(tmp_path: Path) -> None:
    script = """
        import sys
        import graphc as gc
        gc.train.SummaryWriter, gc.train.TensorBoard(sys.argv[1])
        print({"tensorboard", "PIL", "google_crc32c"} & set(sys.modules))
        gc.train.SummaryWriter(sys.argv[1]).close()
        print("tensorflow" in sys.modules)
    """
    assert python(script, tmp_path).stdout.splitlines() == ["set()", "False"]


def test_the_limit_of_a_file_size(tmp_path: Path) -> None:
    """A real error of the operating system, in a separate process."""
    script = """
        import resource, signal, sys
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        from graphc.train.tensorboard.writer import SummaryWriter
        writer = SummaryWriter(sys.argv[1])
        writer.scalar("x", 1.0, 0)
        writer.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        try:
            for step in range(1, 1000):
                writer.scalar("x", 1.0, step)
                writer.flush()
        except Exception as error:
            print(error)
    """
    done = python(script, tmp_path)
    assert "File too large" in done.stdout, done.stderr
    assert scalars(tmp_path, "x")[0] == (0, 1.0)


def test_a_killed_process_leaves_a_readable_file(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from pathlib import Path
        from graphc.train.tensorboard.writer import SummaryWriter
        writer = SummaryWriter(sys.argv[1])
        (file,) = Path(sys.argv[1]).iterdir()
        step = 0
        while True:
            writer.scalar("x", step, step)
            writer.histogram("h", list(range(200)), step)
            step += 1
            if file.stat().st_size > 1 << 17:
                os.kill(os.getpid(), signal.SIGKILL)
    """
    done = python(script, tmp_path)
    assert done.returncode == -signal.SIGKILL
    points = scalars(tmp_path, "x")
    assert len(points) > 10
    assert points == [(step, step) for step in range(len(points))]
    with Writer(tmp_path, purge_step=5) as writer:
        writer.scalar("x", 0.0, 5)


def test_the_end_of_the_process_writes_what_waits(tmp_path: Path) -> None:
    script = """
        import sys
        from graphc.train.tensorboard.writer import SummaryWriter
        writer = SummaryWriter(sys.argv[1])
        for step in range(500):
            writer.scalar("x", step, step)
        raise KeyboardInterrupt
    """
    done = python(script, tmp_path)
    assert "KeyboardInterrupt" in done.stderr
    assert scalars(tmp_path, "x") == [(step, step) for step in range(500)]


def test_ctrl_c_while_it_waits_for_the_disk(tmp_path: Path) -> None:
    """The wait ends, but events that were already submitted are still written."""
    script = """
        import os, signal, sys, threading, time
        from graphc.train.tensorboard import event_file
        from graphc.train.tensorboard.writer import SummaryWriter
        event_file._MOST_WAITING = 2
        real = event_file.EventFile._write

        def slow(self, records):
            time.sleep(0.1)
            real(self, records)

        event_file.EventFile._write = slow
        writer = SummaryWriter(sys.argv[1])
        step = 0
        try:
            while True:
                writer.scalar("x", step, step)
                step += 1
                if step == 4:
                    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        except KeyboardInterrupt:
            writer.close()
            print(step)
    """
    done = python(script, tmp_path)
    count = int(done.stdout)
    assert count > 2
    # The interrupt may arrive just after the last event was submitted.
    assert len(scalars(tmp_path, "x")) - count in (0, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    script = """
        import os, sys
        from graphc.train.tensorboard.writer import SummaryWriter
        writer = SummaryWriter(sys.argv[1])
        other = SummaryWriter(sys.argv[1])
        for step in range(300):
            writer.scalar("parent", step, step)
        child = os.fork()
        if child == 0:
            for step in range(300):
                writer.scalar("child", step, step)
            other.scalar("child", 300, 300)
            os._exit(0)
        for step in range(300, 600):
            writer.scalar("parent", step, step)
        assert os.waitpid(child, 0)[1] == 0
        writer.close()
        other.close()
    """
    done = python(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(files(tmp_path)) == 2
    assert scalars(tmp_path, "parent") == [(step, step) for step in range(600)]
    assert scalars(tmp_path, "child") == [(step, step) for step in range(301)]


def _write_in_child(folder: str) -> None:
    with Writer(folder) as writer:
        writer.scalar("x", 1.0, os.getpid())


def test_several_processes_in_one_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pool.map(_write_in_child, [str(tmp_path)] * 4)
    assert len(scalars(tmp_path, "x")) == 4
