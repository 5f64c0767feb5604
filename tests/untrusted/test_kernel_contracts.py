"""Calls of library kernels: those that JAX writes pass, and all others are refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.untrusted.kernel_contracts import KERNELS, ContractError, array, check_kernel
from graphc.untrusted.rules import NotAllowedError, check_rules
from tests.artifacts.forge import forge
from tests.near import assert_near
from tests.untrusted.kernel_calls import calls

F32 = np.float32


@pytest.fixture(scope="module")
def known() -> list[dict[str, Any]]:
    """Calls of kernels on CPU and CUDA."""
    return [
        call
        for platform in ("cpu", "cuda")
        for call in calls(platform, ["float32", "complex64"])
        if call["target"] in KERNELS
    ]


def test_calls_of_jax_pass(known: list[dict[str, Any]]) -> None:
    for call in known:
        check_kernel(call)
    wanted = {n for n in KERNELS if re.match(r"lapack_[sc]|cu", n)}
    assert {call["target"] for call in known} == wanted


@pytest.mark.slow
def test_every_kernel_of_the_table_is_one_that_jax_calls() -> None:
    dtypes = ["float32", "float64", "complex64", "complex128"]
    seen = set()
    for platform in ("cpu", "cuda", "rocm", "tpu"):
        for call in calls(platform, dtypes):
            if call["target"] in KERNELS:
                check_kernel(call)
                seen.add(call["target"])
    assert seen == set(KERNELS)


# -- changes of JAX's call ------------------------------------------------------------------


def with_sizes(call: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The call with one changed size of one array."""
    for side in ("operands", "results"):
        for place, text in enumerate(call[side]):
            dtype, shape = array(text)
            for axis, size in enumerate(shape):
                for other in {0, 1, (size or 0) + 1, (size or 0) - 1, 2000} - {size}:
                    if other >= 0:
                        sizes = [*shape[:axis], other, *shape[axis + 1 :]]
                        yield (
                            f"{side}[{place}] of {sizes}",
                            with_type(call, side, place, sizes, dtype),
                        )


def with_type(
    call: dict[str, Any], side: str, place: int, sizes: Any, dtype: str
) -> dict[str, Any]:
    changed = copy.deepcopy(call)
    changed[side][place] = f"tensor<{''.join(f'{size}x' for size in sizes)}{dtype}>"
    return changed


def with_other_types(call: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for side in ("operands", "results"):
        for place, text in enumerate(call[side]):
            dtype, shape = array(text)
            for other in {"f16", "f64", "i32", "i8", "i64", "complex<f32>", "f32"} - {dtype}:
                yield f"{side}[{place}] {other}", with_type(call, side, place, shape, other)
            more = [1, *shape]
            yield f"{side}[{place}] of {more}", with_type(call, side, place, more, dtype)
            yield f"{side}[{place}] open", with_type(call, side, place, ["?", *shape[1:]], dtype)
        for place in range(len(call[side])):
            fewer = copy.deepcopy(call)
            del fewer[side][place]
            yield f"no {side}[{place}]", fewer
        twice = copy.deepcopy(call)
        twice[side].append(call[side][-1])
        yield f"{side} twice", twice


def with_other_attributes(call: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    config = call["attributes"].get("mhlo.backend_config")
    changes: list[tuple[str, str | None]] = [
        ("called_computations", "[@f]"),
        ("has_side_effect", "true"),
        ("api_version", "3 : i32"),
        ("api_version", "0 : i32"),
        ("indices_of_shape_operands", "dense<[0]> : tensor<1xi64>"),
        ("backend_config", '"hostile"'),
        ("mhlo.backend_config", '{high = 4000 : i32, low = 1 : i32, mode = "A"}'),
        ("mhlo.frontend_attributes", '{num_batch_dims = "7"}'),
        ("another", "1 : i32"),
        ("output_operand_aliases", "[#stablehlo.output_operand_alias<...>]"),
    ]
    if config is not None:
        changes += [("mhlo.backend_config", None), ("mhlo.backend_config", "unit")]
        changes += [("operand_layouts", None), ("result_layouts", None)]
        changes += [(n, call["attributes"][n].replace("[1, 2", "[2, 1")) for n in LAYOUTS]
        for number in re.findall(r"= (\d+) : ui8", config):  # characters that LAPACK refuses
            changes.append(("mhlo.backend_config", config.replace(f"= {number} :", "= 79 :")))
            changes.append(("mhlo.backend_config", config.replace("ui8", "i8")))
        if "high" in config:
            changes += [("mhlo.backend_config", config.replace("4 : i32", "5 : i32"))]
    for name, text in changes:
        if call["attributes"].get(name) != text:
            changed = copy.deepcopy(call)
            changed["attributes"].pop(name, None)
            if text is not None:
                changed["attributes"][name] = text
            yield f"{name} {text}", changed


LAYOUTS = ("operand_layouts", "result_layouts")


def fits(call: dict[str, Any]) -> bool:
    """Whether a change of one size made another call that the kernel accepts."""
    name = call["target"]
    if "orgqr" in name or "ungqr" in name or name.startswith("Product"):
        (*batch, m, n), (*same, k) = [array(text).shape for text in call["operands"]]
        sizes = 0 < (k or 0) <= (n or 0) <= (m or 0)
        return sizes and batch == same and call["operands"][0] == call["results"][0]
    if "permutation" in name:
        k, n = array(call["operands"][0]).shape[-1], array(call["results"][0]).shape[-1]
        return 0 < (k or 0) <= (n or 0)
    if "gesdd" in name and "mode = 78" in call["attributes"]["mhlo.backend_config"]:
        u, v = [array(text).shape for text in call["results"][2:4]]
        return v == (2, 3, 3) and u in ((2, 4, 3), (2, 4, 4))  # unchanged, thin or full
    return False


def test_no_other_call_passes(known: list[dict[str, Any]]) -> None:
    """Every size, dtype, number of arrays and attribute is checked, for every kernel."""
    tried = 0
    for call in known:
        sizes = [change for change in with_sizes(call) if not fits(change[1])]
        for what, changed in [*sizes, *with_other_types(call), *with_other_attributes(call)]:
            tried += 1
            try:
                check_kernel(changed)
            except ContractError:
                continue
            raise AssertionError(f"{call['target']}: {what}: {changed}")
    assert tried > 3000


# -- files ----------------------------------------------------------------------------------


def matrix(n: int) -> Any:
    return jax.numpy.eye(n, dtype=F32)


def ffi(target: str, *results: Any, aliases: Any = None, **config: Any) -> Any:
    """A call with LAPACK's layouts and any shapes."""
    columns = {2: (0, 1), 3: (1, 2, 0)}

    def call(*operands: Any) -> Any:
        return jax.ffi.ffi_call(
            target,
            [jax.ShapeDtypeStruct(*one) for one in results],
            input_layouts=[columns.get(o.ndim, (0,)[: o.ndim]) for o in operands],
            output_layouts=[columns.get(len(shape), (0,)[: len(shape)]) for shape, _ in results],
            input_output_aliases=aliases,
        )(*operands, **config)

    return call


U8, I32 = np.uint8, np.int32
LIES: dict[str, Any] = {
    "getrf": lambda: ffi(
        "lapack_sgetrf_ffi", ((2000, 2000), F32), ((1,), I32), ((), I32), aliases={0: 0}
    )(matrix(2000)),
    "trsm": lambda: ffi(
        "lapack_strsm_ffi",
        ((3000, 3000), F32),
        aliases={1: 0},
        diag=U8(ord("N")),
        side=U8(ord("L")),
        trans_x=U8(ord("N")),
        uplo=U8(ord("L")),
    )(matrix(1), matrix(3000)),
    "syevd": lambda: ffi(
        "lapack_ssyevd_ffi",
        ((800, 800), F32),
        ((1,), F32),
        ((), I32),
        aliases={0: 0},
        mode=U8(ord("V")),
        uplo=U8(ord("L")),
    )(matrix(800)),
    "geqrf": lambda: ffi("lapack_sgeqrf_ffi", ((900, 900), F32), ((1,), F32), aliases={0: 0})(
        matrix(900)
    ),
}


@pytest.mark.parametrize("kernel", LIES)
def test_a_hostile_call_never_reaches_its_kernel(plain: Path, tmp_path: Path, kernel: str) -> None:
    """Each of these calls wrote past its buffers; the graph runs instead."""

    def lie(x: Any) -> list[Any]:
        found = [jax.numpy.sum(part) for part in LIES[kernel]()]
        return [x * 2.0 + sum(found) * 0]

    checks = [jax.export.DisabledSafetyCheck.custom_call("ALL")]
    argument = jax.ShapeDtypeStruct((2, 2), F32)
    exported = jax.export.export(jax.jit(lie), platforms=["cpu"], disabled_checks=checks)(argument)
    path = tmp_path / "model.gcx"
    forge(plain, path, replaced={"programs/f.stablehlo": bytes(exported.serialize())})
    model = gc.load(path)
    np.testing.assert_array_equal(model.signatures["f"](x=np.ones((2, 2), F32))["y"], 2.0)
    assert model.signatures["f"].way == "graph"
    assert f"it calls 'lapack_s{kernel}_ffi' differently from JAX" in model.notes[0]


def test_kernels_run_from_stablehlo_with_open_and_fixed_sizes(tmp_path: Path) -> None:
    graph = gc.Graph(name="kernels")
    with graph:
        x = gc.placeholder(("n", 4, 4), name="x")
        a = x @ gc.transpose(x, (0, 2, 1)) + gc.constant(4 * np.eye(4, dtype=F32))
        outputs = {
            "solved": gc.linalg.solve(a, x),
            "largest": gc.top_k(gc.reshape(x, (-1, 16)), 3)[0],
            "triangle": gc.linalg.cholesky(a),
        }
    path = tmp_path / "model.gcx"
    open_sizes = gc.Signature({"x": x}, outputs)
    fixed = gc.Signature({"x": x}, outputs, sizes={"n": 3})
    session = gc.Session(graph)
    gc.save(session, path, signatures={"open": open_sizes, "fixed": fixed})
    model = gc.load(path)
    value = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(F32)
    expected = session.run(outputs, {"x": value})
    for name in ("open", "fixed"):
        found = model.signatures[name](x=value)
        for key, one in expected.items():
            assert_near(found[key], one, rtol=1e-7, atol=1e-5)
    assert model.notes == []


def test_kernels_are_not_called_on_several_devices(known: list[dict[str, Any]]) -> None:
    found = {
        "calls": [known[0]],
        "operations": {"builtin.module": 1},
        "work": 1,
        "elements": 1,
        "open": False,
        "main": [[], []],
        "groups": [],
        "meshes": [],
        "guarded": False,
        "types": [],
        "comparators": [],
        "called": {},
        "applied": [],
    }
    assert not check_rules(found, 1, refined=False)
    with pytest.raises(NotAllowedError, match="on several devices"):
        check_rules(found, 2, refined=False)
