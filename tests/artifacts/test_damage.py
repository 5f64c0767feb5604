"""Files that are not whole, not ours, or lie; and writers that fail half-way."""

import builtins
import copy
import errno
import hashlib
import json
import os
import pickle
import random
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

import graphc as gc
from graphc.artifacts import container
from graphc.errors import ArtifactCorruptError, ArtifactError, ArtifactVersionError
from tests.artifacts.models import linear

X = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    graph, signatures = linear()
    path = tmp_path_factory.mktemp("whole") / "model.gcx"
    gc.save(gc.Session(graph), path, signatures=signatures)
    return path


def answer(path: Path) -> float:
    return float(gc.load(path).signatures["predict"](x=X)["y"][0, 0])


# -- altered files --------------------------------------------------------------------------


def mutations(data: bytes) -> list[bytes]:
    """Bit flips, overwritten, removed, repeated and inserted stretches, truncations."""
    rng = random.Random(7)
    found = []
    for _ in range(500):
        changed = bytearray(data)
        start = rng.randrange(len(data))
        length = rng.choice([1, 2, 8, 100])
        match rng.randrange(6):
            case 0 | 1:
                changed[start] ^= 1 << rng.randrange(8)
            case 2:
                changed[start : start + length] = rng.randbytes(length)
            case 3:
                del changed[start : start + length]
            case 4:
                changed[start:start] = changed[start : start + length]
            case 5:
                del changed[start:]
        found.append(bytes(changed))
    central = data.rindex(b"PK\x01\x02")  # the last stretch says where everything lies
    for position in range(central, len(data)):
        changed = bytearray(data)
        changed[position] ^= 0xFF
        found.append(bytes(changed))
    return found


def test_mutations_give_the_same_content_or_an_artifact_error(whole: Path, tmp_path: Path) -> None:
    manifest, members = container.read(whole)
    path = tmp_path / "model.gcx"
    refused = 0
    for data in mutations(whole.read_bytes()):
        path.write_bytes(data)
        try:
            assert container.read(path) == (manifest, members)
        except ArtifactError as error:
            assert str(path) in error.what
            refused += 1
    assert refused > 500


def test_every_truncation_is_refused(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    path = tmp_path / "model.gcx"
    for length in [*range(64), *range(64, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match=r"is empty|is not a graphc artifact|truncated"):
            gc.load(path)


# -- files that are something else ----------------------------------------------------------


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(ArtifactError, match=r"no file '.*nothing.gcx'\n  mend: check the path"):
        gc.load(tmp_path / "nothing.gcx")
    with pytest.raises(ArtifactError, match="is a folder, not an artifact"):
        gc.load(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ArtifactCorruptError, match="is empty"):
        gc.load(path)
    path.write_text("x" * 1000)
    with pytest.raises(ArtifactError, match="is not a graphc artifact\n  it does not begin as one"):
        gc.load(path)
    with path.open("wb") as file:
        np.savez_compressed(file, x=X)
    with pytest.raises(ArtifactError, match="is not a graphc artifact\n  it has no manifest"):
        gc.load(path)
    for wrong in (None, 3, ["a"]):
        with pytest.raises(ValueError, match="the path must be a str or a Path"):
            gc.load(wrong)
    with pytest.raises(ValueError, match=r"device must be a jax\.Device, got 'cpu'"):
        gc.load(path, device="cpu")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    path.chmod(0)
    with pytest.raises(ArtifactError, match=r"cannot read .*: Permission denied"):
        gc.load(path)


# -- files whose checksums fit, and that lie ------------------------------------------------

Change = Callable[[dict[str, Any]], object]


def forge(
    source: Path, target: Path, change: Change, replaced: dict[str, bytes] | None = None
) -> None:
    """Writes a file whose checksums fit, with another manifest and other members."""
    manifest, members = container.read(source)
    manifest = copy.deepcopy(manifest)
    contents = {name: bytes(data) for name, data in members.items()} | (replaced or {})
    manifest["members"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    }
    change(manifest)
    text = json.dumps(manifest).encode()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", text)
        archive.writestr("manifest.sha256", hashlib.sha256(text).hexdigest())
        for name, data in contents.items():
            archive.writestr(name, data)


def entry(manifest: dict[str, Any], name: str = "train") -> Any:
    return manifest["signatures"][name]


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside a manifest."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((*path, key))
        if isinstance(inner, (dict, list)):
            found += paths_of(inner, (*path, key))
    return found


def test_a_forged_file_with_nothing_changed_loads(whole: Path, tmp_path: Path) -> None:
    forge(whole, tmp_path / "same.gcx", lambda m: m.update(later="unknown fields are passed over"))
    assert answer(tmp_path / "same.gcx") == answer(whole) == 5.0


def test_anything_removed_or_of_another_type(whole: Path, tmp_path: Path) -> None:
    """Each field in turn; the programs are read too, since some lies only show there."""
    manifest, _ = container.read(whole)
    path = tmp_path / "model.gcx"
    wrong = [None, -1, 1.5, True, "?", [], {}, [[]], 10**30, {"a": []}]
    rng = random.Random(3)
    for place in paths_of(manifest):

        def remove(m: dict[str, Any], place: tuple[Any, ...] = place) -> None:
            for key in place[:-1]:
                m = m[key]
            del m[place[-1]]

        def replace(m: dict[str, Any], value: Any, place: tuple[Any, ...] = place) -> None:
            for key in place[:-1]:
                m = m[key]
            m[place[-1]] = value

        values = rng.sample(wrong, 3)
        changes: list[Change] = [remove, *(lambda m, v=v, r=replace: r(m, v) for v in values)]
        for change in changes:
            forge(whole, path, change)
            try:
                model = gc.load(path)
                for point in model.signatures.values():
                    point._read_program()
            except ArtifactError as error:
                assert str(error).count("\n") < 4
            except Exception as error:
                raise AssertionError(f"{place}: {error!r}") from error


LIES: dict[str, tuple[Change, str]] = {
    "unknown dtype": (
        lambda m: m["variables"][0].update(dtype="f31"),
        "dtype of graphc, got 'f31'",
    ),
    "Python in a dtype": (lambda m: m["variables"][0].update(dtype="__import__('os')"), "dtype"),
    "negative size": (lambda m: m["variables"][0].update(shape=[-2, 1]), "list of sizes"),
    "absurd size": (lambda m: m["variables"][0].update(shape=[2**62, 2**62]), "fits into memory"),
    "absurd and empty": (lambda m: m["variables"][0].update(shape=[0, 2**63 - 1]), "into memory"),
    "more than there is": (
        lambda m: m["variables"][0].update(shape=[2**30]),
        "hold the 4294967296",
    ),
    "another shape": (lambda m: m["variables"][0].update(shape=[1, 2]), "take w: f32"),
    "open size of a variable": (lambda m: m["variables"][0].update(shape=["n"]), "list of sizes"),
    "unknown bytes": (lambda m: m["variables"][0].update(key="v9"), "tensor 'v9' must hold"),
    "variable twice": (lambda m: m["variables"].append(m["variables"][0]), "different names"),
    "slot that is not there": (lambda m: entry(m)["read"].append("z"), "name variables, got 'z'"),
    "read and written": (lambda m: entry(m)["read"].append("w"), "share no variable"),
    "assigned is not written": (
        lambda m: entry(m)["assigned"].clear(),
        "begin with what is written",
    ),
    "not written": (lambda m: entry(m).update(written=[], read=["w"]), None),
    "program that is not there": (lambda m: entry(m).update(program="x"), "name a member"),
    "weights as a program": (
        lambda m: entry(m).update(program="weights.safetensors"),
        "cannot be read by jax",
    ),
    "another program": (
        lambda m: entry(m).update(program="programs/predict.stablehlo"),
        "give 1 values|take|give",
    ),
    "index beyond": (lambda m: entry(m, "predict")["outputs"][0].update(index=1), "index below 1"),
    "fetches that are not": (lambda m: entry(m, "predict").update(fetches=3), "give 3 values"),
    "more inputs": (
        lambda m: entry(m)["inputs"].append({"name": "q", "dtype": "f32", "shape": []}),
        "take 3 values, not 2",
    ),
    "input of another dtype": (
        lambda m: entry(m)["inputs"][0].update(dtype="i32"),
        r"take x: i32\[batch, 2\], not",
    ),
    "input of another size": (lambda m: entry(m)["inputs"][0].update(shape=["batch", 3]), "take x"),
    "dim that is none": (lambda m: entry(m)["inputs"][0].update(shape=["a b", 2]), "list of sizes"),
    "dim that is code": (
        lambda m: entry(m)["inputs"][0].update(shape=["__import__('os').abort()", 2]),
        "list of sizes",
    ),
    "dim that is deep": (
        lambda m: entry(m)["inputs"][0].update(shape=["(" * 900 + "n", 2]),
        "list of sizes",
    ),
    "dim that is long": (
        lambda m: entry(m)["inputs"][0].update(shape=["n + " * 10**6 + "n", 2]),
        "list of sizes",
    ),
    "no signatures": (lambda m: m.update(signatures={}), "hold one at least"),
    "no platforms": (lambda m: m.update(platforms=[]), "saved for"),
    "other format": (lambda m: m.update(format="zip"), "is not a graphc artifact"),
    "no version": (lambda m: m.pop("version"), "None is not a version"),
    "version zero": (lambda m: m.update(version=0), "0 is not a version"),
    "newer": (lambda m: m.update(version=2), "is of version 2; this graphc reads up to 1"),
}


@pytest.mark.parametrize("name", LIES)
def test_lies(whole: Path, tmp_path: Path, name: str) -> None:
    change, text = LIES[name]
    path = tmp_path / "model.gcx"
    forge(whole, path, change)

    def use() -> None:
        model = gc.load(path)
        for point in model.signatures.values():
            point(model.state(), x=X)

    if text is None:  # only slower: nothing is donated
        return use()
    kind = ArtifactVersionError if "newer" in name or "platforms" in name else ArtifactError
    with pytest.raises(kind, match=text) as info:
        use()
    assert info.value.mend or "newer" in name


def test_weights_that_lie(whole: Path, tmp_path: Path) -> None:
    data = bytes(container.read(whole)[1]["weights.safetensors"])
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    path = tmp_path / "model.gcx"

    def check(weights: bytes) -> None:
        forge(whole, path, lambda m: None, {"weights.safetensors": weights})
        with pytest.raises(ArtifactCorruptError, match=r"weights.* must"):
            gc.load(path)

    def with_offsets(offsets: Any) -> bytes:
        text = json.dumps({"v0": {**header["v0"], "data_offsets": offsets}}).encode()
        return len(text).to_bytes(8, "little") + text + body

    for offsets in ([0, 10**12], [-8, 0], [8, 0], [1, 9], [0], "08", [0.0, 8.0], None, [False, 8]):
        check(with_offsets(offsets))
    for weights in (
        b"",
        b"\0" * 7,
        b"\xff" * 16,
        data[:-1],
        b"\2\0\0\0\0\0\0\0[]",
        b"\1" + b"\0" * 8,
    ):
        check(weights)


def test_a_program_that_calls_python_is_refused(whole: Path, tmp_path: Path) -> None:
    target = "xla_ffi_python_cpu_callback"

    def call_back(w: jax.Array, x: jax.Array) -> list[jax.Array]:
        return [jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((1, 1), np.float32))(x)]

    w, x = jax.ShapeDtypeStruct((2, 1), np.float32), jax.ShapeDtypeStruct((1, 2), np.float32)
    checks = [jax.export.DisabledSafetyCheck.custom_call(target)]
    exported = jax.export.export(jax.jit(call_back, keep_unused=True), disabled_checks=checks)(w, x)
    path = tmp_path / "model.gcx"
    programs = {"programs/predict.stablehlo": bytes(exported.serialize())}
    forge(whole, path, lambda m: entry(m, "predict")["inputs"][0].update(shape=[1, 2]), programs)
    with pytest.raises(ArtifactCorruptError, match="calls back into Python, which no artifact may"):
        answer(path)


def test_a_program_of_a_newer_jax_is_refused(whole: Path, tmp_path: Path, capfd) -> None:
    path = tmp_path / "model.gcx"
    program = bytes(container.read(whole)[1]["programs/predict.stablehlo"])
    assert b"dot_general_v" in program  # the operator's name with its version
    newer = {"programs/predict.stablehlo": program.replace(b"dot_general_v", b"dot_general_w")}
    forge(whole, path, lambda m: m.update(jax="9.0"), newer)
    model = gc.load(path)  # programs are read when they are called
    with pytest.raises(ArtifactVersionError, match="cannot be read by jax") as info:
        model.signatures["predict"](x=X)
    assert "written by jax 9.0" in str(info.value)
    capfd.readouterr()  # what MLIR itself says


def test_members_beyond_the_manifest_and_compressed_ones(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("extra", b"")
    with pytest.raises(ArtifactCorruptError, match="members and manifest disagree"):
        gc.load(path)
    manifest, members = container.read(whole)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", "{}")
        archive.writestr("manifest.sha256", "")
    with pytest.raises(ArtifactCorruptError, match="its members are not those of an artifact"):
        gc.load(path)


def test_pickles_are_never_read(whole: Path, tmp_path: Path, monkeypatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("an artifact was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(builtins, "eval", refuse)
    model = gc.load(whole)
    _, state = model.signatures["train"](model.state(), x=X)
    assert float(model.signatures["predict"](state, x=X)["y"][0, 0]) == -7.5
    exported = jax.export.deserialize(
        bytearray(container.read(whole)[1]["programs/train.stablehlo"])
    )
    assert (
        exported.in_tree == jax.tree.structure((([0, 0]), {})) or exported.in_tree.num_leaves == 2
    )


def test_weights_are_safetensors(whole: Path) -> None:
    arrays = safetensors.numpy.load(bytes(container.read(whole)[1]["weights.safetensors"]))
    assert arrays["v0"].tobytes() == np.array([1.0, 2.0], np.float32).tobytes()


# -- writing --------------------------------------------------------------------------------


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    manifest, members = container.read(whole)
    seen = []

    def pieces(data: memoryview) -> Any:
        half = len(data) // 2
        for piece in (data[:half], data[half:]):
            seen.append(answer(path))
            yield piece

    container.write(path, manifest, {name: pieces(data) for name, data in members.items()})
    assert seen == [5.0] * 2 * len(members)
    assert answer(path) == 5.0
    assert [p.name for p in tmp_path.iterdir()] == ["model.gcx"]


@pytest.mark.parametrize("where", ["write", "fsync", "replace", "value", "interrupt"])
def test_a_failed_save_leaves_the_old_file_whole(
    whole: Path, tmp_path: Path, monkeypatch, where: str
) -> None:
    path = tmp_path / "model.gcx"
    path.write_bytes(whole.read_bytes())
    graph, signatures = linear()
    session = gc.Session(graph)
    session.set("w", np.zeros((2, 1), np.float32))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    failure: BaseException = KeyboardInterrupt() if where == "interrupt" else full

    def fail(*args: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        if where in ("fsync", "replace"):
            patch.setattr(os, where, fail)
        elif where == "value":
            failure = RuntimeError("device lost")
            patch.setattr(session, "get", fail)
        else:
            patch.setattr(zipfile._ZipWriteFile, "write", fail)
        expected = ArtifactError if failure is full else type(failure)
        with pytest.raises(expected, match="No space left" if failure is full else None):
            gc.save(session, path, signatures=signatures)
    assert answer(path) == 5.0
    assert [p.name for p in tmp_path.iterdir()] == ["model.gcx"]
    gc.save(session, path, signatures=signatures)
    assert answer(path) == 0.0


def test_the_file_has_the_rights_of_any_new_file(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    graph, signatures = linear()
    gc.save(gc.Session(graph), tmp_path / "model.gcx", signatures=signatures)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_weights_are_read_once_and_not_copied(tmp_path: Path) -> None:
    """One buffer for the file's bytes, of which the values are views."""
    graph = gc.Graph()
    with graph:
        w = gc.variable(np.ones((1 << 20,), np.float32), name="w")
        v = gc.variable(np.ones((1 << 20,), np.float32), name="v")
    path = tmp_path / "model.gcx"
    gc.save(gc.Session(graph), path, signatures={"f": gc.Signature({}, {"w": w, "v": v})})
    model = gc.load(path)
    bases = {id(value.base.base.obj) for value in model._weights}
    assert len(bases) == 1 and not any(value.flags.writeable for value in model._weights)
