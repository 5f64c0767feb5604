"""The examples of docs/jobs.md are valid, and its table contains every key of a job."""

import re
from pathlib import Path

import pytest

from graphc.cluster.jobs.kubernetes.manifests import _READERS as OPTIONS
from graphc.cluster.jobs.kubernetes.manifests import manifests_of
from graphc.cluster.jobs.spec import _READERS as KEYS
from graphc.cluster.jobs.spec import JobSpec
from graphc.cluster.jobs.users import Users
from graphc.errors import AttributeValueError

PAGE = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_jobs() -> None:
    yaml = pytest.importorskip("yaml")
    local, remote = (JobSpec.of(yaml.safe_load(text)) for text in blocks("yaml"))
    assert local.kind == "train" and remote.kubernetes is not None
    assert manifests_of(remote)[0]["spec"]["failurePolicy"]["maxRestarts"] == 5


def test_users(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(AttributeValueError, match="is not a file of users"):
        Users.read(path)  # the placeholder on the page is no valid token
    path.write_text(re.sub('"at least.*"', lambda found: found[0].replace(" ", "-"), text))
    users = Users.read(path)
    assert users.quotas["bob"].memory == 64 << 30


def test_each_key_is_named() -> None:
    for key in (*KEYS, *OPTIONS):
        assert f"`{key}`" in PAGE or f"\n  {key}:" in PAGE, key


def test_python() -> None:
    names: dict[str, object] = {}
    exec("\n".join(blocks("python")), names)
    assert names.keys() > {"__builtins__"}
