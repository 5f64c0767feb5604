"""Work in other threads: lowering and compiling, during which XLA releases Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from threading import Thread
from typing import Any, TypeVar

import jax

from graphc.jax_internals import all_settings

T = TypeVar("T")


def in_background(make: Callable[[], T]) -> Future[T]:
    """Calls `make` in another thread, under the JAX settings of this one.

    A Python process ends only after its threads have ended.
    """
    settings = own_settings()
    if not all(hasattr(jax, name) for name in settings):  # another thread cannot use these
        done: Future[T] = Future()
        done.set_result(make())
        return done
    return _threads().submit(under, settings, make)


def under(settings: Mapping[str, Any], make: Callable[[], T]) -> T:
    """The result of `make` under JAX settings that `own_settings` returned in another thread.
    Settings that cannot be set for one thread are left out."""
    with ExitStack() as stack:
        for name, value in settings.items():
            if hasattr(jax, name):
                stack.enter_context(getattr(jax, name)(value))
        return make()


def own_settings() -> dict[str, Any]:
    """The JAX settings of this thread that differ from those of a new thread, e.g. because of
    `jax.enable_x64`. The keys are the names of such functions."""
    others: dict[str, Any] = {}
    thread = Thread(target=lambda: others.update(all_settings()))
    thread.start()
    thread.join()
    mine = all_settings()
    return {
        name.removeprefix("jax_"): value for name, value in mine.items() if value != others[name]
    }


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="graphc-compile")
