"""Specifications of clusters, and the role of this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import graphc as gc
from graphc.cluster.detection import detected, hosts_of, text_of
from graphc.errors import ClusterError, UnknownNameError

TWO = {"worker": ["a:1", "b:2"]}


def test_ranks_begin_with_the_chief() -> None:
    spec = gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"], "chief": ["c:1"], "ps": ["d:1"]})
    assert spec.size == 3
    assert spec.coordinator == "c:1"
    ranks = [spec.member(*task).rank for task in (("chief", 0), ("worker", 0), ("worker", 1))]
    assert ranks == [0, 1, 2]
    assert spec.member("ps", 0).rank is None
    assert [spec.member(job, 0).is_chief for job in ("chief", "worker", "ps")] == [
        True,
        False,
        False,
    ]
    assert spec.member("worker", 1).name == "/job:worker/task:1"
    assert spec.address("worker", 1) == "b:1"
    assert (spec.count("worker"), spec.count("evaluator")) == (2, 0)


@pytest.mark.parametrize(
    ("jobs", "text"),
    [
        ({}, "must be a dict"),
        (["a:1"], "must be a dict"),
        ({"wroker": ["a:1"]}, "did you mean 'worker'"),
        ({"worker": "a:1"}, "must be a list of addresses"),
        ({"worker": ["a"]}, "'a', a task of 'worker', is not an address"),
        ({"worker": ["a:0"]}, "is not an address"),
        ({"worker": ["a:65536"]}, "is not an address"),
        ({"worker": [1]}, "is not an address"),
        ({"worker": ["a:1", "a:1"]}, "the address of two tasks"),
        ({"worker": ["a:1"], "ps": ["a:1"]}, "the address of two tasks"),
        ({"chief": ["a:1", "b:1"]}, "more than one chief"),
        ({"ps": ["a:1"]}, "has no worker"),
    ],
    ids=str,
)
def test_a_specification_that_is_not_valid(jobs: object, text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        gc.cluster.ClusterSpec(jobs)  # type: ignore[arg-type]


def test_a_task_that_does_not_exist() -> None:
    spec = gc.cluster.ClusterSpec(TWO)
    with pytest.raises(UnknownNameError, match="no task /job:worker/task:2") as caught:
        spec.member("worker", 2)
    assert "/job:worker/task:0, /job:worker/task:1" in str(caught.value)


@pytest.mark.parametrize("form", ["plain.json", "cluster.json", "plain.toml"])
def test_files(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    text = json.dumps({"cluster": TWO} if "cluster" in form else TWO)
    path.write_text('worker = ["a:1", "b:2"]' if form.endswith("toml") else text)
    assert gc.cluster.ClusterSpec.of(path) == gc.cluster.ClusterSpec(TWO)


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "{"), ("b.json", "\xff"), ("c.toml", "= 1"), ("d.json", None)]
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(ClusterError, match="cannot be read"):
        gc.cluster.ClusterSpec.of(tmp_path / name)


# -- environments -------------------------------------------------------------------------------

CONFIG = json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 1}})
SLURM = {
    "SLURM_JOB_ID": "123", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[007-010],login",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}  # fmt: skip
KUBERNETES = {
    "JOB_COMPLETION_INDEX": "1", "GRAPHC_SERVICE": "train", "GRAPHC_WORKERS": "3",
    "HOSTNAME": "mnist-1",
}  # fmt: skip


def test_no_cluster() -> None:
    assert detected({"PATH": "/bin"}) is None
    assert gc.cluster.join().size == 1


@pytest.mark.parametrize("variable", ["TF_CONFIG", "GRAPHC_CLUSTER"])
def test_variables_of_the_classic_system(variable: str) -> None:
    member = detected({variable: CONFIG})
    assert member == gc.cluster.ClusterSpec(TWO).member("worker", 1)
    assert detected({"GRAPHC_CLUSTER": text_of(member)}) == member


def test_a_master_is_the_chief() -> None:
    text = {"cluster": {"master": ["a:1"], **TWO}, "task": {"type": "master", "index": 0}}
    text["cluster"]["worker"] = ["b:1"]  # type: ignore[index]
    member = detected({"TF_CONFIG": json.dumps(text)})
    assert member is not None
    assert (member.job, member.rank, member.size) == ("chief", 0, 2)


def test_slurm() -> None:
    member = detected(SLURM)
    assert member is not None
    assert (member.rank, member.size) == (2, 4)
    assert member.spec.coordinator == "gpu007:8599"
    other = detected({**SLURM, "SLURM_JOB_ID": "124"})
    assert other is not None
    assert other.spec.coordinator != member.spec.coordinator  # both jobs may be on this host


def test_open_mpi() -> None:
    member = detected(OPEN_MPI)
    assert member is not None
    assert (member.rank, member.size) == (1, 2)
    assert member.spec.coordinator is not None
    assert member.spec.coordinator.startswith("10.96.0.1:")


def test_kubernetes() -> None:
    member = detected(KUBERNETES)
    assert member is not None
    assert (member.rank, member.size) == (1, 3)
    assert member.spec.address("worker", 2) == "mnist-2.train:8476"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],m7", ["n08", "n09", "n10", "n12", "m7"]),
    ],
)
def test_lists_of_hosts(text: str, hosts: list[str]) -> None:
    assert hosts_of(text) == hosts


@pytest.mark.parametrize("text", ["", "a[", "a[x]", "a[1-x]", "a[1]b]", "a,,b", "[1-2]"])
def test_what_is_not_a_list_of_hosts(text: str) -> None:
    with pytest.raises(ClusterError, match="not a list of hosts"):
        hosts_of(text)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG is not valid"),
        ({"TF_CONFIG": "{}"}, "TF_CONFIG is not valid"),
        ({"TF_CONFIG": "[1]"}, "TF_CONFIG is not valid"),
        ({**SLURM, "SLURM_PROCID": "x"}, "SLURM_PROCID must be a number"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": ""}, "OMPI_COMM_WORLD_SIZE must be a number"),
    ],
    ids=["cut", "empty", "list", "slurm", "mpi"],
)
def test_variables_that_are_not_valid(environment: dict[str, str], text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        detected(environment)


def test_which_process_is_this() -> None:
    with pytest.raises(ClusterError, match="which process"):
        gc.cluster.join(TWO)
    with pytest.raises(ClusterError, match="need the specification"):
        gc.cluster.join(job="worker", index=0)
