"""All details of JAX and XLA that graphc uses but that neither of them guarantees.

A new JAX version may change any of them without notice. tests/test_jax_internals.py detects which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import jax
from jax._src import config, core

KEY_DTYPE: Final = "key<fry>"
"""The text of the dtype of random keys of threefry2x32."""

CACHE_HIT: Final = "/jax/compilation_cache/cache_hits"
"""The event when JAX finds a program in its own persistent cache."""

CALLBACK_LOGGER: Final = "jax._src.callback"
"""The name of the logger to which JAX writes the traceback of a callback that fails."""

ARRAY_OPERATOR: Final = "_operator_"
"""The prefix of the names of the functions that implement the operators of JAX's arrays. These
functions look for `__jax_array__`."""

# -- the targets of custom calls in XLA's text: patterns of whole names, or prefixes of names --
LAPACK: Final = r"lapack_[sdcz][a-z0-9]+_ffi"
TRIDIAGONAL: Final = "tridiagonal_solve_perturbed_ffi"
TOP_K: Final = "TopK"
GPU_OF_XLA: Final = r"__(cublas|cudnn|cub|cusolver|hipblas|hipcub|gpu)\$.+"
GPU_LIBRARIES: Final = r"(cusolver|cublas|cusparse|hipsolver|hipblas|hipsparse)_\w+_ffi"
GPU_THREEFRY: Final = r"(cu|hip)_threefry2x32_ffi"
GPU_PIVOTS: Final = r"(cu|hip)_lu_pivots_to_permutation"
GPU_CHOLESKY_UPDATE: Final = r"(cu|hip)_cholesky_update_ffi"
GPU_HYBRID: Final = r"(cu|hip)hybrid_\w+"
CUBLAS_PRODUCTS: Final = ("__cublas$gemm", "__cublas$lt")
CUDNN_CONVOLUTION: Final = "__cudnn$conv"
CUDNN_BACKWARD_INPUT: Final = "__cudnn$convBackwardInput"
CUDNN_BACKWARD_FILTER: Final = "__cudnn$convBackwardFilter"
CUDNN_ATTENTION: Final = "__cudnn$fmha"


# -- random keys -------------------------------------------------------------------------------


def words_of_key(key: Any) -> jax.Array:
    """The array of words that a typed key holds, not a copy. `key` is not a tracer.

    `jax.random.key_data` computes a new array, which takes 3 to 11 us of a call of 15 us.
    """
    words: jax.Array = key._base_array
    return words


# -- tracing -----------------------------------------------------------------------------------


def is_tracing() -> bool:
    """Whether JAX is tracing a function in this thread, for `jax.jit`, `jax.vmap` or the like.

    A traced function may call others with plain numbers, so arguments do not show it.
    """
    return not core.trace_state_clean()


trace_settings: Final[Callable[[], tuple[Any, ...]]] = config.trace_context
"""The settings in this thread on which a trace of `jax.jit` depends, as one hashable value. JAX
compares them in every call; reading the settings one by one takes four times as long."""


# -- settings ----------------------------------------------------------------------------------

LOCATIONS: Final = "jax_traceback_in_locations_limit"
PLATFORMS: Final = "jax_platforms"
SHARDY: Final = "jax_use_shardy_partitioner"
FEW_OPTIMIZATIONS: Final = "jax_disable_most_optimizations"


def all_settings() -> dict[str, Any]:
    """All settings of JAX by name, with their values in this thread.

    Some of them cannot be read as attributes of `jax.config`.
    """
    return dict(sorted(jax.config.values.items()))


@contextmanager
def changed_setting(name: str, value: Any) -> Iterator[None]:
    """Changes a setting inside the context, in all threads."""
    before = all_settings()[name]
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


# -- several processes -------------------------------------------------------------------------


def set_for_all(key: str, value: str) -> None:
    """Gives a value to the other processes that `jax.distributed` has connected. The first value of
    a key counts."""
    try:
        _service().key_value_set(key, value)
    except jax.errors.JaxRuntimeError as error:
        if "ALREADY_EXISTS" not in str(error):
            raise


def value_of_all(key: str, seconds: float) -> str | None:
    """The value that a process gave, or None if none gives it within this time."""
    try:
        found: str = _service().blocking_key_value_get(key, int(seconds * 1000))
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise
        return None
    return found


def _service() -> Any:
    from jax._src import distributed  # there is no public way to its keys and values

    return distributed.global_state.client
