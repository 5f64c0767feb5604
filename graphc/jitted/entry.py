"""`jit`: an equivalent of `jax.jit` that uses graphc's passes, cache and strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, TypeAlias, TypedDict, Unpack, overload

import jax

from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.errors import ArgumentError, AttributeValueError
from graphc.jitted.arguments import Roles
from graphc.jitted.function import JittedFunction
from graphc.jitted.shared import can_be_held
from graphc.runtime.core.across import refuse_processes
from graphc.runtime.step.compiler import check_strategy, checked_options, refuse_workers

Decorator: TypeAlias = Callable[[Callable[..., Any]], JittedFunction]
"""The return type of `jit` if it is called without a function."""


class JaxOptions(TypedDict, total=False):
    """The arguments of `jax.jit` that graphc does not use itself."""

    in_shardings: Any
    out_shardings: Any
    keep_unused: bool
    device: Any
    backend: str | None
    inline: Any
    compiler_options: dict[str, Any] | None


# They change nothing in a call that graphc runs.
_WITHOUT_EFFECT = ("keep_unused", "inline")


@overload
def jit(
    function: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    options: CompileOptions | None = ...,
    strategy: Strategy | None = ...,
    batch_argnums: int | Sequence[int] | None = ...,
    cache_key: str | None = ...,
    **of_jax: Unpack[JaxOptions],
) -> JittedFunction: ...


@overload
def jit(
    function: None = ...,
    *,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    options: CompileOptions | None = ...,
    strategy: Strategy | None = ...,
    batch_argnums: int | Sequence[int] | None = ...,
    cache_key: str | None = ...,
    **of_jax: Unpack[JaxOptions],
) -> Decorator: ...


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    options: CompileOptions | None = None,
    strategy: Strategy | None = None,
    batch_argnums: int | Sequence[int] | None = None,
    cache_key: str | None = None,
    **of_jax: Unpack[JaxOptions],
) -> JittedFunction | Decorator:
    """Compiles a JAX function with graphc, as `jax.jit` does with JAX.

    Arguments and results are those of `jax.jit`: pytrees of arrays, typed keys, numbers, and static
    values. `jit` adds graphc's passes (repeated layers become loops, embedding tables are updated
    by rows, attention is fused), the cache of compiled programs, and strategies.

    A donated argument that the function returns with the same structure, such as the parameters of
    a training step, is updated in place. If its arrays are stacked for a loop over repeated layers,
    the call returns a `PackedTree` in its place. The leaves of a `PackedTree` are created when they
    are accessed, and the next call takes it without a copy. With
    `options=gc.CompileOptions(state_buffers="separate")`, results are always ordinary trees.

    As in JAX, all jitted functions of one function with equal arguments of `jit` share their
    programs, so `gc.jit(step)(x)` in a loop compiles once. With a `cache_key`, each of them looks
    in the cache instead.

    Functions that graphc cannot import run by `jax.jit`. So do calls inside `jax.grad`, `jax.vmap`
    and `jax.jit`, functions that call back into Python, and those with `in_shardings` and the like.
    `notes` states the reasons.

    Args:
        function: a pure function of JAX arrays. Without it, `jit` returns a decorator.
        static_argnums, static_argnames: arguments that are Python values, part of the program.
        donate_argnums, donate_argnames: arguments whose arrays the call consumes.
        options: see `CompileOptions`.
        strategy: a `gc.devices.DataParallel` or a `gc.devices.Mesh`. The results are those of one
            device.
        batch_argnums: under a strategy, the positions of the arguments whose arrays have the batch
            as their first axis; by default the arguments that are not donated. It affects only
            speed.
        cache_key: a name for the function and everything that it depends on besides its arguments:
            the model, hyperparameters, versions of packages. If a later process finds a program
            under the same key, for arguments of the same forms, it does not trace the function.
            Change the key whenever you change the function: graphc cannot detect the change
            otherwise. Static arguments and the metadata of pytrees are part of the key if they are
            numbers, strings, tuples, enums, dataclasses of these, or functions of modules.
            Otherwise the function is traced in each process, and `notes` states this.
        of_jax: other arguments of `jax.jit`. `keep_unused` and `inline` have an effect only where
            JAX runs the function. With any of the others (`in_shardings`, `out_shardings`,
            `device`, `backend`, `compiler_options`), all calls are left to `jax.jit`.

    Returns:
        A `JittedFunction`. Its `report()`, `memory()` and `executable` show the program of the
        last call, and `compile(...)` compiles ahead of time.

    Raises:
        ArgumentError: `function` is not a function.
        AttributeValueError: another argument of `jit` does not fit the function, or the strategy.
        TypeError: `jax.jit` has no such argument either.
        DeviceError: the strategy needs more devices than there are.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> @gc.jit
        ... def normalise(x):
        ...     return (x - x.mean()) / x.std()
        >>> normalise(jnp.array([1.0, 3.0]))
        Array([-1.,  1.], dtype=float32)
    """
    as_in_jax: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    left = _why_by_jax(of_jax, strategy)
    if function is None:
        return partial(
            jit,
            **as_in_jax,
            options=options,
            strategy=strategy,
            batch_argnums=batch_argnums,
            cache_key=cache_key,
            **of_jax,
        )
    _check(function, cache_key)
    check_strategy(strategy)
    refuse_workers(strategy, "jit")
    refuse_processes(strategy, "jit")
    options = checked_options(options)
    if options.state_buffers is None:
        options = replace(options, state_buffers="stacked")
    static, donated = (static_argnums, static_argnames), (donate_argnums, donate_argnames)
    roles = Roles(function, static, donated)
    held = function if can_be_held(function) else _calling(function)
    by_jax = jax.jit(held, **as_in_jax, **of_jax)
    batched = None if batch_argnums is None else roles.labels("batch", (batch_argnums, None))
    return JittedFunction(function, roles, options, strategy, batched, cache_key, by_jax, left)


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another one, for JAX's tables."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _why_by_jax(of_jax: JaxOptions, strategy: Strategy | None) -> str | None:
    """The reason why all calls are left to `jax.jit`: its own options; None if there is none."""
    unknown = sorted(of_jax.keys() - JaxOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"jit() got an unexpected keyword argument {unknown[0]!r}")
    given = [
        name for name, value in of_jax.items() if value is not None and name not in _WITHOUT_EFFECT
    ]
    if given and strategy is not None:
        raise AttributeValueError.here(
            f"jit: {given[0]} is JAX's, and strategy= is graphc's",
            hint="pass only one of them",
        )
    return f"{given[0]} was passed to jit" if given else None


def _check(function: object, cache_key: object) -> None:
    if not callable(function):
        raise ArgumentError.here(
            f"jit: {function!r} is not a function", hint="pass the function itself: gc.jit(step)"
        )
    if cache_key is not None and (type(cache_key) is not str or not cache_key):
        raise AttributeValueError.here(
            f"jit: cache_key must be a text, got {cache_key!r}",
            hint='pass cache_key="my model, version 3"',
        )
