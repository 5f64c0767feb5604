"""Damaged and forged .pt2 files: only graphc's errors, nothing executed, nothing huge allocated."""

from __future__ import annotations

import copy
import json
import resource
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphc as gc
from graphc.errors import GraphcError, ModelFileError, ShapeError
from tests.importers.tensorflow.mutations import mutated
from tests.importers.torch.archive_mutations import members, packed, restructured
from tests.importers.torch.archive_programs import write
from tests.importers.torch.archive_results import HERE, NAMES

MEMORY = 3 << 30  # bytes of address space more than before


@pytest.fixture
def limited() -> Iterator[None]:
    """A limit of memory, and an alarm for anything that is executed."""
    executed: list[str] = []
    watching = [True]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("pickle.find_class", "os.system", "subprocess.Popen", "exec"):
            code = arguments[0] if arguments else ""
            if event != "exec" or "changed" in str(code):
                executed.append(f"{event} {arguments}")

    sys.addaudithook(watch)
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    watching.clear()
    assert executed == []


def tried(files: Iterator[bytes], path: Path) -> Counter[str]:
    """Reads each file; returns how many were read, and the classes of the errors of others."""
    found: Counter[str] = Counter()
    for data in files:
        path.write_bytes(data)
        start = time.monotonic()
        try:
            gc.from_torch(path).to_graph()
            found["read"] += 1
        except GraphcError as error:
            found[type(error).__name__] += 1
        assert time.monotonic() - start < 20, "a damaged file takes long"
    return found


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("name", NAMES)
def test_damaged_bytes(name: str, tmp_path: Path) -> None:
    data = (HERE / f"{name}.pt2").read_bytes()
    found = tried(mutated(data, 200), tmp_path / "changed.pt2")
    assert found["ModelFileError"] > 100  # checksums find what the directory does not


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("name", NAMES)
def test_forged_programs(name: str, tmp_path: Path) -> None:
    data = (HERE / f"{name}.pt2").read_bytes()
    found = tried(restructured(data, 200), tmp_path / "changed.pt2")
    assert found["ModelFileError"] > 10 and found["read"] > 10


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.usefixtures("limited")
def test_many_forged_programs(tmp_path: Path) -> None:
    for name in NAMES:
        data = (HERE / f"{name}.pt2").read_bytes()
        tried(restructured(data, 1000, seed=1), tmp_path / "changed.pt2")


LONG = 1 << 40


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(
    ("target", "args", "shape"),
    [
        ("aten.split.Tensor", ["x", 1], [LONG]),
        ("aten.tensor_split.sections", ["x", LONG], [LONG]),
        ("aten.unbind.int", ["x"], [LONG]),
        ("aten.unfold.default", ["x", 0, 2, 1], [LONG]),
        ("aten.as_strided.default", ["x", [LONG], [1]], [4]),
        ("aten.arange.default", [LONG], [4]),
        ("aten.tril_indices.default", [1 << 20, 1 << 20], [4]),
        ("aten.pdist.default", ["x"], [1 << 20, 2]),
        (
            "aten.im2col.default",
            ["x", [1 << 20] * 2, [1] * 2, [0] * 2, [1] * 2],
            [1, 1, LONG, LONG],
        ),
        ("aten.col2im.default", ["x", [LONG] * 2, [1 << 9] * 2, [1] * 2, [0] * 2, [1] * 2], [1, 4]),
        ("aten.avg_pool1d.default", ["x", [LONG]], [1, 1, LONG]),
        ("aten.adaptive_avg_pool1d.default", ["x", [LONG - 1]], [1, 1, LONG]),
        ("aten.upsample_bicubic2d.default", ["x", [1 << 30] * 2, False], [1, 1, 8, 8]),
        ("aten.upsample_nearest1d.default", ["x", [LONG]], [1, 1, 8]),
        ("pow", [9**9, 9**9], [4]),
    ],
)
def test_sizes_that_no_machine_has(
    target: str, args: list[object], shape: list[int], tmp_path: Path
) -> None:
    write(tmp_path / "m.pt2", target, args, shape)
    start = time.monotonic()
    with pytest.raises(GraphcError):
        gc.from_torch(tmp_path / "m.pt2")
    assert time.monotonic() - start < 10


def test_members_that_are_there_twice_or_share_their_bytes(tmp_path: Path) -> None:
    parts = members((HERE / "views.pt2").read_bytes())
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, part in (*parts.items(), *parts.items()):
            archive.writestr(name, part)
    with pytest.raises(ModelFileError, match="twice"):
        gc.from_torch(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/byteorder", b"little" + bytes(1 << 16))
        (first,) = archive.infolist()
        for i in range(20):  # twenty entries of the directory for one place
            again = copy.copy(first)
            again.filename = f"m/{i}"
            archive.filelist.append(again)
    with pytest.raises(ModelFileError, match="larger than the file"):
        gc.from_torch(path)


def test_many_views_of_one_tensor(tmp_path: Path) -> None:
    parts = members((HERE / "views.pt2").read_bytes())
    name = next(n for n in parts if n.endswith("model_weights_config.json"))
    config = json.loads(parts[name])
    weight = next(n for n in parts if n.endswith("weights/weight_0"))
    meta = config["config"]["cache"]["tensor_meta"]
    meta["sizes"], meta["strides"] = [{"as_int": 1 << 16}], [{"as_int": 1}]
    for i in range(20):
        config["config"][f"w{i}"] = copy.deepcopy(config["config"]["cache"])
        config["config"][f"w{i}"]["tensor_meta"]["storage_offset"] = {"as_int": i}
    changed = {weight: bytes(1 << 19), name: json.dumps(config).encode()}
    (tmp_path / "m.pt2").write_bytes(packed({**parts, **changed}))
    with pytest.raises(ModelFileError, match="tensors that are larger than the file"):
        gc.from_torch(tmp_path / "m.pt2")


@pytest.mark.usefixtures("limited")
def test_tensors_larger_than_their_bytes(tmp_path: Path) -> None:
    data = (HERE / "views.pt2").read_bytes()
    parts = members(data)
    name = next(n for n in parts if n.endswith("model_weights_config.json"))
    config = json.loads(parts[name])
    for size, stride in ((LONG, 0), (LONG, 1), (3, LONG), (3, -4)):
        config["config"]["cache"]["tensor_meta"]["sizes"] = [{"as_int": size}, {"as_int": 4}]
        strides = [{"as_int": stride}, {"as_int": 1}]
        config["config"]["cache"]["tensor_meta"]["strides"] = strides
        (tmp_path / "m.pt2").write_bytes(packed({**parts, name: json.dumps(config).encode()}))
        with pytest.raises(ModelFileError):
            gc.from_torch(tmp_path / "m.pt2")


@pytest.mark.usefixtures("limited")
def test_a_tensor_that_repeats_its_elements_too_often(tmp_path: Path) -> None:
    parts = members((HERE / "views.pt2").read_bytes())
    name = next(n for n in parts if n.endswith("model_weights_config.json"))
    config = json.loads(parts[name])
    meta = config["config"]["cache"]["tensor_meta"]
    meta["strides"] = [{"as_int": 0}]
    most = 1 << 24  # of 4 bytes
    for count, error, text in (
        (most, ShapeError, "does not broadcast to"),  # it is read, and the graph has another shape
        (most + 1, ModelFileError, "has tensors that are larger than the file"),
    ):
        meta["sizes"] = [{"as_int": count}]
        (tmp_path / "m.pt2").write_bytes(packed({**parts, name: json.dumps(config).encode()}))
        with pytest.raises(error, match=text):
            gc.from_torch(tmp_path / "m.pt2")
