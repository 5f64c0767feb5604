"""What all parts that use Ray share."""

from __future__ import annotations

from typing import Any

from graphc.errors import ClusterError, GraphcError
from graphc.ir.extras import importing


def ray(user: str) -> Any:
    """The package Ray.

    Args:
        user: what needs it, for errors.

    Raises:
        MissingExtraError: it is not installed.
    """
    with importing(f"{user}: the package ray is not installed", "ray"):
        import ray
    return ray


def answers(package: Any, refs: Any, what: str) -> Any:
    """The values of references.

    Args:
        package: Ray.
        what: the processes that answer, for errors.

    Raises:
        GraphcError: a call raised it.
        ClusterError: a process has ended, and Ray cannot start it again.
    """
    try:
        return package.get(refs)
    except package.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, GraphcError) else error) from None
    except package.exceptions.RayError as error:
        first, *rest = str(error).splitlines() or [type(error).__name__]
        raise ClusterError(
            f"{what} has failed: {first}",
            details=rest[:5],
            hint="ray status and ray logs say more about the processes",
        ) from error
