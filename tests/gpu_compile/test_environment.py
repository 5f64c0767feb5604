"""What an executable for GPUs depends on outside the program."""

import os

import jax

import graphc as gc
from graphc.devices.environment import environment_of
from graphc.devices.topology import devices_of
from graphc.store import environment


def test_it_does_not_depend_on_the_processor_of_this_machine() -> None:
    gpu = devices_of(gc.devices.Machine("h100"))[0]
    alone, mixed = environment_of([gpu]), environment_of([jax.devices()[0], gpu])
    assert "cpu" not in alone and "cudnn" in alone["libraries"]
    assert "cpu" in mixed  # a part of it is code for this CPU


def test_flags_of_xla_for_processors_do_not_matter(monkeypatch) -> None:
    gpus = devices_of(gc.devices.Machine("h100"))

    def under(flags: str) -> dict[str, str]:
        monkeypatch.setitem(os.environ, "XLA_FLAGS", flags)
        environment._flags.cache_clear()
        return environment_of(gpus)

    plain = under("")
    assert under("--xla_force_host_platform_device_count=8 --xla_cpu_max_isa=AVX2") == plain
    assert under("--xla_gpu_enable_triton_gemm=false") != plain
    monkeypatch.undo()
    environment._flags.cache_clear()
