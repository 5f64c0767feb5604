"""The words of failures that XLA reports."""

from __future__ import annotations

import pytest

from graphc.errors import ClusterError
from graphc.runtime.core.failures import lost_peer

GLOO = "UNKNOWN: Gloo all-reduce failed: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"


def test_a_process_that_has_ended() -> None:
    error = lost_peer(ValueError(f"{GLOO}\nand more"))
    assert isinstance(error, ClusterError)
    assert "another process of the cluster has ended" in error.what
    assert error.details == (GLOO,) and "--restarts" in str(error.hint)


@pytest.mark.parametrize("text", ["Gloo", "UNKNOWN: something else", ""])
def test_other_errors(text: str) -> None:
    assert lost_peer(ValueError(text)) is None
