"""Which versions a folder contains, and which of them a policy selects."""

import os
from pathlib import Path

import pytest

from graphc.serving.config import All, Latest, Specific
from graphc.serving.models.versions import find, select


def touch(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_folders_and_files_are_versions(tmp_path: Path) -> None:
    folder = touch(tmp_path / "3" / "model.gcx")
    file = touch(tmp_path / "12.gcx")
    found = find(str(tmp_path))
    assert {n: f.path for n, f in found.items()} == {3: str(folder), 12: str(file)}
    assert found[3].folder == str(tmp_path / "3") and found[12].folder == ""


def test_one_file_is_version_1(tmp_path: Path) -> None:
    file = touch(tmp_path / "digits.gcx")
    assert [(n, f.path) for n, f in find(str(file)).items()] == [(1, str(file))]


@pytest.mark.parametrize(
    "name",
    [
        "-1",
        "+1",
        "1.0",
        "v1",
        "1_0",
        " 1",
        "٣",  # a digit outside ASCII
        str(2**63),
        "1" + "0" * 400,
        "..",
        ".1",
        "1.gcx.tmp",
    ],
)
def test_other_names_are_ignored(tmp_path: Path, name: str) -> None:
    if name != ".." and len(name) < 200:
        touch(tmp_path / name / "model.gcx")
    assert find(str(tmp_path)) == {}


def test_the_largest_version_is_that_of_int64(tmp_path: Path) -> None:
    touch(tmp_path / str(2**63 - 1) / "model.gcx")
    assert list(find(str(tmp_path))) == [2**63 - 1]


def test_leading_zeros_are_allowed_and_the_shorter_name_wins(tmp_path: Path) -> None:
    touch(tmp_path / "0005" / "model.gcx")
    assert find(str(tmp_path))[5].folder == str(tmp_path / "0005")
    touch(tmp_path / "5" / "model.gcx")
    assert find(str(tmp_path))[5].folder == str(tmp_path / "5")


def test_what_is_not_complete_is_not_a_version(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    touch(tmp_path / "2" / "model.gcx.part")
    assert find(str(tmp_path)) == {}
    assert find(str(tmp_path / "missing")) == {}


def test_a_link_out_of_the_folder_is_a_problem(tmp_path: Path) -> None:
    secret = touch(tmp_path / "secret" / "model.gcx")
    base = tmp_path / "base"
    (base / "2").mkdir(parents=True)
    (base / "1").symlink_to(secret.parent)
    (base / "2" / "model.gcx").symlink_to("../../secret/model.gcx")
    (base / "3.gcx").symlink_to(secret)
    found = find(str(base))
    assert list(found) == [1, 2, 3]
    assert all("outside base_path" in f.problem and not f.path for f in found.values())


def test_a_neighbour_with_the_same_prefix_is_outside(tmp_path: Path) -> None:
    secret = touch(tmp_path / "base-secret" / "model.gcx")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "1").symlink_to(secret.parent)
    assert find(str(tmp_path / "base"))[1].problem


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    """Kubernetes mounts volumes this way; base_path itself may also be a link."""
    file = touch(tmp_path / "real" / "..data_1" / "1" / "model.gcx")
    (tmp_path / "real" / "1").symlink_to("..data_1/1")
    (tmp_path / "base").symlink_to("real")
    found = find(str(tmp_path / "base"))
    assert found[1].path == str(file) and not found[1].problem


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "1").symlink_to("2")
    (tmp_path / "2").symlink_to("1")
    assert find(str(tmp_path)) == {}


def test_a_changed_file_gives_another_record(tmp_path: Path) -> None:
    file = touch(tmp_path / "1" / "model.gcx")
    first = find(str(tmp_path))
    assert find(str(tmp_path)) == first
    touch(tmp_path / "aside", "y")
    os.replace(tmp_path / "aside", file)
    assert find(str(tmp_path)) != first


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (Latest(1), {10}),
        (Latest(2), {9, 10}),
        (Latest(9), {1, 9, 10}),
        (All(), {1, 9, 10}),
        (Specific((1, 4)), {1}),
    ],
)
def test_policies(policy, chosen: set[int]) -> None:
    assert select(policy, [10, 1, 9]) == chosen
    assert select(policy, []) == set()
