"""Facts about JAX and XLA that they do not guarantee, with one test for each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

from graphc import jax_internals
from graphc.runtime.hlo.custom_calls import targets_of

PACKAGE = Path(jax_internals.__file__).parent
FACTS = {name: value for name, value in vars(jax_internals).items() if name.isupper()}


def test_the_dtype_of_random_keys() -> None:
    assert str(jax.random.key(0, impl="threefry2x32").dtype) == jax_internals.KEY_DTYPE
    assert str(jax.random.key(0, impl="rbg").dtype) != jax_internals.KEY_DTYPE


def test_the_function_behind_operators_of_arrays() -> None:
    asked = []

    class Other:
        @property
        def __jax_array__(self) -> Any:
            asked.append(sys._getframe(1).f_code.co_name)
            raise AttributeError

        def __radd__(self, other: Any) -> str:
            return "ours"

        __eq__ = __radd__  # type: ignore[assignment]
        __hash__ = object.__hash__

    assert jnp.ones(3) + Other() == "ours"
    assert (jnp.ones(3) == Other()) == "ours"
    assert len(asked) == 2
    assert all(name.startswith(jax_internals.ARRAY_OPERATOR) for name in asked)


EVENTS = """
import json, sys
import jax
from jax import numpy as jnp

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
counts = []
for _ in range(2):
    jax.clear_caches()
    jax.jit(lambda x: jnp.sin(x) * 3)(jnp.arange(3.0)).block_until_ready()
    counts.append(events.count(sys.argv[2]))
print(json.dumps(counts))
"""


def test_the_event_of_a_program_in_jaxs_cache(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EVENTS, str(tmp_path), jax_internals.CACHE_HIT]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    first, second = json.loads(done.stdout)
    assert first == 0 < second


@pytest.mark.parametrize("name", ["FEW_OPTIMIZATIONS", "LOCATIONS", "PLATFORMS", "SHARDY"])
def test_the_settings_are_there(name: str) -> None:
    assert FACTS[name] in jax_internals.all_settings()


def test_settings_are_those_of_this_thread() -> None:
    name = "jax_enable_x64"
    before = jax_internals.all_settings()[name]
    with jax.enable_x64(not before):
        assert jax_internals.all_settings()[name] is not before
    assert jax_internals.all_settings()[name] is before


def test_a_changed_setting_comes_back() -> None:
    limit = jax_internals.all_settings()[jax_internals.LOCATIONS]
    with jax_internals.changed_setting(jax_internals.LOCATIONS, limit + 1):
        assert jax_internals.all_settings()[jax_internals.LOCATIONS] == limit + 1
    assert jax_internals.all_settings()[jax_internals.LOCATIONS] == limit


def test_a_changed_setting_comes_back_after_an_error() -> None:
    limit = jax_internals.all_settings()[jax_internals.LOCATIONS]
    with (
        pytest.raises(KeyError),
        jax_internals.changed_setting(jax_internals.LOCATIONS, limit + 1),
    ):
        raise KeyError
    assert jax_internals.all_settings()[jax_internals.LOCATIONS] == limit


CALLS: dict[str, tuple[Any, Any]] = {
    "LAPACK": (jnp.linalg.cholesky, np.eye(4, dtype=np.float32)),
    "TOP_K": (lambda x: lax.top_k(x, 3)[0], np.arange(4096, dtype=np.float32)),
    "TRIDIAGONAL": (
        lambda x: lax.linalg.tridiagonal_solve(x, x + 3, x, x[:, None], perturb_singular=True),
        np.ones(4, np.float32),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_targets_of_custom_calls_on_the_processor(name: str) -> None:
    function, operand = CALLS[name]
    cpu = jax.local_devices(backend="cpu")[0]
    compiled = jax.jit(function).lower(jax.device_put(operand, cpu)).compile()
    targets = targets_of(compiled)
    assert targets and all(re.fullmatch(FACTS[name], target) for target in targets), targets


def test_no_other_file_knows_them() -> None:
    others = {"/artifacts/"}  # calls in foreign programs have a separate table
    texts = ["config.values", *(f'"{v}"' for v in FACTS.values() if isinstance(v, str))]
    texts.remove(f'"{jax_internals.TOP_K}"')  # also an operator of graphc
    found = [
        f"{path.relative_to(PACKAGE)}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "jax_internals.py" and not any(o in path.as_posix() for o in others)
        for text in texts
        if text in path.read_text()
    ]
    assert found == []


def test_the_logger_of_failed_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(fail, x, x))(np.float32(1)))
    assert {record.name for record in caplog.records} == {jax_internals.CALLBACK_LOGGER}


SERVICE = """
import socket
import jax
from graphc import jax_internals

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
jax.distributed.initialize(f"127.0.0.1:{port}", 1, 0, cluster_detection_method="deactivate")
jax_internals.set_for_all("a/b", "value")
assert jax_internals.value_of_all("a/b", 1.0) == "value"
assert jax_internals.value_of_all("a/c", 0.01) is None
"""


def test_the_keys_and_values_of_a_cluster() -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", SERVICE], check=True, cwd=PACKAGE.parent, env=environment)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_the_words_of_a_typed_key(shape: tuple[int, ...]) -> None:
    keys = jax.random.split(jax.random.key(7), shape)
    words = jax_internals.words_of_key(keys)
    assert type(words) is type(jnp.zeros(2))
    np.testing.assert_array_equal(words, jax.random.key_data(keys))
    keys.delete()
    assert words.is_deleted()


def test_whether_jax_is_tracing() -> None:
    def seen(*_: Any) -> list[bool]:
        found.append(jax_internals.is_tracing())
        return found

    found: list[bool] = []
    seen()
    jax.eval_shape(lambda: jnp.asarray(seen()))
    jax.vmap(lambda x: jnp.asarray(seen(x)), axis_name="i")(np.ones(2))
    with jax.ensure_compile_time_eval():
        seen()
    seen()
    assert found == [False, True, True, False, False]
