"""The cache of compiled programs on disk: what it keeps and refuses, and how it survives damage."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphc.config import DEFAULT, CompileOptions
from graphc.errors import AttributeValueError, CacheError
from graphc.store import folder as cache_module
from graphc.store.folder import ExecutableCache, default_folder, open_cache

REPOSITORY = Path(__file__).parents[3]
PAYLOAD = bytes(range(256)) * 4


def key(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "compiled"


@pytest.fixture
def cache(folder: Path) -> ExecutableCache:
    return ExecutableCache(folder, 1 << 20)


@pytest.fixture(autouse=True)
def warn_again() -> Iterator[None]:
    cache_module._warned.clear()
    yield
    cache_module._warned.clear()


def file_of(cache: ExecutableCache, number: int = 0) -> Path:
    return cache.folder / f"{key(number)}.executable"


def stored(cache: ExecutableCache) -> list[int]:
    """The numbers of the stored keys, the most recently used first."""
    return [int(entry.key, 16) for entry in cache.entries()]


# -- what it keeps --------------------------------------------------------------------------


def test_what_was_stored_is_found(cache: ExecutableCache, folder: Path) -> None:
    assert cache.get(key(0)) is None
    assert not folder.exists()  # a failed look-up does not create the folder
    metadata = {"program": "näme", "seconds": {"compile": 0.25}, "groups": [[1, 2], None]}
    assert cache.put(key(0), metadata, PAYLOAD)
    for found in (cache.get(key(0)), ExecutableCache(folder, 1).get(key(0))):
        assert found is not None
        assert (found.key, found.metadata, found.payload) == (key(0), metadata, PAYLOAD)
    assert cache.get(key(1)) is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(cache).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [f"{key(0)}.executable"]


def test_the_same_key_again_replaces(cache: ExecutableCache) -> None:
    cache.put(key(0), {}, b"first")
    assert cache.put(key(0), {"n": 2}, b"")
    found = cache.get(key(0))
    assert found is not None and (found.metadata, found.payload) == ({"n": 2}, b"")
    assert stored(cache) == [0]


def test_one_entry_can_be_removed(cache: ExecutableCache) -> None:
    cache.remove(key(0))  # a key that was never stored
    cache.put(key(0), {}, b"")
    cache.put(key(1), {}, b"")
    cache.remove(key(0))
    assert cache.get(key(0)) is None and stored(cache) == [1]


def test_entries_tell_size_and_time(cache: ExecutableCache) -> None:
    before = time.time()
    cache.put(key(0), {"program": "a"}, PAYLOAD)
    cache.put(key(1), {"program": "b"}, b"")
    newest, oldest = cache.entries()
    assert (newest.key, oldest.key) == (key(1), key(0))
    assert oldest.metadata == {"program": "a"}
    assert oldest.bytes == file_of(cache).stat().st_size > len(PAYLOAD)
    assert oldest.created is not None
    assert before - 1 <= oldest.created <= oldest.last_used + 1e-3 <= time.time() + 1
    assert cache.size() == oldest.bytes + newest.bytes


def test_clear_removes_what_is_its_own(cache: ExecutableCache, folder: Path) -> None:
    assert (cache.clear(), cache.size(), cache.entries()) == (0, 0, [])
    for number in range(3):
        cache.put(key(number), {}, PAYLOAD)
    others = ["notes.txt", "short.executable", f"{'X' * 64}.executable", f"{key(1)}.other"]
    for name in [*others, ".writing-abc"]:
        (folder / name).write_text("x")
    sizes = [file_of(cache, number).stat().st_size for number in range(3)]
    assert cache.size() == sum(sizes) + 1  # an unfinished file counts too
    assert cache.clear() == 3
    assert sorted(path.name for path in folder.iterdir()) == sorted(others)


# -- bounded size ---------------------------------------------------------------------------


@pytest.fixture
def room_for_three(cache: ExecutableCache, folder: Path) -> ExecutableCache:
    cache.put(key(0), {}, PAYLOAD)
    return ExecutableCache(folder, int(3.5 * cache.size()))  # sizes differ by a few bytes


def test_the_least_recently_used_goes_first(room_for_three: ExecutableCache) -> None:
    cache = room_for_three
    for number in (1, 2):
        cache.put(key(number), {}, PAYLOAD)
    assert stored(cache) == [2, 1, 0]
    assert cache.get(key(0)) is not None
    assert stored(cache) == [0, 2, 1]
    cache.put(key(3), {}, PAYLOAD)
    assert stored(cache) == [3, 0, 2]
    cache.put(key(4), {}, 2 * PAYLOAD)
    assert stored(cache) == [4, 3]
    assert cache.size() <= cache.limit_bytes


def test_what_is_larger_than_the_limit_is_not_stored(room_for_three: ExecutableCache) -> None:
    cache = room_for_three
    assert not cache.put(key(1), {}, 5 * PAYLOAD)
    assert not cache.put(key(1), {"x": "x" * 5000}, b"")  # the size of the whole file counts
    assert stored(cache) == [0]  # and no other entry was deleted for it


def test_a_smaller_limit_holds_from_the_next_store_on(cache: ExecutableCache, folder: Path) -> None:
    for number in range(5):
        cache.put(key(number), {}, PAYLOAD)
    small = ExecutableCache(folder, int(2.5 * file_of(cache).stat().st_size))
    assert small.put(key(5), {}, PAYLOAD)
    assert stored(cache) == [5, 4]


def test_eviction_bears_that_others_remove_too(
    room_for_three: ExecutableCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = room_for_three
    for number in (1, 2):
        cache.put(key(number), {}, PAYLOAD)
    files = ExecutableCache._files

    def others_were_quicker(self: ExecutableCache) -> list:
        found = list(files(self))
        file_of(cache, 0).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(ExecutableCache, "_files", others_were_quicker)
    assert cache.put(key(3), {}, PAYLOAD)
    monkeypatch.undo()
    assert stored(cache) == [3, 2, 1]


def test_what_a_killed_writer_left_is_swept(cache: ExecutableCache, folder: Path) -> None:
    cache.put(key(0), {}, PAYLOAD)
    old, new = folder / ".writing-old", folder / ".writing-new"
    for path in (old, new):
        path.write_bytes(b"half")
    hours_ago = time.time() - 2 * 3600
    os.utime(old, (hours_ago, hours_ago))
    cache.put(key(1), {}, PAYLOAD)
    assert not old.exists() and new.exists()
    assert stored(cache) == [1, 0]


# -- damaged and foreign files --------------------------------------------------------------


def test_every_byte_counts(cache: ExecutableCache) -> None:
    cache.put(key(0), {"program": "p"}, b"payload")
    path = file_of(cache)
    good = path.read_bytes()
    for place in range(len(good)):
        for bit in (1, 128):
            bad = bytearray(good)
            bad[place] ^= bit
            path.write_bytes(bad)
            assert cache.get(key(0)) is None, place
            assert not path.exists()
            path.touch(mode=0o600)
    path.write_bytes(good)
    assert cache.get(key(0)) is not None


def test_truncated_and_extended_files(cache: ExecutableCache) -> None:
    cache.put(key(0), {"program": "p"}, b"payload")
    path = file_of(cache)
    good = path.read_bytes()
    for bad in [good[:length] for length in range(len(good))] + [good + b"\0", good + good]:
        path.write_bytes(bad)
        (listed,) = cache.entries()
        assert listed.metadata is None and listed.bytes == len(bad)
        assert cache.get(key(0)) is None and not path.exists(), len(bad)
        path.touch(mode=0o600)


def test_an_entry_under_another_key_is_refused(cache: ExecutableCache) -> None:
    cache.put(key(1), {}, PAYLOAD)
    file_of(cache, 1).rename(file_of(cache, 0))
    assert cache.get(key(0)) is None
    assert cache.entries() == []


def test_an_entry_of_another_format_is_refused(
    cache: ExecutableCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphc.store.files.FORMAT", 0)
    cache.put(key(0), {}, PAYLOAD)
    monkeypatch.undo()
    (listed,) = cache.entries()
    assert listed.metadata is None
    assert cache.get(key(0)) is None
    assert not file_of(cache).exists()
    assert cache.put(key(0), {}, PAYLOAD) and cache.get(key(0)) is not None


@pytest.mark.parametrize("target", ["there", "missing", "entry"])
def test_a_symbolic_link_is_not_followed(
    cache: ExecutableCache, tmp_path: Path, target: str
) -> None:
    elsewhere = ExecutableCache(tmp_path / "other", 1 << 20)
    elsewhere.put(key(0), {}, PAYLOAD)
    (tmp_path / "there").write_bytes(b"precious")
    cache.put(key(1), {}, b"")
    link = file_of(cache)
    link.symlink_to(file_of(elsewhere) if target == "entry" else tmp_path / target)
    assert cache.get(key(0)) is None
    assert not link.is_symlink()
    link.symlink_to(tmp_path / "there")
    assert cache.put(key(0), {}, PAYLOAD)  # this replaces the link and does not follow it
    assert not link.is_symlink()
    assert (tmp_path / "there").read_bytes() == b"precious"
    assert cache.get(key(0)) is not None and elsewhere.get(key(0)) is not None


def test_what_is_no_plain_file_is_a_miss(cache: ExecutableCache) -> None:
    cache.put(key(1), {}, b"")
    os.mkfifo(file_of(cache), mode=0o600)
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(cache.get(key(0))), daemon=True)
    reader.start()
    reader.join(60)  # a reader that waits for a writer would wait forever
    assert found == [None]
    file_of(cache).unlink(missing_ok=True)
    file_of(cache).mkdir(mode=0o700)
    assert cache.get(key(0)) is None
    with pytest.warns(RuntimeWarning, match="nothing can be stored in the cache folder"):
        assert not cache.put(key(0), {}, PAYLOAD)
    assert stored(cache)[-1] == 1


# -- ownership ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o704, 0o777, 0o1777, 0o755])
def test_a_folder_that_is_open_to_others_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(CacheError, match="is open to other users") as info:
        ExecutableCache(folder, 1)
    assert f"hint: chmod 700 {folder}" in str(info.value)
    folder.chmod(0o700)
    ExecutableCache(folder, 1)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o644, 0o640, 0o666])
def test_a_file_that_is_open_to_others_is_not_loaded(cache: ExecutableCache, mode: int) -> None:
    cache.put(key(0), {}, PAYLOAD)
    file_of(cache).chmod(mode)
    (listed,) = cache.entries()
    assert listed.metadata is None
    assert cache.get(key(0)) is None
    assert not file_of(cache).exists()


@pytest.fixture
def another_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this process appear to run as another user."""
    return lambda: monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)


def test_another_users_folder_is_refused(
    cache: ExecutableCache, folder: Path, another_user: Callable[[], None]
) -> None:
    cache.put(key(0), {}, PAYLOAD)
    another_user()
    with pytest.raises(CacheError, match="belongs to another user") as info:
        ExecutableCache(folder, 1)
    assert "name a folder of your own" in str(info.value)


def test_another_users_file_is_a_miss_and_stays(
    cache: ExecutableCache, another_user: Callable[[], None]
) -> None:
    cache.put(key(0), {}, PAYLOAD)
    another_user()
    assert cache.get(key(0)) is None
    assert file_of(cache).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_files_that_were_given_away(cache: ExecutableCache, folder: Path, tmp_path: Path) -> None:
    cache.put(key(0), {}, PAYLOAD)
    os.chown(file_of(cache), 65534, 65534)
    assert cache.get(key(0)) is None and file_of(cache).exists()
    assert cache.put(key(0), {}, PAYLOAD)  # we own the folder, so our file replaces the other one
    assert cache.get(key(0)) is not None
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert ExecutableCache(link, 1 << 20).get(key(0)) is not None  # our own link may point to it
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(CacheError, match="belongs to another user"):
        ExecutableCache(link, 1)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CacheError, match="is not a folder"):
        ExecutableCache(file, 1)
    with pytest.raises(CacheError, match="cannot be used: Not a directory"):
        ExecutableCache(file / "below", 1)


# -- folders that cannot be written ---------------------------------------------------------


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), OSError(30, "x")])
@pytest.mark.parametrize("call", ["replace", "utime", "mkdir"])
def test_entries_that_cannot_be_written_are_reported_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    cache = ExecutableCache(folder, 1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.warns(RuntimeWarning, match=str(fault.strerror)) as told:
            assert not cache.put(key(0), {}, PAYLOAD)
            assert not cache.put(key(0), {}, PAYLOAD)
        assert len(told) == 1
    assert not folder.exists() or list(folder.iterdir()) == []  # no unfinished file is left
    assert cache.put(key(0), {}, PAYLOAD) and cache.get(key(0)) is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_only_readable(cache: ExecutableCache, folder: Path) -> None:
    cache.put(key(0), {}, PAYLOAD)
    folder.chmod(0o500)
    try:
        assert cache.get(key(0)) is not None
        with pytest.warns(RuntimeWarning, match="Permission denied"):
            assert not cache.put(key(1), {}, PAYLOAD)
        with pytest.raises(CacheError, match="cannot be cleared: Permission denied"):
            cache.clear()
    finally:
        folder.chmod(0o700)


def test_an_entry_that_cannot_be_touched_is_found(
    cache: ExecutableCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    cache.put(key(0), {}, PAYLOAD)
    monkeypatch.setattr(os, "utime", fail)
    found = cache.get(key(0))
    assert found is not None and (found.key, found.payload) == (key(0), PAYLOAD)


def test_an_interrupt_leaves_nothing(
    cache: ExecutableCache, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.put(key(0), {}, PAYLOAD)
    assert list(folder.iterdir()) == []


def test_a_folder_cleared_in_mid_write_is_no_fault(
    cache: ExecutableCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def cleared(old: str, new: str) -> None:
        cache.clear()
        replace(old, new)

    monkeypatch.setattr(os, "replace", cleared)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.put(key(0), {}, PAYLOAD)


# -- options --------------------------------------------------------------------------------


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "graphc" / "executables"
    cache = open_cache(CompileOptions())
    assert cache is not None and cache.folder == default_folder()
    assert cache.limit_bytes == CompileOptions().cache_limit == 2 * 2**30
    assert list(tmp_path.iterdir()) == []
    assert cache.put(key(0), {}, PAYLOAD)
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_a_refused_default_folder_is_reported_once() -> None:
    default_folder().mkdir(parents=True)
    default_folder().chmod(0o777)
    with pytest.warns(RuntimeWarning, match=r"not kept: .* open to other users .*; chmod") as told:
        assert open_cache(CompileOptions()) is None
        assert open_cache(CompileOptions()) is None
    assert len(told) == 1
    with pytest.raises(CacheError, match="open to other users"):
        open_cache(CompileOptions(cache=default_folder()))


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache"))
    with pytest.warns(RuntimeWarning, match="no home folder"):
        assert open_cache(CompileOptions()) is None


def test_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CompileOptions().cache is DEFAULT
    assert open_cache(CompileOptions(cache=None)) is None
    monkeypatch.chdir(tmp_path)
    options = CompileOptions(cache="here", cache_limit=7)
    assert options == CompileOptions(cache=tmp_path / "here", cache_limit=7)
    assert hash(options) == hash(CompileOptions(cache=tmp_path / "here", cache_limit=7))
    assert options != CompileOptions(cache_limit=7) != CompileOptions(cache=None, cache_limit=7)
    cache = open_cache(options)
    assert cache is not None
    assert (cache.folder, cache.limit_bytes) == (tmp_path / "here", 7)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CompileOptions(cache="~/x").cache == str(tmp_path / "x")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"cache": 3}, "cache must be the path of a folder, or None, got 3"),
        ({"cache": ""}, "cache must be the path of a folder"),
        ({"cache": __file__}, "cache must be a folder"),
        ({"cache_limit": 0}, "cache_limit must be an int of at least 1, got 0"),
        ({"cache_limit": 1e9}, "cache_limit must be an int"),
        ({"cache_limit": True}, "cache_limit must be an int"),
    ],
)
def test_options_it_cannot_have(option: dict, text: str) -> None:
    with pytest.raises(AttributeValueError, match=text):
        CompileOptions(**option)


# -- many processes -------------------------------------------------------------------------

WORKER = """
import hashlib, json, os, random, sys, time

folder, number, seconds, limit = sys.argv[1], *map(int, sys.argv[2:])
from graphc.store.folder import ExecutableCache

def payload(key):
    return hashlib.sha256(key.encode()).digest() * (200 + int(key, 16) % 800)

cache = ExecutableCache(folder, limit)
random.seed(number)
print("ready", flush=True)
sys.stdin.readline()
if number == 0:  # to be killed with half of an entry written
    class Half(list):
        def __iter__(self):
            yield b"x" * 100_000
            print("half", flush=True)
            time.sleep(60)
    cache._write(cache._path("0" * 64), Half())
counts = {"hits": 0, "misses": 0, "wrong": 0}
end = time.monotonic() + seconds
while time.monotonic() < end:
    key = f"{random.randrange(24):064x}"
    found = cache.get(key)
    if found is None:
        counts["misses"] += 1
        cache.put(key, {"key": key}, payload(key))
    elif (found.payload, found.metadata) == (payload(key), {"key": key}):
        counts["hits"] += 1
    else:
        counts["wrong"] += 1
    if random.random() < 0.01:
        cache.entries()
    if random.random() < 0.002:
        cache.clear()
print(json.dumps(counts), flush=True)
"""


@pytest.mark.slow
def test_sixteen_processes_and_one_of_them_killed(tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    limit = 300_000  # room for about half of the keys
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "error",
                "-c",
                WORKER,
                str(folder),
                str(number),
                "4",
                str(limit),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for number in range(16)
    ]
    try:
        folder.mkdir(mode=0o700)  # so that the process that is killed can write at once
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        victim, *others = processes
        assert victim.stdout is not None and victim.stdout.readline() == "half\n"
        victim.send_signal(signal.SIGKILL)
        results = [process.communicate(timeout=60) for process in others]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert [error for _, error in results] == [""] * 15
    counts = [json.loads(out.splitlines()[-1]) for out, _ in results]
    assert sum(count["wrong"] for count in counts) == 0
    assert all(count["hits"] > 0 and count["misses"] > 0 for count in counts)

    cache = ExecutableCache(folder, limit)
    assert all(entry.metadata is not None for entry in cache.entries())
    assert all(cache.get(entry.key) is not None for entry in cache.entries())
    assert cache.put(key(0), {}, b"")
    assert cache.size() <= limit
