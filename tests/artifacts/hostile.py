"""StableHLO programs that MLIR accepts as valid but that no compiler would write.

Each is the text of a module whose main function maps `tensor<2x2xf32>` to the same type, so that it
fits the file of `plain_model`. Some are meaningless, some declare wrong shapes, and some need
unbounded work or memory to compile. None may end the process or silently return wrong results.
"""

from __future__ import annotations

import dataclasses
import random
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend import mlir

import graphc as gc
from tests.artifacts.forge import forge, member

MEMBER = "programs/f.stablehlo"
_T = "tensor<2x2xf32>"


def plain_model(path: Path) -> None:
    """Writes an artifact with the signature `f(x: f32[2, 2]) -> y: f32[2, 2]`, which doubles x."""
    graph = gc.Graph(name="plain")
    with graph:
        x = gc.placeholder((2, 2), name="x")
        y = x * 2.0
    signatures = {"f": gc.Signature({"x": x}, {"y": y})}
    gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])


def forge_program(source: Path, target: Path, text: str, **record: Any) -> None:
    """Writes the file with another program, and with changes to JAX's record of it.

    Raises:
        Exception: MLIR itself does not accept the text.
    """
    found = jax.export.deserialize(bytearray(member(source, MEMBER)))
    version = "1.9.0" if "custom_call" not in text else "1.10.0"
    code = mlir.serialize_portable_artifact(text, version)
    changed = dataclasses.replace(found, mlir_module_serialized=code, **record)
    forge(source, target, replaced={MEMBER: bytes(changed.serialize())})


def module(body: str, others: str = "", attributes: str = "") -> str:
    """A module whose main function has these lines; the result is `%y`."""
    return (
        f"module @m {f'attributes {{{attributes}}}' if attributes else ''} {{\n"
        f"func.func public @main(%x: {_T}) -> {_T} {{\n{body}\nreturn %y : {_T}\n}}\n{others}\n}}"
    )


def chain(count: int) -> str:
    """A long chain of operations, whose compilation takes time and stack."""
    lines = ["%v0 = stablehlo.sine %x : " + _T]
    for i in range(count):
        op = ("add", "multiply", "maximum", "subtract")[i % 4]
        lines.append(f"%v{i + 1} = stablehlo.{op} %v{i}, %x : {_T}")
    return module("\n".join([*lines, f"%y = stablehlo.sine %v{count} : {_T}"]))


def doubling(depth: int) -> str:
    """Functions that each call the next one twice: 2**depth operations after inlining."""
    parts = [
        f"func.func private @f{i}(%x: {_T}) -> {_T} {{\n"
        f"%a = func.call @f{i + 1}(%x) : ({_T}) -> {_T}\n"
        f"%y = func.call @f{i + 1}(%a) : ({_T}) -> {_T}\nreturn %y : {_T}\n}}"
        for i in range(depth)
    ]
    parts.append(
        f"func.func private @f{depth}(%x: {_T}) -> {_T} {{\n"
        f"%y = stablehlo.sine %x : {_T}\nreturn %y : {_T}\n}}"
    )
    return module(f"%y = func.call @f0(%x) : ({_T}) -> {_T}", "\n".join(parts))


def nested(depth: int) -> str:
    """Nested conditions."""
    inner = f"stablehlo.return %x : {_T}"
    for i in range(depth):
        inner = (
            f'%w{i} = "stablehlo.if"(%p) ({{\n{inner}\n}}, {{\nstablehlo.return %x : {_T}\n}}) '
            f": (tensor<i1>) -> {_T}\nstablehlo.return %w{i} : {_T}"
        )
    first = "%p = stablehlo.constant dense<true> : tensor<i1>"
    body = inner.rsplit("\n", 1)[0].replace(f"%w{depth - 1} =", "%y =")
    return module(f"{first}\n{body}")


def large_sort(exponent: int) -> str:
    """A short text that sorts 2**exponent numbers."""
    big = f"tensor<{2**exponent}xf32>"
    return module(
        f"""%i = stablehlo.iota dim = 0 : {big}
%r = stablehlo.slice %x [0:1, 0:1] : ({_T}) -> tensor<1x1xf32>
%s = stablehlo.reshape %r : (tensor<1x1xf32>) -> tensor<f32>
%b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> {big}
%c = stablehlo.multiply %i, %b : {big}
%o = "stablehlo.sort"(%c) ({{
^bb0(%p: tensor<f32>, %q: tensor<f32>):
%l = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
stablehlo.return %l : tensor<i1>
}}) {{dimension = 0 : i64, is_stable = true}} : ({big}) -> {big}
%f = stablehlo.slice %o [0:1] : ({big}) -> tensor<1xf32>
%g = stablehlo.reshape %f : (tensor<1xf32>) -> tensor<f32>
%y = stablehlo.broadcast_in_dim %g, dims = [] : (tensor<f32>) -> {_T}"""
    )


def call(name: str, attributes: str, results: str = _T, operands: str = f"(%x) : ({_T})") -> str:
    """A custom call with these attributes and results."""
    values, types = operands.split(" : ")
    first = ":2" if results.startswith("(") else ""
    used = "%r#0" if first else "%r"
    head = results.strip("()").split(",")[0]
    line = (
        f'%r{first} = "stablehlo.custom_call"{values} {{call_target_name = "{name}"{attributes}}}'
    )
    return module(f"{line} : {types} -> {results}\n{_added(used, head)}")


def _added(value: str, type: str) -> str:
    """Adds the first number of a matrix to the argument, so that the matrix is used."""
    return (
        f"%r1 = stablehlo.slice {value} [0:1, 0:1] : ({type}) -> tensor<1x1xf32>\n"
        "%r2 = stablehlo.reshape %r1 : (tensor<1x1xf32>) -> tensor<f32>\n"
        f"%r3 = stablehlo.broadcast_in_dim %r2, dims = [] : (tensor<f32>) -> {_T}\n"
        f"%y = stablehlo.add %r3, %x : {_T}"
    )


_ALIAS = ", output_operand_aliases = []"
PROGRAMS: dict[str, str] = {
    "recursion": module(
        f"%y = func.call @f(%x) : ({_T}) -> {_T}",
        f"func.func private @f(%x: {_T}) -> {_T} {{\n"
        f"%y = func.call @f(%x) : ({_T}) -> {_T}\nreturn %y : {_T}\n}}",
    ),
    "doubling": doubling(60),
    "nested": nested(150),
    "too nested": nested(250),
    "infeed": module(
        '%t = "stablehlo.create_token"() : () -> !stablehlo.token\n'
        f'%y, %u = "stablehlo.infeed"(%t) {{infeed_config = ""}} : (!stablehlo.token) -> '
        f"({_T}, !stablehlo.token)"
    ),
    "outfeed": module(
        '%t = "stablehlo.create_token"() : () -> !stablehlo.token\n'
        f'%u = "stablehlo.outfeed"(%x, %t) {{outfeed_config = ""}} : ({_T}, !stablehlo.token) -> '
        f"!stablehlo.token\n%y = stablehlo.sine %x : {_T}"
    ),
    "send": module(
        '%t = "stablehlo.create_token"() : () -> !stablehlo.token\n'
        f'%u = "stablehlo.send"(%x, %t) {{channel_handle = #stablehlo.channel_handle<handle = 5, '
        f"type = 2>, is_host_transfer = true}} : ({_T}, !stablehlo.token) -> !stablehlo.token\n"
        f"%y = stablehlo.sine %x : {_T}"
    ),
    "collective": module(
        f'%y = "stablehlo.all_reduce"(%x) ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n'
        "%c = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %c : tensor<f32>\n"
        "}) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : "
        f"({_T}) -> {_T}"
    ),
    "permute": module(
        '%y = "stablehlo.collective_permute"(%x) {source_target_pairs = '
        f"dense<[[0, 99]]> : tensor<1x2xi64>}} : ({_T}) -> {_T}"
    ),
    "partition": module(
        '%p = "stablehlo.partition_id"() : () -> tensor<ui32>\n'
        f"%f = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>\n"
        f"%y = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> {_T}"
    ),
    "partitions": module(
        f"%y = stablehlo.sine %x : {_T}",
        attributes="mhlo.num_partitions = 64 : i32, mhlo.num_replicas = 7 : i32",
    ),
    "set size": module(
        "%n = stablehlo.constant dense<1> : tensor<i32>\n"
        f"%s = stablehlo.set_dimension_size %x, %n, dim = 0 : ({_T}, tensor<i32>) -> "
        "tensor<?x2xf32, #stablehlo.bounds<2, ?>>\n"
        + _added("%s", "tensor<?x2xf32, #stablehlo.bounds<2, ?>>")
    ),
    "dynamic reshape": module(
        "%n = stablehlo.constant dense<[1, 4]> : tensor<2xi32>\n"
        f"%s = stablehlo.dynamic_reshape %x, %n : ({_T}, tensor<2xi32>) -> tensor<?x?xf32>\n"
        + _added("%s", "tensor<?x?xf32>")
    ),
    "dynamic broadcast": module(
        "%n = stablehlo.constant dense<[2, 2]> : tensor<2xi32>\n"
        f"%s = stablehlo.dynamic_broadcast_in_dim %x, %n, dims = [0, 1] : "
        f"({_T}, tensor<2xi32>) -> {_T}\n%y = stablehlo.add %s, %x : {_T}"
    ),
    "dynamic iota": module(
        "%n = stablehlo.constant dense<[4611686018427387904, 1]> : tensor<2xi64>\n"
        "%s = stablehlo.dynamic_iota %n, dim = 0 : (tensor<2xi64>) -> tensor<?x?xf32>\n"
        + _added("%s", "tensor<?x?xf32>")
    ),
    "large constant": module(
        "%c = stablehlo.constant dense<1.0> : tensor<1099511627776xf32>\n"
        "%r = stablehlo.slice %c [0:1] : (tensor<1099511627776xf32>) -> tensor<1xf32>\n"
        "%s = stablehlo.reshape %r : (tensor<1xf32>) -> tensor<f32>\n"
        f"%b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> {_T}\n"
        f"%y = stablehlo.add %b, %x : {_T}"
    ),
    "large iota": large_sort(40),
    "bits": module(
        "%s = stablehlo.constant dense<1> : tensor<2xui64>\n"
        "%t, %b = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : "
        "(tensor<2xui64>) -> (tensor<2xui64>, tensor<2x2xui32>)\n"
        f"%c = stablehlo.convert %b : (tensor<2x2xui32>) -> {_T}\n"
        f"%y = stablehlo.add %c, %x : {_T}"
    ),
    "bits of a short state": module(
        "%s = stablehlo.constant dense<1> : tensor<1xui64>\n"
        "%t, %b = stablehlo.rng_bit_generator %s, algorithm = PHILOX : "
        "(tensor<1xui64>) -> (tensor<1xui64>, tensor<2x2xui32>)\n"
        f"%c = stablehlo.convert %b : (tensor<2x2xui32>) -> {_T}\n"
        f"%y = stablehlo.add %c, %x : {_T}"
    ),
    "callback": call("xla_ffi_python_cpu_callback", ""),
    "sharding": call("Sharding", ', backend_config = "", mhlo.sharding = "{devices=[2,1]0,1}"'),
    "to shard": call("SPMDFullToShardShape", ', mhlo.sharding = "{manual}"', "tensor<1x2xf32>"),
    "buffer": call("AllocateBuffer", "", "tensor<2000x2000xf32>"),
    "qr": call("Qr", "", "(tensor<2x2xf32>, tensor<1xf32>)"),
    "eigh": call("Eigh", ', backend_config = "1,0,100,1e-6"', "(tensor<2x2xf32>, tensor<9xf32>)"),
    "eigh of words": call("Eigh", ', backend_config = "a,b"', "(tensor<2x2xf32>, tensor<2xf32>)"),
    "lu": call("lapack_sgetrf_ffi", _ALIAS, "(tensor<2x2xf32>, tensor<1xi32>)"),
    "top k": call("TopK", "", "(tensor<2x2xf32>, tensor<2x9xi32>)"),
    "mhlo top k": call(
        "mhlo.topk", ", mhlo.attributes = {k = 9 : i64}", "(tensor<2x2xf32>, tensor<2x9xi32>)"
    ),
    "approximate": call("ApproxTopK", ', mhlo.backend_config = {top_k = "x"}'),
    "assertion": call("shape_assertion", ', error_message = "{9}", has_side_effect = true', _T),
    "dynamic top k": call("stablehlo.dynamic_top_k", "", "(tensor<2x2xf32>, tensor<2x9xi32>)"),
    "dynamic window": call("stablehlo.dynamic_reduce_window", ", called_computations = []"),
    "calls main": call("shape_assertion", ", called_computations = [@main]"),
    "composite": module(
        '%r:2 = stablehlo.composite "chlo.top_k" %x {composite_attributes = {k = 900 : i64}, '
        f"decomposition = @d}} : ({_T}) -> ({_T}, tensor<2x2xi32>)\n"
        f"%y = stablehlo.sine %r#0 : {_T}",
        f"func.func private @d(%x: {_T}) -> ({_T}, tensor<2x2xi32>) {{\n"
        "%i = stablehlo.constant dense<0> : tensor<2x2xi32>\n"
        f"return %x, %i : {_T}, tensor<2x2xi32>\n}}",
    ),
    "unknown composite": module(
        f'%y = stablehlo.composite "xla.fuse" %x {{decomposition = @d}} : ({_T}) -> {_T}',
        f"func.func private @d(%x: {_T}) -> {_T} {{\nreturn %x : {_T}\n}}",
    ),
    "tuple": module(
        f'%t = "stablehlo.tuple"(%x, %x) : ({_T}, {_T}) -> tuple<{_T}, {_T}>\n'
        f'%y = "stablehlo.get_tuple_element"(%t) {{index = 1 : i32}} : '
        f"(tuple<{_T}, {_T}>) -> {_T}"
    ),
    "quantized": module(
        f"%q = stablehlo.uniform_quantize %x : ({_T}) -> "
        "tensor<2x2x!quant.uniform<i8:f32, 2.0:15>>\n"
        "%y = stablehlo.uniform_dequantize %q : (tensor<2x2x!quant.uniform<i8:f32, 2.0:15>>) -> "
        f"{_T}"
    ),
    "custom layout": call(
        "foo",
        ", operand_layouts = [dense<[0, 1]> : tensor<2xindex>], "
        "result_layouts = [dense<[0, 1]> : tensor<2xindex>]",
    ),
    "no main": module(f"%y = stablehlo.sine %x : {_T}").replace("@main", "@other"),
}
"""Name -> text. A later version of MLIR may refuse some, which does no harm."""


@cache
def kernel_programs() -> dict[str, str]:
    """Texts of JAX programs that call LAPACK. Changed numbers in them may mislead a kernel."""
    functions: dict[str, Any] = {
        "lu": lambda x: jnp.linalg.inv(x + jnp.eye(2)),
        "cholesky": lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(2)),
        "qr": lambda x: jnp.linalg.qr(x)[0],
        "svd": lambda x: jnp.linalg.svd(x)[0],
        "eigh": lambda x: jnp.linalg.eigh(x)[1],
        "eig": lambda x: jnp.real(jnp.linalg.eig(x)[1]),
        "schur": lambda x: jax.lax.linalg.schur(x)[0],
        "hessenberg": lambda x: jax.lax.linalg.hessenberg(x)[0],
        "tridiagonal": lambda x: jax.lax.linalg.tridiagonal(x)[0],
        "tridiagonal solve": lambda x: jax.lax.linalg.tridiagonal_solve(x[0], x[1], x[0], x),
        "top k": lambda x: jax.lax.top_k(x, 2)[0],
        "approximate": lambda x: jax.lax.approx_max_k(x, 2)[0],
    }
    argument = jax.ShapeDtypeStruct((2, 2), "float32")
    return {
        name: jax.export.export(jax.jit(function), platforms=["cpu"])(argument).mlir_module()
        for name, function in functions.items()
    }


def random_program(rng: random.Random) -> str:
    """One of `PROGRAMS` or `kernel_programs`, with changed numbers and words."""
    programs = kernel_programs() if rng.random() < 0.6 else PROGRAMS
    return with_other_words(rng, programs[rng.choice(sorted(programs))])


def with_other_words(rng: random.Random, text: str) -> str:
    """The text with changed numbers and words; sometimes without any change."""
    if len(text) > 50_000:
        return text
    words = text.split(" ")
    for _ in range(rng.choice([0, 1, 1, 2])):
        place = rng.randrange(len(words))
        if rng.random() < 0.7:  # types and numbers matter most
            kind = rng.choice(["tensor<", "dense<"])
            place = rng.choice([i for i, word in enumerate(words) if kind in word] or [place])
        word = words[place]
        numbers = [i for i, c in enumerate(word) if c.isdigit()]
        if numbers:
            i = rng.choice(numbers)
            number = rng.choice(["0", "1", "3", "4", "7", "17", "2000", "?"])
            words[place] = word[:i] + number + word[i + 1 :]
        else:
            words[place] = rng.choice([word, rng.choice(words), "f64", "i32", "{}"])
    return " ".join(words)
