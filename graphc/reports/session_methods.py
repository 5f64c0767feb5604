"""`Session` with the method that needs reports. It is passed in here, as `graphc.ops.methods` binds
the operators of tensors."""

from __future__ import annotations

from typing import Any

from graphc.runtime.core.profiled import HasProfile
from graphc.runtime.session import Session as Session


def _profiler(session: Session, *arguments: Any, **options: Any) -> Any:
    from graphc.reports.profiling import profile  # imports much that sessions do not need

    return profile(session, *arguments, **options)


HasProfile._profiler = _profiler
