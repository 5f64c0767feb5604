"""Operators that JAX has only on CPU: other platforms are refused before lowering."""

from __future__ import annotations

import pytest

import graphc as gc
from graphc.config import CompileOptions
from graphc.errors import LoweringError
from graphc.ops.structure.lowered import check_platform
from graphc.runtime.targets.prepare import prepare


@pytest.mark.parametrize("name", ["schur", "hessenberg", "sqrtm"])
def test_a_gpu_is_refused(name: str) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((3, 3), name="x")
        made = getattr(gc.linalg, name)(x)
    fetches = list(made) if isinstance(made, tuple) else [made]
    program = prepare(graph, fetches, [x], CompileOptions()).program
    check_platform(program.walk(), "cpu")
    with pytest.raises(LoweringError, match="on CPUs only, but it runs on gpu") as found:
        check_platform(program.walk(), "gpu")
    assert "test_cpu_only.py:" in str(found.value) and 'gc.device("/cpu:0")' in str(found.value)
