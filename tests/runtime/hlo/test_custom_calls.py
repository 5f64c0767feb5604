"""External functions that compiled code calls are recorded, and checked before it is loaded."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.errors import CacheError
from graphc.ops.catalogue import CATALOGUE
from graphc.runtime.hlo import custom_calls
from graphc.runtime.hlo.custom_calls import check_known, make_ready, targets_of
from graphc.store import folder as folder_module
from graphc.store.folder import ExecutableCache
from tests.artifacts.forge import entry, forge
from tests.near import assert_near

X = np.array([[4.0, 2.0], [2.0, 3.0]], np.float32)


class Text:
    """A compiled program with this text."""

    def __init__(self, text: str | None) -> None:
        self.as_text = lambda: text


def test_targets_are_read_from_the_text() -> None:
    program = jax.jit(lambda x: (jax.lax.linalg.qr(x), jax.lax.top_k(x, 1))).lower(X).compile()
    assert targets_of(program) == ("TopK", "lapack_sgeqrf_ffi", "lapack_sorgqr_ffi")
    assert targets_of(jax.jit(lambda x: x + 1).lower(X).compile()) == ()
    started = '%a = (f32[2]) custom-call-start(%x), custom_call_target="a\\"b", metadata={}'
    assert targets_of(Text(started)) == ('a\\"b',)


@pytest.mark.parametrize("text", [None, "%a = f32[2]{0} custom-call(%x), metadata={}"])
def test_a_text_that_does_not_tell_is_not_stored(text: str | None) -> None:
    with pytest.raises(CacheError, match="cannot be stored"):
        targets_of(Text(text))


def test_a_backend_that_shows_no_text_is_no_crash() -> None:
    class Mute:
        def as_text(self) -> str:
            raise NotImplementedError

    with pytest.raises(CacheError, match="does not show what it calls"):
        targets_of(Mute())


KNOWN = {
    "cpu": ["lapack_sgesdd_ffi", "lapack_zheevd_ffi", "TopK"],
    "cuda": [
        "__cublas$lt$matmul", "__cudnn$convBackwardFilter", "__cudnn$fmhaSoftmax",
        "__cub$DeviceRadixSort", "cusolver_potrf_ffi", "cublas_getrf_batched_ffi",
        "cusparse_gtsv2_ffi", "cu_threefry2x32_ffi", "cu_lu_pivots_to_permutation",
        "cuhybrid_eig_real",
    ],
    "rocm": ["__hipblas$gemm", "hipsolver_potrf_ffi", "hip_threefry2x32_ffi"],
}  # fmt: skip


@pytest.mark.parametrize("platform", KNOWN)
def test_the_table_of_each_platform(platform: str) -> None:
    check_known(KNOWN[platform], platform)
    others = {name for other in KNOWN if other != platform for name in KNOWN[other]}
    strange = ["my_kernel", "lapack", "xla_ffi_python_cpu_callback", "x lapack_sgesdd_ffi", ""]
    for name in [*strange, *others - set(KNOWN[platform])]:
        if platform != "cpu" and name in (*KNOWN["cuda"], *KNOWN["rocm"]):
            continue  # both GPU vendors accept each other's names
        with pytest.raises(CacheError, match="cannot be stored: it calls"):
            check_known([name], platform)
        with pytest.raises(CacheError, match="which is not known here"):
            make_ready([name], platform)


def test_lapack_of_every_dtype_and_routine_is_known() -> None:
    """JAX lowers to these names, so this test fails if JAX renames them."""

    def everything(a: Any) -> Any:
        linalg = jax.lax.linalg
        spd = a @ a.mT.conj() + 2 * np.eye(2, dtype=a.dtype)
        eig = linalg.eig(a, compute_left_eigenvectors=False)
        solved = linalg.tridiagonal_solve(a[0], a[1] + 4, a[0], a)
        return (linalg.cholesky(spd), linalg.eigh(spd), linalg.svd(a), linalg.qr(a), eig,
                linalg.lu(a), linalg.schur(a), linalg.hessenberg(a), linalg.tridiagonal(spd),
                solved, linalg.triangular_solve(spd, a))  # fmt: skip

    with jax.enable_x64(True):
        for dtype in ("float32", "float64", "complex64", "complex128"):
            text = jax.jit(everything).lower(X.astype(dtype)).as_text("hlo")
            targets = targets_of(Text(text))
            assert len(targets) >= 11
            check_known(targets, "cpu")


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_what_jax_lowers_to_for_gpus_is_known(platform: str) -> None:
    """This needs no GPU. XLA adds other calls when it compiles, see `KNOWN`."""

    def everything(a: Any) -> Any:
        linalg = jax.lax.linalg
        spd = a @ a.mT.conj() + 2 * np.eye(2, dtype=a.dtype)
        eig = linalg.eig(a, compute_left_eigenvectors=False)
        update = linalg.cholesky_update(a.real, a[0].real) if platform == "cuda" else a
        return (linalg.cholesky(spd), linalg.eigh(spd), linalg.svd(a), linalg.qr(a), eig,
                linalg.qr(a, pivoting=True), linalg.lu(a), linalg.tridiagonal(spd), update,
                linalg.householder_product(a, a[0]), linalg.triangular_solve(spd, a))  # fmt: skip

    for dtype in ("float32", "complex64"):
        traced = jax.jit(everything).trace(jax.ShapeDtypeStruct((2, 2), dtype))
        targets = targets_of(Text(traced.lower(lowering_platforms=(platform,)).as_text("hlo")))
        assert len(targets) >= 9
        check_known(targets, platform)
    make_ready(["cuhybrid_eig_real", "cusolver_potrf_ffi"], platform)  # only in lowered code


NOT_RECORDED: list[Any] = [None, "TopK", [1], {"TopK": 1}, [["TopK"]]]


@pytest.mark.parametrize("targets", NOT_RECORDED, ids=repr)
def test_code_without_a_record_is_refused(targets: Any) -> None:
    with pytest.raises(CacheError, match="does not record what it calls"):
        make_ready(targets, "cpu")


# -- in the cache -------------------------------------------------------------------------------


def graph_of(function: Callable[[Any], Any]) -> tuple[gc.Graph, Any]:
    with gc.Graph() as graph:
        y = function(gc.placeholder((2, 2), name="x"))
    return graph, y


def started(folder: Path, function: Callable[[Any], Any]) -> tuple[bool, Any]:
    """Whether the program was found in the cache, and its result."""
    graph, y = graph_of(function)
    session = gc.Session(graph, options=gc.CompileOptions(cache=folder))
    value = np.asarray(session.run(y, {"x": X}))
    return session.executables[0].cached, value


def on_two(x: Any) -> Any:
    with gc.device("/cpu:1"):
        a = gc.linalg.cholesky(x)
    with gc.device("/cpu:2"):
        return gc.linalg.det(a)


@pytest.mark.parametrize("function", [gc.linalg.cholesky, on_two], ids=["one", "several devices"])
def test_what_is_not_recorded_or_not_known_is_compiled_again(
    tmp_path: Path, function: Callable[[Any], Any]
) -> None:
    cache = ExecutableCache(tmp_path / "cache", 1 << 30)
    first, value = started(cache.folder, function)
    assert not first
    assert started(cache.folder, function)[0]
    (listed,) = cache.entries()
    kept = cache.get(listed.key)
    recorded = kept.metadata["targets"]
    names = {name for row in recorded for name in (row if isinstance(row, list) else [row])}
    assert "lapack_spotrf_ffi" in names
    one = isinstance(recorded[0], str)
    unknown = [*recorded, "unknown"] if one else [recorded[0], [*recorded[1], "unknown"]]
    short = [recorded] if one else recorded[:1]
    for forged in (*NOT_RECORDED, unknown, short):
        cache.put(listed.key, {**kept.metadata, "targets": forged}, kept.payload)
        cached, again = started(cache.folder, function)
        assert not cached, forged
        np.testing.assert_array_equal(again, value)
    without = {name: value for name, value in kept.metadata.items() if name != "targets"}
    cache.put(listed.key, without, kept.payload)
    assert not started(cache.folder, function)[0]
    assert started(cache.folder, function)[0]  # the program was stored again with the record


@pytest.fixture
def doubling() -> Iterator[Callable[[Any], Any]]:
    """An operator that calls a function which the user has registered with XLA."""

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def double(out: int, operands: Any) -> None:
        results = (ctypes.c_float * 4).from_address(out)
        for i, value in enumerate((ctypes.c_float * 4).from_address(operands[0])):
            results[i] = 2 * value

    jax.ffi.register_ffi_target("my_double", jax.ffi.pycapsule(double), "cpu", api_version=0)

    def call(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct((2, 2), np.float32)
        return jax.ffi.ffi_call("my_double", shape, custom_call_api_version=1)(x)

    yield gc.register_op("CallsTheUsers", call)
    CATALOGUE._ops.pop("CallsTheUsers")


def test_what_calls_a_users_function_is_not_kept(tmp_path: Path, doubling: Any) -> None:
    for _ in range(2):
        cached, value = started(tmp_path / "cache", doubling)
        assert not cached
        np.testing.assert_array_equal(value, 2 * X)


def test_what_is_not_in_the_table_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_calls, "_KNOWN", ())
    custom_calls._family.cache_clear()
    try:
        for _ in range(2):
            folder_module._warned.clear()
            with pytest.warns(RuntimeWarning, match="it calls 'lapack_spotrf_ffi', which another"):
                cached, value = started(tmp_path / "cache", gc.linalg.cholesky)
            assert not cached
            assert_near(value @ value.T, X, rtol=1e-6)
    finally:
        custom_calls._family.cache_clear()


# -- in artifacts -------------------------------------------------------------------------------


def test_native_code_without_a_record_is_not_run(tmp_path: Path) -> None:
    graph, y = graph_of(gc.linalg.cholesky)
    path = tmp_path / "m.gcx"
    signatures = {"run": gc.Signature({"x": graph.tensor("x:0")}, {"y": y})}
    gc.save(gc.Session(graph), path, signatures=signatures, platforms=("cpu",), native=True)
    run = gc.load(path, trust_native=True).signatures["run"]
    expected = np.asarray(run(x=X)["y"])
    assert run.way == "native"

    def without(manifest: dict[str, Any]) -> None:
        assert entry(manifest, "run")["native"].pop("targets") == ["lapack_spotrf_ffi"]

    def unknown(manifest: dict[str, Any]) -> None:
        entry(manifest, "run")["native"]["targets"].append("unknown")

    notes = {without: "does not record what it calls", unknown: "calls 'unknown'"}
    for change, note in notes.items():
        forge(path, tmp_path / "forged.gcx", change)
        run = gc.load(tmp_path / "forged.gcx", trust_native=True).signatures["run"]
        assert_near(run(x=X)["y"], expected, rtol=1e-6)
        assert run.way == "stablehlo" and note in run.notes[0]
