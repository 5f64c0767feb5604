"""The check of GPU memory before a run. The devices here only report how much memory they have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from graphc.devices.discovery import usable_memory
from graphc.errors import ExecutionError
from graphc.runtime.targets.interface import SINGLE
from graphc.runtime.targets.room import LARGE, Need, find_room, need_of

MODEL = "NVIDIA H100"


def gpu(limit: int | None, used: int = 0, platform: str = "gpu", process: int = 0) -> Any:
    stats = {} if limit is None else {"bytes_limit": limit, "bytes_in_use": used}
    client = SimpleNamespace(local_device_count=lambda: 1)
    return SimpleNamespace(
        platform=platform,
        process_index=process,
        memory_stats=lambda: stats,
        device_kind=MODEL,
        client=client,
    )


def test_the_least_limit_counts_and_only_that_of_gpus() -> None:
    assert usable_memory([gpu(5), gpu(3)]) == 3
    assert usable_memory([gpu(5), gpu(None)]) is None
    assert usable_memory([gpu(5, platform="cpu")]) is None
    absent = gpu(5)
    absent.client = SimpleNamespace(local_device_count=lambda: 0)
    assert usable_memory([absent]) is None


def test_what_a_run_needs_on_a_gpu() -> None:
    def compiled(temporaries: int) -> Any:
        sizes = SimpleNamespace(
            temp_size_in_bytes=temporaries, output_size_in_bytes=30, alias_size_in_bytes=10
        )
        return SimpleNamespace(memory_analysis=lambda: sizes)

    interface: Any = SimpleNamespace(kind=SINGLE)
    assert need_of(compiled(LARGE), interface, [gpu(5)]) == Need(0, 0, LARGE + 20)
    assert not need_of(compiled(LARGE - 21), interface, [gpu(5)]).is_large


def test_earlier_runs_free_their_memory_before_one_is_refused() -> None:
    interface: Any = SimpleNamespace(kind=SINGLE)
    need, waits = Need(0, 0, 100), []
    find_room(need, interface, [gpu(150, 50), gpu(None)], lambda: waits.append(1))
    assert not waits
    device = gpu(150, 60)
    stats = device.memory_stats()

    def finish() -> None:
        waits.append(1)
        stats["bytes_in_use"] = 40

    find_room(need, interface, [device], finish)
    assert len(waits) == 1
    with pytest.raises(ExecutionError, match=f"before it began: .* {MODEL} does not have") as found:
        find_room(need, interface, [gpu(150), gpu(150, 60)], lambda: None)
    assert "the state is as it was" in str(found.value)
    find_room(need, interface, [gpu(150, 60, process=1)], lambda: None)  # of another process
