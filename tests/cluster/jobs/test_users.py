"""Users, tokens and quotas."""

from pathlib import Path

import pytest

from graphc.cluster.jobs.scheduling import Quota
from graphc.cluster.jobs.server import own_token
from graphc.cluster.jobs.users import User, Users
from graphc.errors import AttributeValueError, GraphcError
from graphc.web.failures import Failure

FILE = """
[ann]
token = "a-token-of-ann-12"
admin = true
[bob]
token = "a-token-of-bob-12"
quota = {devices = 4, memory = "1GiB", waiting = 0}
"""


def read(folder: Path, text: str) -> Users:
    (folder / "users.toml").write_text(text)
    return Users.read(folder / "users.toml")


def test_a_file_of_users(tmp_path: Path) -> None:
    users = read(tmp_path, FILE)
    assert users.of(b"Bearer a-token-of-ann-12") == User("ann", admin=True)
    quota = Quota(devices=4, memory=1 << 30, waiting=0)
    assert users.of("bearer a-token-of-bob-12") == User("bob", quota=quota)
    assert users.quotas == {"ann": Quota(), "bob": quota}


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic a-token-of-ann-12", "Bearer ü"]
)
def test_wrong_tokens(tmp_path: Path, header: str) -> None:
    with pytest.raises(Failure, match="UNAUTHENTICATED"):
        read(tmp_path, FILE).of(header)


def test_all_mistakes_are_told(tmp_path: Path) -> None:
    text = 'eve = 3\n[ann]\ntokn = "x"\nadmin = 1\n[bob]\ntoken = "short"\nquota = {device = 1}\n'
    with pytest.raises(AttributeValueError) as caught:
        read(tmp_path, text)
    told = " | ".join(caught.value.details)
    for part in ("eve: must be a table", "ann.tokn: did you mean 'token'?", "ann.admin: must be",
                 "ann.token: must be", "bob.token: must be a text of at least 16",
                 "bob.quota.device: did you mean 'devices'?"):  # fmt: skip
        assert part in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it has no user"),
        ("[ann", "is not TOML"),
        (FILE.replace("bob-12", "ann-12"), "two users have the same token"),
        (FILE.replace("devices = 4", "devices = -1"), "bob.quota.devices: must be a number"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(AttributeValueError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)
    with pytest.raises(GraphcError, match="cannot read"):
        Users.read(tmp_path / "missing.toml")


def test_the_own_token_is_kept_and_private(tmp_path: Path) -> None:
    users, token = own_token(tmp_path)
    assert own_token(tmp_path)[1] == token and len(token) >= 32
    assert users.of(f"Bearer {token}").admin
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
