"""The records of the zoo: programs of other packages as functions of arrays."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import graphc as gc

# Checks of equinox return NaNs instead of calling Python, since files cannot contain such calls.
# equinox reads this setting when it is imported.
os.environ.setdefault("EQX_ON_ERROR", "nan")

# The modules with the programs. They import the packages only when a program is made.
MODULES = ("networks", "flax_networks", "keras_networks", "probability", "solvers", "structures")
_REGISTERED: dict[str, Program] = {}


@dataclass(frozen=True)
class Program:
    """A program: `make()` returns a function and its arguments (nests of arrays and keys).

    Attributes:
        wrt: the arguments whose gradients are compared; none for programs without gradients.
        rtol: tolerance of results and gradients, relative to the largest value.
        max_trips: see `gc.from_jax`.
        saved: whether it can be saved and cached; programs that call Python cannot.
        ordered: whether each process traces the same program. A package that iterates over sets
            orders equations depending on PYTHONHASHSEED.
    """

    name: str
    module: str
    package: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    wrt: tuple[int, ...]
    rtol: float
    max_trips: int | None
    saved: bool
    ordered: bool


def program(
    package: str,
    wrt: tuple[int, ...] = (0,),
    rtol: float = 1e-4,
    max_trips: int | None = None,
    saved: bool = True,
    ordered: bool = True,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Registers a function that makes a program."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        module = make.__module__.rpartition(".")[2]
        name = make.__name__
        assert name not in _REGISTERED, name
        _REGISTERED[name] = Program(
            name, module, package, make, wrt, rtol, max_trips, saved, ordered
        )
        return make

    return register


def all_programs() -> list[Program]:
    for module in MODULES:
        importlib.import_module(f"tests.zoo.{module}")
    return list(_REGISTERED.values())


def prepared_cache(folder: Path) -> dict[str, Any]:
    """Caches what JAX compiles while programs are made, for the new process. Making a model takes
    JAX longer than running it. This does not affect graphc's executables, which have a separate
    cache.

    Returns:
        The settings of JAX as they were.
    """
    settings = {
        "jax_compilation_cache_dir": str(folder / "jax"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    return before


def is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def words(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


def is_floating(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


class Prepared:
    """A program as a function of flat arrays; keys are passed and returned as their words."""

    def __init__(self, program: Program) -> None:
        self.program = program
        fn, args = program.make()
        leaves, tree = jax.tree.flatten(args)
        keys = [is_key(leaf) for leaf in leaves]
        self.values = [words(leaf) for leaf in leaves]
        owners = jax.tree.leaves(
            tuple(jax.tree.map(lambda _, i=i: i, arg) for i, arg in enumerate(args))
        )
        self.moving = [
            i
            for i, value in enumerate(self.values)
            if owners[i] in program.wrt and is_floating(value) and not keys[i]
        ]

        @functools.wraps(fn)
        def flat(*values: Any) -> list[Any]:
            wrapped = [
                jax.random.wrap_key_data(x) if key else x
                for x, key in zip(values, keys, strict=True)
            ]
            results = jax.tree.leaves(fn(*jax.tree.unflatten(tree, wrapped)))
            return [jax.random.key_data(y) if is_key(y) else jnp.asarray(y) for y in results]

        self.fn = flat

    def want(self) -> list[Any]:
        """The results and gradients that JAX computes."""
        results = jax.jit(self.fn)(*self.values)
        if not self.moving:
            return results

        def loss(moved: Any) -> Any:
            values = list(map(jnp.asarray, self.values))
            for i, x in zip(self.moving, moved, strict=True):
                values[i] = x
            return sum(weighted(y) for y in self.fn(*values) if is_floating(y))

        moved = [jnp.asarray(self.values[i]) for i in self.moving]
        return [*results, *jax.jit(jax.grad(loss))(moved)]

    def graph(self) -> tuple[gc.Graph, list[Any], list[Any]]:
        """The graph, its placeholders, and its results and gradients."""
        with gc.Graph(name=self.program.name) as graph:
            xs = [
                gc.placeholder(value.shape, value.dtype, name=f"x{i}")
                for i, value in enumerate(self.values)
            ]
            ys = gc.from_jax(self.fn, max_trip_count=self.program.max_trips)(*xs)
            slopes = []
            if self.moving:
                parts = [gc.from_jax(weighted)(y) for y in ys if is_floating(y)]
                moving = [xs[i] for i in self.moving]
                slopes = gc.gradients(gc.add_n(parts), moving, unconnected="zero")
        return graph, xs, [*ys, *slopes]


def weighted(y: Any) -> Any:
    """A scalar in which each element of `y` has another weight, so that no term is hidden."""
    weights = jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)
    return jnp.sum(jnp.real(y) * weights).astype(jnp.float32)


def rows(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def labels(count, classes, seed=1):
    return np.random.default_rng(seed).integers(0, classes, count).astype("int32")
