"""The words of failures that XLA reports."""

from __future__ import annotations

import pytest

from graphc.errors import ClusterError
from graphc.runtime.core.failures import raise_lost_peer

GLOO = "UNKNOWN: Gloo all-reduce failed: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"


def test_a_process_that_has_ended() -> None:
    with pytest.raises(ClusterError, match="another process of the cluster has ended") as caught:
        raise_lost_peer(ValueError(f"{GLOO}\nand more"))
    assert caught.value.details == (GLOO,) and "--restarts" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["Gloo", "UNKNOWN: something else", ""])
def test_other_errors(text: str) -> None:
    raise_lost_peer(ValueError(text))  # raises nothing
    assert not text.startswith("UNKNOWN: Gloo")
