"""A manager without artifacts, for isolated and fast tests of the endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.types import TensorType, parse_type
from graphc.serving.models.served import Overview
from graphc.web.failures import Failure

Arrays = dict[str, np.ndarray]


class Entry:
    def __init__(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self.inputs = {name: typed(text) for name, text in inputs.items()}
        self.outputs = {name: typed(text) for name, text in outputs.items()}


def typed(text: str) -> TensorType:
    """Parses a type; also `string[batch]`, which artifacts do not support yet."""
    if text.startswith("string"):
        return parse_type(text.replace("string", "f32"))._replace(dtype=np.dtype(object))
    return parse_type(text)


class Status(NamedTuple):
    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""


class FakeServable:
    """A model that computes its signatures by functions; a function may return a Future."""

    def __init__(self, version: int, signatures: Mapping[str, tuple[Entry, Callable]]) -> None:
        self.version = version
        self.signatures = {name: entry for name, (entry, _) in signatures.items()}
        self.default = next(iter(signatures))
        self._functions = {name: function for name, (_, function) in signatures.items()}
        self.in_use = 0

    def predict(self, signature: str, inputs: Arrays, deadline: float | None = None) -> Future:
        found: Any = Future()
        try:
            result = self._functions[signature](inputs)
        except Exception as error:
            found.set_exception(error)
            return found
        if isinstance(result, Future):
            return result
        found.set_result(result)
        return found


class FakeManager:
    def __init__(self, **models: FakeServable) -> None:
        self.models = models
        self.configs: Any = None
        self.retried: list[str] = []

    @contextmanager
    def use(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[FakeServable]:
        found = self.models.get(name)
        if found is None or version not in (None, found.version):
            raise Failure("NOT_FOUND", f"Servable not found for request: Latest({name})")
        if label not in (None, "stable"):
            raise Failure("INVALID_ARGUMENT", f"Unrecognized servable version label: {label}")
        found.in_use += 1
        try:
            yield found
        finally:
            found.in_use -= 1

    def status(self, name: str, version: int | None = None) -> list[Status]:
        if name not in self.models or version not in (None, self.models[name].version):
            raise Failure("NOT_FOUND", f"Could not find any versions of model {name}")
        return [Status(self.models[name].version, "AVAILABLE")]

    def names(self) -> list[str]:
        return list(self.models)

    def overview(self, name: str) -> Overview:
        return Overview({"stable": self.models[name].version}, {self.models[name].version: 100}, {})

    def retry(self, name: str) -> None:
        if name not in self.models:
            raise Failure("NOT_FOUND", f"Could not find any versions of model {name}")
        self.retried.append(name)

    def reload(self, configs: Any, wait: bool = True) -> None:
        self.configs = configs


def add(inputs: Arrays) -> Arrays:
    return {"sum": inputs["a"] + inputs["b"], "a": inputs["a"]}


NUMBERS = "bool i4 i8 i16 i32 i64 u4 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3fn f8e5m2 c64 c128"
DTYPES = [*NUMBERS.split(), "string"]


def manager() -> FakeManager:
    """Models: `double` (one input), `m` (many signatures), `echo` (a signature for each dtype)."""
    double = Entry({"x": "f32[batch, 2]"}, {"y": "f32[batch, 2]"})
    pair = Entry({"a": "i32[n]", "b": "i32[n]"}, {"sum": "i32[n]", "a": "i32[n]"})
    scored = Entry({"x": "f32[batch, 2]"}, {"scores": "f32[batch, 2]"})
    valued = Entry({"age": "f32[batch]"}, {"outputs": "f32[batch]"})
    total = Entry({"x": "f32[batch, 2]"}, {"total": "f32[]"})
    echo = {
        dtype: (Entry({"t": f"{dtype}[n]"}, {"t": f"{dtype}[n]"}), lambda inputs: inputs)
        for dtype in DTYPES
    }
    return FakeManager(
        double=FakeServable(3, {"serving_default": (double, lambda i: {"y": 2 * i["x"]})}),
        m=FakeServable(
            1,
            {
                "add": (pair, add),
                "scores": (scored, lambda i: {"scores": i["x"]}),
                "value": (valued, lambda i: {"outputs": i["age"] * 2}),
                "total": (total, lambda i: {"total": i["x"].sum()}),
                "fails": (valued, _fail),
            },
        ),
        echo=FakeServable(1, echo),
    )


def _fail(inputs: Arrays) -> Arrays:
    raise ZeroDivisionError("a bug")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


def ask(
    application: Any,
    method: str,
    path: str,
    body: bytes | Mapping[str, Any] = b"",
    headers: Mapping[str, str] | None = None,
    chunks: int = 1,
) -> Reply:
    """Sends one request to an ASGI application, with the body in this number of chunks."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": fields,
        "client": ("::1", 1),
    }
    size = -(-len(data) // chunks) or 1
    parts = [data[i : i + size] for i in range(0, len(data), size)] or [b""]
    events = [
        {"type": "http.request", "body": part, "more_body": number < len(parts) - 1}
        for number, part in enumerate(parts)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        if events:
            return events.pop(0)
        await asyncio.Event().wait()

    async def send(event: Any) -> None:
        sent.append(event)

    asyncio.run(application(scope, receive, send))
    start, *rest = sent
    named = {k.decode(): v.decode() for k, v in start["headers"]}
    return Reply(start["status"], named, b"".join(event["body"] for event in rest))
