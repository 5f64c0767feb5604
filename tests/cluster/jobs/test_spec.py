"""The specification of a job, and the errors for mistakes in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphc.cluster.jobs.files import read_job
from graphc.cluster.jobs.quantities import bytes_of, seconds_of, shown_bytes
from graphc.cluster.jobs.spec import JobSpec, Need
from graphc.errors import AttributeValueError, GraphcError


def mistakes(value: object) -> tuple[str, ...]:
    with pytest.raises(AttributeValueError) as caught:
        JobSpec.of(value, "job.yaml")
    return caught.value.details


def test_all_mistakes_are_told_at_once() -> None:
    found = mistakes(
        {"scirpt": "a.py", "processes": 0, "devices": True, "memory": "lots", "priority": 101,
         "arguments": [{}], "parameters": {"a b": 1}, "deadline": "-2h", "name": "A"}
    )  # fmt: skip
    keys = ("'scirpt' is not a key of a job; did you mean 'script'?", "processes: must be a whole",
            "devices: must be", 'memory: must be a size such as "4GiB"', "priority: must be",
            "arguments: must be", "parameters: must be", "deadline: must be a time such as",
            "name: must be", "one of script, train and artifact")  # fmt: skip
    assert len(found) == len(keys)
    assert all(text.startswith(key) for text, key in zip(found, keys, strict=True))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"script": "a.py", "train": "b.py"}, "script and train: give one of them"),
        ({"train": "a.py", "processes": 2}, "`train` runs in one process"),
        ({"script": "a.py", "signature": "f"}, "signature: is only for `artifact`"),
        ({"script": "a.py", "save": True}, "save: is only for `train`"),
        ({"artifact": "a.gcx", "parameters": {"a": 1}}, "parameters: an artifact takes none"),
        ({"script": "a.sh"}, "script: must be the path of a .py file"),
        ({"script": "a\0.py"}, "script: must be a text"),
        ({"script": "a.py", "arguments": ["a\0"]}, "arguments: must be"),
        ({"script": "a.py", 3: 4}, "'3' is not a key"),
        ({"script": "a.py", "time_limit": 10**400}, "time_limit: must be"),
        ({"artifact": "a.gcx", "inputs": {"x=y": "a.npy"}}, "inputs: must be"),
    ],
)
def test_one_mistake(value: Any, text: str) -> None:
    assert text in " ".join(mistakes(value))


@pytest.mark.parametrize("value", [None, 3, "script: a.py", ["script"]])
def test_what_is_not_a_mapping(value: object) -> None:
    with pytest.raises(AttributeValueError, match="must be a mapping"):
        JobSpec.of(value)


def test_a_key_without_a_value_is_as_if_it_were_not_there() -> None:
    assert JobSpec.of({"script": "a.py", "memory": None}) == JobSpec.of({"script": "a.py"})


def test_parameters_become_arguments() -> None:
    job = JobSpec.of(
        {"script": "a.py", "parameters": {"rate": -0.5, "fast": True, "slow": False, "to": "-x y"},
         "arguments": ["--", 3]}
    )  # fmt: skip
    assert job.command_arguments == ["--rate=-0.5", "--fast", "--to=-x y", "--", "3"]


def test_what_all_processes_need() -> None:
    job = JobSpec.of({"script": "a.py", "processes": 3, "devices": 2, "memory": "1KiB"})
    assert job.need == Need(3, 6, 3072)


jobs = st.fixed_dictionaries(
    {"script": st.sampled_from(["a.py", "/x/My Job.py", "1.py", "ü.py"])},
    optional={
        "processes": st.integers(1, 1024), "devices": st.integers(1, 1024),
        "memory": st.integers(1, 2**50), "priority": st.integers(-100, 100),
        "restarts": st.integers(0, 1000), "time_limit": st.floats(0.1, 1e6),
        "deadline": st.sampled_from(["90s", "2h"]), "silence": st.integers(1, 100),
        "arguments": st.lists(st.text("ab -='\n") | st.integers(), max_size=5),
        "parameters": st.dictionaries(
            st.from_regex("[a-z][a-z_]{0,5}", fullmatch=True),
            st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab -="),
        ),
    },
)  # fmt: skip


@given(jobs)
def test_a_job_survives_the_store(value: dict[str, Any]) -> None:
    job = JobSpec.of(value)
    assert JobSpec.of(json.loads(json.dumps(job.as_dict()))) == job


junk = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("script", "train", "artifact", "name", "parameters", "arguments", "inputs", "processes",
        "memory", "time_limit", "kubernetes", "save", "signature")  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(), junk))
def test_junk_is_refused_in_words(value: dict[str, Any]) -> None:
    try:
        JobSpec.of(value)
    except AttributeValueError as error:
        assert error.details


def test_quantities() -> None:
    assert [bytes_of(text) for text in ("1kb", "1 KiB", "2Gi", 7)] == [1000, 1024, 2**31, 7]
    assert [seconds_of(text) for text in ("1min", "2 d", "3", 4)] == [60, 172800, 3, 4]
    assert shown_bytes(100) == "100 bytes" and shown_bytes(2**45) == "32 TiB"
    for text in ("", "GiB", "-1", "1e3", True, None, 0, "٣", float("nan"), 2**70):
        with pytest.raises(ValueError, match="a size such as"):
            bytes_of(text)
        with pytest.raises(ValueError, match="a time such as"):
            seconds_of(text)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.yaml", "script: a.py\nprocesses: 2\nparameters: {rate: 0.1}\n"),
        ("job.json", '{"script": "a.py", "processes": 2, "parameters": {"rate": 0.1}}'),
        ("job.toml", 'script = "a.py"\nprocesses = 2\nparameters = {rate = 0.1}\n'),
    ],
)
def test_forms_of_files(tmp_path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    job = read_job(tmp_path / name)
    assert (job.program, job.processes, job.parameters) == ("a.py", 2, {"rate": 0.1})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("job.yaml", "script: a.py\nscript: b.py\n", "the key 'script' is given twice"),
        ("job.json", '{"script": "a.py", "script": "b.py"}', "the key 'script' is given twice"),
        ("job.yaml", "script: [", "cannot be parsed"),
        ("job.yaml", "{[a]: b}", "cannot be parsed"),
        ("job.yaml", "!!python/object/apply:os.system ['true']", "cannot be parsed"),
        ("job.json", "[" * 100_000, "cannot be parsed"),
        ("job.toml", "script = ", "cannot be parsed"),
        ("job.toml", "x" * (1 << 19), "more than 262144 bytes"),
        ("job.txt", "", "its ending must be .yaml"),
        ("job.yaml", "", "must be a mapping"),
        ("job.yaml", "\xff", "cannot read"),
    ],
)
def test_files_that_are_not_jobs(tmp_path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(GraphcError) as caught:
        read_job(tmp_path / name)
    assert told in str(caught.value)


def test_yaml_with_many_aliases_is_small(tmp_path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join(['*' + before] * 9)}]")
    (tmp_path / "job.yaml").write_text("\n".join(lines))
    with pytest.raises(AttributeValueError, match="mistakes"):
        read_job(tmp_path / "job.yaml")
